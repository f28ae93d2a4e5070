//! Imports into a KVSSD. It has one space of keys, so the progress of an import is kept in a file
//! beside the image. That file is written after each batch.
//!
//! After a kill between the batch and the file, the next import repeats the batch, which changes
//! nothing: records are written again in the same order. A power loss of the machine may leave the
//! file ahead of the device. The sequence number in the file shows this, and the import begins
//! again.

use std::fs;
use std::path::{Path, PathBuf};

use runstone::Durability;
use runstone_device::KvSsdStore;
use runstone_flash::kvssd;
use runstone_kv::{KvStore, KvWrite};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};
use crate::opened::Target;
use crate::transfer::Record;
use crate::transfer::progress::{Progress, source_key};

/// A batch also ends at this size, because the device writes it as a whole.
const MOST_BATCH_BYTES: usize = 1 << 20;

/// The content of the file beside the image.
#[derive(Serialize, Deserialize)]
struct Saved {
    source: String,
    last_seq: u64,
    progress: Progress,
}

/// Where an import into the device of this image keeps its progress, and the file that replaces it.
pub fn progress_files(image: &Path) -> [PathBuf; 2] {
    [".import", ".import-new"].map(|end| {
        let mut name = image.as_os_str().to_os_string();
        name.push(end);
        PathBuf::from(name)
    })
}

/// Removes a file that may be there.
pub fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::file(path, "remove", &error))
        }
        _ => Ok(()),
    }
}

/// See the module docs.
pub struct DeviceTarget {
    device: KvSsdStore,
    /// `None` if the source cannot be read again: then no progress is kept.
    source: Option<String>,
    path: PathBuf,
    new_path: PathBuf,
    batch: Vec<(Vec<u8>, Vec<u8>)>,
    batch_bytes: usize,
    durability: Durability,
}

impl DeviceTarget {
    /// Prepares the import of a source. `how` says how the source is read.
    pub fn new(
        device: KvSsdStore,
        source: Option<&Path>,
        how: &str,
        asked: Durability,
    ) -> Result<DeviceTarget> {
        // An unsynced log loses its end when the process is killed, and the import would
        // lose its place.
        let durability = match device.device().options().durability {
            kvssd::Durability::Capacitor => asked,
            kvssd::Durability::Log => Durability::Sync,
        };
        let [path, new_path] = progress_files(Path::new(device.place()));
        let source = source.map(|source| source_key(source, how)).transpose()?;
        let batch = Vec::new();
        Ok(DeviceTarget { device, source, path, new_path, batch, batch_bytes: 0, durability })
    }

    fn save(&self, progress: &Progress) -> Result<()> {
        let Some(source) = &self.source else { return Ok(()) };
        let last_seq = self.device.device().tree().last_seq();
        let saved = Saved { source: source.clone(), last_seq, progress: progress.clone() };
        let text = serde_json::to_vec(&saved)
            .map_err(|error| Failure::usage(error, "import without resuming: --restart"))?;
        let failed = |error| Failure::file(&self.path, "write the progress to", &error);
        let written = fs::write(&self.new_path, text);
        written.and_then(|()| fs::rename(&self.new_path, &self.path)).map_err(failed)
    }
}

impl Target for DeviceTarget {
    fn left(&self) -> Result<Option<Progress>> {
        let saved = match fs::read(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| Failure::file(&self.path, "read", &error))?,
        };
        // A file that does not decode, or belongs to another source, counts as none.
        let saved = serde_json::from_slice::<Saved>(&saved).ok();
        let last_seq = self.device.device().tree().last_seq();
        let saved = saved.filter(|saved| self.source.as_ref() == Some(&saved.source));
        let saved = saved.filter(|saved| saved.last_seq <= last_seq);
        Ok(saved.map(|saved| saved.progress))
    }

    fn put(&mut self, record: Record) -> runstone_kv::Result<()> {
        let Record { key, value, expires_ms } = record;
        if expires_ms.is_some() {
            let what = "the record expires, and entries of a device do not; see --drop-expiry";
            return Err(runstone_kv::Error::invalid(
                what,
                "use a store of files, or --drop-expiry",
            ));
        }
        self.device.check(KvWrite::Put { key: &key, value: &value })?;
        self.batch_bytes += key.len() + value.len();
        self.batch.push((key, value));
        Ok(())
    }

    fn is_full(&self, most_records: u64) -> bool {
        self.batch.len() as u64 >= most_records || self.batch_bytes >= MOST_BATCH_BYTES
    }

    fn commit(&mut self, progress: Option<&Progress>) -> Result<()> {
        let writes = self.batch.iter().map(|(key, value)| KvWrite::Put { key, value });
        self.device.write(&writes.collect::<Vec<_>>(), self.durability)?;
        self.batch.clear();
        self.batch_bytes = 0;
        match progress {
            Some(progress) => self.save(progress),
            None => remove(&self.path),
        }
    }

    fn close(self: Box<Self>, _is_complete: bool) -> Result<()> {
        Ok(self.device.sync()?)
    }
}
