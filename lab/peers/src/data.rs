//! Keys and values of all phases.

use runstone_workloads::generators::{KeyCodec, KeyFormat, Rng, ValueGenerator};

use crate::plan::{KEY_BYTES, Setup};

pub const SEED: u64 = 20_261_120;

/// Keys and values as functions of a number, so that what was read can be checked.
pub struct Data {
    pub keys: KeyCodec,
    values: ValueGenerator,
    value_bytes: usize,
}

impl Data {
    pub fn new(setup: &Setup) -> Data {
        Data::of_sizes(KEY_BYTES, setup.value_bytes)
    }

    pub fn of_sizes(key_bytes: usize, value_bytes: usize) -> Data {
        let values = ValueGenerator::new(&mut Rng::new(SEED), 0.5, value_bytes);
        let keys = KeyCodec::new(key_bytes, KeyFormat::Hashed);
        Data { keys, values, value_bytes }
    }

    pub fn value(&self, number: u64) -> &[u8] {
        // The generator's buffer holds at least 1 MiB and at least two values.
        let places = (1 << 20) / self.value_bytes.max(1) as u64;
        let start = (number % places.max(1)) as usize * self.value_bytes;
        self.values.at_place(start..start + self.value_bytes)
    }
}
