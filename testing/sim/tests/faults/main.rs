//! Operations that fail while the process continues: errors, short writes, failed syncs, full
//! disks.

mod any_operation;
mod full_at_open;
mod full_by_hand;
mod full_deletes;
mod full_disk;
mod open_files;
