#!/bin/sh
# Installs what run.sh needs besides Rust and a C compiler: Maven for RocksDB's library, libclang
# for its bindings, LevelDB. For Debian and Ubuntu; run it as root.
set -eu
apt-get update
apt-get install -y maven unzip libclang-dev libleveldb-dev
