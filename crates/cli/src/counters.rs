//! Counters: values of the merge operators that add. A value is an integer of 8 bytes; people read
//! and write it as a decimal number.

use crate::failure::{Failure, Result};

/// The type of the integers that a keyspace adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    Signed,
    Unsigned,
}

impl Counter {
    /// The counter of a merge operator; `None` if it adds no numbers.
    pub fn of(operator: &str) -> Option<Counter> {
        match operator {
            "add-i64" => Some(Counter::Signed),
            "add-u64" => Some(Counter::Unsigned),
            _ => None,
        }
    }

    fn operator(self) -> &'static str {
        match self {
            Counter::Signed => "add-i64",
            Counter::Unsigned => "add-u64",
        }
    }

    /// The number in a value; `None` if the value is not a counter.
    pub fn number(self, value: &[u8]) -> Option<String> {
        let bytes: [u8; 8] = value.try_into().ok()?;
        Some(match self {
            Counter::Signed => i64::from_le_bytes(bytes).to_string(),
            Counter::Unsigned => u64::from_le_bytes(bytes).to_string(),
        })
    }

    /// The bytes of a decimal number, for an operand or a value.
    pub fn bytes(self, text: &[u8]) -> Result<Vec<u8>> {
        let text = String::from_utf8_lossy(text);
        let bytes = match self {
            Counter::Signed => text.parse::<i64>().map(|number| number.to_le_bytes().to_vec()),
            Counter::Unsigned => text.parse::<u64>().map(|number| number.to_le_bytes().to_vec()),
        };
        bytes.map_err(|error| {
            let what = format!("{text:?} is no operand of {}: {error}", self.operator());
            Failure::usage(what, "write a number")
        })
    }

    /// An error if no operand could be added to such a value.
    pub fn check(self, value: &[u8]) -> std::result::Result<(), String> {
        match value.len() {
            8 => Ok(()),
            len => Err(format!(
                "the keyspace adds numbers ({}), and a value of {} is no integer of 8 bytes",
                self.operator(),
                crate::output::amount(len as u64)
            )),
        }
    }

    /// Tells the user what to do instead of a put.
    pub fn hint(typed: &str) -> String {
        let number = if is_number(typed) { typed } else { "NUMBER" };
        format!(
            "`runstone merge STORE KEY {number}` adds to the counter, and begins it where the key \
             is absent; after `runstone delete STORE KEY` it sets it"
        )
    }
}

/// Whether a text is a decimal number.
pub fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for text in ["0", "-7", "9223372036854775807", "18446744073709551615"] {
            for counter in [Counter::Signed, Counter::Unsigned] {
                if let Ok(bytes) = counter.bytes(text.as_bytes()) {
                    assert_eq!(counter.number(&bytes).as_deref(), Some(text));
                    assert!(counter.check(&bytes).is_ok());
                }
            }
        }
        assert!(Counter::Unsigned.bytes(b"-7").is_err() && Counter::Signed.bytes(b"x").is_err());
        assert_eq!(Counter::Signed.number(b"10"), None);
        assert!(Counter::Signed.check(b"10").is_err());
        assert_eq!(Counter::of("append(,)"), None);
    }
}
