//! `key TAB value` per line, each as [`crate::encoding::shown`] writes it: what `scan` prints. No
//! header.

use super::Record;
use crate::encoding::{shown, unescape};

/// Reads a line without its end.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(key), Some(value), None) => {
            Ok(Record { key: unescape(key)?, value: unescape(value)? })
        }
        (_, None, _) => Err("there is no tab between key and value".into()),
        _ => Err("there is more than one tab; write \\t inside a field".into()),
    }
}

/// Appends a line.
pub fn write(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{}\t{}\n", shown(key), shown(value)).as_bytes());
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
