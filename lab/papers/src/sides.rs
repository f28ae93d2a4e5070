//! The two or more sides of a comparison. The settings that they declare are compared: a row whose
//! sides differ in memory, filters, triggers or compression measures that setting instead of the
//! paper's claim.

use runstone::unstable;
use runstone::{Background, KeyspaceOptions, Options};
use runstone_policy::options::Numbers;

use crate::engine::{MEMORY_BYTES, stepped_options};

/// One side: its name and its settings, in the order of the line that is printed.
#[derive(Clone, Debug)]
pub(super) struct Side {
    name: String,
    /// What distinguishes the side.
    design: String,
    settings: Vec<(&'static str, String)>,
}

/// Settings in which the sides of a row may differ on purpose.
pub(super) const FILTERS: &str = "filter bits";
pub(super) const TRIGGER: &str = "level-0 trigger";
pub(super) const TABLES: &str = "table bytes";
pub(super) const SUB_COMPACTIONS: &str = "sub-compactions";
pub(super) const BUFFER: &str = "write buffer bytes";
pub(super) const COMPRESSION: &str = "compression";
pub(super) const MEMORY: &str = "memory bytes";
pub(super) const THREADS: &str = "threads";
pub(super) const SEEKS: &str = "seek compaction";

/// The value of a setting that is off. If a setting is off on all sides, the line does not list it.
const OFF: &str = "off";

/// The value of a setting on a side to which it does not apply: no other value differs from it.
pub(super) const NONE: &str = "n/a";

impl Side {
    /// A side without settings yet.
    pub(super) fn new(name: &str, design: impl Into<String>) -> Side {
        Side { name: name.into(), design: design.into(), settings: Vec::new() }
    }

    /// Adds to the text that distinguishes the side.
    pub(super) fn apart_by(mut self, what: &str) -> Side {
        self.design.push_str(&format!(", {what}"));
        self
    }

    /// Adds a setting, or replaces its value.
    pub(super) fn with(mut self, setting: &'static str, value: impl ToString) -> Side {
        self.settings.retain(|(name, _)| *name != setting);
        self.settings.push((setting, value.to_string()));
        self
    }

    /// The side of a keyspace in a store that [`Loaded`](crate::engine::Loaded) opens.
    pub(super) fn keyspace(name: &str, options: &KeyspaceOptions) -> Side {
        Side::store(name, &stepped_options(Some(options.clone()), MEMORY_BYTES))
    }

    /// The side of a store with these options.
    pub(super) fn store(name: &str, store: &Options) -> Side {
        let options = &store.keyspace.clone().unwrap_or_default();
        let shape = unstable::numbers(options);
        let design = format!(
            "{} T = {}, {}",
            options.policy,
            shape.size_ratio,
            shape.partitioner.rule().name()
        );
        let compression: Vec<String> = options.compression.iter().map(text).collect();
        Side::new(name, design)
            .with(BUFFER, options.write_buffer_bytes)
            .with(TRIGGER, shape.l0_trigger)
            .with("level-1 bytes", shape.base_bytes)
            .with(TABLES, shape.table_bytes)
            .with("block bytes", options.block_bytes)
            .with("level-0 share", shape.l0_share_percent)
            .with(FILTERS, options.filter_bits_per_key.get())
            .with(COMPRESSION, compression.join(", "))
            .with(SUB_COMPACTIONS, text(options.sub_compactions))
            .with("cut flushes", options.partition_flushes)
            .with(SEEKS, seeks(shape))
            .with(MEMORY, store.memory_budget_bytes)
            .with(THREADS, threads(store))
    }
}

/// The name of a choice.
fn text(choice: impl std::fmt::Debug) -> String {
    format!("{choice:?}").to_lowercase()
}

/// The rule of seek compaction.
fn seeks(shape: &Numbers) -> String {
    match shape.seek_compaction {
        true => format!("one per {} bytes, at least {}", shape.seek_bytes, shape.least_seeks),
        false => OFF.into(),
    }
}

/// Background threads, and how many parts of a compaction run at once.
fn threads(store: &Options) -> String {
    let background = match store.background {
        Background::Threads(count) => count.to_string(),
        _ => "none".into(),
    };
    match store.compaction_slices {
        Some(slices) => format!("{background} and {slices} slices"),
        None => background,
    }
}

/// Writes the sides in one line: first what distinguishes each, then what all share. The error
/// names the first setting in which two sides differ although the rows are not `about` it.
pub(super) fn line(sides: &[Side], about: &[&str]) -> Result<String, String> {
    #[cfg(test)]
    let sides = &handicap::given_to(sides);
    let Some((first, others)) = sides.split_first() else { return Ok(String::new()) };
    let mut shared = Vec::new();
    let mut own: Vec<String> = sides.iter().map(|side| side.design.clone()).collect();
    if let Some(other) = others.iter().find(|side| side.settings.len() != first.settings.len()) {
        return Err(format!("{} and {} list different settings", first.name, other.name));
    }
    for (setting, _) in &first.settings {
        let of = |side: &Side| {
            let found = side.settings.iter().find(|(name, _)| name == setting);
            found.map_or_else(|| "unknown".into(), |(_, value)| value.clone())
        };
        let values: Vec<String> = sides.iter().map(of).collect();
        let holder = values.iter().position(|value| value != NONE).unwrap_or(0);
        let value = &values[holder];
        let rival = values.iter().position(|other| other != value && other != NONE);
        match rival {
            Some(rival) if !about.contains(setting) => {
                let (name, theirs, rival) = (&sides[holder].name, &values[rival], &sides[rival]);
                return Err(format!(
                    "{setting} is {value} for {name}, {theirs} for {}",
                    rival.name
                ));
            }
            None if values.iter().all(|other| other == OFF) => {}
            None if values.iter().all(|other| other == value) => {
                shared.push(format!("{setting} {value}"));
            }
            _ => {
                for (own, value) in own.iter_mut().zip(&values).filter(|(_, value)| *value != NONE)
                {
                    own.push_str(&format!(", {setting} {value}"));
                }
            }
        }
    }
    let own = sides.iter().zip(own).map(|(side, own)| format!("{}: {own}", side.name));
    let all = own.chain((!shared.is_empty()).then(|| format!("all: {}", shared.join(", "))));
    Ok(all.collect::<Vec<_>>().join("; "))
}

/// A handicap that a test gives to the second side of each comparison.
#[cfg(test)]
pub(super) mod handicap {
    use std::cell::Cell;

    use super::Side;

    thread_local! {
        /// The setting in which the second side gets another value.
        pub(crate) static SETTING: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    pub(super) fn given_to(sides: &[Side]) -> Vec<Side> {
        let mut sides = sides.to_vec();
        let settings = sides.get_mut(1).into_iter().flat_map(|second| &mut second.settings);
        for (_, value) in settings.filter(|(name, _)| Some(*name) == SETTING.get()) {
            *value = "handicapped".into();
        }
        sides
    }
}

#[cfg(test)]
mod tests {
    use runstone::Compression;

    use super::*;

    /// The setting, and the function that changes it.
    type Handicap = (&'static str, fn(&mut Options));

    fn store() -> Options {
        stepped_options(Some(KeyspaceOptions::default()), 1 << 20)
    }

    fn side(name: &str, bits: f64) -> Side {
        let keyspace = KeyspaceOptions::default().filter_bits_per_key(bits);
        Side::keyspace(name, &keyspace)
    }

    #[test]
    fn equal_sides_are_told_in_one_line() {
        let line = line(&[side("a", 10.0), side("b", 10.0)], &[]).expect("equal");
        assert!(line.starts_with("a: ") && line.contains("filter bits 10"), "{line}");
        assert!(!line.contains('\n'));
    }

    /// Gives one side a handicap on purpose, in each option that matters.
    #[test]
    fn a_handicap_is_refused_unless_the_rows_are_about_it() {
        let (a, b) = (side("a", 10.0), side("b", 0.0));
        let refused = line(&[a.clone(), b.clone()], &[]).expect_err("a handicap");
        assert_eq!(refused, "filter bits is 10 for a, 0 for b");
        let told = line(&[a, b], &[FILTERS]).expect("said");
        assert!(told.contains("filter bits 10;") && told.contains("filter bits 0;"), "{told}");
        let handicaps: [Handicap; 8] = [
            (MEMORY, |store| store.memory_budget_bytes /= 2),
            (THREADS, |store| store.background = Background::Threads(2)),
            (THREADS, |store| store.compaction_slices = Some(7)),
            (FILTERS, |store| keyspace_of(store).filter_bits_per_key = 0.7.into()),
            (TRIGGER, |store| unstable::numbers_mut(keyspace_of(store)).l0_trigger += 1),
            (SEEKS, |store| unstable::numbers_mut(keyspace_of(store)).seek_compaction = true),
            (BUFFER, |store| keyspace_of(store).write_buffer_bytes *= 2),
            (COMPRESSION, |store| keyspace_of(store).compression = vec![Compression::None; 2]),
        ];
        for (setting, handicap) in handicaps {
            let mut other = store();
            handicap(&mut other);
            let sides = [Side::store("a", &store()), Side::store("b", &other)];
            let refused = line(&sides, &[]).expect_err(setting);
            assert!(refused.starts_with(setting), "{refused}");
        }
    }

    fn keyspace_of(store: &mut Options) -> &mut KeyspaceOptions {
        store.keyspace.as_mut().expect("given")
    }

    /// A side without separated values has no reserve; the others must still have the same one.
    #[test]
    fn what_does_not_apply_to_a_side_is_compared_among_the_others() {
        let with = |reserve: &str| side("x", 0.0).with("reserve", reserve);
        let told = line(&[with(NONE), with("3"), with("3")], &[]).expect("equal where it applies");
        assert_eq!(told.matches("reserve 3").count(), 2, "{told}");
        line(&[with(NONE), with("3"), with("5")], &[]).expect_err("two reserves");
    }
}
