//! A cache whose entries expire by themselves: a time to live for the keyspace, another for one
//! entry, and compactions that remove expired entries. The program has its own clock, so that an
//! hour passes at once; without `.clock(..)`, the store uses the clock of the system.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use runstone::storage::MemoryStorage;
use runstone::{Clock, Expiry, KeyspaceOptions, Result, Store, WriteOptions};

/// Milliseconds since 1970. Time passes only when the program advances it.
#[derive(Debug)]
struct HandClock(AtomicU64);

impl HandClock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Relaxed);
    }
}

impl Clock for HandClock {
    fn unix_millis(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

pub(crate) fn main() -> Result<()> {
    let minute = Duration::from_secs(60);
    let clock = Arc::new(HandClock(AtomicU64::new(1_798_761_600_000)));
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).clock(clock.clone()).open()?;
    let options = KeyspaceOptions::default().ttl_seconds(10 * 60);
    let cache = store.open_keyspace("cache", Some(options))?;

    for page in 0..1000 {
        cache.put(format!("page/{page:04}"), "rendered")?;
    }
    cache.put_with("login/alice", "token", WriteOptions::default().ttl(60 * minute))?;
    let Expiry::At(at) = cache.expiry("login/alice")?.expect("it is there") else {
        panic!("it expires");
    };
    println!("the login of alice expires at {at:?}");

    clock.pass(9 * minute);
    assert!(cache.contains_key("page/0007")?);
    clock.pass(2 * minute);
    assert!(!cache.contains_key("page/0007")?, "its ten minutes are over");
    assert_eq!(cache.iter()?.keys().collect::<Result<Vec<_>>>()?, [b"login/alice"]);

    // Readers no longer see expired entries; compactions free their space.
    store.flush()?;
    cache.compact()?;
    let counters = store.metrics().counters;
    println!("{} expired entries were removed", counters.entries_expired);
    assert_eq!(counters.entries_expired, 1000);
    clock.pass(60 * minute);
    assert!(cache.is_empty()?);
    store.close()
}
