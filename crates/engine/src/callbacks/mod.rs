//! The code that programs plug into a store: listeners, operators, filters, clocks.

pub(crate) mod callback;
pub(crate) mod clock;
pub(crate) mod compaction_filter;
pub(crate) mod event;
pub(crate) mod merge_operator;
