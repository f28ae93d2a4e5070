//! Kinds of damage to a store.

use runstone::storage::Storage;
use runstone_fault_storage::SimStorage;
use runstone_sim::random::Random;

/// What kind of file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Current,
    Manifest,
    Table,
    Log,
    Values,
}

/// How it is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Remove,
    /// One bit.
    Flip,
    /// The end is cut off.
    Cut,
    /// A stretch of 600 bytes is zeros.
    Zero,
}

/// What is damaged, and how.
#[derive(Clone, Copy, Debug)]
pub struct Damage {
    pub family: Family,
    pub how: How,
    seed: u64,
}

impl Damage {
    /// One of each kind. The seed chooses the file and the place.
    pub fn all(seed: u64) -> Vec<Damage> {
        let families =
            [Family::Current, Family::Manifest, Family::Table, Family::Log, Family::Values];
        let all = families.into_iter().flat_map(|family| {
            [How::Remove, How::Flip, How::Cut, How::Zero].map(|how| Damage { family, how, seed })
        });
        all.collect()
    }

    /// Damages a file, and returns its name; `None` if the store has no such file.
    pub fn apply(&self, storage: &SimStorage) -> Option<String> {
        let mut random = Random::new(self.seed ^ 0xda_3a9e);
        let is_of = |name: &str| match self.family {
            Family::Current => name == "CURRENT",
            Family::Manifest => name.ends_with(".manifest"),
            Family::Table => name.ends_with(".table"),
            Family::Log => name.ends_with(".wal") && !name.starts_with("lost-"),
            Family::Values => name.ends_with(".values"),
        };
        let mut files = storage.list().expect("it can be listed");
        files.retain(|file| is_of(&file.name) && file.len_bytes > 0);
        files.sort_by(|one, two| one.name.cmp(&two.name));
        if files.is_empty() {
            return None;
        }
        let file = files.swap_remove(random.below(files.len() as u64) as usize);
        let bytes = storage.read_all(&file.name).expect("it can be read");
        // The space of logs is reserved beyond the written part.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |at| at as u64 + 1);
        let at = random.below(used);
        let done = match self.how {
            How::Remove => storage.remove(&file.name),
            How::Flip => storage.flip_bit(&file.name, at, random.below(8) as u8),
            How::Cut => storage.truncate(&file.name, at),
            How::Zero => {
                let mut bytes = bytes;
                let end = bytes.len().min(at as usize + 600);
                bytes[at as usize..end].fill(0);
                storage.overwrite(&file.name, &bytes)
            }
        };
        done.expect("it can be damaged");
        Some(file.name)
    }
}
