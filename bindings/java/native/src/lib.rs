//! The native methods of `org.runstone.Native`, and nothing else: what Java sees is in
//! `bindings/java/runstone-java`.
//!
//! * [`calls`]: what each method does at its edges: panics and errors become Java exceptions.
//! * [`bytes`]: byte arrays and direct buffers as slices. The only unsafe code.
//! * [`stores`], [`keyspaces`], [`snapshots`], [`cursors`], [`transactions`]: a module per object.
//! * [`backups`]: backups, archives and repairs. [`answers`]: answers with several fields.
//! * [`changes`]: what was committed, in order. [`mirrors`]: a second store that is made of it.
//! * [`events`]: what a listener in Java receives.
//! * [`batches`]: many writes in one call.
//!
//! Java holds handles, which are numbers: one that was closed is refused by its table.

mod answers;
mod backups;
mod batches;
mod bytes;
mod calls;
mod changes;
mod cursors;
mod events;
mod keyspaces;
mod mirrors;
mod snapshots;
mod stores;
mod transactions;
