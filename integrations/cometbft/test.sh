#!/bin/sh
# Tests CometBFT, unchanged, on Runstone's libleveldb.so: runs the tests of its database package and
# of levigo, then kills four validators under load. Needs Rust, cc, and Go with its module proxy;
# the first run compiles CometBFT twice, which takes some minutes. Usage:
#   integrations/cometbft/test.sh [ROUNDS OF KILLS [VERSION..]]      2 rounds of 0.38 and of 1.0
#   RUNSTONE_LEVELDB_CACHE=1G integrations/cometbft/test.sh 10 1.0   longer, with larger caches
set -eu
cd "$(dirname "$0")"
rounds="${1:-2}"
test "$#" = 0 || shift
test "$#" != 0 || set -- 0.38 1.0
for tool in cargo cc go; do
    command -v "$tool" > /dev/null || { echo "integrations/cometbft needs $tool"; exit 3; }
done
work="$(mktemp -d)"
# The logs of validators stay after a failure.
trap 'test "$?" != 0 && echo "left: $work" || rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
../../bindings/c/install.sh "$work/usr" > /dev/null
export CGO_ENABLED=1 CGO_CFLAGS="-I$work/usr/include" CGO_LDFLAGS="-L$work/usr/lib"
export LD_LIBRARY_PATH="$work/usr/lib" GOFLAGS="-mod=readonly -buildvcs=false"
export RUNSTONE_LEVELDB_CACHE="${RUNSTONE_LEVELDB_CACHE:-256M}"
test -z "$(gofmt -l .)"
(cd network && go vet . && go build -o "$work/network" .)

# The libraries' own tests. The tests of other databases run as well, because they share the
# helpers. -count=1 is needed because Go does not notice that a library has changed.
for version in "$@"; do
    (cd "$version" && TMPDIR="$work" go test -count=1 -tags cleveldb \
        github.com/jmhodges/levigo github.com/cometbft/cometbft-db)
done

# network HOME FLAG..: runs validators of the version.
network() {
    home="$work/$1"
    shift
    "$work/network" -program "$work/cometbft" -home "$home" "$@"
}
for version in "$@"; do
    (cd "$version" && go build -tags cleveldb -o "$work/cometbft" \
        github.com/cometbft/cometbft/cmd/cometbft)
    ldd "$work/cometbft" | grep -q "$work/usr/lib/libleveldb.so.1"
    echo "CometBFT $("$work/cometbft" version)"
    network "$version" -rounds "$rounds"
    # A run in which a validator has lost its block store must fail.
    found="$(network "$version-mistake" -rounds 1 -mistake forget 2>&1)" && found="nothing"
    case "$found" in
        *"failed: node0 ended"*) ;;
        *) echo "a lost block store was not found: $found"; exit 1 ;;
    esac
done
