#!/usr/bin/env bash
# Kafka's own tests of the DSL, with RocksDB's stores and with Runstone's in their place:
#   foreign.sh [files of tests, such as 'org/apache/kafka/streams/state/**/*Test.java']
# Maven fetches them from its repository, as a jar of Kafka's. Prints how many tests passed with
# each, and which fail with only one of them. It fails if one fails with Runstone only and
# foreign.txt has no reason for it. Takes some minutes.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

tests=${1:-org/apache/kafka/streams/kstream/**/*Test.java}
reports=$here/runstone-kafka-streams/target/foreign
rm -rf "$reports"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Class and method of each test that failed, without the parameters.
failed() {
    cat "$reports/$1"/TEST-*.xml | awk '
        /<testcase / {
            match($0, / name="[^"(]*/); name = substr($0, RSTART + 7, RLENGTH - 7)
            match($0, / classname="[^"]*/); name = substr($0, RSTART + 12, RLENGTH - 12) " " name
        }
        /<(failure|error)[ >]/ { print name }' | sort
}

for stores in rocksdb runstone; do
    # A failed test does not make Maven fail. What Maven prints about tests is in the reports.
    maven test -Pforeign "-Dforeign.stores=$stores" "-Dforeign.tests=$tests" > "$log" \
        2>&1 || { cat "$log" >&2; exit 1; }
    all=$(cat "$reports/$stores"/TEST-*.xml | grep -c '<testcase ')
    skipped=$(cat "$reports/$stores"/TEST-*.xml | grep -c '<skipped' || true)
    bad=$(failed "$stores" | wc -l)
    echo "$stores: $((all - skipped - bad)) passed, $bad failed, $skipped skipped"
done

only() {
    comm -13 <(failed "$1" | uniq) <(failed "$2" | uniq)
}
echo "fail with RocksDB only: $(only runstone rocksdb | wc -l)"
only runstone rocksdb | sed 's/^/    /'
echo "fail with Runstone only: $(only rocksdb runstone | wc -l)"
only rocksdb runstone | sed 's/^/    /'
new=$(comm -23 <(only rocksdb runstone) <(grep -v '^#' "$here/foreign.txt" | sort))
[ -z "$new" ] || { echo "without a reason in foreign.txt:"$'\n'"$new" >&2; exit 1; }
