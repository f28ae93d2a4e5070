# Sourced by the scripts beside it. Checks the tools, builds the native side, and sets its path.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

missing() {
    echo "$1 is missing: $2" >&2
    exit 3
}
command -v cargo > /dev/null || missing "cargo" "install Rust 1.88"
command -v javac > /dev/null \
    || missing "JDK 17" "on Debian: apt-get install openjdk-17-jdk-headless"
java_major=$(javac -version 2>&1 | sed 's/[^0-9]*\([0-9]*\).*/\1/')
[ "$java_major" -ge 17 ] || missing "JDK 17" "this is JDK $java_major"
command -v mvn > /dev/null || missing "Maven" "on Debian: apt-get install maven"

(cd "$here/.." && cargo build --quiet --release -p runstone-java)
native=${CARGO_TARGET_DIR:-$here/../target}/release
maven() {
    mvn --quiet --batch-mode --file "$here/pom.xml" "-Drunstone.native.dir=$native" "$@"
}

# Compiles everything, and runs a main class of the tests with its classpath.
run_main() {
    maven test-compile dependency:build-classpath \
        -Dmdep.outputFile=target/classpath -Dmdep.includeScope=test
    local streams=$here/runstone-kafka-streams/target
    java ${JAVA_OPTIONS:-} "-Drunstone.library=$native/librunstone_java.so" \
        -cp "$streams/test-classes:$streams/classes:$(cat "$streams/classpath")" "$@"
}
