#!/usr/bin/env bash
# Runs three brokers and two instances on loopback, and kills some of them while events arrive:
#   cluster.sh [--runs N] [--events N] [--keys N]
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

runs=1 events=300000 keys=1000
while [ $# -gt 0 ]; do
    case $1 in
        --runs) runs=$2 ;;
        --events) events=$2 ;;
        --keys) keys=$2 ;;
        *) echo "usage: cluster.sh [--runs N] [--events N] [--keys N]" >&2; exit 2 ;;
    esac
    shift 2
done
JAVA_OPTIONS="-Xmx256m -XX:+UseSerialGC"
# The logs of a failed run stay in this directory.
directory=$(mktemp -d)
run_main org.runstone.kafka.streams.cluster.ClusterRun "$runs" "$events" "$keys" "$directory"
rmdir "$directory"
