//! A storage that does something when a file is opened.

use std::path::Path;
use std::sync::{Arc, Mutex};

use runstone::storage::{Category, Counters, FileInfo, LockMode, Result};
use runstone::storage::{Storage, StorageFile, StorageLock};
use runstone_fault_storage::{SimStorage, forward};

/// What happens when a file is opened.
pub type Hook = Box<dyn FnMut(&str) + Send>;

pub struct Hooked {
    inner: SimStorage,
    hook: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hooked")
    }
}

impl Hooked {
    pub fn new(inner: &SimStorage, hook: Hook) -> Arc<Hooked> {
        Arc::new(Hooked { inner: inner.clone(), hook: Mutex::new(Some(hook)) })
    }
}

impl Storage for Hooked {
    fn open(&self, name: &str, category: Category) -> Result<Arc<dyn StorageFile>> {
        // What the hook does may open files too.
        let hook = self.hook.lock().expect("no panic").take();
        if let Some(mut hook) = hook {
            hook(name);
            *self.hook.lock().expect("no panic") = Some(hook);
        }
        self.inner.open(name, category)
    }
    forward! {
        Result:
        create create_mapped open_mapped rename remove list sync_dir lock create_sibling
        link_into counters location
    }
}
