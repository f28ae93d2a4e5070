//! The allocator of a run. A program has one allocator, so there is a program for each, and the
//! parent chooses between them. The stores in C and C++ use the C library's allocator in each of
//! these programs.

use std::path::PathBuf;

use crate::Result;

/// A store and the allocator with which it runs: `runstone`, `runstone@glibc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// The label on the command line.
    pub label: String,
    pub engine: String,
    program: &'static str,
}

impl Runner {
    /// Parses a label. `allocator` is used if the label names none.
    pub fn new(label: &str, allocator: &str) -> Result<Runner> {
        let (engine, allocator) = label.split_once('@').unwrap_or((label, allocator));
        let program = match allocator {
            "mimalloc" => "peers",
            "glibc" => "peers-glibc",
            "jemalloc" => "peers-jemalloc",
            _ => {
                let known = "mimalloc, jemalloc or glibc";
                return Err(format!("no allocator {allocator:?}: {known}").into());
            }
        };
        crate::peers::find(engine)?;
        Ok(Runner { label: label.into(), engine: engine.into(), program })
    }

    /// The program to start, which is in the directory of this one.
    pub fn program(&self) -> Result<PathBuf> {
        let path = std::env::current_exe()?.with_file_name(self.program);
        match path.exists() {
            true => Ok(path),
            false => Err(format!("{} is not built: cargo build --release", self.program).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_names_store_and_allocator() {
        let program = |label, allocator| Runner::new(label, allocator).map(|run| run.program).ok();
        assert_eq!(program("runstone", "mimalloc"), Some("peers"));
        assert_eq!(program("runstone", "glibc"), Some("peers-glibc"));
        assert_eq!(program("runstone@glibc", "mimalloc"), Some("peers-glibc"));
        assert_eq!(program("runstone@jemalloc", "glibc"), Some("peers-jemalloc"));
        assert_eq!(program("runstone@other", "mimalloc"), None);
        assert_eq!(program("nothing@glibc", "mimalloc"), None);
    }
}
