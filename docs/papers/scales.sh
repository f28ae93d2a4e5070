#!/usr/bin/env bash
# Measures all papers at other scales, keeps their words in results/scale-*, and lists in scales.md
# the claims whose word changes: scales.sh 0.25 2. Without a scale it only writes the list. Takes an
# hour of processor time at scale 1, and in proportion at others. RUNSTONE names the command.
set -euo pipefail
cd "$(dirname "$0")"
: "${RUNSTONE:=../../target/release/runstone}"

papers="autumn hashkv kvssd partitioning ptierdb"
for scale in "$@"; do
    mkdir -p "results/scale-$scale"
    for name in $papers; do
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
    for name in $papers; do
        jq -r --slurp --arg name "$name" '.[:-1] as $others | .[-1].rows[] | .claim as $claim
            | [$others[][$claim], .verdict] | select(unique | length > 1)
            | "| \($name) | \($claim) | \(map(. // "not there") | join(" | ")) |"' \
            $(printf "results/scale-%s/$name.json " $scales) "results/$name.json"
    done
} > scales.new
mv scales.new scales.md
