//! What a paper gets to run with: a scale, a scratch directory, somebody who hears of its progress.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use runstone::{Error, Result};

/// Hears what a paper does now.
pub type Say<'a> = dyn Fn(&str) + 'a;

/// See the module docs. Its directory is removed when it is dropped.
pub struct Context<'a> {
    /// Factor of the workloads' sizes; 1 is what the expectations are for.
    pub scale: f64,
    /// The one part to measure, of a paper that is measured in parts.
    only: Option<String>,
    has_met: AtomicBool,
    scratch: PathBuf,
    directories: AtomicU64,
    say: &'a Say<'a>,
}

impl<'a> Context<'a> {
    /// Makes the directory, below that for temporary files.
    pub fn new(scale: f64, say: &'a Say<'a>) -> Result<Context<'a>> {
        if !(0.001..=100.0).contains(&scale) {
            let what = format!("scale {scale} is not between 0.001 and 100");
            return Err(Error::invalid(what, "1 is the scale of the expectations"));
        }
        let scratch = make_scratch(&std::env::temp_dir())?;
        let has_met = AtomicBool::new(false);
        Ok(Context { scale, only: None, has_met, scratch, directories: AtomicU64::new(0), say })
    }

    /// Restricts the run to one part.
    pub fn only(mut self, part: Option<String>) -> Self {
        self.only = part;
        self
    }

    /// Whether this part is to be measured.
    pub fn wants(&self, part: &str) -> bool {
        let wanted = self.only.as_deref().is_none_or(|only| only == part);
        self.has_met.fetch_or(wanted, Ordering::Relaxed);
        wanted
    }

    /// Whether a part was asked for that the paper does not have.
    pub fn lacks_part(&self) -> bool {
        self.only.is_some() && !self.has_met.load(Ordering::Relaxed)
    }

    /// A count at this scale, at least 1.
    pub fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale).round() as u64).max(1)
    }

    /// The path of a directory that does not exist yet, for one store.
    pub fn directory(&self) -> PathBuf {
        self.scratch.join(self.directories.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Tells what is going on.
    pub fn say(&self, text: &str) {
        (self.say)(text);
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans the directory for temporary files.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

fn make_scratch(parent: &Path) -> Result<PathBuf> {
    for attempt in 0..1000 {
        let path = parent.join(format!("runstone-paper-{}-{attempt}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let what = format!("cannot create {}: {error}", path.display());
                return Err(Error::invalid(what, "set TMPDIR to a directory that takes files"));
            }
        }
    }
    let what = format!("{} is full of scratch directories", parent.display());
    Err(Error::invalid(what, "remove runstone-paper-* there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_ends_with_the_context() {
        let context = Context::new(0.5, &|_| {}).expect("a directory");
        let (first, second) = (context.directory(), context.directory());
        assert_ne!(first, second);
        let scratch = first.parent().expect("below the scratch directory").to_path_buf();
        fs::create_dir(&first).expect("free");
        assert_eq!((context.scaled(10), context.scaled(0)), (5, 1));
        drop(context);
        assert!(!scratch.exists());
        for bad in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(Context::new(bad, &|_| {}).is_err());
        }
    }
}
