//! The repository as texts by path. Rules read these texts and not the disk, so that a test can
//! feed them a violation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Texts by path, with `/` between folders: `crates/engine/src/lib.rs`.
pub type Files = BTreeMap<String, String>;

/// Folders that nobody writes by hand.
const SKIPPED: [&str; 4] = ["target", "corpora", "corpus", "samples"];

/// The root of the repository.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Reads Rust files, manifests of crates, documents, figures and licenses below a folder.
pub fn read(root: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
            if name.starts_with('.') || SKIPPED.contains(&name.as_str()) {
                continue;
            }
            let is_text = [".rs", ".md", ".json"].iter().any(|end| name.ends_with(end));
            if path.is_dir() {
                waiting.push(path);
            } else if is_text || name == "Cargo.toml" || name.starts_with("LICENSE") {
                let place = path.strip_prefix(root).unwrap_or(&path).display().to_string();
                files.insert(place, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(files)
}

/// All files and folders below a folder, of whatever kind.
pub fn places(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_string();
            if name == "target" || name == ".git" {
                continue;
            }
            found.insert(path.strip_prefix(root).unwrap_or(&path).display().to_string());
            if path.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(found)
}

/// The Rust files among the files.
pub fn rust(files: &Files) -> impl Iterator<Item = (&str, &str)> {
    files
        .iter()
        .filter(|(place, _)| place.ends_with(".rs"))
        .map(|(place, text)| (&**place, &**text))
}

/// Files that a test makes up.
#[cfg(test)]
pub fn of<const N: usize>(files: [(&str, &str); N]) -> Files {
    files.map(|(place, text)| (place.to_string(), text.to_string())).into()
}
