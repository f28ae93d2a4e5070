//! What tests of the KVSSD have in common: steps, the model they are compared with, scans.

mod random;

use std::collections::BTreeMap;

use runstone_flash::Result;
use runstone_flash::kvssd::{Direction, KvSsd, Write};

pub use random::*;

pub type State = BTreeMap<Vec<u8>, Vec<u8>>;
/// An operation of a workload: writes that count as one.
pub type Step = Vec<(Vec<u8>, Option<Vec<u8>>)>;

pub fn apply(device: &mut KvSsd, step: &Step) -> Result<()> {
    let writes: Vec<Write<'_>> = step
        .iter()
        .map(|(key, value)| match value {
            Some(value) => Write::Put { key, value },
            None => Write::Delete { key },
        })
        .collect();
    device.write(&writes)
}

pub fn model(state: &mut State, step: &Step) {
    for (key, value) in step {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
}

pub fn scanned(device: &mut KvSsd, direction: Direction, snapshot: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        found.push((key.to_vec(), value.to_vec()));
        true
    };
    device.scan(None, direction, snapshot, &mut visit).expect("it can be read");
    found
}
