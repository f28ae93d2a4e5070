//! `peers-glibc`: the program `peers` with the allocator of the C library.

use std::process::ExitCode;

fn main() -> ExitCode {
    runstone_peers::main()
}
