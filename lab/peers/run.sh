#!/usr/bin/env bash
# Runs the comparison, with RocksDB's official build for the JVM in place of a compilation:
#   run.sh [ARGUMENTS OF peers]     builds what is missing and runs it; --help lists the arguments
# run.sh cargo [ARGUMENTS] cargo with the same library: run.sh cargo test --release Maven fetches
# the library once, from its configured repository. install.sh installs what is needed before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

version=11.8.1
case "$(uname -m)" in
    x86_64)
        member=librocksdbjni-linux64.so
        sum=265c656af5c6502cb8d71db1a74858509f706cc47f1a5b6f603c736d11ce677d ;;
    aarch64)
        member=librocksdbjni-linux-aarch64.so
        sum=7b2d0808c6afae32db39f11cb61cbefffcf460895b1c64ee6193ba02d6bdd23a ;;
    *) echo "run.sh: no sum of a build for $(uname -m) is known; build RocksDB with cargo" >&2
       exit 2 ;;
esac

target="$(realpath -m "${CARGO_TARGET_DIR:-target}")"
folder="$target/rocksdb-$version"
library="$folder/librocksdb.so"

is_right() { echo "$sum  $1" | sha256sum --check --status; }

if ! { [ -f "$library" ] && is_right "$library"; }; then
    mkdir -p "$folder"
    mvn -q dependency:copy "-Dartifact=org.rocksdb:rocksdbjni:$version" \
        "-DoutputDirectory=$folder"
    unzip -q -p "$folder/rocksdbjni-$version.jar" "$member" > "$library.part"
    rm "$folder/rocksdbjni-$version.jar"
    if ! is_right "$library.part"; then
        echo "run.sh: $member of rocksdbjni $version has another sum than $sum" >&2
        rm "$library.part"
        exit 1
    fi
    mv "$library.part" "$library"
fi

# The crate links the library from there, and the program finds it there again.
export ROCKSDB_LIB_DIR="$folder"
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ "${1:-}" = cargo ]; then
    shift
    exec cargo "$@"
fi
cargo build --release --quiet
exec "$target/release/peers" "$@"
