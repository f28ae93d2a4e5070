#!/bin/sh
# Builds and tests both C libraries. Needs Rust, a C and a C++ compiler. Uses Go, valgrind and the
# address sanitizer if they are installed. Usage: bindings/c/test.sh
set -eu
cd "$(dirname "$0")"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for tool in cc c++ pkg-config nm; do
    command -v "$tool" > /dev/null || { echo "bindings/c needs $tool"; exit 3; }
done
cargo test --release --quiet --manifest-path ../Cargo.toml \
    -p runstone-boundary -p runstone-c -p runstone-leveldb
./install.sh "$work/usr" > /dev/null
export PKG_CONFIG_PATH="$work/usr/lib/pkgconfig" LD_LIBRARY_PATH="$work/usr/lib"
strict="-Wall -Wextra -Werror -O1 -g -pthread"

# Each library exports its own names and no others: the 66 functions of LevelDB, and the two that
# return its version.
names() { nm -D --defined-only "$work/usr/lib/$1" | awk '$2 == "T" { print $3 }' | sort; }
test -z "$(names librunstone.so | grep -v '^runstone_')"
test -z "$(names libleveldb.so | grep -v '^leveldb_')"
test "$(names libleveldb.so | wc -l)" = "$(sort -u leveldb/names.txt | wc -l)"
test -z "$(names libleveldb.so | comm -3 - leveldb/names.txt)"

# SOURCE LIBRARY [FLAG...]: compiles a program as strictly as possible.
compile() {
    source="$1" library="$2" name="$work/$(basename "${1%.*}")"
    shift 2
    # shellcheck disable=SC2046
    case "$source" in
        *.cc) c++ -std=c++17 $strict "$@" -Itests "$source" -o "$name" $(pkg-config --cflags --libs "$library") ;;
        *) cc -std=c11 $strict "$@" -Itests "$source" -o "$name" $(pkg-config --cflags --libs "$library") ;;
    esac
}
compile examples/example.c runstone -pedantic
programs() {
    compile tests/everything.c runstone -D_GNU_SOURCE "$@"
    compile tests/misuse.c runstone -D_GNU_SOURCE "$@"
    compile tests/pairs.c runstone -D_GNU_SOURCE "$@"
    compile tests/forks.c runstone -D_GNU_SOURCE "$@"
    compile tests/events.c runstone -D_GNU_SOURCE "$@"
    compile tests/backups.c runstone -D_GNU_SOURCE "$@"
    compile tests/changes.c runstone -D_GNU_SOURCE "$@"
    compile tests/callbacks.cc runstone "$@"
    compile leveldb/tests/program.c leveldb -D_GNU_SOURCE "$@"
    compile leveldb/tests/choices.c leveldb -D_GNU_SOURCE "$@"
    compile leveldb/tests/orders.c leveldb "$@"
}
programs
printf '#include <runstone.h>\n#include <leveldb/c.h>\nint main() { return 0; }\n' > "$work/both.cc"
compile "$work/both.cc" runstone

# Compiles the code of the how-to.
{
    printf '#include <stdio.h>\n#include <runstone.h>\nint main(void) {\n'
    awk '/^```c$/ { code = 1; next } /^```$/ { code = 0 } code' ../../docs/how-to/use-from-c.md
    printf 'return runstone_keyspace_close(fruits) + runstone_close(store);\n}\n'
} > "$work/howto.c"
compile "$work/howto.c" runstone
(cd "$work" && test "$(./howto)" = red)

"$work/example" "$work/store" > "$work/example.txt"
cmp "$work/example.txt" examples/example.txt
# Both static libraries go into one program, and are small.
for library in runstone leveldb; do
    test "$(wc -c < "$work/usr/lib/lib$library.a")" -lt 15000000
done
mkdir "$work/static"
cp "$work/usr/lib/librunstone.a" "$work/usr/lib/libleveldb.a" "$work/static"
# SOURCE: links a program of tests/ with both static libraries, and runs it.
statically() {
    name="$work/static/$(basename "${1%.*}")"
    case "$1" in *.cc) compiler="c++ -std=c++17" ;; *) compiler="cc -std=c11 -D_GNU_SOURCE" ;; esac
    $compiler $strict -Itests -I"$work/usr/include" "$1" -o "$name" "$work/static/librunstone.a" \
        "$work/static/libleveldb.a" -lpthread -ldl -lm
    env -u LD_LIBRARY_PATH "$name" "$name.store"
}
for source in tests/everything.c tests/misuse.c tests/callbacks.cc leveldb/tests/program.c; do
    statically "$source"
done
# STORE PROGRAM...: runs programs on stores of their own.
run() {
    store="$1"
    shift
    for program in "$@"; do
        "$work/$program" "$work/$program.$store"
    done
}
run store everything misuse pairs forks events backups changes callbacks program choices orders

# Checks for leaks and wrong accesses. Only valgrind finds reads of uninitialised memory. Only the
# sanitizer finds accesses beyond the end of a variable. Only the sanitizer runs misuse: that
# program forks, and in the child, valgrind reports memory of the parent's threads as leaked.
if command -v valgrind > /dev/null; then
    for program in everything events backups changes callbacks program orders; do
        valgrind --quiet --leak-check=full --show-leak-kinds=definite \
            --errors-for-leak-kinds=definite --error-exitcode=9 \
            "$work/$program" "$work/$program.valgrind"
    done
else
    echo "valgrind is not here: reads of what was never written are not looked for"
fi
echo 'int main(void) { return 0; }' > "$work/empty.c"
if cc -fsanitize=address "$work/empty.c" -o "$work/empty" 2> /dev/null && "$work/empty"; then
    programs -fsanitize=address
    # The program "forks" is left out: if a thread holds a lock of the sanitizer's allocator during
    # a fork, that lock stays locked in the child.
    run sanitizer everything misuse pairs events backups changes callbacks program choices orders
else
    echo "cc has no -fsanitize=address: the sanitizer looks for nothing"
fi
# Tests a program that was linked against Debian's library, which has another name.
mkdir "$work/debian"
sed 's/.*/void &(void) {}/' leveldb/names.txt > "$work/names.c"
cc -shared -fPIC -Wl,-soname,libleveldb.so.1d "$work/names.c" -o "$work/debian/libleveldb.so"
cc -std=c11 -Itests -I"$work/usr/include" leveldb/tests/orders.c -o "$work/debian/orders" \
    -L"$work/debian" -lleveldb
"$work/debian/orders" "$work/orders.debian"
if command -v go > /dev/null; then
    (cd leveldb/tests/go && CGO_CFLAGS="-I$work/usr/include" CGO_LDFLAGS="-L$work/usr/lib" \
        go run . "$work/go.store")
else
    echo "go is not here: its program is not run"
fi
