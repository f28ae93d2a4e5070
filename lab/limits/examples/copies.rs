//! Measures what copies cost: `cargo run --release -p runstone-limits --example copies`, in a
//! temporary directory below the working directory. First, the bytes that an incremental backup
//! adds after 1% of the entries were overwritten, either spread over all keys or adjacent. Then
//! what the leases of followers cost a store that flushes and compacts.

use std::path::Path;
use std::time::Instant;

use runstone::policy::Policy;
use runstone::{Backups, Follower, KeyspaceOptions, Options, Result, Store};
use runstone::{ValueOptions, ValuePlacement};

const ENTRIES: u64 = 400_000;
const VALUE_BYTES: usize = 500;
const EDITS: u64 = 400;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value(seed: u64) -> Vec<u8> {
    let mut word = seed;
    let next = || {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (word >> 33) as u8
    };
    std::iter::repeat_with(next).take(VALUE_BYTES).collect()
}

/// The bytes that a backup adds, and the bytes of the whole store.
fn added(place: &Path, options: &KeyspaceOptions, is_clustered: bool) -> Result<(u64, u64)> {
    let (path, backups) = (place.join("store"), place.join("backups"));
    let options = Options::default().keyspace(options.clone());
    let store = Store::open(&path, options)?;
    for number in 0..ENTRIES {
        let spread = number.wrapping_mul(999_983) % ENTRIES;
        store.put(key(spread), value(spread))?;
    }
    store.flush()?;
    store.wait_idle()?;
    let backups_of = Backups::open(&backups)?;
    backups_of.create(&path)?;
    for number in 0..ENTRIES / 100 {
        let at = if is_clustered { ENTRIES / 3 + number } else { number * 100 + 7 };
        store.put(key(at), value(at + 1))?;
    }
    store.flush()?;
    store.wait_idle()?;
    let made = backups_of.create(&path)?;
    store.close()?;
    std::fs::remove_dir_all(path).expect("a directory");
    std::fs::remove_dir_all(backups).expect("a directory");
    Ok((made.added_bytes, made.bytes))
}

/// Microseconds that an edit takes, with this many followers.
fn edit(place: &Path, followers: usize) -> Result<f64> {
    let path = place.join("edited");
    let store = Store::open(&path, Options::default())?;
    store.put("key", "value")?;
    let followers: Vec<Follower> =
        (0..followers).map(|_| Store::follow(&path, Options::default())).collect::<Result<_>>()?;
    let began = Instant::now();
    for number in 0..EDITS {
        store.put(key(number), "value")?;
        store.flush()?;
    }
    let took = began.elapsed().as_secs_f64() * 1e6 / EDITS as f64;
    drop(followers);
    store.close()?;
    std::fs::remove_dir_all(path).expect("a directory");
    Ok(took)
}

fn main() -> Result<()> {
    let place = tempfile::tempdir_in(".").expect("a directory");
    let grouped = ValueOptions::default().placement(ValuePlacement::HashGrouped).separate_at(100);
    let choices = [
        ("leveling", KeyspaceOptions::default().policy(Policy::leveling())),
        ("tiering", KeyspaceOptions::default().policy(Policy::tiering())),
        ("fragmented-leveling", KeyspaceOptions::default()),
        ("hash groups", KeyspaceOptions::default().values(grouped)),
    ];
    let changed = ENTRIES / 100 * (VALUE_BYTES as u64 + 8);
    for (name, options) in &choices {
        for (how, is_clustered) in [("uniform", false), ("clustered", true)] {
            let (added, whole) = added(place.path(), options, is_clustered)?;
            println!(
                "{name}, 1% {how}: {added} bytes added, {:.1} of what changed, {:.1}% of {whole}",
                added as f64 / changed as f64,
                added as f64 * 100.0 / whole as f64
            );
        }
    }
    for turn in 0..3 {
        let took: Vec<String> = [0, 1, 8]
            .into_iter()
            .map(|followers| edit(place.path(), followers).map(|took| format!("{took:.0}")))
            .collect::<Result<_>>()?;
        println!("turn {turn}: a put and its flush with 0, 1, 8 followers: {} us", took.join(", "));
    }
    Ok(())
}
