//! Estimates which keys are read most, from the last [`SAMPLES`] sampled reads of a store. A read
//! is a get, or a seek of a cursor. One in 64 is sampled, at intervals that vary, so that no rhythm
//! of a program hides a key.
//!
//! The module keeps a list of the last samples, not a counter per key (as Space-Saving and similar
//! algorithms do). The list costs no search, forgets by itself what was hot once, and shows
//! prefixes as well as keys. It cannot show a key with less than a few thousandths of all reads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::keys::KeyspaceId;
use crate::keys::heaviest::heaviest;
use crate::sync::{Mutex, rank};

/// The number of samples that are kept. A key with a hundredth of the reads is among them 41 times,
/// give or take 6.
const SAMPLES: usize = 4096;
/// If a key is longer than this, only its beginning is kept, so that the samples of a store take at
/// most 4 MiB.
const KEPT_BYTES: usize = 1024;
/// Samples older than this say nothing about the present.
const MOST_AGE: Duration = Duration::from_secs(600);
/// At most this many keys, and this many prefixes, are reported for a keyspace.
const TOLD: usize = 64;
/// At most this many keyspaces are reported: those with the most reads.
const TOLD_KEYSPACES: usize = 64;

/// The keys of a keyspace that are read most, estimated from sampled reads of the last minutes.
/// About one read in 64 is sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct KeyspaceHeat {
    /// Its name.
    pub keyspace: String,
    /// How many of its reads were sampled.
    pub samples: u64,
    /// How many reads of the whole store were sampled in the same time.
    pub store_samples: u64,
    /// How long that time is, in milliseconds.
    pub over_ms: u64,
    /// Keys that were read twice or more among the samples, the hottest first; at most 64.
    pub keys: Vec<Hot>,
    /// Prefixes, the hottest first; at most 64. No read counts for two of them. A prefix is not
    /// split further if no longer prefix has many of its reads.
    pub prefixes: Vec<Hot>,
}

/// A key or a prefix that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Hot {
    /// The key or the prefix. Only the beginning, if the key has more than 1024 bytes.
    #[serde(with = "hex")]
    pub key: Vec<u8>,
    /// How many reads of it were sampled.
    pub samples: u64,
}

/// The sampled reads of a store.
#[derive(Debug, Default)]
pub(crate) struct Heat {
    ring: Mutex<rank::Heat, Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    reads: Vec<Read>,
    /// The place of the oldest read, once all places are taken.
    next: usize,
}

#[derive(Debug)]
struct Read {
    keyspace: KeyspaceId,
    at: Instant,
    key: Vec<u8>,
}

impl Heat {
    /// Notes a read. Does not wait: if two threads are here at the same time, one sample is lost.
    #[cold]
    pub(crate) fn note(&self, keyspace: KeyspaceId, key: &[u8], at: Instant) {
        let Some(mut ring) = self.ring.try_lock() else { return };
        let key = &key[..key.len().min(KEPT_BYTES)];
        if ring.reads.len() < SAMPLES {
            ring.reads.push(Read { keyspace, at, key: key.to_vec() });
            return;
        }
        let place = ring.next;
        ring.next = (place + 1) % SAMPLES;
        let read = &mut ring.reads[place];
        (read.keyspace, read.at) = (keyspace, at);
        read.key.clear();
        read.key.extend_from_slice(key);
    }

    /// The hot keys and prefixes of the keyspaces with the most reads. O(samples) and a sort; the
    /// lock is held only while the samples are copied.
    pub(crate) fn told(
        &self,
        now: Instant,
        name: impl Fn(KeyspaceId) -> Option<String>,
    ) -> Vec<KeyspaceHeat> {
        let mut of: BTreeMap<KeyspaceId, Vec<(Vec<u8>, u64)>> = BTreeMap::new();
        let (mut oldest, mut store_samples) = (now, 0);
        for read in &self.ring.lock().reads {
            if now.saturating_duration_since(read.at) <= MOST_AGE {
                of.entry(read.keyspace).or_default().push((read.key.clone(), 1));
                oldest = oldest.min(read.at);
                store_samples += 1;
            }
        }
        let over_ms = now.saturating_duration_since(oldest).as_millis() as u64;
        let mut by_samples: Vec<_> = of.into_iter().collect();
        by_samples.sort_by_key(|(id, reads)| (std::cmp::Reverse(reads.len()), *id));
        by_samples.truncate(TOLD_KEYSPACES);
        let heat = |(id, reads): (KeyspaceId, Vec<(Vec<u8>, u64)>)| {
            Some(KeyspaceHeat { store_samples, over_ms, ..of_reads(name(id)?, reads) })
        };
        by_samples.into_iter().filter_map(heat).collect()
    }
}

/// The hot keys and prefixes of one keyspace.
fn of_reads(keyspace: String, mut reads: Vec<(Vec<u8>, u64)>) -> KeyspaceHeat {
    reads.sort_unstable();
    let same = reads.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() > 1);
    let hot = |same: &[(Vec<u8>, u64)]| Hot { key: same[0].0.clone(), samples: same.len() as u64 };
    let mut keys: Vec<Hot> = same.map(hot).collect();
    keys.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.key.cmp(&b.key)));
    keys.truncate(TOLD);
    let prefixes = heaviest(&reads, TOLD).into_iter();
    let prefixes = prefixes.map(|heavy| Hot { key: heavy.prefix, samples: heavy.weight }).collect();
    let samples = reads.len() as u64;
    KeyspaceHeat { keyspace, samples, keys, prefixes, ..KeyspaceHeat::default() }
}

/// Keys as hexadecimal digits, because JSON has no bytes.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(key: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&key.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        let digit = |at: Option<&u8>| char::from(*at?).to_digit(16);
        let byte = |pair: &[u8]| Some((digit(pair.first())? << 4 | digit(pair.get(1))?) as u8);
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.ok_or_else(|| de::Error::custom("a key is not hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(heat: &Heat, now: Instant) -> Vec<KeyspaceHeat> {
        heat.told(now, |id| (id != 9).then(|| format!("keyspace {id}")))
    }

    #[test]
    fn the_last_reads_tell_what_is_hot() {
        let (heat, began) = (Heat::default(), Instant::now());
        assert!(told(&heat, began).is_empty(), "nothing is known, so nothing is told");
        let at = |ms| began + Duration::from_millis(ms);
        // What was hot once is forgotten.
        (0..5000).for_each(|_| heat.note(1, b"once", at(0)));
        for number in 0..SAMPLES as u64 {
            match number % 4 {
                0 => heat.note(1, b"user/hot", at(number)),
                1 => heat.note(9, b"of a keyspace that was dropped", at(number)),
                2 => heat.note(2, &[7; 5000], at(number)),
                _ => heat.note(1, format!("log/{number:08}").as_bytes(), at(number)),
            }
        }
        let found = told(&heat, at(5000));
        let first = &found[0];
        assert_eq!((first.keyspace.as_str(), first.samples), ("keyspace 1", 2048));
        assert_eq!((first.store_samples, first.over_ms), (4096, 5000));
        assert_eq!(first.keys, [Hot { key: b"user/hot".into(), samples: 1024 }]);
        assert_eq!(first.prefixes[0], first.keys[0]);
        let logs = first.prefixes.iter().filter(|hot| hot.key.starts_with(b"log/"));
        let logs: u64 = logs.map(|hot| hot.samples).sum();
        assert!((900..=1024).contains(&logs), "{logs}: the rest is in smaller parts");
        assert_eq!(found[1].keys, [Hot { key: vec![7; KEPT_BYTES], samples: 1024 }]);
        assert_eq!(found.len(), 2);
        assert!(told(&heat, at(5000) + MOST_AGE).is_empty(), "and nothing of long ago");
    }

    #[test]
    fn what_is_told_comes_back() {
        let hot = Hot { key: vec![0, 10, 255], samples: 3 };
        let text = serde_json::to_string(&hot).expect("a text");
        assert_eq!(text, r#"{"key":"000aff","samples":3}"#);
        assert_eq!(serde_json::from_str::<Hot>(&text).expect("a key"), hot);
        for bad in ["0", "0g", "\u{e4}", "+1"] {
            let text = format!("{{\"key\":\"{bad}\"}}");
            assert!(serde_json::from_str::<Hot>(&text).is_err(), "{bad}");
        }
    }
}
