//! Rust without comments, strings and tests, and the paths that it names. A scanner, not a parser:
//! it relies on the form that rustfmt gives.

/// A file without comments, strings and tests.
pub fn code(text: &str) -> String {
    without_tests(&bare(text, ' '))
}

/// A file cut into words and signs; `::` is one sign.
pub fn tokens(text: &str) -> Vec<String> {
    let text = code(text);
    let mut tokens: Vec<String> = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if is_word(letter) {
            let mut word = String::from(letter);
            while let Some(next) = letters.next_if(|next| is_word(*next)) {
                word.push(next);
            }
            tokens.push(word);
        } else if letter == ':' && letters.next_if_eq(&':').is_some() {
            tokens.push("::".into());
        } else if !letter.is_whitespace() {
            tokens.push(letter.into());
        }
    }
    tokens
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Replaces comments, strings and characters by spaces, so that each line keeps its number. The
/// replacement of a string or character begins with `sign`.
pub(crate) fn bare(text: &str, sign: char) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_in_word = out.chars().next_back().is_some_and(is_word);
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => quoted_len(rest, '"'),
            'r' | 'b' if !is_in_word => raw_len(rest),
            '\'' => character_len(rest),
            _ => 0,
        };
        let kept = if len == 0 { first.len_utf8() } else { len };
        if len == 0 {
            out.push(first);
        } else {
            out.push(if first == '/' { ' ' } else { sign });
            let others = rest[..len].chars().skip(1);
            out.extend(others.map(|one| if one == '\n' { one } else { ' ' }));
        }
        rest = &rest[kept..];
    }
    out
}

/// Bytes to the end of a quoted piece that begins here.
fn quoted_len(text: &str, quote: char) -> usize {
    let mut is_escaped = true;
    for (at, letter) in text.char_indices() {
        if letter == quote && !is_escaped {
            return at + quote.len_utf8();
        }
        is_escaped = at > 0 && letter == '\\' && !is_escaped;
    }
    text.len()
}

/// Bytes of a raw string or byte string; 0 if none begins here.
fn raw_len(text: &str) -> usize {
    let prefix = text.len() - text.trim_start_matches(['r', 'b']).len();
    let behind = &text[prefix..];
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    if !behind[hashes..].starts_with('"') || prefix > 2 || !text[..prefix].contains('r') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let from = prefix + hashes + 1;
    text[from..].find(&end).map_or(text.len(), |at| from + at + end.len())
}

/// Bytes of a character; 0 for a lifetime.
fn character_len(text: &str) -> usize {
    let second = text.chars().nth(1);
    let third = text.chars().nth(2);
    match (second, third) {
        (Some('\\'), _) => quoted_len(text, '\''),
        (Some(one), Some('\'')) => one.len_utf8() + 2,
        _ => 0,
    }
}

/// Drops the items after `#[cfg(test)]`. The last line of an item is indented like its first, and
/// at that indentation only a last line ends with a brace, a semicolon or a comma.
pub(crate) fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    let indent = |line: &str| line.len() - line.trim_start().len();
    while let Some(line) = lines.next() {
        if is_test_attribute(line) {
            let is_last = |next: &&str| {
                indent(next) == indent(line) && next.trim_end().ends_with(['}', ';', ','])
            };
            lines.by_ref().find(is_last);
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Whether an attribute excludes what follows from all builds except those of tests.
pub fn is_test_attribute(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test")
}

/// A path of the source: where it begins, and its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// How many modules up from the module of the path; `None`: from the root of the crate.
    pub up: Option<usize>,
    /// The names after `crate` or `super` that are modules or items.
    pub names: Vec<String>,
    /// The name that a `use` gives to it.
    pub alias: String,
}

/// Every path that begins with `crate` or `super`, `use` trees spelled out.
pub fn paths(tokens: &[String]) -> Vec<Named> {
    let mut found = Vec::new();
    let mut inside: Vec<bool> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => inside.push(at >= 2 && tokens[at - 2] == "mod"),
            "}" => drop(inside.pop()),
            "crate" | "super" | "self" if follows(tokens, at, "::") => {
                let mut tree = Vec::new();
                at = take_tree(tokens, at, Vec::new(), &mut tree);
                // A path of an inline module begins as many modules deeper.
                let depth = inside.iter().filter(|is_module| **is_module).count();
                let of_file = tree.iter().filter_map(|path| of_names(path, depth));
                found.extend(of_file);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn follows(tokens: &[String], at: usize, sign: &str) -> bool {
    tokens.get(at + 1).is_some_and(|next| next == sign)
}

/// Takes a path, or a `use` tree of paths; returns where it ends.
fn take_tree(
    tokens: &[String],
    mut at: usize,
    mut path: Vec<String>,
    found: &mut Vec<Vec<String>>,
) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    let start = at;
                    at = take_tree(tokens, at, path.clone(), found);
                    at += usize::from(at == start || tokens.get(at).is_some_and(|one| one == ","));
                }
                return at + 1;
            }
            "*" => {
                at += 1;
                break;
            }
            word if word.starts_with(is_word) => path.push(word.to_string()),
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    if tokens.get(at).is_some_and(|token| token == "as") {
        path.push("as".into());
        path.extend(tokens.get(at + 1).cloned());
        at += 2;
    }
    found.push(path);
    at
}

/// The path as seen from the file; `None` if it stays in an inline module.
fn of_names(path: &[String], depth: usize) -> Option<Named> {
    let (path, alias) = match path {
        [path @ .., r#as, alias] if r#as == "as" => (path, alias.clone()),
        path => (path, path.last().cloned().unwrap_or_default()),
    };
    if path.first()? == "crate" {
        return Some(Named { up: None, names: path[1..].to_vec(), alias });
    }
    let path = path.strip_prefix(&["self".to_string()]).unwrap_or(path);
    let supers = path.iter().take_while(|name| *name == "super").count();
    let up = supers.checked_sub(depth).filter(|_| supers > 0)?;
    Some(Named { up: Some(up), names: path[supers..].to_vec(), alias })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        let show = |path: Named| match path.up {
            None => format!("crate::{}", path.names.join("::")),
            Some(up) => format!("{up}^{}", path.names.join("::")),
        };
        paths(&tokens(text)).into_iter().map(show).collect()
    }

    #[test]
    fn trees_are_spelled_out() {
        let text = "use crate::{a, b::{self, C as D}, e::*};\nuse super::super::f::G;\n";
        let expected = ["crate::a", "crate::b::self", "crate::b::C", "crate::e", "2^f::G"];
        assert_eq!(named(text), expected);
        assert_eq!(named("fn f(x: crate::a::B<u8>) { super::g::<u8>(); }"), ["crate::a::B", "1^g"]);
        assert!(named("pub(crate) fn f() {}\npub(super) mod g;").is_empty());
    }

    #[test]
    fn comments_strings_and_tests_name_nothing() {
        assert!(
            named("// crate::a\n/* crate::b */ \"crate::c\" r#\"\"crate::d\"# '\"'").is_empty()
        );
        assert!(named("fn f<'a>() {}\n#[cfg(test)]\nuse crate::a;\n").is_empty());
        let text =
            "#[cfg(test)]\nmod tests {\n    use crate::a;\n\n    fn g() {\n    }\n}\nuse crate::b;";
        assert_eq!(named(text), ["crate::b"]);
        assert_eq!(named("let quote = '\\''; crate::a::b()"), ["crate::a::b"]);
    }

    #[test]
    fn inline_modules_are_counted() {
        assert_eq!(
            named("mod m {\n    use super::a;\n    use super::super::b;\n}"),
            ["0^a", "1^b"]
        );
    }
}
