//! The native methods of `org.runstone.Native`, and nothing else. The Java interface is in
//! `bindings/java/runstone-java`.
//!
//! * [`calls`]: the entry and exit of each method. Panics and errors become Java exceptions.
//! * [`bytes`]: byte arrays and direct buffers as slices. The only unsafe code.
//! * [`stores`], [`keyspaces`], [`snapshots`], [`cursors`], [`transactions`]: a module per object.
//! * [`backups`]: backups, archives and repairs. [`answers`]: answers with several fields.
//! * [`changes`]: committed changes, in order. [`mirrors`]: a second store that applies them.
//! * [`events`]: events for a listener in Java.
//! * [`batches`]: many writes in one call.
//!
//! Java keeps handles, which are numbers. Their tables refuse a closed handle.

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
