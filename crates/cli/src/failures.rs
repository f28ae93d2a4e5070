//! Keys whose value could not be made or read, which a walk reported and skipped: their number, and
//! the first ones with their reasons.

use serde_json::{Value, json};

use crate::arguments::Encoding;
use crate::failure::{Exit, Failure};
use crate::output::note;
use crate::range::Failed;

/// At most this many are reported one by one.
const MOST_TOLD: usize = 100;

/// See the module docs.
pub struct Failures {
    encoding: Encoding,
    is_json: bool,
    count: u64,
    /// The first ones, for machines.
    first: Vec<Value>,
    /// Whether damage was among the reasons.
    has_damage: bool,
}

impl Failures {
    pub fn new(encoding: Encoding, is_json: bool) -> Failures {
        Failures { encoding, is_json, count: 0, first: Vec::new(), has_damage: false }
    }

    /// Counts a key, and reports it to people.
    pub fn add(&mut self, failed: &Failed<'_>) {
        self.count += 1;
        self.has_damage |= failed.is_damage();
        if self.first.len() == MOST_TOLD {
            return;
        }
        let what = failed.what();
        if !self.is_json {
            note(format!("key {}: {what}", self.encoding.show(failed.key)));
        }
        let mut told = self.encoding.object(failed.key, None, None);
        told["what"] = what.into();
        self.first.push(told);
    }

    /// The number and the first ones, as JSON.md describes them.
    pub fn to_json(&self) -> (Value, Value) {
        (self.count.into(), json!(self.first))
    }

    /// The failure at the end of a walk that skipped keys. `outcome` says what happened to them,
    /// such as "left out".
    pub fn failure(&self, outcome: &str) -> Option<Failure> {
        let hint = match self.has_damage {
            true => "`runstone get` of one says what to do; `runstone verify` names all damage",
            false => "`runstone get` of one says what to do",
        };
        let what = match self.count {
            0 => return None,
            1 => format!("1 key was {outcome}: its value cannot be made or read"),
            count => format!("{count} keys were {outcome}: values cannot be made or read"),
        };
        Some(Failure::new(Exit::Damaged, what).hint(hint))
    }
}
