#!/usr/bin/env bash
# How many instructions a put, a get that hits, one that misses, a scan of 100 entries and a
# compaction (for each entry) take, by callgrind:
#   instructions.sh                     of this tree
#   instructions.sh REVISION [REVISION] of a revision and of another one, or of this tree
#   instructions.sh PROGRAM PROGRAM     of two programs that an earlier run has built
# The program is examples/instructions.rs of this tree, whatever engine it is built with. The numbers
# of two runs differ by less than 0.1%. Needs valgrind.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
target="$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/instructions"
steps="put hit miss scan compaction"
mkdir -p "$target"

# Builds the program in a tree, and prints its path.
built() { # TREE NAME
    cargo build -q --profile profiling --manifest-path "$1/Cargo.toml" --target-dir "$target/build" \
        -p runstone-limits --example instructions >&2
    cp "$target/build/profiling/examples/instructions" "$target/$2"
    echo "$target/$2"
}

# The path of the program of a revision, or of a program itself.
program_of() { # REVISION|PROGRAM
    if [ -f "$1" ]; then
        realpath "$1"
        return
    fi
    local revision tree
    revision="$(git -C "$root" rev-parse --verify --short=12 "$1^{commit}")"
    if [ ! -x "$target/$revision" ]; then
        tree="$target/tree-$revision"
        git -C "$root" worktree add -q --detach --force "$tree" "$revision"
        cp "$root/lab/limits/examples/instructions.rs" "$tree/lab/limits/examples/"
        built "$tree" "$revision" > /dev/null || { git -C "$root" worktree remove -f "$tree"; exit 1; }
        git -C "$root" worktree remove -f "$tree"
    fi
    echo "$target/$revision"
}

# Instructions of one step, as callgrind counted them, over how often it was done.
counted() { # PROGRAM STEP
    local log="$target/log.$$" times
    times="$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file="$log" \
        --toggle-collect='*measured*' "$1" "$2")"
    awk -v times="$times" '/Collected/ { printf "%.1f", $NF / times }' "$log"
    rm -f "$log"
}

programs=()
for one in "$@"; do
    programs+=("$(program_of "$one")")
done
if [ "${#programs[@]}" -lt 2 ]; then
    programs+=("$(built "$root" this-tree)")
fi
printf '%-12s' step
for program in "${programs[@]}"; do
    printf '%16s' "$(basename "$program")"
done
printf '%10s\n' change
for step in $steps; do
    printf '%-12s' "$step"
    first=""
    for program in "${programs[@]}"; do
        number="$(counted "$program" "$step")"
        first="${first:-$number}"
        printf '%16s' "$number"
    done
    awk -v new="$number" -v old="$first" 'BEGIN { printf "%+9.2f%%\n", (new / old - 1) * 100 }'
done
