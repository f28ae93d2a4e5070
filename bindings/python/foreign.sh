#!/usr/bin/env bash
# Runs plyvel's own tests, with plyvel and with runstone.plyvel in its place:
#   foreign.sh [arguments of pytest, such as -k iterator]
# pip fetches them from the package index, in plyvel's source distribution. Prints how many tests
# passed with each, and which fail with only one of them. Fails if a test fails only with Runstone
# and foreign.txt gives no reason. Takes a minute after the build.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv" || { echo "foreign.sh needs python3 with venv" >&2; exit 3; }
pip=("$work/venv/bin/pip" --quiet --disable-pip-version-check)
"${pip[@]}" install 'maturin>=1.9,<2' 'pytest>=8' plyvel==1.5.1
cat > "$work/tests.txt" << 'EOF'
plyvel==1.5.1 --hash=sha256:3caf6009e4fc24fbf8712d3f5ef3da7e56495c26a488df2161218fc34e46019c
EOF
"${pip[@]}" download --no-deps --no-binary plyvel --require-hashes -r "$work/tests.txt" \
    -d "$work" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
tar -xzf "$work/plyvel-1.5.1.tar.gz" -C "$work"
(cd "$here" && CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/../target}" \
    "$work/venv/bin/maturin" build --quiet --release --out "$work/wheels" > "$work/log" 2>&1) ||
    { cat "$work/log" >&2; exit 1; }
"${pip[@]}" install "$work"/wheels/*.whl

# The tests import plyvel. With this module they get Runstone's.
mkdir "$work/in-place"
cat > "$work/in-place/in_place.py" << 'EOF'
import sys

from runstone import plyvel

sys.modules["plyvel"] = plyvel
EOF

run() {
    local name=$1
    shift
    mkdir "$work/$name"
    cp -r "$work/plyvel-1.5.1/test" "$work/$name"
    # Failed tests are expected: exit code 1 means that some failed.
    (cd "$work/$name" && PYTHONPATH="$work/in-place" "$work/venv/bin/python" -m pytest -q -rA \
        -p no:cacheprovider "$@" test > "$work/$name.log" 2>&1) || [ $? = 1 ] ||
        { cat "$work/$name.log" >&2; exit 1; }
    sed -n 's/^\(FAILED\|ERROR\) [^:]*::\([A-Za-z0-9_]*\).*/\2/p' "$work/$name.log" | sort -u \
        > "$work/$name.failed"
    local passed skipped
    passed=$(grep -c '^PASSED ' "$work/$name.log" || true)
    skipped=$(sed -n 's/^SKIPPED \[\([0-9]*\)\].*/\1/p' "$work/$name.log" | awk '{ n += $1 }
        END { print n + 0 }')
    echo "$name: $passed passed, $(wc -l < "$work/$name.failed") failed, $skipped skipped"
}

run plyvel "$@"
run runstone -p in_place "$@"
only() {
    comm -13 "$work/$1.failed" "$work/$2.failed"
}
both=$(comm -12 "$work/plyvel.failed" "$work/runstone.failed")
echo "fail with both: $(echo -n "$both" | grep -c . || true)"
[ -z "$both" ] || sed 's/^/    /' <<< "$both"
echo "fail with plyvel only: $(only runstone plyvel | wc -l)"
only runstone plyvel | sed 's/^/    /'
echo "fail with Runstone only: $(only plyvel runstone | wc -l)"
only plyvel runstone | sed 's/^/    /'
new=$(comm -23 <(only plyvel runstone) <(grep -v '^#' "$here/foreign.txt" | sort))
[ -z "$new" ] || { echo "without a reason in foreign.txt:"$'\n'"$new" >&2; exit 1; }
