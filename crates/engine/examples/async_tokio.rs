//! A store under tokio. Ten thousand tasks each await a durable write: no task blocks a thread, and
//! one sync of the log serves all waiting tasks. A get answers from memory if it can. Calls that
//! read files, such as a scan, run in `spawn_blocking`. A store is cheap to clone.

use runstone::{CachedGet, Keyspace, Result, Store, Value};
use tokio::task::{JoinSet, spawn_blocking};

const REQUESTS: u32 = 10_000;

/// Runs a call to the store on a thread that may block.
async fn call<T: Send + 'static>(
    keyspace: &Keyspace,
    work: impl FnOnce(&Keyspace) -> Result<T> + Send + 'static,
) -> Result<T> {
    let keyspace = keyspace.clone();
    spawn_blocking(move || work(&keyspace)).await.expect("no panic")
}

async fn get(keyspace: &Keyspace, key: String) -> Result<Option<Value>> {
    match keyspace.get_if_cached(&key)? {
        CachedGet::Value(value) => Ok(Some(value)),
        CachedGet::Absent => Ok(None),
        CachedGet::NeedsIo => call(keyspace, move |keyspace| keyspace.get(key)).await,
    }
}

async fn handle(keyspace: Keyspace, request: u32) -> Result<()> {
    let key = format!("request/{request:05}");
    let commit = keyspace.put_later(&key, "done")?;
    // The write was visible already; from here on it survives a power loss too.
    commit.await?;
    assert_eq!(get(&keyspace, key).await?.as_deref(), Some(&b"done"[..]));
    Ok(())
}

async fn serve(store: Store) -> Result<()> {
    let keyspace = store.default_keyspace();
    let mut requests = JoinSet::new();
    (0..REQUESTS).for_each(|request| drop(requests.spawn(handle(keyspace.clone(), request))));
    requests.join_all().await.into_iter().collect::<Result<()>>()?;

    // The whole scan is one call, not a call for each entry. It borrows nothing from the task.
    let keys = call(keyspace, |keyspace| keyspace.iter()?.keys().collect::<Result<Vec<_>>>());
    assert_eq!(keys.await?.len(), REQUESTS as usize);
    let syncs = store.metrics().counters.wal_syncs;
    println!("{REQUESTS} durable writes took {syncs} syncs of the log");
    assert!(syncs <= u64::from(REQUESTS));

    // Closing flushes the store, which blocks too.
    spawn_blocking(|| store.close()).await.expect("no panic")
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::builder(directory.path().join("store")).open()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime").block_on(serve(store))
}
