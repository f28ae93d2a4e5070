//! How numbers of options are written in text: sizes with a unit, ratios as decimals. In memory
//! they are integers, so that a decision is the same on every machine.
//!
//! [`size`] is for serde's `with`: it reads `65536`, `"64K"` or `"64KiB"` and writes the number.
//! [`Tenths`] and [`Thousandths`] store `9.9` as 99 and `0.8` as 800.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Reads a size as people write it, in bytes: digits, then perhaps K, M, G or T for powers of 1024,
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

/// A decimal number that is stored as an integer, in `PARTS` parts of one: `0.8` is 800
/// thousandths. Made from a float, it is rounded to the nearest part. The option that uses it
/// decides whether it is in range, so this type can store numbers below zero too.
///
/// ```
/// use runstone_policy::units::Thousandths;
///
/// let c = Thousandths::from(0.8004);
/// assert_eq!((c, c.parts()), (Thousandths::of_parts(800), 800));
/// assert_eq!((c.get(), c.to_string()), (0.8, "0.8".to_string()));
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decimal<const PARTS: u32>(i64);

/// A number with one digit after the point.
pub type Tenths = Decimal<10>;
/// A number with three digits after the point.
pub type Thousandths = Decimal<1000>;

/// The value for a float that is not a number. It is out of range for every option.
const NOT_A_NUMBER: i64 = i64::MIN;

impl<const PARTS: u32> Decimal<PARTS> {
    /// This many parts of one.
    pub const fn of_parts(parts: u32) -> Self {
        Decimal(parts as i64)
    }

    /// The same for any number; what cannot be held becomes the largest that can.
    pub(crate) fn saturating(parts: u128) -> Self {
        Decimal(i64::try_from(parts).unwrap_or(i64::MAX))
    }

    /// How many parts of one it is; 0 if it is below zero, `u32::MAX` if it is larger than that.
    pub fn parts(self) -> u32 {
        self.0.clamp(0, u32::MAX.into()) as u32
    }

    /// The parts as they are stored, including numbers below zero, for checks.
    pub fn signed_parts(self) -> i128 {
        self.0.into()
    }

    /// The number as a float.
    pub fn get(self) -> f64 {
        self.0 as f64 / f64::from(PARTS)
    }
}

impl<const PARTS: u32> From<f64> for Decimal<PARTS> {
    fn from(number: f64) -> Self {
        match number.is_nan() {
            true => Decimal(NOT_A_NUMBER),
            false => Decimal((number * f64::from(PARTS)).round() as i64),
        }
    }
}

impl<const PARTS: u32> From<u32> for Decimal<PARTS> {
    fn from(number: u32) -> Self {
        Decimal(i64::from(number) * i64::from(PARTS))
    }
}

impl<const PARTS: u32> fmt::Display for Decimal<PARTS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal(self.0, PARTS))
    }
}

impl<const PARTS: u32> fmt::Debug for Decimal<PARTS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const PARTS: u32> Serialize for Decimal<PARTS> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.get())
    }
}

impl<'de, const PARTS: u32> Deserialize<'de> for Decimal<PARTS> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Scaled(PARTS)).map(Decimal::of_parts)
    }
}

struct Scaled(u32);

impl Visitor<'_> for Scaled {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.ilog10();
        write!(f, "a decimal number of at most {digits} digits after the point")
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

/// Formats a number of parts of one as users write it: 800 thousandths are `0.8`.
pub fn decimal(number: impl Into<i128>, parts: u32) -> String {
    let (number, digits) = (number.into(), parts.ilog10() as usize);
    if digits == 0 {
        return number.to_string();
    }
    if number == i128::from(NOT_A_NUMBER) {
        return "no number".to_string();
    }
    let (sign, number) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
    let (whole, rest) = (number / u128::from(parts), number % u128::from(parts));
    let text = format!("{sign}{whole}.{rest:0digits$}");
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
    #[test]
    fn decimals_are_exact_and_say_what_they_were_made_of() {
        for (number, text) in [(0.8, "0.8"), (-0.5, "-0.5"), (1.0, "1"), (1e300, "92233")] {
            assert!(Thousandths::from(number).to_string().starts_with(text), "{number}");
        }
        assert_eq!(Thousandths::from(f64::NAN).to_string(), "no number");
        assert_eq!([-0.5, 0.4, 1e300].map(|n| Thousandths::from(n).parts()), [0, 400, u32::MAX]);
        assert_eq!(Tenths::from(9.9), Tenths::of_parts(99));
    }
}
