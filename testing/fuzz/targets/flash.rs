//! The target of `runstone_sim::fuzz::flash` for cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| runstone_sim::fuzz::flash::judge(data));
