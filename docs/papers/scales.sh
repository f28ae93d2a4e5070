#!/usr/bin/env bash
# Measures all papers at other scales, keeps the verdicts in results/scale-*, and lists in scales.md
# the claims whose verdict changes: scales.sh 0.25 2. Without a scale it only writes the list. It
# takes an hour of processor time at scale 1, and in proportion at others. RUNSTONE names the
# command. PAPERS names the papers; by default it measures all.
set -euo pipefail
cd "$(dirname "$0")"
: "${RUNSTONE:=../../target/release/runstone}"

all="autumn hashkv kvssd partitioning ptierdb"
for scale in "$@"; do
    mkdir -p "results/scale-$scale"
    for name in ${PAPERS:-$all}; do
        words="results/scale-$scale/$name.json"
        "$RUNSTONE" paper "$name" --json --scale "$scale" \
            | jq '[.rows[] | {(.claim): .verdict}] | add' > "$words.new"
        mv "$words.new" "$words"
    done
done

scales="$(cd results && printf '%s\n' scale-* | sed 's/scale-//' | sort -g)"
{
    sed '/^| paper |/,$d' scales.md
    echo "| paper | claim |$(printf ' %s |' $scales) 1 |"
    echo "|---|---|$(printf -- '---|%.0s' $scales)---|"
    for name in $all; do
        for scale in $scales; do
            cat "results/scale-$scale/$name.json" 2> /dev/null || echo null
        done | cat - "results/$name.json" | jq -r --slurp --arg name "$name" '
            .[:-1] as $others | .[-1].rows[] | .claim as $claim | .verdict as $word
            | [$others[] | if . == null then "not measured" else .[$claim] // "not there" end]
            | select(any(. != $word and . != "not measured"))
            | "| \($name) | \($claim) | \(. + [$word] | join(" | ")) |"'
    done
} > scales.new
mv scales.new scales.md
