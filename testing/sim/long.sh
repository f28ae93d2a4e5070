#!/usr/bin/env bash
# Runs the random tests for this many minutes, each time with new seeds: tables of unlike ranges,
# two loads at a time, forks that hold objects, callbacks that call back, damaged ends after each
# kind of edit, and a few others. Ends at the first failure and prints the seed.
#
#   testing/sim/long.sh MINUTES [FIRST_SEED]
set -euo pipefail
cd "$(dirname "$0")/../.."
minutes="${1:?how many minutes}"
first="${2:-1000}"
# Suite, test, seeds of one turn.
tests=(
    "model unlike_ranges::every_policy_over_unlike_ranges 3"
    "bulk two_loads::reads_see_a_moment_beside_any_two_loads 100"
    "bulk beside::readers_beside_any_two_loads_see_what_lies_behind_them 6"
    "crash owner::a_fork_of_the_process_changes_nothing 3"
    "concurrency callbacks::callbacks_beside_writers_wait_for_nobody 8"
    "corruption random_ends::the_log_tells_of_any_lost_edit 100"
    "corruption random_ends::an_edit_tells_of_any_lost_end_of_the_log 100"
    "crash in_a_row::a_store_outlives_crashes_in_a_row 20"
    "model dead_ranges::walks_see_what_a_map_says 10"
    "model cursors::cursors_show_what_a_map_holds 4"
)
# Runs copies of the tests, so that a later build does not affect a run.
bin="$(mktemp -d)"
trap 'rm -rf "$bin"' EXIT
built="$(cargo test --release -p runstone-sim --no-run --message-format=json)"
for suite in model bulk crash concurrency corruption; do
    line="$(grep '"kind":\["test"\]' <<< "$built" | grep "\"name\":\"$suite\"" | tail -1)"
    cp "$(sed 's/.*"executable":"\([^"]*\)".*/\1/' <<< "$line")" "$bin/$suite"
done
declare -A seeds
tell() { for test in "${!seeds[@]}"; do echo "$test: ${seeds[$test]} seeds"; done; }
seed=$first
ends=$((SECONDS + 60 * minutes))
while ((SECONDS < ends)); do
    for line in "${tests[@]}"; do
        read -r suite name count <<< "$line"
        if ! RUNSTONE_SEED=$seed RUNSTONE_SEEDS=$count \
            "$bin/$suite" --exact "$name" > "$bin/log" 2>&1 || ! grep -q ' 1 passed' "$bin/log"
        then
            cat "$bin/log"
            tell
            echo "failed: $suite $name, seeds $seed to $((seed + count - 1))"
            exit 1
        fi
        seeds[$name]=$((${seeds[$name]:-0} + count))
    done
    seed=$((seed + 100))
done
tell
echo "clean for $minutes minutes, seeds from $first on, the last turn from $((seed - 100))"
