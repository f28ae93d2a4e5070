//! Bulk loads. Part of the data is written by loads of some size. Each load starts as soon as
//! enough has been flushed to keep the share.
//!
//! As in the engine, a load is written once, as tables that are cut like an output of the whole
//! tree. It goes to the deepest level above which nothing overlaps it ([`load_edit`]). Its keys
//! arrive like those of a flush: spread over the whole key space, where every load overlaps the
//! tree and waits in level 0, or ascending, where no load does. A load over a key range of its own
//! counts as ascending.

use std::sync::Arc;

use serde::Serialize;

use super::report::thousandths;
use super::spread::{Spread, mul_div};
use super::{Simulator, spread_of};
use runstone_policy::policy::load_edit;
use runstone_policy::shape::{EditError, Table};

/// Makes the bounds of loads differ from those of flushes.
const SEED: u64 = 1 << 62;

/// How much of the data is loaded, and how much in each load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loads {
    /// The share of written data that is loaded, in thousandths: 0 to 999.
    #[serde(rename = "share", serialize_with = "thousandths")]
    pub share_permille: u64,
    /// Bytes of each load.
    pub bytes: u64,
}

impl Loads {
    /// How many of these bytes are flushed.
    pub fn flushed_of(&self, bytes: u64) -> u64 {
        mul_div(bytes, 1000 - self.share_permille.min(999), 1000)
    }
}

impl Simulator<'_> {
    /// The same tree, with loads. Loaded data do not expire.
    pub fn with_loads(self, loads: Loads) -> Self {
        Simulator { loads: Some(loads), ..self }
    }

    /// The loads that are due after a flush, each with the jobs that it causes.
    pub(super) fn load_in_time(&mut self) -> Result<(), EditError> {
        let Some(Loads { share_permille, bytes }) = self.loads else { return Ok(()) };
        let (share, bytes) = (share_permille.min(999), bytes.max(1));
        let flushed = self.totals.user_bytes - self.totals.loaded_user_bytes;
        let due = flushed * u128::from(share) / u128::from(1000 - share);
        while self.totals.loaded_user_bytes + u128::from(bytes) <= due {
            self.load(bytes)?;
            self.settle()?;
        }
        Ok(())
    }

    fn load(&mut self, bytes: u64) -> Result<(), EditError> {
        let entries = (bytes / self.workload.entry_bytes.max(1)).max(1);
        self.load_count += 1;
        let whole = self.arriving(entries, SEED + self.load_count);
        let level = self.shape.deepest().unwrap_or(0).max(1);
        let (_, cut) = self.policy.whole_output(&self.shape, level, &self.options);
        let seqs = (whole.min_seq, whole.max_seq);
        let spread = Spread::of(&[spread_of(&whole)]);
        let tables =
            spread.map_or(Vec::new(), |spread| self.outputs(cut, &spread, whole.entries, seqs));
        self.totals.user_bytes += u128::from(bytes);
        self.totals.loaded_user_bytes += u128::from(bytes);
        self.totals.user_entries += entries;
        self.totals.loaded_bytes += tables.iter().map(|one| u128::from(one.bytes)).sum::<u128>();
        let tables: Vec<Arc<Table>> = tables.into_iter().map(Arc::new).collect();
        let edit = load_edit(&self.shape, self.policy, &self.options, &tables);
        let deepest = edit.place.iter().map(|placement| placement.level).max().unwrap_or(0);
        self.install(&edit, deepest)?;
        self.note_level_0();
        Ok(())
    }
}
