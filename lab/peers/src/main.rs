//! `peers`, with mimalloc. Not with the allocator of the C library: that is `peers-glibc`.

use std::process::ExitCode;

/// LevelDB, LMDB and RocksDB, which are in C and C++, keep the allocator of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    runstone_peers::main()
}
