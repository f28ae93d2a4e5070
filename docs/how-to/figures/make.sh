#!/usr/bin/env bash
# Rewrites the figures that how-tos cite, from the command's --json. Usage: make.sh [PART..]. Parts:
# simulate (a minute), hashkv (minutes, on an idle machine) and ptierdb (from the results that
# ../../papers/make.sh wrote). RUNSTONE names the command. `testing/tidy` compares the documents, and
# the pages of the papers, with the files.
set -euo pipefail
cd "$(dirname "$0")"
: "${RUNSTONE:=../../../target/release/runstone}"

# simulate FLAG..: prints bytes written per byte of the user, and tables probed per get, by policy.
simulate() { "$RUNSTONE" simulate "$@" --json; }
costs='.load | .write_amplification, .tables_probed_per_get'

# store NAME: writes an object with rows from stdin to a file, one row per line.
store() {
    jq -r '(.rows | map(tojson) | join(",\n")) as $rows | del(.rows) | tojson
        | .[:-1] + ", \"rows\": [\n" + $rows + "\n]}"' > "$1.new" && mv "$1.new" "$1.json"
}

# write NAME COMMAND: writes rows from stdin to a file.
write() { jq -s --arg command "$2" '{command: $command, rows: .}' | store "$1"; }

part_simulate() {
    local some=fragmented-leveling,tiering,lazy-leveling,adaptive-tiering
    for t in 4 10; do
        simulate --size 1T --T $t --policy $some
        simulate --size 1T --T $t --policy guards --K $((t - 1))
    done | jq -s "[.[].policies[]] | group_by(.policy)[]
        | {claim: (.[0].policy | if . == \"guards\" then \"guards, K = T - 1\" else . end),
           here: [.[] | $costs]}" | write simulate-t 'runstone simulate --size 1T --T 4|10'
    for c in 1 0.8 0.6 0.4; do
        simulate --size 1T --T 5 --c $c --policy garnering | jq ".policies[]
            | {claim: \"$c\", here: [($costs), (.load.levels | length), .load.max_l0_run_count]}"
    done | write simulate-c 'runstone simulate --size 1T --T 5 --policy garnering --c 1|0.8|0.6|0.4'
    for ts in 1 4 16; do
        simulate --size 100G --Ts ${ts}M --policy adaptive-tiering |
            jq "{claim: \"$ts MiB\", here: [.policies[].load.write_amplification]}"
    done | write simulate-ts 'runstone simulate --size 100G --Ts 1M|4M|16M'
    simulate --size 100G --ttl 10G --policy tiering,fragmented-leveling | jq '.policies[]
        | {claim: .policy, here: [.load.write_amplification]}' |
        write simulate-ttl 'runstone simulate --size 100G --ttl 10G'
    for bound in 0 200 150 120; do
        for size in {32768..16384..192}; do
            simulate --size ${size}M --keys 16777216 --max-space $bound \
                --policy tiering,lazy-leveling,fragmented-leveling
        done | jq -s "{claim: (\"$bound\" | if . == \"0\" then \"none\" else . end),
            here: [[.[].policies] | transpose[] | .[0].load.write_amplification,
                (map(.load.space_amplification) | max * 1000 | round / 10)]}"
    done | write simulate-bound 'runstone simulate --size 16G..32G --keys 16777216 --max-space ..'
}

# paper NAME CLAIM..: prints the rows of these claims as the command does, then those of $derived.
paper() {
    local name=$1 results=../../papers/results/$1.json && shift
    if [[ -f $results ]]; then cp "$results" "$name.all"; else
        "$RUNSTONE" paper "$name" --json > "$name.all"
    fi
    jq --arg command "runstone paper $name" '
        def here($claim): first(.rows[] | select(.claim == $claim)).here
            | [scan("[0-9.]+") | tonumber];
        .rows = [(.rows + .beside)[] | del(.sides)] |
        {command: $command, paper, rows: (.rows | map(select(.claim | IN($ARGS.positional[]))))}
        | .rows += ['"${derived:-}"']' --args "$@" < "$name.all" | store "$name"
    rm "$name.all"
}

part_hashkv() {
    local sizes='256 B, 1, 4, 16, 64 KiB' some='HashKV over leveled: 256 B, 1, 4 KiB'
    paper hashkv "bytes written per byte updated: $sizes" "us per update: $sizes" \
        "us per get: $sizes" "us per scan of 100 entries: $sizes" \
        '2: value bytes of updates at these reserves (figure 6b)' \
        "5: cold scans of 1 MiB on files, $some (figure 9)"
}

part_ptierdb() {
    local probed='tables probed per get in YCSB C, PTierDB over leveled' of
    local all=('PTierDB over leveled (table I)' 'tiered over leveled (table I)'
        'lazy leveling over leveled (table I)' 'guards over leveled, for PebblesDB (table I)'
        'fragmented leveling over leveled, for SILK (table I)'
        'PTierDB over leveled, merges inside every level' 'guards over leveled, K = T - 1')
    local claims=("$probed")
    for of in "${all[@]}"; do
        claims+=("write amplification of $of" "size of $of")
    done
    derived='
        def wa($of): here("write amplification of \($of)");
        def size($of): here("size of \($of)")[0];
        def row($claim; $of): {claim: $claim, here: [wa($of)[0], size($of)]};
        here("'"$probed"'") as $probed
        | {claim: "leveling", here: [wa("PTierDB over leveled (table I)")[1], $probed[1], 1]},
        row("fragmented-leveling"; "fragmented leveling over leveled, for SILK (table I)"),
        row("lazy-leveling"; "lazy leveling over leveled (table I)"),
        (row("tiering"; "tiered over leveled (table I)") | .here |= [.[0], $probed[4], .[1]]),
        row("guards, K = T - 1"; "guards over leveled, K = T - 1"),
        row("guards, K = 2 (PebblesDB'"'"'s)"; "guards over leveled, for PebblesDB (table I)"),
        (row("adaptive-tiering"; "PTierDB over leveled, merges inside every level")
            | .here |= [.[0], $probed[0], .[1]]),
        (row("adaptive-tiering, intra_level = \"last\""; "PTierDB over leveled (table I)")
            | .here |= [.[0], $probed[3], .[1]])' \
        paper ptierdb "${claims[@]}"
}

for part in "${@:-simulate}"; do "part_$part"; done
