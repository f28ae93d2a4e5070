//! What commands do on a KVSSD that they do otherwise on a store of files: figures, pictures,
//! imports. Opening is `opening.rs`; the device is `runstone-flash`.

mod costs;
mod import;
mod map;
mod report;

pub use costs::DeviceCosts;
pub use import::{DeviceTarget, progress_files};
pub use map::shape;
pub use report::{compact, dump, stats, verify};
