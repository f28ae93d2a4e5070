#!/bin/sh
# Runs the tests of log and machine, among them openraft's own suite and power losses of three nodes
# in virtual time. Then it kills three processes under load, and judges the answers that their
# clients got. Needs only Rust. Usage: integrations/openraft/test.sh [SECONDS OF KILLS]
#   RUNSTONE_SEED=1 RUNSTONE_SEEDS=300 integrations/openraft/test.sh    more runs with power losses
set -eu
cd "$(dirname "$0")"
export CARGO_INCREMENTAL=0
cargo fmt --check
cargo clippy --quiet --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet
cargo test --quiet
cargo run --quiet --example kv -- check --seconds "${1:-20}"
# Gets from any node do not behave as a register, and the judge must report it.
found="$(cargo run --quiet --example kv -- check --seconds 5 --stale 1 2>&1)" && found="nothing"
case "$found" in
    *"is not a register"*) ;;
    *) echo "stale answers were not found: $found"; exit 1 ;;
esac
