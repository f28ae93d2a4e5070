#!/usr/bin/env bash
# Imports databases that LevelDB and RocksDB themselves wrote, and compares every entry with what
# they show: some fifty of them, two with more than 100 MB. Makes a virtual environment of Python
# with plyvel and rocksdict, which bring both libraries. Takes minutes and 2 GB in a temporary
# directory.
#
#     testing/foreign/test.sh [NAME..]      all cases, or those whose names contain one of these
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --release --quiet -p runstone-cli
bin="$(realpath "${CARGO_TARGET_DIR:-target}/release/runstone")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet plyvel rocksdict
"$work/venv/bin/python" testing/foreign/compare.py "$bin" "$work" "$@"
