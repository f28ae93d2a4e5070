//! Bytes as text and back: the escapes in which keys and values are written everywhere, hexadecimal
//! digits, and base64 (RFC 4648) for JSON lines.

/// The bytes of a text, or why it does not decode.
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

/// Bytes as the command shows keys and values, on one line: printable text stays as it is, a
/// backslash becomes `\\`, a line feed `\n`, a tab `\t`, any other byte `\xNN`. [`unescape`]
/// reverses this.
pub fn shown(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                _ if is_printable(c) => text.push(c),
                _ => push_hex(c.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
            }
        }
        push_hex(chunk.invalid(), &mut text);
    }
    text
}

fn push_hex(bytes: &[u8], text: &mut String) {
    bytes.iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
}

/// Whether a terminal shows the character. It does not show control characters, other line ends,
/// marks that turn the direction of writing, and the byte order mark.
fn is_printable(c: char) -> bool {
    let is_invisible = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' | '\u{feff}');
    !c.is_control() && !is_invisible
}

/// Undoes [`shown`]. Bytes that `shown` would escape may also be there as they are. Escapes of
/// quotes and carriage returns are accepted as well, because the engine's own messages and dumps
/// contain them.
pub fn unescape(text: &[u8]) -> Decoded {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(escaped @ (b'\\' | b'\'' | b'"')) => escaped,
            Some(b'x') => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                match from_hex(&digits).as_deref() {
                    Ok([byte]) => *byte,
                    _ => return Err(format!("\\x{} is no byte", shown(&digits))),
                }
            }
            Some(other) => {
                let other = shown(&[other]);
                return Err(format!("\\{other} is no escape; a backslash is written \\\\"));
            }
            None => return Err("a lone backslash at the end; it is written \\\\".into()),
        });
    }
    Ok(bytes)
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
    fn hex_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(to_hex(&all).as_bytes()), Ok(all.clone()));
        assert!(from_hex(b"abc").is_err() && from_hex(b"zz").is_err());
    }

    /// Once, `scan` escaped some records and not others, so that no command could read them back.
    #[test]
    fn what_is_shown_is_one_line_and_comes_back() {
        for (bytes, text) in [
            ("päth/a".as_bytes(), "päth/a"),
            (b"C:\\temp", r"C:\\temp"),
            (b"a\nb\tc\r\\\xff", r"a\nb\tc\x0d\\\xff"),
            ("\u{85}ä\u{feff}\u{202e}".as_bytes(), r"\xc2\x85ä\xef\xbb\xbf\xe2\x80\xae"),
            (b"\xc3(", r"\xc3("),
        ] {
            assert_eq!(shown(bytes), text);
            assert_eq!(unescape(text.as_bytes()).as_deref(), Ok(bytes));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(shown(&all).as_bytes()), Ok(all.clone()));
        assert_eq!(unescape(all.escape_ascii().to_string().as_bytes()), Ok(all));
        assert_eq!(unescape(b"a\tb\xff").as_deref(), Ok(&b"a\tb\xff"[..]));
        for bad in [&b"\\"[..], b"a\\", b"\\q", b"\\x", b"\\x1", b"\\xg1", b"\\\xff"] {
            assert!(unescape(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
