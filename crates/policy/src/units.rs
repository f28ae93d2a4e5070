//! How numbers of options are written in text: sizes with a unit, ratios as decimals. In memory
//! they are integers, so that a decision is the same on every machine.
//!
//! Each module is for serde's `with`: [`size`] reads `65536`, `"64K"` or `"64KiB"` and writes the
//! number; [`tenths`] and [`thousandths`] hold `9.9` as 99 and `0.8` as 800.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserializer, Serializer};

/// The bytes of a size as people write it: digits, then perhaps K, M, G or T for powers of 1024,
/// with or without `B` or `iB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let shift = match unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit) {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("{text:?} has no known unit: write K, M, G or T")),
    };
    let number: u64 =
        digits.trim().parse().map_err(|_| format!("{text:?} is no size, such as \"64M\""))?;
    let bytes = number.checked_mul(1 << shift);
    bytes.ok_or_else(|| format!("{text:?} is more bytes than can be counted"))
}

/// Sizes in bytes.
pub mod size {
    use super::*;

    struct Size;

    impl Visitor<'_> for Size {
        type Value = u64;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of bytes, or a size such as \"64M\"")
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
            Ok(number)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
            u64::try_from(number).map_err(|_| E::custom(format!("{number} is no size")))
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
            parse_size(text).map_err(E::custom)
        }
    }

    /// Reads a size.
    pub fn deserialize<'de, D, T>(from: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: TryFrom<u64>,
    {
        let bytes = from.deserialize_any(Size)?;
        T::try_from(bytes).map_err(|_| de::Error::custom(format!("{bytes} bytes are too many")))
    }

    /// Writes a number of bytes.
    pub fn serialize<S: Serializer, T: Copy + Into<u64>>(
        bytes: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_u64((*bytes).into())
    }
}

struct Scaled(u32);

impl Visitor<'_> for Scaled {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.ilog10();
        write!(f, "a decimal number of at most {digits} digits behind the point")
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<u32, E> {
        let scaled = number * f64::from(self.0);
        let whole = scaled.round();
        let fits = (0.0..=f64::from(u32::MAX)).contains(&whole);
        match fits && (scaled - whole).abs() < 1e-6 {
            true => Ok(whole as u32),
            false => Err(E::invalid_value(de::Unexpected::Float(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u32, E> {
        let scaled = number.checked_mul(self.0.into()).and_then(|all| u32::try_from(all).ok());
        scaled.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u32, E> {
        let scaled = number.checked_mul(self.0.into()).and_then(|all| u32::try_from(all).ok());
        scaled.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }
}

macro_rules! scaled {
    ($($doc:literal $name:ident = $scale:literal),+) => {$(
        #[doc = $doc]
        pub mod $name {
            use super::*;

            /// Reads a decimal.
            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
                from.deserialize_any(Scaled($scale))
            }

            /// Writes a decimal.
            pub fn serialize<S: Serializer>(number: &u32, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_f64(f64::from(*number) / f64::from($scale))
            }
        }
    )+};
}

scaled! {
    "Decimals held in tenths." tenths = 10u32,
    "Decimals held in thousandths." thousandths = 1000u32
}

/// A number that is held in parts of one as users write it: 800 in thousandths is `0.8`.
pub fn decimal(number: u64, parts: u64) -> String {
    let digits = parts.ilog10() as usize;
    let whole = number / parts;
    if digits == 0 {
        return whole.to_string();
    }
    let text = format!("{whole}.{:0digits$}", number % parts);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = [("0", 0), ("700", 700), ("4K", 4096), ("64MiB", 64 << 20), ("2 gb", 2 << 30)];
        for (text, bytes) in sizes {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "1X", "99999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
