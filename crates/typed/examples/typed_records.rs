//! Records with types of your own: keys and values through serde. Keys sort by their first field,
//! then by the second, and so on. So the first fields are a prefix, and a range of typed keys is a
//! range of keys in the store.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Batch, Result, Store, WriteOptions};
use runstone_typed::{KeyPrefix, TypedKeyspace};
use serde::{Deserialize, Serialize};

/// Sorts by shop, then by day, then by number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OrderKey {
    shop: String,
    day: i32,
    number: u32,
}

/// Allows scans by the first two fields; for tuples this is built in.
impl KeyPrefix<OrderKey> for (String, i32) {}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    items: Vec<String>,
    cents: u64,
    /// This field was added later. It is `None` in records that were written before.
    #[serde(default)]
    paid_by: Option<String>,
}

fn key(shop: &str, day: i32, number: u32) -> OrderKey {
    OrderKey { shop: shop.into(), day, number }
}

pub(crate) fn main() -> Result<()> {
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).open()?;
    let orders = TypedKeyspace::<OrderKey, Order>::new(store.open_keyspace("orders", None)?);

    let order = |cents| Order { items: vec!["tea".into()], cents, paid_by: None };
    let mut batch = Batch::new();
    for (shop, day, number, cents) in
        [("Oslo", 9, 1, 450), ("Oslo", 10, 2, 900), ("Oslo", 10, 3, 300), ("Rome", -1, 1, 250)]
    {
        orders.put_in(&mut batch, &key(shop, day, number), &order(cents))?;
    }
    store.write(&batch, WriteOptions::sync())?;
    assert_eq!(orders.get(&key("Oslo", 9, 1))?, Some(order(450)));

    // The first fields are a prefix; numbers sort as numbers, negative ones too.
    let mut cents = 0;
    for entry in orders.prefix(&("Oslo".to_string(), 10))? {
        let (key, order) = entry?;
        println!("{} sold {} cents on day {}", key.shop, order.cents, key.day);
        cents += order.cents;
    }
    assert_eq!(cents, 1200);
    let first = orders.range(key("Rome", i32::MIN, 0)..)?.next().expect("one of Rome")?;
    assert_eq!(first.0.day, -1);

    // An entry that does not have the type is an error, which names the key.
    orders.keyspace().put([1, 2, 3], "not an order")?;
    let error = orders.iter()?.find_map(Result::err).expect("one is refused");
    assert!(error.is_invalid());
    println!("refused: {error}");
    store.close()
}
