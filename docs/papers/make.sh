#!/usr/bin/env bash
# Measures papers and rewrites the tables of their pages, their figures and results/NAME.json, which
# `testing/tidy` compares with the pages: make.sh NAME.., minutes each. RUNSTONE names the command.
set -euo pipefail
cd "$(dirname "$0")"
: "${RUNSTONE:=../../target/release/runstone}"

for name in "$@"; do
    "$RUNSTONE" paper "$name" --json --svg figures --force --page "$name.md" > "results/$name.all"
    # One row per line. The settings of each side are listed once, and the comparisons refer to them
    # by index.
    jq -r '([.rows[], .beside[] | .sides] | unique) as $sides
        | def rows(all): all | map(.sides |= (. as $one | $sides | index($one)) | tojson) | join(",\n");
        "{\"paper\": \(.paper | tojson), \"scale\": \(.scale),\n\"headlines\": [\n"
        + (.headlines | map(tojson) | join(",\n")) + "\n],\n\"rows\": [\n" + rows(.rows)
        + "\n],\n\"beside\": [\n" + rows(.beside) + "\n],\n\"sides\": [\n"
        + ($sides | map(tojson) | join(",\n")) + "\n]}"' "results/$name.all" > "results/$name.json"
    rm "results/$name.all"
done
