#!/bin/sh
# What run.sh needs beside Rust and a C compiler: Maven for RocksDB's library, libclang for its
# bindings, LevelDB. Debian and Ubuntu; run as root.
set -eu
apt-get update
apt-get install -y maven unzip libclang-dev libleveldb-dev
