//! `peers`, with mimalloc. `peers-glibc` has the C library's allocator, `peers-jemalloc` jemalloc.

use std::process::ExitCode;

/// LevelDB, LMDB and RocksDB, which are in C and C++, keep the allocator of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    runstone_peers::main()
}
