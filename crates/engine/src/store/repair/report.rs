//! What a repair did, and what it cannot vouch for.
//!
//! The main rule: an entry of the repaired store is right, or a [`Doubt`] covers its key. The
//! same applies to a key that the repaired store lacks.

use serde::Serialize;

use crate::keys::SeqNo;
use crate::store::verify::Damage;

/// How a repair knew which tables belong to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RepairBasis {
    /// A manifest that is whole. It names the tables in force, so no other table was used.
    Manifest,
    /// The readable part of a manifest, or an older manifest. Tables that it does not name were
    /// used too.
    PartOfManifest,
    /// No manifest. All tables were used.
    #[default]
    Tables,
}

/// Why a key may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DoubtReason {
    /// The newest writes of the key may be missing: it may have an older value or none, or be back
    /// although it was deleted.
    MayBeOld,
    /// The key may be back although it was deleted, or had expired, or a compaction filter removed
    /// it. A key that existed has its newest value.
    MayBeBack,
    /// The key was left out, because its value cannot be read.
    ValueLost,
    /// Operands of the merge operator may count twice.
    OperandsMayRepeat,
    /// The key's newest write comes from a `lost-NNNNNN.wal`: writes before it are missing.
    FromLostLog,
}

/// Keys that may be wrong in the repaired store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Doubt {
    /// The name of the keyspace. `None` for all keyspaces.
    pub keyspace: Option<String>,
    /// The first key.
    pub from: Vec<u8>,
    /// The last key, inclusive. `None` if the keys have no end.
    pub to: Option<Vec<u8>>,
    /// The sequence numbers of the writes that may be missing or back, if they are known.
    pub numbers: Option<(SeqNo, SeqNo)>,
    /// The reason.
    pub reason: DoubtReason,
    /// What was found, in words.
    pub what: String,
}

impl Doubt {
    /// Whether the doubt covers a key.
    pub fn covers(&self, keyspace: &str, key: &[u8]) -> bool {
        self.keyspace.as_deref().is_none_or(|own| own == keyspace)
            && *self.from <= *key
            && self.to.as_deref().is_none_or(|to| key <= to)
    }
}

/// What a repair did.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// Whether the store was found healthy. Then nothing was done.
    pub is_healthy: bool,
    /// How the repair knew which tables belong to the store.
    pub basis: RepairBasis,
    /// The names of the keyspaces of the repaired store.
    pub keyspaces: Vec<String>,
    /// Tables read, including damaged ones.
    pub tables: u64,
    /// Tables among them that the repaired store has unchanged, because the manifest and the tables
    /// are whole. A link shares the file with the damaged store.
    pub carried_tables: u64,
    /// Records of the log that were used.
    pub log_records: u64,
    /// Entries of the tables of the repaired store: keys, and operands that are not folded. If
    /// tables were carried over, also the deletes and older versions in them.
    pub entries: u64,
    /// Bytes of its tables.
    pub bytes: u64,
    /// The largest sequence number found. Later writes, if there were any, are lost.
    pub last_seq: SeqNo,
    /// What is damaged or missing, as far as it is known.
    pub lost: Vec<Damage>,
    /// Keys that may be wrong.
    pub doubts: Vec<Doubt>,
    /// Other facts: options that were lost, files that were not used.
    pub notes: Vec<String>,
}

impl RepairReport {
    /// The doubts that cover a key.
    pub fn doubts_of<'a>(
        &'a self,
        keyspace: &'a str,
        key: &'a [u8],
    ) -> impl Iterator<Item = &'a Doubt> {
        self.doubts.iter().filter(move |doubt| doubt.covers(keyspace, key))
    }
}
