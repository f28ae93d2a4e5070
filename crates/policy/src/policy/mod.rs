//! The trait of a compaction policy, and operations that work under every policy: the plan for a
//! whole tree, the space bound, the placement of a bulk load. Not here: the policies, which are in
//! `policies/`.

mod contract;
pub mod expired;
pub mod idle;
pub mod load;
pub mod range;
pub mod space;
pub mod whole;

pub use contract::*;
pub use expired::expired_plan;
pub use idle::idle_plan;
pub use load::load_edit;
pub use space::{next_plan, space_percent};
