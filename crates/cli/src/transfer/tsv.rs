//! `key TAB value` per line; see [`crate::encoding::escape_tsv`]. No header.

use super::Record;
use crate::encoding::{escape_tsv, unescape_tsv};

/// Reads a line without its end.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => {
            Ok(Record { key: unescape_tsv(key)?, value: unescape_tsv(value)? })
        }
        (_, None, _) => Err("there is no tab between key and value".into()),
        _ => Err("there is more than one tab; write \\t inside a field".into()),
    }
}

/// Appends a line.
pub fn write(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    escape_tsv(key, out);
    out.push(b'\t');
    escape_tsv(value, out);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        for (key, value) in [(&b""[..], &b""[..]), (b"a\tb", b"\n\\n\r\xff\0")] {
            let mut line = Vec::new();
            write(key, value, &mut line);
            let read = parse(line.strip_suffix(b"\n").expect("a line"));
            assert_eq!(read, Ok(Record { key: key.to_vec(), value: value.to_vec() }));
        }
        assert!(parse(b"a").is_err() && parse(b"a\tb\tc").is_err() && parse(b"a\\q\tb").is_err());
    }
}
