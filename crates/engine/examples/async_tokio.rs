//! A store under tokio. Its calls block, so tasks make them by `spawn_blocking`; a store is cheap
//! to clone. Writers that wait for the disk at the same time share its syncs.

use runstone::{Result, Store, WriteOptions};
use tokio::task::{JoinSet, spawn_blocking};

const REQUESTS: u32 = 64;

/// Runs a call of the store on a thread that may block.
async fn call<T: Send + 'static>(
    store: &Store,
    work: impl FnOnce(&Store) -> Result<T> + Send + 'static,
) -> Result<T> {
    let store = store.clone();
    spawn_blocking(move || work(&store)).await.expect("no panic")
}

async fn handle(store: Store, request: u32) -> Result<u32> {
    let key = format!("request/{request:03}");
    call(&store, move |store| store.default_keyspace().put_with(key, "done", WriteOptions::sync()))
        .await?;
    Ok(request)
}

async fn serve(store: Store) -> Result<()> {
    let mut requests = JoinSet::new();
    (0..REQUESTS).for_each(|request| drop(requests.spawn(handle(store.clone(), request))));
    for answer in requests.join_all().await {
        answer?;
    }

    // A scan is one call, not one for each entry: it borrows nothing from the task.
    let keys = call(&store, |store| store.default_keyspace().iter()?.keys().collect()).await;
    let keys: Vec<Vec<u8>> = keys?;
    assert_eq!(keys.len(), REQUESTS as usize);
    let syncs = store.metrics().counters.wal_syncs;
    println!("{REQUESTS} durable writes took {syncs} syncs of the log");
    assert!(syncs <= u64::from(REQUESTS) + 1);

    // Closing flushes: that blocks too.
    spawn_blocking(|| store.close()).await.expect("no panic")
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::builder(directory.path().join("store")).open()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    runtime.expect("a runtime").block_on(serve(store))
}
