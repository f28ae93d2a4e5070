#!/usr/bin/env bash
# Runs tests of other projects with Runstone in place of LevelDB: LevelDB's own test of its C
# interface (from the crate leveldb-sys, which contains LevelDB's source), and the tests of levigo,
# LevelDB for Go, and of cometbft-db, which is built on levigo. They come from their registries, and
# only the name of an include is changed in them. Prints the passed tests, also with LevelDB's
# library if the system has it. Needs the same as test.sh, and Go for the last two. Usage:
# bindings/c/foreign.sh
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
./install.sh "$work/usr" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }

mkdir -p "$work/crate/src" "$work/go" "$work/comet"
cat > "$work/crate/Cargo.toml" << 'EOF'
[package]
name = "fetch"
edition = "2021"
[dependencies]
leveldb-sys = "=2.0.9"
[workspace]
EOF
: > "$work/crate/src/lib.rs"
source=$(cd "$work/crate" && cargo metadata --format-version 1 2> /dev/null |
    grep -o '"manifest_path":"[^"]*leveldb-sys-[^"]*"' | cut -d '"' -f 4)
sed 's|#include "leveldb/c.h"|#include <leveldb/c.h>|' \
    "$(dirname "$source")"/deps/leveldb-*/db/c_test.c > "$work/c_test.c"
cc -Wno-unused "$work/c_test.c" -I"$work/usr/include" -L"$work/usr/lib" -lleveldb -o "$work/c_test"

if command -v go > /dev/null; then
    cat > "$work/go/go.mod" << 'EOF'
module fetch
go 1.21
require github.com/jmhodges/levigo v1.0.0
EOF
    cat > "$work/go/go.sum" << 'EOF'
github.com/jmhodges/levigo v1.0.0 h1:q5EC36kV79HWeTBWsod3mG11EgStG3qArTKcvlksN1U=
github.com/jmhodges/levigo v1.0.0/go.mod h1:Q6Qx+uH3RAqyK4rFQroq9RL7mdkABMcfhEI+nNuzMJQ=
EOF
    cat > "$work/comet/go.mod" << 'EOF'
module fetch
go 1.23
require github.com/cometbft/cometbft-db v1.0.4
EOF
    cat > "$work/comet/go.sum" << 'EOF'
github.com/cometbft/cometbft-db v1.0.4 h1:cezb8yx/ZWcF124wqUtAFjAuDksS1y1yXedvtprUFxs=
github.com/cometbft/cometbft-db v1.0.4/go.mod h1:M+BtHAGU2XLrpUxo3Nn1nOCcnVCiLM9yx5OuT0u5SCA=
EOF
    printf 'package fetch\n\nimport _ "github.com/cometbft/cometbft-db"\n' > "$work/comet/fetch.go"
    # Only the checksums of cometbft-db itself are pinned, not those of its own dependencies.
    (cd "$work/comet" && go mod tidy) > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
fi

# LABEL LIBRARY_DIRECTORY: runs all tests with one library, which the loader finds in that
# directory.
run() {
    export TEST_TMPDIR="$work/$1"
    mkdir "$TEST_TMPDIR"
    if LD_LIBRARY_PATH="$2" "$work/c_test" > "$work/log" 2>&1 && grep -qx PASS "$work/log"; then
        echo "$1: LevelDB's c_test passed"
    else
        tail -3 "$work/log"
        echo "$1: LevelDB's c_test failed"
        bad=1
    fi
    [ -f "$work/go/go.mod" ] || return 0
    of_go "$1: levigo" "$2" "$work/go" github.com/jmhodges/levigo
    of_go "$1: cometbft-db" "$2" "$work/comet" -tags cleveldb github.com/cometbft/cometbft-db
}

# LABEL LIBRARY_DIRECTORY MODULE ARGUMENTS: runs the tests of a Go package with that library.
of_go() {
    (cd "$3" && LD_LIBRARY_PATH="$2" CGO_ENABLED=1 CGO_CFLAGS="-I$work/usr/include" \
        CGO_LDFLAGS="-L$2 -lleveldb" go test -count=1 -v "${@:4}") > "$work/log" 2>&1 || bad=1
    passed=$(grep -cE '^ *--- PASS' "$work/log" || true)
    failed=$(grep -cE '^ *--- FAIL' "$work/log" || true)
    [ "$passed" -gt 0 ] || { cat "$work/log"; bad=1; }
    echo "$1 $passed passed, $failed failed"
}

bad=0
theirs=$(ldconfig -p | sed -n 's|.*libleveldb\.so\.1d.* => \(.*\)|\1|p' | head -1)
if [ -n "$theirs" ]; then
    mkdir "$work/theirs"
    ln -s "$theirs" "$work/theirs/libleveldb.so.1d"
    ln -s "$theirs" "$work/theirs/libleveldb.so.1"
    ln -s "$theirs" "$work/theirs/libleveldb.so"
    run LevelDB "$work/theirs"
    bad=0
fi
run Runstone "$work/usr/lib"
exit "$bad"
