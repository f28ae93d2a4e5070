//! How fast writers and jobs may go, and when what jobs write goes to disk. Decisions only; their
//! callers wait.

pub(crate) mod io_rate;
pub(crate) mod pacing;
pub(crate) mod throttle;
pub(crate) mod write_back;
