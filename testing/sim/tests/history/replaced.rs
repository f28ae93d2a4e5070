//! Another copy is put in the place of a store while a reader of changes, a follower, a mirror
//! and an archiver of it run. They continue only if they show what is there now.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use runstone::{
    Archiver, Background, Backups, Change, Changes, ChangesFrom, Error, Follower, Kind, Mirror,
    Moment, Options, Result, Store, ValuePlacement,
};
use runstone_sim::random::{Random, for_seeds};
use runstone_sim::workload::{options, placed};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

const STEPS: usize = 150;

fn contents(store: &Store) -> Result<Content> {
    let own = |entry: Result<(_, runstone::Value)>| {
        entry.map(|(key, value): (Vec<u8>, _)| (key, value.to_vec()))
    };
    store.default_keyspace().iter()?.map(own).collect()
}

/// How a copy takes the place of a store.
#[derive(Clone, Copy, Debug)]
enum How {
    /// As by `cp -r`, into the existing files.
    InPlace,
    /// As by `rsync --delete`: files are replaced by other files, and those that the copy lacks are
    /// removed.
    Renamed,
    /// Into a new directory.
    Anew,
    /// The old directory gets another name, and stays.
    Moved,
}

struct Replaced {
    random: Random,
    directory: tempfile::TempDir,
    options: Options,
    store: Option<Store>,
    content: Content,
    /// The content of each copy.
    copies: Vec<Content>,
    /// The number of the next mirror, archive or directory.
    number: u64,
    changes: Option<(Changes, Content)>,
    follower: Option<Follower>,
    mirror: Option<Mirror>,
    archiver: Option<(Archiver, PathBuf)>,
    /// How often each of the four readers showed what is there.
    shown: [u32; 4],
}

impl Replaced {
    fn new(seed: u64) -> Replaced {
        let mut random = Random::new(seed ^ 0x3e91);
        let placements =
            [ValuePlacement::Inline, ValuePlacement::HashGrouped, ValuePlacement::Vlog];
        let placement = placements[random.below(3) as usize];
        let mut options = placed(options(seed, Background::Manual), placement)
            .keep_log_bytes(random.below(2) << 25)
            .flush_at_close(random.one_in(2));
        options.seed = None;
        let mut replaced = Replaced {
            random,
            directory: tempfile::tempdir().expect("a directory"),
            options,
            store: None,
            content: Content::new(),
            copies: Vec::new(),
            number: 0,
            changes: None,
            follower: None,
            mirror: None,
            archiver: None,
            shown: [0; 4],
        };
        replaced.store = Some(replaced.open().expect("a new store"));
        replaced
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn next_path(&mut self) -> PathBuf {
        self.number += 1;
        self.path(&format!("other{}", self.number))
    }

    fn open(&self) -> Result<Store> {
        let store = Store::open(self.path("store"), self.options.clone())?;
        assert!(contents(&store)? == self.content, "it shows another state");
        Ok(store)
    }

    fn close(&mut self) {
        self.store.take().expect("open").close().expect("no faults");
    }

    fn write(&mut self) {
        let store = self.store.clone().expect("open");
        for _ in 0..=self.random.below(8) {
            let key = format!("key{:02}", self.random.below(30)).into_bytes();
            if self.random.one_in(6) {
                store.delete(&key).expect("no faults");
                self.content.remove(&key);
                continue;
            }
            let bytes = [10, 100, 3000][self.random.below(3) as usize];
            let value = vec![self.random.draw() as u8; bytes];
            store.put(&key, &value).expect("no faults");
            self.content.insert(key, value);
        }
        match self.random.below(16) {
            0 | 1 => store.flush().expect("no faults"),
            2 | 3 => drop(store.run_one_job().expect("no faults")),
            4 => store.collect_values().expect("no faults"),
            _ => {}
        }
    }

    /// Copies the running store, at rest.
    fn copy(&mut self) {
        let to = self.path(&format!("copy{}", self.copies.len()));
        fs::create_dir(&to).expect("it is new");
        lay(&self.path("store"), &to, false);
        self.copies.push(self.content.clone());
    }

    fn replace(&mut self) {
        let Some(last) = (self.copies.len() as u64).checked_sub(1) else { return };
        let copy = self.random.below(last + 1) as usize;
        let hows = [How::InPlace, How::Renamed, How::Anew, How::Moved];
        let how = hows[self.random.below(4) as usize];
        let (path, from) = (self.path("store"), self.path(&format!("copy{copy}")));
        self.close();
        match how {
            How::InPlace => lay(&from, &path, false),
            How::Renamed => {
                remove_others(&path, &from);
                lay(&from, &path, true);
            }
            How::Anew | How::Moved => {
                let away = self.next_path();
                fs::rename(&path, &away).expect("on one file system");
                fs::create_dir(&path).expect("it is away");
                lay(&from, &path, false);
                if matches!(how, How::Anew) {
                    fs::remove_dir_all(away).expect("it is there");
                }
            }
        }
        self.content = self.copies[copy].clone();
        let opened = self.open().or_else(|error| {
            // Files that stayed do not belong to the copy.
            let is_told = matches!(error, Error::Corruption { .. });
            assert!(is_told && !matches!(how, How::Anew | How::Moved), "{how:?}: {error}");
            fs::remove_dir_all(&path).expect("it is there");
            fs::create_dir(&path).expect("it is away");
            lay(&from, &path, false);
            self.open()
        });
        self.store = Some(opened.expect("a whole copy"));
        (0..self.random.below(3)).for_each(|_| self.write());
    }

    fn read_changes(&mut self) -> Result<()> {
        let (mut changes, mut known) = match self.changes.take() {
            Some(running) => running,
            None => (Changes::open(self.path("store"), ChangesFrom::Now)?, self.content.clone()),
        };
        while let Some(changed) = changes.next()? {
            let Change::Writes(batch) = changed.change else { continue };
            for operation in batch.operations() {
                let key = operation.key.to_vec();
                match operation.kind {
                    Kind::Put => drop(known.insert(key, operation.plain_value().to_vec())),
                    _ => drop(known.remove(&key)),
                }
            }
        }
        assert!(known == self.content, "the changes lead to another state");
        self.shown[0] += 1;
        self.changes = Some((changes, known));
        Ok(())
    }

    fn follow(&mut self) -> Result<()> {
        let follower = match self.follower.take() {
            Some(running) => running,
            None => Store::follow(self.path("store"), self.options.clone())?,
        };
        follower.refresh()?;
        assert!(contents(&follower.store())? == self.content, "the follower shows another state");
        self.shown[1] += 1;
        self.follower = Some(follower);
        Ok(())
    }

    fn mirror(&mut self) -> Result<()> {
        let mut mirror = match self.mirror.take() {
            Some(running) => running,
            None => {
                let to = self.next_path();
                Mirror::open(self.path("store"), to, self.options.clone())?
            }
        };
        mirror.advance(Duration::ZERO)?;
        assert!(contents(mirror.store())? == self.content, "the mirror shows another state");
        self.shown[2] += 1;
        self.mirror = Some(mirror);
        Ok(())
    }

    fn archive(&mut self) -> Result<()> {
        let (mut archiver, to) = match self.archiver.take() {
            Some(running) => running,
            None => {
                let to = self.next_path();
                (Backups::open(&to)?.archive(self.path("store"))?, to)
            }
        };
        archiver.advance(Duration::ZERO)?;
        let restored = tempfile::tempdir().expect("a directory");
        Backups::open(&to)?.restore_to(Moment::End, restored.path()).expect("restores");
        let store = Store::open(restored.path(), self.options.clone()).expect("opens");
        assert!(contents(&store)? == self.content, "the archive ends with another state");
        self.shown[3] += 1;
        self.archiver = Some((archiver, to));
        Ok(())
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..45 => self.write(),
            // An error ends the reader, and says that it cannot continue here.
            45..55 => drop(self.read_changes()),
            55..65 => drop(self.follow()),
            65..73 => drop(self.mirror()),
            73..78 => drop(self.archive()),
            78..86 => self.copy(),
            86..92 => {
                self.close();
                self.store = Some(self.open().expect("opens"));
            }
            _ => self.replace(),
        }
    }
}

/// Copies all files into a directory: into the existing files, or into other files.
fn lay(from: &Path, to: &Path, renames: bool) {
    for file in fs::read_dir(from).expect("a directory") {
        let file = file.expect("listed");
        let last = to.join(file.file_name());
        let first = if renames { to.join("part~") } else { last.clone() };
        fs::copy(file.path(), &first).expect("copied");
        fs::rename(first, last).expect("renamed");
    }
}

/// Removes the files that a copy lacks.
fn remove_others(path: &Path, copy: &Path) {
    for file in fs::read_dir(path).expect("a directory") {
        let file = file.expect("listed");
        if !copy.join(file.file_name()).exists() {
            fs::remove_file(file.path()).expect("removed");
        }
    }
}

/// Once, a follower showed tables of the copy with writes of the store that was there before.
/// Mirrors and archives continued with the manifest that they had open, although another file had
/// its name.
#[test]
fn readers_that_run_notice_another_copy_in_the_place() {
    let mut shown = [0; 4];
    for_seeds(6, |seed| {
        let mut replaced = Replaced::new(seed);
        (0..STEPS).for_each(|_| replaced.step());
        (0..4).for_each(|i| shown[i] += replaced.shown[i]);
    });
    assert!(shown.iter().all(|count| *count > 0), "{shown:?}: some never showed anything");
}
