//! URLs of devices: what their options are, and how to open the device that a URL names.
//!
//! ```text
//! kvssd:PATH?name=value&..   or   blockssd:PATH?name=value&..
//! ```
//!
//! [`device_options`] explains the names.
//!
//! A device keeps its geometry, and a KVSSD its options: a URL without options opens the device as
//! it is. Sizes of the geometry, if given, must match the image. If any other option of a KVSSD is
//! given, the ones left out take their defaults.

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use runstone_flash::Error as FlashError;
use runstone_flash::block::{BlockOptions, BlockStorage};
use runstone_flash::ftl::GcFrontier;
use runstone_flash::kvssd::{
    Durability, FilterAllocation, KvSsd, KvSsdOptions, ValuePlacement, cut_names,
};
use runstone_flash::nand::{FileImage, Geometry, Image, Timing};
use runstone_kv::{Error, Result};

use crate::kvssd::{KvSsdStore, explain};

/// The kind of device that a URL names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A device that is a store.
    KvSsd,
    /// A device that stores files.
    BlockSsd,
}

/// A URL, split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceUrl {
    /// Which device.
    pub kind: Kind,
    /// The image.
    pub path: PathBuf,
    /// The geometry, if any of its sizes is given.
    geometry: Option<Geometry>,
    /// The options, if any of them is given.
    kvssd: Option<KvSsdOptions>,
    block: BlockOptions,
    timing: Timing,
}

impl DeviceUrl {
    /// Reads a URL; `None` if the text does not begin with a device's scheme.
    pub fn parse(text: &str) -> Option<Result<DeviceUrl>> {
        let (scheme, rest) = text.split_once(':')?;
        let kind = match scheme {
            "kvssd" => Kind::KvSsd,
            "blockssd" => Kind::BlockSsd,
            _ => return None,
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = DeviceUrl {
            kind,
            path: PathBuf::from(path),
            geometry: None,
            kvssd: None,
            block: BlockOptions::default(),
            timing: Timing::PAPER,
        };
        if path.is_empty() {
            let hint = format!("name a file: {scheme}:nand.img");
            return Some(Err(Error::invalid("the image has no path", hint)));
        }
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        // The variant comes first, because it sets the other options.
        let (first, others): (Vec<&str>, Vec<&str>) =
            pairs.partition(|pair| pair.starts_with("policy="));
        for pair in first.into_iter().chain(others) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let Err(error) = url.set(name, value) {
                return Some(Err(error));
            }
        }
        let is_inline = |options: &KvSsdOptions| options.values == ValuePlacement::Inline;
        if query.split('&').any(|pair| pair.starts_with("values_from="))
            && url.kvssd.as_ref().is_some_and(is_inline)
        {
            let what = "values_from says nothing while values are inline";
            return Some(Err(Error::invalid(what, "add values=log or values=groups")));
        }
        Some(Ok(url))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if self.set_geometry(name, value)? {
            return Ok(());
        }
        match (name, self.kind) {
            ("timing", _) => {
                let names: Vec<&str> = Timing::PRESETS.iter().map(|preset| preset.name).collect();
                let found = Timing::by_name(value);
                self.timing = found.ok_or_else(|| choice(name, value, &names))?;
                Ok(())
            }
            (_, Kind::KvSsd) => self.set_kvssd(name, value),
            (_, Kind::BlockSsd) => self.set_block(name, value),
        }
    }

    /// Sets an option of the geometry; false if the geometry has no such option.
    fn set_geometry(&mut self, name: &str, value: &str) -> Result<bool> {
        let mut geometry = self.geometry.unwrap_or_default();
        let field = match name {
            "blocks" => &mut geometry.block_count,
            "page" => &mut geometry.page_bytes,
            "block_pages" => &mut geometry.block_pages,
            "channels" => &mut geometry.channel_count,
            "dies" => &mut geometry.die_count,
            _ => return Ok(false),
        };
        *field = number(name, value)?;
        self.geometry = Some(geometry);
        Ok(true)
    }

    fn set_kvssd(&mut self, name: &str, value: &str) -> Result<()> {
        let options = self.kvssd.get_or_insert_default();
        match name {
            "policy" => {
                let known = ["nlsm", "dlsm", "llsm", "rlsm-", "rlsm"];
                let found = KvSsdOptions::by_name(value);
                *options = found.ok_or_else(|| choice(name, value, &known))?;
            }
            "th" => {
                let wrong = |_| {
                    let what = format!("option {name}: {value} is not from 0 to 32");
                    Error::invalid(what, "change the options of the URL")
                };
                options.threshold = u8::try_from(number(name, value)?).map_err(wrong)?;
            }
            "op" => options.over_provision_percent = number(name, value)?,
            "memtable" => options.memtable_pages = number(name, value)?,
            "l1" => options.level1_pages = number(name, value)?,
            "ratio" => options.size_ratio = number(name, value)?,
            "l0" => options.l0_trigger = number(name, value)?,
            "compaction" => options.policy = value.to_string(),
            "cuts" => {
                let found = KvSsdOptions::cuts_by_name(value);
                options.cuts = found.ok_or_else(|| choice(name, value, &[&cut_names()]))?;
            }
            "filters" => {
                options.filters = match value {
                    "none" => FilterAllocation::None,
                    "uniform" => FilterAllocation::Uniform,
                    "optimal" => FilterAllocation::Optimal,
                    _ => return Err(choice(name, value, &["none", "uniform", "optimal"])),
                }
            }
            "values" => {
                let known = ValuePlacement::ALL.map(ValuePlacement::name);
                let found = ValuePlacement::ALL.into_iter().find(|one| one.name() == value);
                options.values = found.ok_or_else(|| choice(name, value, &known))?;
            }
            "values_from" => options.values_from = number(name, value)?,
            "durability" => {
                options.durability = match value {
                    "plp" => Durability::Capacitor,
                    "log" => Durability::Log,
                    _ => return Err(choice(name, value, &["plp", "log"])),
                }
            }
            _ => return Err(unknown(name, KVSSD_OPTIONS, why_not(name, ""))),
        }
        Ok(())
    }

    fn set_block(&mut self, name: &str, value: &str) -> Result<()> {
        let ftl = &mut self.block.ftl;
        match (name, value) {
            ("queue_depth", "0") => return Err(choice(name, value, &["1 (none)", "more"])),
            ("queue_depth", _) => self.block.queue_depth = number(name, value)?,
            ("op", _) => ftl.over_provision_percent = number(name, value)?,
            ("gc", "split") => ftl.gc_frontier = GcFrontier::Split,
            ("gc", "shared") => ftl.gc_frontier = GcFrontier::Shared,
            ("gc", _) => return Err(choice(name, value, &["split", "shared"])),
            ("trim", "on") => ftl.is_trim_on = true,
            ("trim", "off") => ftl.is_trim_on = false,
            ("trim", _) => return Err(choice(name, value, &["on", "off"])),
            _ => return Err(unknown(name, BLOCK_OPTIONS, None)),
        }
        Ok(())
    }

    /// The files of the device: the image, under its own name and under its name while it is being
    /// made, and the side file of a KVSSD.
    pub fn files(&self) -> Vec<PathBuf> {
        match self.kind {
            Kind::KvSsd => vec![self.path.clone(), self.path_with(".new"), self.side_path()],
            Kind::BlockSsd => vec![self.path.clone(), self.path_with(".new")],
        }
    }

    /// Whether there is an image. An empty file does not count: the process that made it was
    /// killed.
    pub fn exists(&self) -> bool {
        let found = self.path.metadata();
        found.is_ok_and(|found| !found.is_file() || found.len() > 0)
    }

    /// Opens the KVSSD, or makes it if there is no image and that is allowed.
    pub fn open_kvssd(&self, may_create: bool) -> Result<KvSsdStore> {
        if self.kind != Kind::KvSsd {
            let hint = "open it as kvssd:";
            return Err(Error::invalid("a block SSD speaks blocks, not keys", hint));
        }
        let place = self.path.display().to_string();
        self.check_presence(may_create)?;
        let made = if self.exists() { Ok(()) } else { self.make() };
        let opened = made.and_then(|()| self.open_existing());
        Ok(KvSsdStore::new(opened.map_err(|error| explain(&place, error))?, place))
    }

    fn open_existing(&self) -> runstone_flash::Result<KvSsd> {
        let image = Box::new(FileImage::open(&self.path)?);
        KvSsd::open(image, self.side()?, self.geometry, self.timing, self.kvssd.clone())
    }

    fn make(&self) -> runstone_flash::Result<()> {
        let geometry = self.geometry.unwrap_or_default();
        let options = self.kvssd.clone().unwrap_or_default();
        options.check(&geometry)?;
        self.make_image(|image| KvSsd::create(image, self.side()?, geometry, self.timing, options))
    }

    /// Makes an image with a device on it. The image has another name until it is whole, so a
    /// process that is killed before then leaves nothing that looks like a device. The next attempt
    /// overwrites the unfinished image.
    fn make_image<T>(
        &self,
        device: impl FnOnce(Box<dyn Image>) -> runstone_flash::Result<T>,
    ) -> runstone_flash::Result<()> {
        let path = self.path_with(".new");
        let image = match FileImage::create(&path) {
            Err(FlashError::Image { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {
                FileImage::open(&path)?
            }
            created => created?,
        };
        // The file is locked now. Before that, another process may have finished the device and
        // opened it.
        if self.exists() {
            return Err(FlashError::InUse { place: self.path.display().to_string() });
        }
        image.set_len(0)?;
        let made = device(Box::new(image)).and_then(|device| {
            let named = self.give_name(&path);
            // The lock file is removed once the image has its name.
            drop(device);
            named
        });
        made.inspect_err(|_| {
            // An unfinished image is not a device; the next attempt starts afresh.
            let _ = std::fs::remove_file(&path);
        })
    }

    /// Gives a whole image its name, and makes the name durable.
    fn give_name(&self, path: &Path) -> runstone_flash::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let synced = |path: &Path| File::open(path)?.sync_all();
        let named = synced(path)
            .and_then(|()| std::fs::rename(path, &self.path))
            .and_then(|()| synced(directory.unwrap_or(Path::new("."))));
        let place = self.path.display().to_string();
        named.map_err(|source| FlashError::Image { what: "rename", place, source })
    }

    /// The file beside the image in which the capacitor saves the memtable.
    fn side(&self) -> runstone_flash::Result<Box<dyn Image>> {
        let path = self.side_path();
        Ok(Box::new(match path.exists() {
            true => FileImage::open(&path)?,
            false => FileImage::create(&path)?,
        }))
    }

    fn side_path(&self) -> PathBuf {
        self.path_with(".plp")
    }

    fn path_with(&self, end: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_os_string();
        name.push(end);
        PathBuf::from(name)
    }

    /// Opens the block SSD, or makes it if there is no image and that is allowed.
    pub fn open_block(&self, may_create: bool) -> Result<BlockStorage> {
        let place = self.path.display().to_string();
        self.check_presence(may_create)?;
        let options = BlockOptions { timing: self.timing, ..self.block };
        let geometry = self.geometry.unwrap_or_default();
        let make = || self.make_image(|image| BlockStorage::create(image, geometry, options));
        let open = || {
            if !self.exists() {
                make()?;
            }
            BlockStorage::open(Box::new(FileImage::open(&self.path)?), self.geometry, options)
        };
        open().map_err(|error| explain(&place, error))
    }

    fn check_presence(&self, may_create: bool) -> Result<()> {
        if !may_create && !self.exists() {
            let path = self.path.display().to_string();
            return Err(runstone::Error::NotAStore { path }.into());
        }
        Ok(())
    }
}

const BOTH_OPTIONS: &[(&str, &str)] = &[
    ("blocks", "erase blocks of the image; 384"),
    ("page", "bytes of a page; 32768"),
    ("block_pages", "pages of a block; 128"),
    ("channels", "channels that work side by side"),
    ("dies", "dies on each channel"),
    ("timing", "simulated times: paper, mlc or tlc"),
    ("op", "percent of the flash that is kept free of user data; 5"),
];

const KVSSD_OPTIONS: &[(&str, &str)] = &[
    ("policy", "nlsm, dlsm (delays), llsm (appends), rlsm- (remaps), rlsm"),
    ("th", "most strata, 2; dlsm: tables behind one, 20; llsm: segments, 32"),
    ("memtable", "pages that the memtable fills; 128"),
    ("l1", "capacity of level 1 in pages; 320"),
    ("ratio", "how many times larger each deeper level is; runs under tiering; 10"),
    ("l0", "tables of level 0 that call for a compaction; 4"),
    ("compaction", "fragmented-leveling, leveling, garnering or tiering"),
    ("cuts", "tables end by size (nlsm), global-range, grouped-global-range"),
    ("filters", "in the metadata pages, ten bits a key: none, uniform, optimal"),
    ("values", "inline, or separated from keys: log, groups (by hash of the key)"),
    ("values_from", "bytes from which a value is separated; 256"),
    ("durability", "plp (a capacitor saves the memtable) or log (pages)"),
];

const BLOCK_OPTIONS: &[(&str, &str)] = &[
    ("gc", "where moved pages go: split (blocks of their own), shared"),
    ("queue_depth", "requests of a page under way at once; 1"),
    ("trim", "on: removed files free their pages at once; off"),
];

/// The options of each scheme and what they mean, for help.
pub fn device_options() -> [(&'static str, Vec<(&'static str, &'static str)>); 2] {
    [("kvssd", KVSSD_OPTIONS), ("blockssd", BLOCK_OPTIONS)]
        .map(|(scheme, own)| (scheme, [BOTH_OPTIONS, own].concat()))
}

fn number(name: &str, value: &str) -> Result<u32> {
    let wrong = |_| Error::invalid(format!("{name}={value} is not a number"), "write digits");
    value.parse().map_err(wrong)
}

/// Options and values that a store of files has and a KVSSD does not, and why. An empty value means
/// all values.
const OF_FILES: &[(&str, &str, &str)] = &[
    ("cuts", "none", "a table fills a block of flash, and is cut there"),
    ("cuts", "local-range", "the firmware cuts by size, or by bounds that outlast a compaction"),
    ("cuts", "prefix", "it is for adaptive-tiering, which the firmware does not drive"),
    ("values", "cold-stream", "the device's map of values has no tags"),
    ("values", "writeback", "the device's map leads to values that moved"),
    ("compaction_install", "", "the firmware does so by itself where room is short"),
    ("sub_compactions", "", "the firmware has one thread"),
    ("partition_flushes", "", "flushed tables fill blocks of flash"),
];

fn why_not(name: &str, value: &str) -> Option<&'static str> {
    let is_it = |of: &&(&str, &str, &str)| of.0 == name && (of.1 == value || of.1.is_empty());
    OF_FILES.iter().find(is_it).map(|(_, _, why)| *why)
}

fn choice(name: &str, value: &str, known: &[&str]) -> Error {
    let hint = format!("choose among: {}", known.join(", "));
    let why = why_not(name, value).unwrap_or("it is unknown");
    Error::invalid(format!("{name}={value}: {why}"), hint)
}

fn unknown(name: &str, known: &[(&str, &str)], why: Option<&str>) -> Error {
    let known: Vec<&str> = BOTH_OPTIONS.iter().chain(known).map(|(name, _)| *name).collect();
    let hint = format!("it has: {}", known.join(", "));
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    Error::invalid(format!("a device has no option {name:?}{why}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DeviceUrl> {
        DeviceUrl::parse(text).expect("a device's scheme")
    }

    #[test]
    fn urls_are_taken_apart() {
        let url = parse("kvssd:a/b.img?th=3&blocks=64&policy=rlsm-&durability=log").unwrap();
        assert_eq!((url.kind, url.path.to_str()), (Kind::KvSsd, Some("a/b.img")));
        let (geometry, options) = (url.geometry.unwrap(), url.kvssd.unwrap());
        assert_eq!((geometry.block_count, options.threshold), (64, 3));
        assert_eq!((options.name(), options.durability), ("rlsm-", Durability::Log));
        let options = parse("kvssd:x?policy=dlsm").unwrap().kvssd.unwrap();
        assert_eq!((options.name(), options.threshold), ("dlsm", 20));
        let options = parse("kvssd:x?policy=llsm").unwrap().kvssd.unwrap();
        assert_eq!((options.name(), options.threshold), ("llsm", 32));
        let url = parse("blockssd:x?gc=shared&trim=on&timing=mlc&queue_depth=32").unwrap();
        assert_eq!((url.block.queue_depth, BlockOptions::default().queue_depth), (32, 1));
        assert_eq!(url.block.ftl.gc_frontier, GcFrontier::Shared);
        assert!(url.block.ftl.is_trim_on && url.geometry.is_none());
        assert!(DeviceUrl::parse("mem:").is_none() && DeviceUrl::parse("plain").is_none());
    }

    #[test]
    fn every_option_that_help_names_is_known() {
        for (scheme, options) in device_options() {
            for (name, _) in options {
                let error = parse(&format!("{scheme}:x?{name}=?")).err();
                let text = error.map(|error| error.to_string()).unwrap_or_default();
                assert!(!text.contains("no option"), "{scheme} {name}: {text}");
            }
        }
        let url = parse("kvssd:x?values=groups&values_from=64&policy=rlsm").unwrap();
        let options = url.kvssd.unwrap();
        assert_eq!((options.values.name(), options.values_from), ("groups", 64));
        let url = parse("kvssd:x?policy=rlsm&cuts=grouped-global-range").unwrap();
        assert_eq!(url.kvssd.unwrap().cuts.rule().name(), "grouped-global-range");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("kvssd:", "no path"),
            ("kvssd:x?blocks=many", "blocks=many"),
            ("kvssd:x?gc=split", "\"gc\""),
            ("kvssd:x?policy=lsm", "policy=lsm"),
            ("kvssd:x?cuts=prefix", "cuts=prefix"),
            ("kvssd:x?values=vlog", "values=vlog: it is unknown"),
            ("kvssd:x?sub_compactions=slices", "one thread"),
            ("blockssd:x?sub_compactions=slices", "option \"sub_compactions\""),
            ("kvssd:x?values_from=-1", "values_from=-1"),
            ("kvssd:x?values_from=64", "values_from says nothing"),
            ("blockssd:x?th=2", "\"th\""),
            ("blockssd:x?timing=fast", "timing=fast"),
            ("blockssd:x?queue_depth=0", "queue_depth=0"),
            ("kvssd:x?queue_depth=2", "\"queue_depth\""),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
