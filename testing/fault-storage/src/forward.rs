//! A macro for storages of tests that wrap another storage.

/// Implements the named methods of `Storage` or `StorageFile` by calling those of the field
/// `inner`. The types of the arguments and results must be in scope. The first argument of the
/// macro is the name by which `Result` is in scope.
#[macro_export]
macro_rules! forward {
    ($result:ident: $($name:ident)+) => { $($crate::forward!(@ $result $name);)+ };
    (@ $name:ident($($arg:ident: $of:ty),*) -> $to:ty) => {
        fn $name(&self, $($arg: $of),*) -> $to {
            self.inner.$name($($arg),*)
        }
    };
    (@ $r:ident create) => {
        $crate::forward!(@ create(name: &str, of: Category) -> $r<Arc<dyn StorageFile>>);
    };
    (@ $r:ident create_mapped) => {
        $crate::forward! {
            @ create_mapped(name: &str, of: Category, bytes: u64) -> $r<Arc<dyn StorageFile>>
        }
    };
    (@ $r:ident open) => {
        $crate::forward!(@ open(name: &str, of: Category) -> $r<Arc<dyn StorageFile>>);
    };
    (@ $r:ident open_mapped) => {
        $crate::forward!(@ open_mapped(name: &str, of: Category) -> $r<Arc<dyn StorageFile>>);
    };
    (@ $r:ident rename) => { $crate::forward!(@ rename(from: &str, to: &str) -> $r<()>); };
    (@ $r:ident remove) => { $crate::forward!(@ remove(name: &str) -> $r<()>); };
    (@ $r:ident list) => { $crate::forward!(@ list() -> $r<Vec<FileInfo>>); };
    (@ $r:ident sync_dir) => { $crate::forward!(@ sync_dir() -> $r<()>); };
    (@ $r:ident lock) => {
        $crate::forward!(@ lock(name: &str, mode: LockMode) -> $r<Option<Box<dyn StorageLock>>>);
    };
    (@ $r:ident create_sibling) => {
        $crate::forward!(@ create_sibling(path: &Path) -> $r<Arc<dyn Storage>>);
    };
    (@ $r:ident link_into) => {
        $crate::forward!(@ link_into(name: &str, of: Category, target: &dyn Storage) -> $r<()>);
    };
    (@ $r:ident counters) => { $crate::forward!(@ counters() -> &Counters); };
    (@ $r:ident location) => { $crate::forward!(@ location() -> String); };
    (@ $r:ident read_at) => {
        $crate::forward!(@ read_at(offset: u64, buffer: &mut [u8]) -> $r<()>);
    };
    (@ $r:ident write_at) => { $crate::forward!(@ write_at(offset: u64, data: &[u8]) -> $r<()>); };
    (@ $r:ident sync) => { $crate::forward!(@ sync() -> $r<()>); };
    (@ $r:ident len) => { $crate::forward!(@ len() -> $r<u64>); };
    (@ $r:ident set_len) => { $crate::forward!(@ set_len(bytes: u64) -> $r<()>); };
    (@ $r:ident allocate) => { $crate::forward!(@ allocate(offset: u64, bytes: u64) -> $r<()>); };
    (@ $r:ident punch) => { $crate::forward!(@ punch(offset: u64, bytes: u64) -> $r<()>); };
}
