//! The public items of crate `runstone` as lines, so that a change of the API shows in a diff. Made
//! from the sources by the form that rustfmt gives them: rustdoc's list as JSON needs a nightly
//! compiler. Not listed: setters that a macro makes from fields or options, which have their names,
//! and implementations of traits.
//!
//! 1. `lib.rs` names what is public: modules with a block, and `use` trees.
//! 2. An item is looked for in the crate and folder that its path names.
//! 3. Of a type, its public fields, variants and functions are listed. Its functions may stand in
//!    any folder of the crate, unless another type of the crate has its name.

use std::collections::BTreeSet;

use crate::code::{code, tokens};
use crate::files::Files;

/// The file that names all public items.
pub const ROOT: &str = "crates/engine/src/lib.rs";
/// Where the list is kept.
pub const LIST: &str = "crates/engine/public-items.txt";

/// Modules that only tests compile.
const OF_TESTS: [&str; 2] = ["seeded", "testing"];

/// An item that is public: its path, and the folder and path of where it comes from.
struct Export {
    path: String,
    folder: &'static str,
    source: Vec<String>,
}

/// All public items, a path per line, in order.
pub fn items(files: &Files) -> String {
    let Some(root) = files.get(ROOT) else { return String::new() };
    let exports = exports(&tokens(root));
    let is_source = |place: &str| exports.iter().any(|export| place.starts_with(export.folder));
    let sources = files.iter().filter(|(place, _)| is_source(place));
    let sources = sources.map(|(place, text)| (place.clone(), code(text))).collect();
    let mut found = BTreeSet::new();
    for export in exports {
        found.extend(members(&sources, &export));
        found.insert(export.path);
    }
    found.into_iter().map(|path| path + "\n").collect()
}

/// The `pub use` trees and `pub mod` of a file.
fn exports(tokens: &[String]) -> Vec<Export> {
    let (mut found, mut inside, mut at) = (Vec::new(), vec![Some("runstone".to_string())], 0);
    while at < tokens.len() {
        let word = |ahead: usize| tokens.get(at + ahead).map_or("", String::as_str);
        match (word(0), word(1)) {
            ("pub", "mod") => {
                let path = format!("{}::{}", path_of(&inside), word(2));
                match word(3) {
                    _ if OF_TESTS.contains(&word(2)) => {}
                    "{" => inside.push(Some(word(2).to_string())),
                    _ => found.push(export(path, vec!["crate".into(), word(2).into()])),
                }
                at += 4;
                continue;
            }
            ("pub", "use") => {
                let end = tokens[at..].iter().position(|token| token == ";").unwrap_or(0);
                for source in trees(&tokens[at + 2..at + end]) {
                    let name = source.last().cloned().unwrap_or_default();
                    found.push(export(format!("{}::{name}", path_of(&inside)), source));
                }
                at += end;
            }
            ("{", _) => inside.push(None),
            ("}", _) => drop(inside.pop()),
            _ => {}
        }
        at += 1;
    }
    found
}

fn path_of(inside: &[Option<String>]) -> String {
    inside.iter().flatten().cloned().collect::<Vec<_>>().join("::")
}

fn export(path: String, mut source: Vec<String>) -> Export {
    let folder = match source.first().map(String::as_str) {
        Some("runstone_policy") => "crates/policy/src",
        Some("runstone_storage") => "crates/storage/src",
        _ => "crates/engine/src",
    };
    if source.first().is_some_and(|first| first == "crate" || first.starts_with("runstone_")) {
        source.remove(0);
    }
    Export { path, folder, source }
}

/// The paths of a `use` tree without renamings.
fn trees(tokens: &[String]) -> Vec<Vec<String>> {
    let (mut found, mut prefixes, mut path) = (Vec::new(), Vec::new(), Vec::new());
    for token in tokens {
        match token.as_str() {
            "::" => {}
            "{" => prefixes.push(path.clone()),
            "," | "}" => {
                let prefix = prefixes.last().cloned().unwrap_or_default();
                if path.len() > prefix.len() {
                    found.push(std::mem::replace(&mut path, prefix));
                }
                if token == "}" {
                    prefixes.pop();
                }
            }
            word => path.push(word.to_string()),
        }
    }
    if prefixes.is_empty() && !path.is_empty() && found.is_empty() {
        found.push(path);
    }
    found
}

/// The files in which an item may stand: those whose path goes on from the longest part of its own.
fn files_of<'f>(sources: &'f Files, export: &Export) -> Vec<(&'f String, &'f String)> {
    for len in (0..=export.source.len()).rev() {
        let place = [&[export.folder.to_string()], &export.source[..len]].concat().join("/");
        let (file, folder) = (format!("{place}.rs"), format!("{place}/"));
        let is_near = |(path, _): &(&String, &String)| **path == file || path.starts_with(&folder);
        let near: Vec<_> = sources.iter().filter(is_near).collect();
        if !near.is_empty() {
            return near;
        }
    }
    Vec::new()
}

/// The public parts of an item: of a module its items, of a type its fields, variants and
/// functions.
fn members(sources: &Files, export: &Export) -> Vec<String> {
    let name = export.source.last().map(String::as_str).unwrap_or_default();
    if name.starts_with(char::is_uppercase) {
        let parts = parts_of_type(sources, export, name).into_iter();
        return parts.map(|part| format!("{}::{part}", export.path)).collect();
    }
    let ends = [format!("/{name}.rs"), format!("/{name}/mod.rs")];
    let mut found = Vec::new();
    for (path, text) in files_of(sources, export) {
        if !ends.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        for item in text.lines().filter_map(|line| item_of(line.strip_prefix("pub ")?)) {
            found.push(format!("{}::{item}", export.path));
            let parts = parts_of(text, item).into_iter();
            found.extend(parts.map(|part| format!("{}::{item}::{part}", export.path)));
        }
    }
    found
}

/// The public fields, variants and functions of a type.
fn parts_of_type<'f>(sources: &'f Files, export: &Export, name: &str) -> Vec<&'f str> {
    let is_of =
        |(path, text): &(&String, &String)| path.starts_with(export.folder) && text.contains(name);
    let all: Vec<_> = sources.iter().filter(is_of).collect();
    let declares = |text: &str| {
        let blocks = text.lines().filter_map(|line| Block::of(line, name));
        blocks.filter(|block| *block != Block::Impl).count()
    };
    let is_alone = all.iter().map(|(_, text)| declares(text)).sum::<usize>() <= 1;
    let texts = if is_alone { all } else { files_of(sources, export) };
    texts.into_iter().flat_map(|(_, text)| parts_of(text, name)).collect()
}

/// The name of the item that a line begins, behind `pub`.
fn item_of(line: &str) -> Option<&str> {
    let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let kinds = ["struct", "enum", "trait", "fn", "static", "type", "const", "mod"];
    let kind = words.find(|word| kinds.contains(word))?;
    let next = words.next()?;
    // `const fn`.
    if kind == "const" && next == "fn" { words.next() } else { Some(next) }
}

/// The public fields and functions of a type, the variants of an enum, the functions of a trait.
fn parts_of<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(block) = Block::of(line, name) else { continue };
        let indent = line.len() - line.trim_start().len();
        let is_inside = |line: &&str| line.trim().is_empty() || depth(line) > indent;
        for line in lines.by_ref().take_while(is_inside).filter(|line| depth(line) == indent + 4) {
            found.extend(block.part_of(line.trim_start()));
        }
    }
    found
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Struct,
    Enum,
    Trait,
    Impl,
}

impl Block {
    /// The kind of block of this type that a line opens.
    fn of(line: &str, name: &str) -> Option<Block> {
        let line = line.trim_start();
        let (block, rest) = [
            ("pub struct ", Block::Struct),
            ("pub enum ", Block::Enum),
            ("pub trait ", Block::Trait),
            ("impl", Block::Impl),
        ]
        .into_iter()
        .find_map(|(start, block)| Some((block, line.strip_prefix(start)?)))?;
        // The parameters of an `impl` hold no space in their last sign.
        let rest = match (block, rest.strip_prefix('<')) {
            (Block::Impl, Some(behind)) => behind.split_once("> ")?.1,
            _ => rest.trim_start(),
        };
        let behind = rest.strip_prefix(name)?;
        let is_whole = behind.starts_with([' ', '<', ':', '{']);
        (is_whole && line.ends_with('{') && !line.contains(" for ")).then_some(block)
    }

    /// The name of the part that a line of the block declares.
    fn part_of(self, line: &str) -> Option<&str> {
        let name =
            |line: &'_ str| line.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        match self {
            Block::Trait => item_of(line).filter(|_| line.contains("fn ")),
            Block::Enum if line.starts_with(char::is_uppercase) => {
                Some(&line[..name(line).unwrap_or(line.len())])
            }
            Block::Struct => {
                let field = line.strip_prefix("pub ")?;
                let end = name(field)?;
                field[end..].starts_with(':').then(|| &field[..end])
            }
            Block::Impl => item_of(line.strip_prefix("pub ")?),
            Block::Enum => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    const STORE: &str = "pub struct Store {\n    pub name: String,\n    inner: u8,\n}\n\n\
        impl Store {\n    pub fn open() -> Store {\n        pub_();\n    }\n\n    \
        pub const fn size() {}\n\n    pub(crate) fn own() {}\n}\n\n\
        impl Clone for Store {\n    fn clone() {}\n}\n";

    #[test]
    fn what_is_public_is_listed() {
        let files = of([
            (
                ROOT,
                "mod store;\npub mod outer {\n    pub use crate::store::{Kind, Store};\n}\n\
                pub use store::open::way;\npub use runstone_policy::Plan;\n",
            ),
            ("crates/engine/src/store/mod.rs", STORE),
            ("crates/engine/src/store/open.rs", "pub fn way() {}\n#[cfg(test)]\nmod tests {\n}\n"),
            (
                "crates/engine/src/store/kind.rs",
                "pub enum Kind {\n    One,\n    Two { at: u8 },\n}\n",
            ),
            ("crates/policy/src/plan.rs", "pub trait Plan<T>: Send {\n    fn of();\n}\n"),
        ]);
        let listed = items(&files);
        let expected = [
            "runstone::Plan",
            "runstone::Plan::of",
            "runstone::outer::Kind",
            "runstone::outer::Kind::One",
            "runstone::outer::Kind::Two",
            "runstone::outer::Store",
            "runstone::outer::Store::name",
            "runstone::outer::Store::open",
            "runstone::outer::Store::size",
            "runstone::way",
        ];
        assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    }
}
