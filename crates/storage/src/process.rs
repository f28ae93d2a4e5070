//! The kernel's figures about this process: memory, bytes written, processor time. All except the
//! processor time are zero where there is no `/proc`. The figures are not about the store: two
//! stores in one process share them.

use std::fs;

/// Resident memory now.
pub fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// The most memory that was ever resident.
pub fn peak_resident_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// Bytes passed to `write` and similar calls so far. Stores through mappings are not counted.
/// The kernel's `write_bytes` would count them, but only once their pages are written back.
pub fn written_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    field(&text, "wchar:")
}

/// Processor time of all threads so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Time for which the calling thread was ready to run but had no core, in seconds.
pub fn waited_seconds() -> f64 {
    const WAITED_FIELD: usize = 1;
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().nth(WAITED_FIELD).and_then(|field| field.parse().ok());
    ns.unwrap_or(0.0) / 1e9
}

/// Processor time that the host of a virtual machine gave to others while this machine wanted it:
/// the sum over all its processors since it started, in steps of 10 ms.
pub fn stolen_seconds() -> f64 {
    const STEAL_FIELD: usize = 8;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.split_whitespace().nth(STEAL_FIELD).and_then(|field| field.parse().ok());
    ticks.unwrap_or(0.0) / 100.0
}

fn status_bytes(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&text, name) * 1024
}

/// The number after `name` in lines of `name number [unit]`.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "VmHWM:\t    5000 kB\nVmRSS:\t    4000 kB\n";
        assert_eq!(field(text, "VmRSS:"), 4000);
        assert_eq!(field(text, "VmSwap:"), 0);
        assert!(cfg!(not(target_os = "linux")) || peak_resident_bytes() >= resident_bytes() / 2);
    }
}
