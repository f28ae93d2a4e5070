//! Bytes as text and back: base64 (RFC 4648), hexadecimal, TSV escapes, and what people are shown.

/// Why a text does not decode.
pub type Decoded = std::result::Result<Vec<u8>, String>;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding.
pub fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            match i <= chunk.len() {
                true => text.push(char::from(BASE64[(bits >> (18 - 6 * i)) as usize & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

/// Decodes base64; padding is required, white space is not allowed.
pub fn from_base64(text: &str) -> Decoded {
    let bytes = text.as_bytes();
    if !bytes.len().is_multiple_of(4) {
        return Err(format!("base64 of {} characters, which is no multiple of 4", bytes.len()));
    }
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return Err("base64 with more than two padding characters".into());
    }
    let digits = &bytes[..bytes.len() - padding];
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    for chunk in digits.chunks(4) {
        let mut bits = 0;
        for (i, digit) in chunk.iter().enumerate() {
            let value = base64_value(*digit)
                .ok_or_else(|| format!("{:?} is no base64 digit", char::from(*digit)))?;
            bits |= value << (18 - 6 * i);
        }
        let whole = [(bits >> 16) as u8, (bits >> 8) as u8, bits as u8];
        out.extend_from_slice(&whole[..chunk.len() - 1]);
    }
    Ok(out)
}

fn base64_value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

/// Two lower-case digits per byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes two digits per byte.
pub fn from_hex(text: &[u8]) -> Decoded {
    if !text.len().is_multiple_of(2) {
        return Err("an odd number of hexadecimal digits".into());
    }
    let digit = |byte: u8| {
        let value = char::from(byte).to_digit(16);
        value.ok_or_else(|| format!("{:?} is no hexadecimal digit", char::from(byte)))
    };
    text.chunks(2).map(|pair| Ok((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

/// Escapes tab, line feed, carriage return and backslash; other bytes stay.
pub fn escape_tsv(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ => out.push(*byte),
        }
    }
}

/// Undoes [`escape_tsv`].
pub fn unescape_tsv(bytes: &[u8]) -> Decoded {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'\\' {
            out.push(*byte);
            continue;
        }
        out.push(match rest.next() {
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'\\') => b'\\',
            Some(other) => return Err(format!("unknown escape \\{}", char::from(*other))),
            None => return Err("a backslash at the end of a field".into()),
        });
    }
    Ok(out)
}

/// Bytes on one line for people: text as it is, control characters and non-text escaped.
pub fn shown(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '\\') => text.to_string(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// Text as it is, with a line feed at its end; anything else escaped on one line.
pub fn printable(value: &[u8]) -> Vec<u8> {
    let is_text = std::str::from_utf8(value)
        .is_ok_and(|text| !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    let mut shown = match is_text {
        true => value.to_vec(),
        false => value.escape_ascii().collect(),
    };
    if shown.last() != Some(&b'\n') {
        shown.push(b'\n');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_matches_the_vectors_of_the_rfc() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (len, text) in vectors.iter().enumerate() {
            assert_eq!(to_base64(&b"foobar"[..len]), *text);
            assert_eq!(from_base64(text).as_deref(), Ok(&b"foobar"[..len]));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_base64(&to_base64(&all)), Ok(all));
        for bad in ["A", "AAA", "====", "A===", "AA=A", "A A="] {
            assert!(from_base64(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hex_and_tsv_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(to_hex(&all).as_bytes()), Ok(all.clone()));
        assert!(from_hex(b"abc").is_err() && from_hex(b"zz").is_err());
        let mut escaped = Vec::new();
        escape_tsv(&all, &mut escaped);
        assert!(!escaped.iter().any(|byte| b"\t\r\n".contains(byte)));
        assert_eq!(unescape_tsv(&escaped), Ok(all));
        assert!(unescape_tsv(b"\\x").is_err() && unescape_tsv(b"\\").is_err());
    }

    #[test]
    fn shown_text_stays_on_its_line() {
        assert_eq!(shown("päth/a".as_bytes()), "päth/a");
        assert_eq!(shown(b"a\nb\\\xff"), "a\\nb\\\\\\xff");
    }
}
