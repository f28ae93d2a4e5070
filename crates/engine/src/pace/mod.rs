//! Decides how fast writers and jobs may work, and when the writes of jobs are sent to the disk. It
//! only decides; its callers wait.

pub(crate) mod io_rate;
pub(crate) mod pacing;
pub(crate) mod target;
pub(crate) mod throttle;
pub(crate) mod write_back;
