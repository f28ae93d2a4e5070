//! The types of handles, which C programs keep in place of objects. The module of each type
//! declares the object behind it.

/// An open store. Any number of threads may use it.
#[allow(non_camel_case_types)]
pub struct runstone_store(());

/// An ordered map from keys to values in a store. Any number of threads may use it. Keys have up to
/// 65,535 bytes and are ordered by their bytes; values have up to 4 GiB.
#[allow(non_camel_case_types)]
pub struct runstone_keyspace(());

/// Writes for runstone_write(). One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_batch(());

/// A view of all keyspaces that later writes do not change. Any number of threads may use it. While
/// the snapshot is open, the store keeps the data that it shows.
#[allow(non_camel_case_types)]
pub struct runstone_snapshot(());

/// A position in a keyspace, which moves. One thread at a time may use it. It shows the keyspace as
/// of the moment when it was made, or as of a snapshot.
#[allow(non_camel_case_types)]
pub struct runstone_cursor(());

/// Reads and writes that happen together or not at all. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_transaction(());

/// Writes a file for runstone_ingest(). One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_sorted_writer(());

/// Options for runstone_open(), which copies them. One thread at a time may use them.
#[allow(non_camel_case_types)]
pub struct runstone_options(());

/// Resources that many stores share: memory, threads, open files. Any number of threads may use
/// them.
#[allow(non_camel_case_types)]
pub struct runstone_resources(());

/// A directory of backups. Any number of threads may use it.
#[allow(non_camel_case_types)]
pub struct runstone_backups(());

/// Appends the changes committed to a store to the archive beside its backups. One thread at a time
/// may use it.
#[allow(non_camel_case_types)]
pub struct runstone_archiver(());

/// Reads the changes committed to a store, in order. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_changes(());

/// A store that follows another one, change by change. One thread at a time may use it.
#[allow(non_camel_case_types)]
pub struct runstone_mirror(());
