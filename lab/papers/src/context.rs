//! The environment of a paper's run: a scale, a scratch directory, and a function that reports
//! progress.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use runstone_kv::{Error, Result};

use super::report::PaperReport;

/// Reports the present step of a paper.
pub type Say<'a> = dyn Fn(&str) + 'a;

/// A part of a paper: its name, and the function that measures its claims and adds their rows. The
/// parts share `L`.
pub(super) type Part<L> = (&'static str, fn(&L, &mut PaperReport) -> Result<()>);

/// How large a paper's workloads are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Factor of the sizes. The expectations are for 1, which is also written `t0`.
    Factor(f64),
    /// `t1`: the operations of the KVSSD paper, ten times those of T0, with an eighth of all
    /// sizes, so that its tree is as deep as the paper's and its device fits memory.
    T1,
}

impl Scale {
    /// How many times the operations of T0 there are.
    fn factor(self) -> f64 {
        match self {
            Scale::Factor(factor) => factor,
            Scale::T1 => 10.0,
        }
    }
}

impl FromStr for Scale {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Scale, String> {
        match text.to_ascii_lowercase().as_str() {
            "t0" => Ok(Scale::Factor(1.0)),
            "t1" => Ok(Scale::T1),
            number => number
                .parse()
                .map(Scale::Factor)
                .map_err(|_| "neither a number nor t0 nor t1".to_string()),
        }
    }
}

/// See the module docs. The scratch directory is removed when the context is dropped.
pub struct Context<'a> {
    /// Factor of the workloads' sizes. The expectations are for 1.
    pub scale: f64,
    /// Whether all sizes are an eighth: [`Scale::T1`].
    pub is_t1: bool,
    /// The one part to measure.
    only: Option<String>,
    /// Whether nothing is measured, and only the request is checked.
    checks_only: bool,
    scratch: PathBuf,
    directories: AtomicU64,
    say: &'a Say<'a>,
}

impl<'a> Context<'a> {
    /// Makes the scratch directory inside the directory for temporary files.
    pub fn new(scale: Scale, say: &'a Say<'a>) -> Result<Context<'a>> {
        let (scale, is_t1) = (scale.factor(), scale == Scale::T1);
        if !(0.001..=100.0).contains(&scale) {
            let what = format!("scale {scale} is not between 0.001 and 100");
            return Err(Error::invalid(what, "1 is the scale of the expectations"));
        }
        let scratch = make_scratch(&std::env::temp_dir())?;
        let directories = AtomicU64::new(0);
        Ok(Context { scale, is_t1, only: None, checks_only: false, scratch, directories, say })
    }

    /// Restricts the run to one part.
    pub fn only(mut self, part: Option<String>) -> Self {
        self.only = part;
        self
    }

    /// Checks the request, and measures nothing.
    pub(super) fn checking(mut self) -> Self {
        self.checks_only = true;
        self
    }

    /// Measures all parts, or the requested one.
    pub(super) fn measure<L>(
        &self,
        shared: &L,
        report: &mut PaperReport,
        parts: &[Part<L>],
    ) -> Result<()> {
        let is_wanted = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        if !parts.iter().any(|(name, _)| is_wanted(name)) {
            let names: Vec<&str> = parts.iter().map(|(name, _)| *name).collect();
            let what = format!("paper {} has no such part", report.paper);
            return Err(Error::invalid(what, format!("choose among: {}", names.join(", "))));
        }
        if self.checks_only {
            return Ok(());
        }
        let mut wanted = parts.iter().filter(|(name, _)| is_wanted(name));
        wanted.try_for_each(|(_, measure)| {
            report.compare(&[], &[])?;
            measure(shared, report)
        })
    }

    /// A count at this scale, at least 1.
    pub fn scaled(&self, count: u64) -> u64 {
        ((count as f64 * self.scale).round() as u64).max(1)
    }

    /// The path of a directory that does not exist yet, for one store.
    pub fn directory(&self) -> PathBuf {
        self.scratch.join(self.directories.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// Reports what is going on.
    pub fn say(&self, text: &str) {
        (self.say)(text);
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // Files that cannot be removed stay until the directory for temporary files is cleaned.
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
        let context = Context::new(Scale::Factor(0.5), &|_| {}).expect("a directory");
        let (first, second) = (context.directory(), context.directory());
        assert_ne!(first, second);
        let scratch = first.parent().expect("below the scratch directory").to_path_buf();
        fs::create_dir(&first).expect("free");
        assert_eq!((context.scaled(10), context.scaled(0)), (5, 1));
        drop(context);
        assert!(!scratch.exists());
        for bad in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(Context::new(Scale::Factor(bad), &|_| {}).is_err());
        }
    }

    #[test]
    fn scales_are_numbers_or_names() {
        assert_eq!("t0".parse(), Ok(Scale::Factor(1.0)));
        assert_eq!("T1".parse(), Ok(Scale::T1));
        assert_eq!("0.25".parse(), Ok(Scale::Factor(0.25)));
        assert!("t2".parse::<Scale>().is_err() && "".parse::<Scale>().is_err());
        let context = Context::new(Scale::T1, &|_| {}).expect("a directory");
        assert!(context.is_t1 && context.scaled(1_000_000) == 10_000_000);
    }
}
