//! The target of `runstone_sim::fuzz::table` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| runstone_sim::fuzz::table::judge(data));
