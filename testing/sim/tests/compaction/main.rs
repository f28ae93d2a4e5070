//! Compactions: any policy gives the same answers, and those in parts end between any two parts.

mod part_by_part;
mod policies;
