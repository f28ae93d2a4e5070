#!/bin/sh
# Builds librunstone and libleveldb, and installs them, their headers and pkg-config files under
# PREFIX (default: /usr/local), in the layout of cargo-c. Usage: install.sh [PREFIX]
set -eu
cd "$(dirname "$0")"
prefix="${1:-/usr/local}"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -1)"
cargo build --release --manifest-path ../Cargo.toml -p runstone-c -p runstone-leveldb
built="${CARGO_TARGET_DIR:-../target}/release"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$prefix/lib/pkgconfig" "$prefix/include/leveldb"
prefix="$(cd "$prefix" && pwd)"

# NAME BUILT: makes the static library, as one object with all code that the functions of its header
# reach. The library that the compiler makes is 42 MB: it contains all of Rust's standard library,
# some of it twice, since it is also there as bitcode. Other names are hidden, so that a program may
# link both libraries. Not every linker can do this.
static() {
    nm -D --defined-only "$built/lib$2.so" | awk '$2 == "T" { print $3 }' > "$work/names"
    # shellcheck disable=SC2046
    if ld -r --gc-sections $(sed 's/^/-u /' "$work/names") -o "$work/$1.o" "$built/lib$2.a" &&
        objcopy --keep-global-symbols="$work/names" --remove-section .llvmbc \
            --remove-section .llvmcmd --remove-section .rustc "$work/$1.o" &&
        strip --strip-unneeded "$work/$1.o"; then
        rm -f "$prefix/lib/lib$1.a"
        ar rcs "$prefix/lib/lib$1.a" "$work/$1.o"
    else
        echo "lib$1.a is installed as the compiler made it, which is large" >&2
        install -m 644 "$built/lib$2.a" "$prefix/lib/lib$1.a"
    fi
}

# NAME BUILT VERSION: installs the library and the links by which the linker and programs find it.
library() {
    install -m 755 "$built/lib$2.so" "$prefix/lib/lib$1.so.$3"
    ln -sf "lib$1.so.$3" "$prefix/lib/lib$1.so.${3%%.*}"
    ln -sf "lib$1.so.${3%%.*}" "$prefix/lib/lib$1.so"
    static "$1" "$2"
    cat > "$prefix/lib/pkgconfig/$1.pc" << EOF
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $1
Description: $4
Version: $3
Libs: -L\${libdir} -l$1
Libs.private: -lpthread -ldl -lm
Cflags: -I\${includedir}
EOF
}

library runstone runstone_c "$version" "Runstone, an embedded key-value store whose shape is a choice"
library leveldb leveldb 1.23.0 "The C interface of LevelDB over Runstone"
# Debian's programs look for the library under this name.
ln -sf libleveldb.so.1 "$prefix/lib/libleveldb.so.1d"
install -m 644 include/runstone.h include/runstone.hpp "$prefix/include"
install -m 644 leveldb/include/leveldb/c.h "$prefix/include/leveldb"
echo "installed under $prefix"
