//! Named sets of options of a keyspace.

use runstone_policy::filters::FilterAllocation;
use runstone_policy::options::Numbers;
use runstone_policy::partition::Partitioner;
use runstone_policy::units::{Tenths, Thousandths};

use crate::error::{Error, Result};
use crate::options::keyspace::{Compression, KeyspaceOptions};
use crate::options::values::{ValueOptions, ValuePlacement};

/// A named set of options.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Preset {
    /// The name of the preset.
    pub name: &'static str,
    /// One line for help.
    pub doc: &'static str,
    make: fn() -> KeyspaceOptions,
}

/// Every preset, in the order of help.
pub static PRESETS: &[Preset] = &[
    Preset {
        name: "balanced",
        doc: "partial leveling, 10 filter bits, lz4: a sound choice without further knowledge",
        make: KeyspaceOptions::default,
    },
    Preset {
        name: "write-heavy",
        doc: "larger write buffer and level-0 trigger: fewer, larger compactions; gets probe more",
        make: || KeyspaceOptions {
            write_buffer_bytes: 128 << 20,
            shape: Numbers { l0_trigger: 16, base_bytes: 1 << 30, ..Numbers::default() }
                .into_options(),
            l0_slowdown_runs: 48,
            l0_stop_runs: 96,
            ..KeyspaceOptions::default()
        },
    },
    Preset {
        name: "read-heavy",
        doc: "16 filter bits, hash index in blocks, early compactions: fewest probes per get",
        make: || KeyspaceOptions {
            filter_bits_per_key: Tenths::of_parts(160),
            hash_index: true,
            restart_interval: 2,
            shape: Numbers { l0_trigger: 2, ..Numbers::default() }.into_options(),
            ..KeyspaceOptions::default()
        },
    },
    Preset {
        name: "large-values",
        doc: "values from 1 KiB on are separated, in hash groups: a fraction of the bytes written",
        make: || apart(ValuePlacement::HashGrouped, 1 << 10, 256 << 10),
    },
    Preset {
        name: "small-space",
        doc: "full leveling, zstd, 16 KiB blocks: least space, most compacting",
        make: || KeyspaceOptions {
            policy: "leveling".into(),
            block_bytes: 16 << 10,
            restart_interval: 16,
            compression: vec![Compression::Zstd],
            ..KeyspaceOptions::default()
        },
    },
    Preset {
        name: "ptierdb",
        doc: "adaptive tiering (PTierDB): writes like tiering, reads trigger compactions they need",
        make: || KeyspaceOptions {
            policy: "adaptive-tiering".into(),
            write_buffer_bytes: 16 << 20,
            shape: Numbers {
                l0_trigger: 4,
                base_bytes: 10 << 20,
                split_bytes: 4 << 20,
                table_bytes: 4 << 20,
                ..Numbers::default()
            }
            .into_options(),
            ..KeyspaceOptions::default()
        },
    },
    Preset {
        name: "autumn",
        doc: "Garnering with c = 0.8 (Autumn): fewer levels as data grows, optimal filters",
        make: || KeyspaceOptions {
            policy: "garnering".into(),
            filter_allocation: FilterAllocation::Optimal,
            shape: Numbers { size_ratio: 5, c: Thousandths::of_parts(800), ..Numbers::default() }
                .into_options(),
            ..KeyspaceOptions::default()
        },
    },
    Preset {
        name: "autumn-read",
        doc: "Garnering with c = 0.4: fewest levels, for scans and gets of absent keys",
        make: || KeyspaceOptions {
            policy: "garnering".into(),
            filter_allocation: FilterAllocation::Optimal,
            shape: Numbers { size_ratio: 5, c: Thousandths::of_parts(400), ..Numbers::default() }
                .into_options(),
            ..KeyspaceOptions::default()
        },
    },
    Preset {
        name: "hashkv",
        doc: "every value in hash groups (HashKV), log segments of 1 MiB, 30% reserve",
        make: || apart(ValuePlacement::HashGrouped, 1, 1 << 20),
    },
    Preset {
        name: "wisckey",
        doc: "every value in one log that is collected at its tail (WiscKey), 30% reserve",
        make: || apart(ValuePlacement::Vlog, 1, 1 << 20),
    },
    Preset {
        name: "global-range",
        doc: "universal compaction whose runs share their bounds, so that it falls into parts",
        make: || stack("universal", Partitioner::GlobalRange),
    },
    Preset {
        name: "binomial",
        doc: "a stack of at most 6 runs, least writing for few flushes (Binomial), shared bounds",
        make: || stack("binomial", Partitioner::GlobalRange),
    },
    Preset {
        name: "min-latency",
        doc: "a stack of at most 6 runs, least writing for any number of flushes, shared bounds",
        make: || stack("min-latency", Partitioner::GlobalRange),
    },
];

/// The default options, with values of `separate_at` bytes or more in a value file.
fn apart(placement: ValuePlacement, separate_at: u32, slot_bytes: u32) -> KeyspaceOptions {
    KeyspaceOptions {
        values: ValueOptions {
            placement,
            separate_at,
            slot_bytes,
            vlog_chunk_bytes: 64 << 20,
            ..ValueOptions::default()
        },
        ..KeyspaceOptions::default()
    }
}

fn stack(policy: &str, partitioner: Partitioner) -> KeyspaceOptions {
    KeyspaceOptions {
        policy: policy.into(),
        shape: Numbers { partitioner, ..Numbers::default() }.into_options(),
        ..KeyspaceOptions::default()
    }
}

impl KeyspaceOptions {
    /// The options of a preset.
    pub fn preset(name: &str) -> Result<KeyspaceOptions> {
        let known = PRESETS.iter().find(|preset| preset.name == name);
        known.map(|preset| (preset.make)()).ok_or_else(|| {
            let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
            Error::invalid(
                format!("no preset is named {name:?}"),
                format!("choose one of: {}", names.join(", ")),
            )
        })
    }
}
