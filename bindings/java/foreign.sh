#!/usr/bin/env bash
# Runs Kafka's own tests of the DSL, first with RocksDB's stores and then with Runstone's instead:
#   foreign.sh [files of tests, such as 'org/apache/kafka/streams/state/**/*Test.java']
# Maven fetches the tests from its repository, as a jar of Kafka. Prints how many tests passed with
# each kind of store, and which tests fail with only one of them. Fails if a test fails only with
# Runstone and foreign.txt gives no reason. Takes some minutes.
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

tests=${1:-org/apache/kafka/streams/kstream/**/*Test.java}
reports=$here/runstone-kafka-streams/target/foreign
rm -rf "$reports"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints class and method of each failed test, without its parameters.
failed() {
    cat "$reports/$1"/TEST-*.xml | awk '
        /<testcase / {
            match($0, / name="[^"(]*/); name = substr($0, RSTART + 7, RLENGTH - 7)
            match($0, / classname="[^"]*/); name = substr($0, RSTART + 12, RLENGTH - 12) " " name
        }
        /<(failure|error)[ >]/ { print name }' | sort
}

for stores in rocksdb runstone; do
    # A failed test does not make Maven fail. The reports contain the results.
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
