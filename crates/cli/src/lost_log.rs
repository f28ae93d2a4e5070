//! The end of a log that an open did not use: it is reported when the store is opened, and the kept
//! files have names of their own. A memory budget above what the system allows is reported as well.

use std::sync::Arc;

use runstone::{Event, EventListener, Options};

use crate::layout::plural;
use crate::output::{amount, note};

/// The options, with a listener that reports both on standard error: a line for people, an object
/// under `--json`.
pub fn telling(options: Options) -> Options {
    let teller = Teller { is_read_only: options.read_only };
    options.listener(Arc::new(teller))
}

/// Whether a file of a store contains such an end. The store does not read it.
pub fn is_kept(name: &str) -> bool {
    name.starts_with("lost-") && name.ends_with(".wal")
}

#[derive(Debug)]
struct Teller {
    is_read_only: bool,
}

impl EventListener for Teller {
    fn on_event(&self, event: &Event) {
        if let Event::BudgetAboveLimit { budget_bytes, limit_bytes } = event {
            let (budget, limit) = (amount(*budget_bytes), amount(*limit_bytes));
            return note(format!(
                "the memory budget is {budget}, and the control group of this process allows \
                 {limit}: it may be killed (see --memory-budget)"
            ));
        }
        let Event::LogEndLost { records, kept } = event else { return };
        let (told, verb) = (plural(*records, "record"), if *records == 1 { "is" } else { "are" });
        let where_to = match &kept[..] {
            [] if self.is_read_only => {
                "; an open for writing keeps the file as lost-NNNNNN.wal".to_string()
            }
            [] => String::new(),
            [one] => format!("; kept as {one}, which `runstone dump` reads"),
            [newest, .., oldest] => {
                format!("; kept as {oldest} to {newest}, which `runstone dump` reads")
            }
        };
        note(format!(
            "{told} at the end of the log {verb} not used: something before is gone, as after a \
             power loss{where_to}"
        ));
    }
}
