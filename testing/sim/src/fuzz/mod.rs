//! The bodies of the fuzz targets: each accepts any bytes, and panics if the store panics or if its
//! result is wrong. `fuzz/` runs the targets under cargo-fuzz. `tests/fuzz.rs` runs them on the
//! committed corpora and on mutations of these. Not here: libFuzzer.
//!
//! Each input begins with a byte of flags. Checksums would keep a fuzzer away from the code behind
//! them, so one of the flags makes the target rewrite or ignore them.
//!
//! Checksums detect corruption (`tests/corruption`). Here the bytes are made up by somebody who
//! knows the format. A store may then show anything, but must neither panic nor use more memory
//! than the file justifies.

pub mod flash;
pub mod manifest;
pub mod mutate;
pub mod operations;
mod parts;
pub mod seeds;
pub mod table;
pub mod values;
pub mod wal;

pub use parts::get_file;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: that of the cargo-fuzz target and of the directory of its corpus.
    pub name: &'static str,
    /// Judges an input.
    pub judge: fn(&[u8]),
    /// Inputs made from real stores.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Mutations of the corpus that the tests try.
    pub mutations: u64,
}

/// All targets.
pub const TARGETS: [Target; 6] = [
    Target { name: "wal", judge: wal::judge, seeds: seeds::wal, mutations: 60_000 },
    Target { name: "table", judge: table::judge, seeds: seeds::table, mutations: 40_000 },
    Target { name: "manifest", judge: manifest::judge, seeds: seeds::manifest, mutations: 40_000 },
    Target { name: "values", judge: values::judge, seeds: seeds::values, mutations: 40_000 },
    Target {
        name: "operations",
        judge: operations::judge,
        seeds: seeds::operations,
        mutations: 1_000,
    },
    Target { name: "flash", judge: flash::judge, seeds: seeds::flash, mutations: 20_000 },
];
