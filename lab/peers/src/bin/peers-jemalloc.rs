//! `peers-jemalloc`: the program `peers` with jemalloc.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    runstone_peers::main()
}
