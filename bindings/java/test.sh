#!/usr/bin/env bash
# Builds the native library and tests everything for the JVM: the library, upstream's suites over
# our stores, restores and standbys with Kafka's own tasks, and whole topologies. Needs a JDK from
# 17 on, Maven and cargo.
#   test.sh [options of Maven, such as -Drunstone.leak.rounds=1000]
# With -Drunstone.matrix.every=1, all settings of topologies are compared with RocksDB, not only
# some. See also cluster.sh (brokers that are killed), compare.sh (comparison with RocksDB), and
# foreign.sh (Kafka's own tests over both).
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# Kafka comes from Maven's repository. Without it, nothing can be tested.
maven dependency:get -Dartifact=org.apache.kafka:kafka-streams:4.3.1 -Dtransitive=false \
    || missing "Maven's repository" "see what mvn prints"

maven verify "$@"
total() {
    cat "$here"/*/target/surefire-reports/TEST-*.xml | grep -o "<testsuite [^>]*" \
        | grep -o " $1=\"[0-9]*\"" | tr -dc '0-9\n' | awk '{ sum += $1 } END { print sum + 0 }'
}
echo "$(($(total tests) - $(total errors) - $(total failures))) passed," \
    "$(($(total errors) + $(total failures))) failed"
