//! Emulated flash devices by URL: a KVSSD, which is a store, and a block SSD, which contains files.
//! This folder has everything that only a device can do. The devices are `runstone-flash`.

mod costs;
mod import;
mod layers;
mod map;
mod report;

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use runstone::storage::Storage;
use runstone::{DEFAULT_KEYSPACE, Durability, Value};
pub use runstone_device::url::device_options as options;
use runstone_device::{DeviceUrl, Kind, KvSsdStore};
use runstone_flash::block::BlockStorage;
use runstone_kv::{Error as KvError, KvStore, KvWrite};

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::opened::{Drawing, Entries, Figures, Limits, Opened, Target, Verified};
use crate::range::{Entry, Range, Visit};

/// The URL of a device.
#[derive(Debug)]
pub struct Url {
    device: DeviceUrl,
    /// The block SSD, once it is open: one device for everything that is opened on it.
    block: OnceCell<BlockStorage>,
}

impl Url {
    /// Reads a URL; `None` if the text does not begin with a device's scheme.
    pub fn parse(text: &str) -> Result<Option<Url>> {
        let device = DeviceUrl::parse(text).transpose()?;
        Ok(device.map(|device| Url { device, block: OnceCell::new() }))
    }

    /// Whether the device is a store; if not, it contains files.
    pub fn is_store(&self) -> bool {
        self.device.kind == Kind::KvSsd
    }

    /// Refuses options that only a store of files has.
    pub fn check(&self, keyspace: &str, has_engine_options: bool) -> Result<()> {
        let place = self.device.path.display();
        match () {
            () if !self.is_store() => Ok(()),
            () if has_engine_options => {
                let what = "a KVSSD has no options of the file engine";
                Err(Failure::usage(what, "write its options into the URL: kvssd:PATH?th=2"))
            }
            () if keyspace != DEFAULT_KEYSPACE => {
                let what = "a KVSSD has no keyspaces";
                Err(Failure::usage(what, "leave out --keyspace").at(place))
            }
            () => Ok(()),
        }
    }

    /// Opens the device that is a store.
    pub fn open(&self, may_make: bool) -> runstone_kv::Result<Box<dyn Opened>> {
        Ok(Box::new(self.device.open_kvssd(may_make)?))
    }

    /// The files on the device, opened once.
    pub fn storage(&self, may_make: bool) -> runstone_kv::Result<Arc<dyn Storage>> {
        if self.is_store() {
            let hint = "put, get, delete, scan, count, import, export, demo, bench, shape, \
                        stats, verify, compact and dump take it";
            return Err(KvError::invalid("this command does not work on a KVSSD", hint));
        }
        let block = match self.block.get() {
            Some(open) => open,
            None => {
                let opened = self.device.open_block(may_make)?;
                self.block.get_or_init(|| opened)
            }
        };
        Ok(Arc::new(block.clone()))
    }

    /// The writes of the layers below the files, if the files were opened.
    pub fn flash(&self, user_bytes: u64) -> Option<Figures> {
        self.block.get().map(|block| layers::figures(&block.layers(), user_bytes))
    }

    /// Whether there is a device.
    pub fn exists(&self) -> bool {
        self.device.exists()
    }

    /// Removes the progress of an import into another device that was at this place.
    pub fn forget_import(&self) -> Result<()> {
        import::progress_files(&self.device.path).iter().try_for_each(|path| import::remove(path))
    }

    /// Files that contain the device, or may contain it.
    pub fn places(&self) -> Vec<PathBuf> {
        [self.device.files(), import::progress_files(&self.device.path).to_vec()].concat()
    }
}

impl Entries for KvSsdStore {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Ok(KvStore::get(self, key)?)
    }

    fn write(&self, writes: &[KvWrite<'_>], durability: Durability) -> Result<()> {
        Ok(KvStore::write(self, writes, durability)?)
    }

    fn walk(&self, range: &Range, visit: &mut Visit<'_>) -> Result<u64> {
        let mut outcome = Ok(());
        let count = range.walk_while(self, |key, value| {
            let entry = Entry { key, value, expires_ms: None };
            outcome = interrupt::check().and_then(|()| visit(Ok(entry)));
            outcome.is_ok()
        })?;
        outcome.map(|()| count)
    }
}

impl Opened for KvSsdStore {
    fn entries(&self) -> &dyn Entries {
        self
    }

    fn kv(&self) -> &dyn KvStore {
        self
    }

    fn estimate(&self) -> Option<u64> {
        Some(self.device().tree().nodes().map(|node| node.record_count).sum())
    }

    fn holds_data(&self) -> Result<bool> {
        Ok(self.device().tree().last_seq() > 0)
    }

    fn limits(&self) -> Limits {
        let device = self.device();
        Limits {
            key_bytes: device.max_key_bytes() as u64,
            value_bytes: device.max_value_bytes() as u64,
        }
    }

    fn used_bytes(&self) -> u64 {
        let device = self.device();
        device.live_pages() * u64::from(device.nand().geometry().page_bytes)
    }

    fn drawing(&self) -> Result<Box<dyn Drawing>> {
        Ok(Box::new(map::Map::of(self)))
    }

    fn stats(&self, _keyspace: Option<&str>, range: &Range) -> Result<Figures> {
        match range.is_everything() {
            true => Ok(report::figures(&self.device())),
            false => {
                let what = "the figures of a KVSSD are those of the whole device";
                Err(Failure::usage(what, "leave out --prefix, --from and --to"))
            }
        }
    }

    fn compact(&self, _keyspace: Option<&str>, range: &Range) -> Result<()> {
        if !range.is_everything() {
            let what = "a KVSSD compacts all of its keys";
            return Err(Failure::usage(what, "leave out --prefix, --from and --to"));
        }
        Ok(KvStore::compact(self)?)
    }

    fn prometheus(&self) -> Result<String> {
        let what = "the counters of a KVSSD are not exposed to Prometheus";
        Err(Failure::usage(what, "pass --json").at("--prometheus"))
    }

    fn verify(&self) -> Result<Verified> {
        Ok(report::verified(&KvSsdStore::verify(self)?))
    }

    fn dump(&self, has_entries: bool) -> Result<Figures> {
        report::dump(self, has_entries)
    }

    fn costs(&self, live_bytes: u64) -> Result<Figures> {
        Ok(costs::figures(&self.device(), live_bytes))
    }

    fn into_target(
        self: Box<Self>,
        source: Option<&Path>,
        how: &str,
        durability: Durability,
    ) -> Result<Box<dyn Target>> {
        Ok(Box::new(import::DeviceTarget::new(*self, source, how, durability)?))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.sync()?)
    }
}
