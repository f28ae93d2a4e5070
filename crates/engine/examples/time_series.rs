//! Measurements by sensor and time: keys that sort by both, the latest by a scan backwards, a day
//! by a range, and the old days of a sensor removed by one range delete.

use std::sync::Arc;

use runstone::policy::Policy;
use runstone::storage::MemoryStorage;
use runstone::{Keyspace, KeyspaceOptions, Result, Store};

const DAY: u64 = 24 * 3600;

/// The sensor and then the second, both big-endian, so that bytes sort as numbers do.
fn key(sensor: u16, second: u64) -> [u8; 10] {
    let mut key = [0; 10];
    key[..2].copy_from_slice(&sensor.to_be_bytes());
    key[2..].copy_from_slice(&second.to_be_bytes());
    key
}

fn celsius(value: &[u8]) -> f32 {
    f32::from_le_bytes(value.try_into().expect("four bytes"))
}

/// Mean of a day; days are counted from 0.
fn mean(series: &Keyspace, sensor: u16, day: u64) -> Result<Option<f32>> {
    let day = series.range(key(sensor, day * DAY)..key(sensor, (day + 1) * DAY))?;
    let values = day.values().map(|value| Ok(celsius(&value?))).collect::<Result<Vec<_>>>()?;
    Ok((!values.is_empty()).then(|| values.iter().sum::<f32>() / values.len() as f32))
}

pub(crate) fn main() -> Result<()> {
    // Measurements arrive in order and are rarely rewritten, which suits a policy that writes
    // little.
    let options = KeyspaceOptions::default().policy(Policy::tiering().ratio(4));
    let store = Store::builder_on(Arc::new(MemoryStorage::new())).keyspace(options).open()?;
    let series = store.default_keyspace();
    for sensor in 0..3 {
        for minute in 0..7 * DAY / 600 {
            let second = minute * 600;
            let value = f32::from(sensor) * 10.0 + (second / DAY) as f32;
            series.put(key(sensor, second), value.to_le_bytes())?;
        }
    }

    store.flush()?;

    let of_sensor = series.prefix(1u16.to_be_bytes())?;
    let latest = of_sensor.values().next_back().expect("there is one")?;
    println!("sensor 1 measured {} last", celsius(&latest));
    assert_eq!(celsius(&latest), 16.0);
    assert_eq!(mean(series, 2, 3)?, Some(23.0));

    // Three records in the log remove five days, however many entries they contain.
    for sensor in 0..3 {
        series.delete_range(key(sensor, 0)..key(sensor, 5 * DAY))?;
    }
    assert_eq!(mean(series, 2, 3)?, None);
    assert_eq!(mean(series, 2, 6)?, Some(26.0));
    let left = series.iter()?.count();
    println!("{left} measurements are left");
    assert_eq!(left as u64, 3 * 2 * DAY / 600);

    let before = store.metrics().table_bytes;
    store.compact()?;
    println!("tables: {before} bytes, compacted {}", store.metrics().table_bytes);
    store.close()
}
