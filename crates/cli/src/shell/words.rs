//! Splits a line of the shell into words: blanks separate them, quotes and escapes work as usual.

/// Splits a line. Inside double quotes and outside of quotes a backslash escapes: `\n`, `\t`,
/// `\xNN`, or the character behind it. Single quotes keep everything.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(escape(&mut rest)?),
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => {
                let mut bytes = [0; 4];
                let encoded = c.encode_utf8(&mut bytes).as_bytes();
                word.get_or_insert_default().extend_from_slice(encoded);
            }
        }
    }
    if let Some(open) = quote {
        return Err(format!("the quote {open} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

fn escape(rest: &mut std::str::Chars<'_>) -> Result<Vec<u8>, String> {
    match rest.next() {
        Some('n') => Ok(vec![b'\n']),
        Some('t') => Ok(vec![b'\t']),
        Some('x') => {
            let digits: String = rest.by_ref().take(2).collect();
            crate::encoding::from_hex(digits.as_bytes())
                .ok()
                .filter(|bytes| bytes.len() == 1)
                .ok_or_else(|| format!("\\x{digits} is no byte"))
        }
        Some(other) => Ok(other.to_string().into_bytes()),
        None => Err("a backslash at the end".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_quotes_and_escapes() {
        let words = |line: &str| {
            let split = split(line).expect(line);
            split.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(words("  put a  b "), ["put", "a", "b"]);
        assert_eq!(words(r#"put 'a b' "" "c\"d""#), ["put", "a b", "", "c\\\"d"]);
        assert_eq!(words(r"a\ b \x00\xff 'x\n'"), ["a b", "\\x00\\xff", "x\\\\n"]);
        for bad in ["'a", "\"a", "a\\", "\\xg1", "\\x1"] {
            assert!(split(bad).is_err(), "{bad}");
        }
    }
}
