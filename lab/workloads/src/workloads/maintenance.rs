//! compact and stats: one operation each, not a load.

use std::fmt::Write;

use runstone_kv::KvMetrics;
use runstone_kv::Result;

use crate::bench::{Bench, Tally};

/// The benchmark `compact`.
pub fn compact(bench: &Bench<'_>) -> Result<Tally> {
    bench.once(|| bench.store.compact())
}

/// The benchmark `stats`.
pub fn stats(bench: &Bench<'_>) -> Result<Tally> {
    let mut text = String::new();
    let tally = bench.once(|| {
        text = describe(&bench.store.name(), &bench.store.metrics()?);
        Ok(())
    })?;
    Ok(Tally { text: Some(text), ..tally })
}

fn describe(name: &str, metrics: &KvMetrics) -> String {
    let mut text = format!("{name}\n");
    for (what, bytes) in [
        ("written by users", metrics.user_bytes_written),
        ("written in all", metrics.bytes_written),
        ("  by the log", metrics.log_bytes_written),
        ("  by flushes", metrics.flush_bytes_written),
        ("  by compactions", metrics.compaction_bytes_written),
        ("read", metrics.bytes_read),
        ("on disk", metrics.disk_bytes),
        ("in memory", metrics.memory_bytes),
    ] {
        // Writing into a string does not fail.
        let _ = writeln!(text, "{what:<18} {bytes:>16} bytes");
    }
    text
}
