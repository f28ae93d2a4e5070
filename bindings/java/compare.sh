#!/usr/bin/env bash
# Compares Runstone's state store with RocksDB's, in one run, without brokers:
#   compare.sh [--rounds N] [--events N] [--keys N] [--changelog-bytes N]
# The default sizes are small, and only show that it works. For figures to quote, use an idle
# machine and
#   compare.sh --rounds 3 --events 10000000 --keys 1000000 --changelog-bytes 1000000000
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

rounds=1 events=500000 keys=50000 bytes=50000000
while [ $# -gt 0 ]; do
    case $1 in
        --rounds) rounds=$2 ;;
        --events) events=$2 ;;
        --keys) keys=$2 ;;
        --changelog-bytes) bytes=$2 ;;
        *) sed -n 3,5p "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    esac
    shift 2
done
JAVA_OPTIONS="-Xmx128m"
run_main org.runstone.kafka.streams.compare.Comparison "$rounds" "$events" "$keys" "$bytes"
