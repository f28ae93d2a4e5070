//! Writes records into files. Nothing that exists is replaced unless the user asks for it, and a
//! file has another name until it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::directory::path_of_key;
use super::packing::{self, Packer};
use super::{EXPIRES, Format, csv, jsonl, tsv};
use crate::failure::{Failure, Result};
use crate::nesting;
use crate::output::Output;
use crate::range::Entry;

/// Something that takes records.
pub trait Sink {
    /// Takes an entry. The inner `Err` is for an entry that the format cannot represent.
    fn put(&mut self, entry: Entry<'_>) -> Result<std::result::Result<(), Refused>>;

    /// Called after the last entry.
    fn finish(&mut self) -> Result<()>;

    /// Columns whose field no entry had.
    fn empty_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Called after the last entry that could be read. Returns the place of the entries if it is
    /// not the target.
    fn finish_partial(&mut self) -> Result<Option<PathBuf>>;
}

/// An entry that the format cannot represent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    Key(String),
    Value(String),
    Expiry,
    /// The file of the entry would be in the store.
    InStore,
}

/// How entries are written.
#[derive(Clone, Copy, Debug)]
pub struct Style<'a> {
    pub format: Format,
    /// Csv: fields of the values that become columns; none if a value is one column.
    pub columns: &'a [String],
    /// Whether the expiry of entries is left out.
    pub drop_expiry: bool,
}

/// Opens a sink; `-` is standard output. Nothing is written into the paths of `store`, whose links
/// are resolved.
pub fn open<'a>(
    path: &Path,
    style: Style<'a>,
    force: bool,
    store: Vec<PathBuf>,
    output: &'a Output,
) -> Result<Box<dyn Sink + 'a>> {
    if style.format == Format::Dir {
        let directory = DirectorySink::open(path, force, store)?;
        return Ok(Box::new(DirectorySink { drop_expiry: style.drop_expiry, ..directory }));
    }
    let buffer = style.header()?;
    let filled = vec![false; style.columns.len()];
    Ok(match path == Path::new("-") {
        true => Box::new(FileSink { target: Printer { output }, style, buffer, filled }),
        false => {
            let target = NewFile::open(path, force, &store)?;
            Box::new(FileSink { target, style, buffer, filled })
        }
    })
}

impl Style<'_> {
    /// The line of csv that names the columns.
    fn header(&self) -> Result<Vec<u8>> {
        let mut header = Vec::new();
        if self.format != Format::Csv {
            return Ok(header);
        }
        let mut names = vec!["key"];
        names.extend(self.columns.iter().map(String::as_str));
        if self.columns.is_empty() {
            names.push("value");
        }
        if !self.drop_expiry {
            names.push(EXPIRES);
        }
        if let Some((at, name)) =
            names.iter().enumerate().find(|(at, name)| names[..*at].contains(name))
        {
            let what = format!("two columns would be named {name}");
            let is_own = *name == "key" || at + 1 == names.len() && *name == EXPIRES;
            let hint = match is_own {
                true => format!("leave {name} out of --columns: it is there already"),
                false => "name each field once in --columns".to_string(),
            };
            return Err(Failure::usage(what, hint));
        }
        csv::write(&names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>(), &mut header);
        Ok(header)
    }

    /// Appends an entry as a line of csv.
    fn csv(
        &self,
        entry: Entry<'_>,
        filled: &mut [bool],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Refused> {
        let cells = match self.columns {
            [] => Vec::new(),
            columns => jsonl::columns(entry.value, columns).map_err(Refused::Value)?,
        };
        filled.iter_mut().zip(&cells).for_each(|(filled, cell)| *filled |= !cell.is_empty());
        let mut fields = vec![entry.key];
        match self.columns {
            [] => fields.push(entry.value),
            _ => fields.extend(cells.iter().map(String::as_bytes)),
        }
        let expires = entry.expires_ms.map(|at| at.to_string()).unwrap_or_default();
        if !self.drop_expiry {
            fields.push(expires.as_bytes());
        }
        csv::write(&fields, out);
        Ok(())
    }
}

/// The destination of the lines.
trait Target {
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    fn finish(&mut self) -> Result<()>;
    fn finish_partial(&mut self) -> Result<Option<PathBuf>>;
}

struct FileSink<'a, T> {
    target: T,
    style: Style<'a>,
    buffer: Vec<u8>,
    /// The columns that occurred in some entry.
    filled: Vec<bool>,
}

impl<T: Target> Sink for FileSink<'_, T> {
    fn put(&mut self, entry: Entry<'_>) -> Result<std::result::Result<(), Refused>> {
        let expires_ms = entry.expires_ms.filter(|_| !self.style.drop_expiry);
        let entry = Entry { expires_ms, ..entry };
        match self.style.format {
            Format::Jsonl => jsonl::write(entry, &mut self.buffer),
            Format::Csv => {
                if let Err(refused) = self.style.csv(entry, &mut self.filled, &mut self.buffer) {
                    return Ok(Err(refused));
                }
            }
            _ => tsv::write(entry, &mut self.buffer),
        }
        self.target.write(&self.buffer)?;
        self.buffer.clear();
        Ok(Ok(()))
    }

    fn finish(&mut self) -> Result<()> {
        self.target.write(&self.buffer)?;
        self.target.finish()
    }

    fn empty_columns(&self) -> Vec<String> {
        let columns = self.style.columns.iter().zip(&self.filled);
        columns.filter(|(_, filled)| !**filled).map(|(name, _)| name.clone()).collect()
    }

    fn finish_partial(&mut self) -> Result<Option<PathBuf>> {
        self.target.write(&self.buffer)?;
        self.target.finish_partial()
    }
}

struct Printer<'a> {
    output: &'a Output,
}

impl Target for Printer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.bytes(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish_partial(&mut self) -> Result<Option<PathBuf>> {
        Ok(None)
    }
}

/// A file that has its name only once it is whole.
struct NewFile {
    /// `None` once it is complete.
    file: Option<Packer<BufWriter<File>>>,
    path: PathBuf,
    partial: PathBuf,
    force: bool,
    finished: bool,
}

impl NewFile {
    fn open(path: &Path, force: bool, store: &[PathBuf]) -> Result<NewFile> {
        let found = path.canonicalize().ok();
        refuse_in(path, store)?;
        nesting::refuse_inside(path)?;
        // A rename would replace a device or a pipe with a file.
        if found.is_some_and(|found| !found.is_file()) {
            let hint = "name a new file; `-` is standard output";
            return Err(Failure::usage("the target is no regular file", hint).at(path.display()));
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        // `x/` and `x/.`: the file beside it would be `x.partial`, and no file can have the
        // target's name.
        if !path.as_os_str().as_encoded_bytes().ends_with(name.as_encoded_bytes()) {
            let hint = "leave out the / at its end, or pass --format dir";
            let what = "the target is named as a directory";
            return Err(Failure::usage(what, hint).at(path.display()));
        }
        if !force && path.symlink_metadata().is_ok() {
            return Err(exists(path));
        }
        name.push(format!(".partial-{}", std::process::id()));
        let partial = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = file.map_err(|error| match error.kind() {
            // It was left by a killed export whose process had the same number.
            ErrorKind::AlreadyExists => {
                let hint = "another export may be writing it, or it holds what one saved that was \
                            killed: look, then rename or remove it";
                Failure::file(&partial, "create", &error).hint(hint)
            }
            _ => Failure::file(path, "create", &error),
        })?;
        let file = BufWriter::with_capacity(256 << 10, file);
        let file = Packer::new(packing::named(path), file);
        let file = Some(file.map_err(|error| Failure::file(path, "create", &error))?);
        Ok(NewFile { file, path: path.to_path_buf(), partial, force, finished: false })
    }
}

impl Target for NewFile {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(bytes));
        written.map_err(|error| Failure::file(&self.path, "write", &error))
    }

    fn finish(&mut self) -> Result<()> {
        self.complete()?;
        let failed = |error| Failure::file(&self.path, "write", &error);
        self.give_name(&self.path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => exists(&self.path),
            _ => failed(error),
        })?;
        self.finished = true;
        self.sync_directory()
    }

    /// `TARGET.partial`. If an earlier export left a file of that name, the new file keeps the name
    /// under which it was written.
    fn finish_partial(&mut self) -> Result<Option<PathBuf>> {
        self.complete()?;
        let mut name = self.path.file_name().unwrap_or_default().to_os_string();
        name.push(".partial");
        let path = self.path.with_file_name(name);
        let named = self.give_name(&path).map(|()| path);
        self.finished = true;
        self.sync_directory()?;
        Ok(Some(named.unwrap_or_else(|_| self.partial.clone())))
    }
}

impl NewFile {
    /// Writes the file to its end.
    fn complete(&mut self) -> Result<()> {
        let failed = |error| Failure::file(&self.path, "write", &error);
        let Some(file) = self.file.take() else { return Ok(()) };
        let mut file = file.finish().map_err(failed)?;
        file.flush().and_then(|()| file.get_ref().sync_all()).map_err(failed)
    }

    fn give_name(&self, path: &Path) -> std::io::Result<()> {
        if self.force {
            return fs::rename(&self.partial, path);
        }
        // A link, unlike a rename, does not replace a file that appeared in between.
        match fs::hard_link(&self.partial, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            Err(_) => fs::rename(&self.partial, path),
            Ok(()) => fs::remove_file(&self.partial),
        }
    }

    fn sync_directory(&self) -> Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = File::open(directory.unwrap_or(Path::new(".")));
        let synced = directory.and_then(|directory| directory.sync_all());
        synced.map_err(|error| Failure::file(&self.path, "write", &error))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: the command has already failed.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Refuses a target that is or would be a file of the store: the store removes files that are not
/// its own.
fn refuse_in(path: &Path, store: &[PathBuf]) -> Result<()> {
    let here = Path::new(".");
    let places = path.ancestors().map(|at| if at.as_os_str().is_empty() { here } else { at });
    // For a target that does not exist yet, the nearest existing directory above it counts.
    let found = places.filter_map(|place| place.canonicalize().ok()).next();
    match found.is_some_and(|found| is_in(&found, store)) {
        true => Err(Failure::usage("the target lies in the store", "choose another place")
            .at(path.display())),
        false => Ok(()),
    }
}

/// Whether a path, its links resolved, is one of these or below one.
fn is_in(path: &Path, places: &[PathBuf]) -> bool {
    places.iter().any(|place| path.starts_with(place))
}

fn exists(path: &Path) -> Failure {
    let error = std::io::Error::from(ErrorKind::AlreadyExists);
    Failure::file(path, "write", &error)
}

struct DirectorySink {
    root: PathBuf,
    /// Open from the start: a sync through it reports every write that has failed since.
    directory: File,
    force: bool,
    /// Directory or files of the store, which are never written into.
    store: Vec<PathBuf>,
    drop_expiry: bool,
    /// The directory that was made last. Keys are in order, so most files belong in it.
    made: PathBuf,
}

impl DirectorySink {
    fn open(path: &Path, force: bool, store: Vec<PathBuf>) -> Result<DirectorySink> {
        refuse_in(path, &store)?;
        nesting::refuse_inside(&path.join("file"))?;
        let is_occupied = match fs::read_dir(path) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(Failure::file(path, "write", &error)),
        };
        if is_occupied && !force {
            return Err(exists(path).hint("choose a new or empty directory, or pass --force"));
        }
        let made = fs::create_dir_all(path).and_then(|()| path.canonicalize());
        let opened = made.and_then(|root| Ok((File::open(&root)?, root)));
        let (directory, root) = opened.map_err(|error| Failure::file(path, "create", &error))?;
        let made = root.clone();
        Ok(DirectorySink { made, root, directory, force, store, drop_expiry: false })
    }

    fn write(&mut self, relative: &Path, value: &[u8]) -> std::io::Result<()> {
        let path = self.root.join(relative);
        if let Some(parent) = path.parent()
            && parent != self.made
        {
            self.make_directories(relative)?;
            self.made = parent.to_path_buf();
        }
        // Anything that is not a file, such as a socket, is not replaced: the new file cannot be
        // made there.
        let is_replaced = |found: fs::Metadata| found.is_file() || found.is_symlink();
        if self.force && path.symlink_metadata().is_ok_and(is_replaced) {
            fs::remove_file(&path)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        file.write_all(value)
    }

    /// Makes the directories above a file. A link among them is refused: it may point elsewhere.
    fn make_directories(&self, relative: &Path) -> std::io::Result<()> {
        let mut path = self.root.clone();
        for part in relative.parent().into_iter().flat_map(Path::components) {
            path.push(part);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if !path.symlink_metadata()?.is_dir() {
                        return Err(ErrorKind::NotADirectory.into());
                    }
                }
                made => made?,
            }
        }
        Ok(())
    }
}

impl Sink for DirectorySink {
    fn put(&mut self, entry: Entry<'_>) -> Result<std::result::Result<(), Refused>> {
        if entry.expires_ms.is_some() && !self.drop_expiry {
            return Ok(Err(Refused::Expiry));
        }
        let relative = match path_of_key(entry.key) {
            Ok(relative) => relative,
            Err(what) => return Ok(Err(Refused::Key(what))),
        };
        let path = self.root.join(relative);
        if is_in(&path, &self.store) {
            return Ok(Err(Refused::InStore));
        }
        match self.write(relative, entry.value) {
            Ok(()) => Ok(Ok(())),
            Err(error) => match error.kind() {
                // `a` and `a/b` cannot both be files; with `force`, older files are there as well.
                ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => {
                    let what = format!("a file, directory or link is in the way: {error}");
                    Ok(Err(Refused::Key(what)))
                }
                ErrorKind::InvalidFilename => Ok(Err(Refused::Key(error.to_string()))),
                _ => Err(Failure::file(&path, "write", &error)),
            },
        }
    }

    /// Syncs all files and names at once: a sync for each would take longer than writing them.
    fn finish(&mut self) -> Result<()> {
        let synced = rustix::fs::syncfs(&self.directory);
        synced.map_err(|error| Failure::file(&self.root, "write", &error.into()))
    }

    fn finish_partial(&mut self) -> Result<Option<PathBuf>> {
        self.finish().map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, the file of a killed export with the same process number was reported as an existing
    /// target.
    #[test]
    fn a_partial_file_in_the_way_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let partial = directory.path().join(format!("x.csv.partial-{}", std::process::id()));
        fs::write(&partial, "").expect("a file");
        let opened = NewFile::open(&directory.path().join("x.csv"), true, &[]);
        let failed = opened.err().expect("it is in the way");
        assert_eq!(failed.place, Some(partial.display().to_string()));
        let hint = failed.hint.expect("a hint");
        assert!(hint.contains("what one saved that was killed"), "{hint}");
        assert!(partial.exists());
    }
}
