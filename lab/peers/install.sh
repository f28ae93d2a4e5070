#!/bin/sh
# What building RocksDB needs: a C++ compiler and libclang for its bindings. Run as root.
set -eu
apt-get update
apt-get install -y clang libclang-dev
