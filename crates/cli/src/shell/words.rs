//! Splits a line of the shell into words, as the system's shell does. The words are then read like
//! arguments of the command line, escapes and all.

/// Splits a line at blanks outside of quotes. A backslash removes the special meaning of a quote or
/// blank after it, inside quotes too. Before any other character it stays, for the reader of the
/// word.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (_, '\\') => {
                let escaped = rest.next().ok_or("a lone backslash at the end of the line")?;
                let word = word.get_or_insert_default();
                if !matches!(escaped, '\'' | '"') && !escaped.is_whitespace() {
                    word.push('\\');
                }
                word.push(escaped);
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if let Some(open) = quote {
        return Err(format!("the quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_escapes() {
        let words = |line: &str| split(line).expect(line);
        assert_eq!(words("  put a  b "), ["put", "a", "b"]);
        assert_eq!(words(r#"put 'a b' "" "c\"d" 'it\'s'"#), ["put", "a b", "", "c\"d", "it's"]);
        assert_eq!(
            words(r"a\ b \x00\xff 'x\n' \\ \\' '"),
            ["a b", r"\x00\xff", r"x\n", r"\\", r"\\ "]
        );
        for bad in ["'a", "\"a", "a\\", r"'a\'"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
