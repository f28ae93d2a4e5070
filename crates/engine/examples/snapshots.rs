//! Reads as of one moment while writers continue: a snapshot inside the process, and a checkpoint,
//! which is a separate store that another process can open.

use runstone::{ReadOptions, Result, Snapshot, Store, Value};

fn sum(values: impl Iterator<Item = Result<Value>>) -> Result<u64> {
    values.map(|value| Ok(u64::from(value?[0]))).sum()
}

pub(crate) fn main() -> Result<()> {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::builder(directory.path().join("store")).open()?;
    let stock = store.open_keyspace("stock", None)?;
    for shelf in 0..100u8 {
        stock.put([shelf], [1])?;
    }

    // Taking a snapshot is cheap, and so is holding it for a while. The store keeps what the
    // snapshot can see.
    let evening: Snapshot = store.snapshot();
    stock.put([0], [50])?;
    stock.delete_range([90]..[100])?;

    let at_evening = || ReadOptions::default().at(&evening);
    assert_eq!(stock.get_at([0], &evening)?.as_deref(), Some(&[1][..]));
    assert_eq!(sum(stock.scan(at_evening())?.values())?, 100);
    assert_eq!(sum(stock.iter()?.values())?, 139);
    println!("100 in the evening, 139 now");

    // A snapshot can be read within a range or a prefix, and backwards.
    let upper = stock.scan(at_evening().with_range([50]..))?.rev().count();
    assert_eq!(upper, 50);

    // A checkpoint shows the present, and is made of hard links where the file system can.
    let copy = directory.path().join("checkpoint");
    store.checkpoint(&copy)?;
    stock.clear()?;
    let copied = Store::builder(&copy).read_only(true).open()?;
    assert_eq!(sum(copied.keyspace("stock")?.iter()?.values())?, 139);
    assert_eq!(sum(stock.scan(at_evening())?.values())?, 100, "the snapshot outlives a clear");
    assert!(stock.is_empty()?);
    println!("the checkpoint has what the store had");
    drop(evening);
    store.close()
}
