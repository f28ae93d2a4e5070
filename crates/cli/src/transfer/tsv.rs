//! `key TAB value` per line, each as [`crate::encoding::shown`] writes it: what `scan` prints. No
//! header. An entry that expires ends with `TAB expires_ms=NUMBER`.

use super::{EXPIRES, Record, parse_expiry};
use crate::encoding::{shown, unescape};
use crate::range::Entry;

/// Reads a line without its end; the expiry of the entry is kept or skipped.
pub fn parse(line: &[u8], is_kept: bool) -> Result<Record, String> {
    let mut fields = line.split(|byte| *byte == b'\t');
    let (Some(key), Some(value)) = (fields.next(), fields.next()) else {
        return Err("there is no tab between key and value".into());
    };
    let expires_ms = match (fields.next().map(expiry), fields.next()) {
        (None, _) => None,
        (Some(Some(at)), None) if is_kept => parse_expiry(at)?,
        (Some(Some(_)), None) => None,
        _ => return Err("there is more than one tab; write \\t inside a field".into()),
    };
    Ok(Record { key: unescape(key)?, value: unescape(value)?, expires_ms })
}

/// The number in the third field.
fn expiry(field: &[u8]) -> Option<&[u8]> {
    field.strip_prefix(EXPIRES.as_bytes())?.strip_prefix(b"=")
}

/// Appends a line.
pub fn write(entry: Entry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{}\t{}", shown(entry.key), shown(entry.value)).as_bytes());
    if let Some(at) = entry.expires_ms {
        out.extend_from_slice(format!("\t{EXPIRES}={at}").as_bytes());
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        for (key, value) in [(&b""[..], &b""[..]), (b"a\tb", b"\n\\n\r\xff\0")] {
            for expires_ms in [None, Some(7)] {
                let mut line = Vec::new();
                write(Entry { key, value, expires_ms }, &mut line);
                let line = line.strip_suffix(b"\n").expect("a line");
                let record = Record { key: key.to_vec(), value: value.to_vec(), expires_ms };
                assert_eq!(parse(line, true), Ok(record.clone()));
                assert_eq!(parse(line, false), Ok(Record { expires_ms: None, ..record }));
            }
        }
        for bad in ["a", "a\tb\tc", "a\tb\t7", "a\tb\texpires_ms=x", "a\tb\texpires_ms=7\t"] {
            assert!(parse(bad.as_bytes(), true).is_err(), "{bad}");
        }
        assert!(parse(b"a\\q\tb", true).is_err());
    }
}
