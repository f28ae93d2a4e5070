//! Users by id, and an index by city in a keyspace of its own. A batch writes both or neither. A
//! transaction moves the index entry, because it must first read where the entry is.

use std::sync::Arc;

use runstone::storage::MemoryStorage;
use runstone::{Batch, Keyspace, Result, Store, TransactionOptions, WriteOptions};

struct Users {
    store: Store,
    city_of: Keyspace,
    by_city: Keyspace,
}

/// The city, a zero byte that no city has, and the id. So all users of a city are neighbours.
fn index_key(city: &[u8], id: &str) -> Vec<u8> {
    [city, b"\0", id.as_bytes()].concat()
}

impl Users {
    fn open(store: Store) -> Result<Users> {
        let city_of = store.open_keyspace("users", None)?;
        let by_city = store.open_keyspace("users-by-city", None)?;
        Ok(Users { store, city_of, by_city })
    }

    fn add(&self, id: &str, city: &str) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(&self.city_of, id, city)?;
        batch.put(&self.by_city, index_key(city.as_bytes(), id), "")?;
        self.store.write(&batch, WriteOptions::sync())
    }

    /// Moves a user. Begins again if somebody else has moved the same user meanwhile.
    fn relocate(&self, id: &str, city: &str) -> Result<()> {
        loop {
            let mut transaction = self.store.begin(TransactionOptions::default())?;
            if let Some(old) = transaction.get(&self.city_of, id)? {
                transaction.delete(&self.by_city, index_key(&old, id))?;
            }
            transaction.put(&self.city_of, id, city)?;
            transaction.put(&self.by_city, index_key(city.as_bytes(), id), "")?;
            match transaction.commit(WriteOptions::sync()) {
                Err(error) if error.is_retryable() => continue,
                outcome => return outcome,
            }
        }
    }

    fn of_city(&self, city: &str) -> Result<Vec<String>> {
        let prefix = index_key(city.as_bytes(), "");
        let keys = self.by_city.prefix(&prefix)?.keys();
        let id = |key: Vec<u8>| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
        keys.map(|key| Ok(id(key?))).collect()
    }
}

pub(crate) fn main() -> Result<()> {
    let users = Users::open(Store::builder_on(Arc::new(MemoryStorage::new())).open()?)?;
    users.add("alice", "Oslo")?;
    users.add("bob", "Oslo")?;
    users.add("carol", "Rome")?;
    assert_eq!(users.of_city("Oslo")?, ["alice", "bob"]);

    users.relocate("bob", "Rome")?;
    println!("in Oslo: {:?}, in Rome: {:?}", users.of_city("Oslo")?, users.of_city("Rome")?);
    assert_eq!(users.of_city("Oslo")?, ["alice"]);
    assert_eq!(users.of_city("Rome")?, ["bob", "carol"]);
    assert_eq!(users.by_city.iter()?.count(), users.city_of.iter()?.count());
    users.store.close()
}
