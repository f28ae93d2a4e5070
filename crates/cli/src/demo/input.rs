//! The files that a demonstration stores, and the fate of each: kept, updated or deleted.

use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use runstone_random::Random;

use crate::failure::{Failure, Result};
use crate::opened::Limits;
use crate::transfer::directory::Tree;

/// What an update appends.
const SECOND_VERSION: &[u8] = b"\nversion 2\n";

/// The content that the store must have for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not stored: it could not be read.
    Absent,
    Kept,
    Updated,
    Deleted,
}

/// A file's length and time of change when it was stored.
type Mark = Option<(u64, SystemTime)>;

/// The files, and their states.
pub struct Input {
    pub tree: Tree,
    pub states: Vec<State>,
    /// Files and bytes left out by the limits.
    pub cut: (u64, u64),
    marks: Vec<Mark>,
}

impl Input {
    /// Walks the tree, and takes the files in path order, except those that no longer fit into
    /// `max_bytes` or are too large for the store.
    pub fn read(root: &Path, without: &[PathBuf], max_bytes: u64, store: Limits) -> Result<Input> {
        let mut tree = Tree::walk(root, without)?;
        let mut sum = 0_u64;
        let (kept, cut_files): (Vec<_>, Vec<_>) = tree.files.drain(..).partition(|file| {
            let fits = sum.saturating_add(file.bytes) <= max_bytes
                && file.key.len() as u64 <= store.key_bytes
                && file.bytes + SECOND_VERSION.len() as u64 <= store.value_bytes;
            sum += if fits { file.bytes } else { 0 };
            fits
        });
        tree.files = kept;
        let cut = (cut_files.len() as u64, cut_files.iter().map(|file| file.bytes).sum());
        if tree.files.is_empty() {
            let what = format!("there are no files to store; {} are too large", cut.0);
            let hint = "name a directory with files, or raise --max-bytes";
            return Err(Failure::usage(what, hint).at(root.display()));
        }
        let (states, marks) = (vec![State::Kept; tree.files.len()], vec![None; tree.files.len()]);
        Ok(Input { tree, states, cut, marks })
    }

    /// The first content of a file; `None` if it cannot be read, which is counted.
    pub fn first_version(&mut self, index: usize) -> Option<Vec<u8>> {
        let path = self.tree.path(&self.tree.files[index].key);
        let read = fs::metadata(&path).and_then(|found| Ok((mark(&found), fs::read(&path)?)));
        let (mark, content) = match read {
            Ok(read) => read,
            Err(error) => {
                self.states[index] = State::Absent;
                self.tree.skipped.unreadable(&path, &error);
                return None;
            }
        };
        self.marks[index] = mark;
        Some(content)
    }

    /// The content that the store must have now; `Err` if the file has changed since it was stored.
    pub fn content(&self, index: usize) -> std::result::Result<Vec<u8>, ()> {
        let path = self.tree.path(&self.tree.files[index].key);
        let found = fs::metadata(&path).map_err(drop)?;
        if mark(&found) != self.marks[index] {
            return Err(());
        }
        let mut content = fs::read(&path).map_err(drop)?;
        if self.states[index] == State::Updated {
            content.extend_from_slice(SECOND_VERSION);
        }
        Ok(content)
    }

    /// Draws the files to update (a tenth) and to delete (a twentieth) among those stored.
    pub fn draw(&mut self, random: &mut Random) -> (Vec<usize>, Vec<usize>) {
        let mut stored = self.with_state(&[State::Kept]);
        random.shuffle(&mut stored);
        let updated: Vec<usize> = stored.drain(..stored.len().div_ceil(10)).collect();
        let deleted = stored.len().min(self.tree.files.len().div_ceil(20));
        let deleted: Vec<usize> = stored.drain(..deleted).collect();
        (updated, deleted)
    }

    /// Indices of the files in one of the states, in key order.
    pub fn with_state(&self, states: &[State]) -> Vec<usize> {
        let files = 0..self.states.len();
        files.filter(|index| states.contains(&self.states[*index])).collect()
    }

    /// Key of a file.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.tree.files[index].key
    }

    /// Every directory of the files as a prefix, sorted.
    pub fn prefixes(&self) -> Vec<Vec<u8>> {
        let mut prefixes = Vec::new();
        for file in &self.tree.files {
            let slashes = file.key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            prefixes.extend(slashes.map(|(at, _)| file.key[..=at].to_vec()));
        }
        prefixes.sort_unstable();
        prefixes.dedup();
        prefixes
    }
}

fn mark(metadata: &Metadata) -> Mark {
    Some((metadata.len(), metadata.modified().ok()?))
}

/// The directory to store when none is named: the sources that cargo fetched, else this one.
pub fn default_directory() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| home.map(|home| home.join(".cargo")));
    let sources = cargo.map(|cargo| cargo.join("registry").join("src"));
    sources.filter(|sources| sources.is_dir()).unwrap_or_else(|| PathBuf::from("."))
}
