//! Formats sizes and keys for people, in a plan's `why` and in reports. Not a parser.

/// Bytes with a binary unit: `64M`, `1.5G`, `700`. Rounds down to one decimal; exact values show
/// no decimal. Integers only, so that the text is the same on every machine.
pub fn format_bytes(bytes: u64) -> String {
    const UNITS: [(u32, &str); 4] = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    for (shift, suffix) in UNITS {
        let whole = bytes >> shift;
        if whole == 0 {
            continue;
        }
        let rest = bytes - (whole << shift);
        let tenths = (u128::from(rest) * 10) >> shift;
        return match tenths {
            0 => format!("{whole}{suffix}"),
            _ => format!("{whole}.{tenths}{suffix}"),
        };
    }
    bytes.to_string()
}

/// A key in quotes, bytes outside printable ASCII escaped, cut after 24 bytes.
pub fn format_key(key: &[u8]) -> String {
    const SHOWN_BYTES: usize = 24;
    match key.get(..SHOWN_BYTES) {
        Some(head) if key.len() > SHOWN_BYTES => format!("\"{}..\"", head.escape_ascii()),
        _ => format!("\"{}\"", key.escape_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_keys() {
        let cases = [(0, "0"), (700, "700"), (64 << 20, "64M"), (3 << 29, "1.5G"), (1025, "1K")];
        for (bytes, text) in cases {
            assert_eq!(format_bytes(bytes), text);
        }
        assert_eq!(format_bytes(u64::MAX), "16777215.9T");
        assert_eq!(format_key(b"a\x00"), "\"a\\x00\"");
        assert_eq!(format_key(&[b'x'; 25]), format!("\"{}..\"", "x".repeat(24)));
    }
}
