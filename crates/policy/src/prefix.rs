//! Finds the prefix of a key, by which adaptive tiering groups keys (PTierDB §III-B). Not a
//! partitioner: a compaction's [`crate::shape::plan::Cut`] decides where tables are cut.
//!
//! A rule is text in options and in the manifest: `fixed(8)`, `delimiter(/)`, `custom(name)`. It is
//! immutable for a store once a table was cut by it. `auto` in the options lets the first
//! compaction out of level 0 choose a `fixed(n)` (see [`PrefixHistogram`]).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest prefix that `fixed(n)` may have and that `auto` may choose.
pub const MAX_FIXED_BYTES: u32 = 64;

/// A table with more prefixes than this keeps only its bounds.
pub const MAX_TABLE_PREFIXES: usize = 1024;

/// A rule, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixRule {
    /// The first n bytes; a shorter key is its own prefix.
    Fixed(u32),
    /// Up to and including the first occurrence of these bytes; a key without them is its own
    /// prefix.
    Delimiter(Box<[u8]>),
    /// The prefix that the extractor with this registered name returns.
    Custom(String),
}

/// A prefix extractor that the program supplies. Pure: the same key always has the same prefix, for
/// as long as the store lives.
pub trait PrefixExtractor: Send + Sync {
    /// Name, stored in the manifest.
    fn name(&self) -> &str;

    /// How many of the key's first bytes are its prefix. A larger number than the key's length
    /// means all of it.
    fn prefix_len(&self, key: &[u8]) -> usize;
}

/// A rule ready to use.
#[derive(Clone)]
pub struct Prefixer {
    rule: PrefixRule,
    custom: Option<Arc<dyn PrefixExtractor>>,
}

/// Why a text is not a rule, or why a rule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// Not of a known form.
    #[error("{0:?} is not a prefix rule; write fixed(8), delimiter(/) or custom(name)")]
    Malformed(String),
    /// `fixed(n)` out of range.
    #[error("fixed({0}): a prefix has between 1 and {MAX_FIXED_BYTES} bytes")]
    Length(u64),
    /// The store was made with an extractor that nobody registered.
    #[error("the prefix extractor {0:?} is not registered; pass it in Options::prefix_extractors")]
    Unregistered(String),
}

impl PrefixRule {
    /// The rule with the extractor it names.
    pub fn resolve(
        &self,
        registered: &[Arc<dyn PrefixExtractor>],
    ) -> Result<Prefixer, PrefixError> {
        let custom = match self {
            PrefixRule::Custom(name) => {
                let found = registered.iter().find(|extractor| extractor.name() == name);
                Some(found.cloned().ok_or_else(|| PrefixError::Unregistered(name.clone()))?)
            }
            _ => None,
        };
        Ok(Prefixer { rule: self.clone(), custom })
    }
}

impl fmt::Display for PrefixRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixRule::Fixed(bytes) => write!(f, "fixed({bytes})"),
            PrefixRule::Delimiter(bytes) => write!(f, "delimiter({})", bytes.escape_ascii()),
            PrefixRule::Custom(name) => write!(f, "custom({name})"),
        }
    }
}

impl FromStr for PrefixRule {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<PrefixRule, PrefixError> {
        let malformed = || PrefixError::Malformed(text.to_owned());
        let (form, rest) = text.split_once('(').ok_or_else(malformed)?;
        let argument = rest.strip_suffix(')').filter(|inner| !inner.is_empty());
        let argument = argument.ok_or_else(malformed)?;
        match form {
            "fixed" => {
                let bytes: u64 = argument.parse().map_err(|_| malformed())?;
                let valid = u32::try_from(bytes).ok().filter(|n| (1..=MAX_FIXED_BYTES).contains(n));
                valid.map(PrefixRule::Fixed).ok_or(PrefixError::Length(bytes))
            }
            "delimiter" => {
                let bytes = unescape(argument).ok_or_else(malformed)?;
                Ok(PrefixRule::Delimiter(bytes.into()))
            }
            "custom" => Ok(PrefixRule::Custom(argument.to_owned())),
            _ => Err(malformed()),
        }
    }
}

/// The reverse of `escape_ascii`: `\xNN`, `\\`, `\n`, `\t`, `\r`, `\'`, `\"`, anything else as is.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'x' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            other => other,
        });
    }
    Some(bytes)
}

impl Prefixer {
    /// The rule.
    pub fn rule(&self) -> &PrefixRule {
        &self.rule
    }

    /// The prefix of a key: never longer than the key. O(key) for a delimiter, else O(1).
    pub fn prefix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        let len = match (&self.rule, &self.custom) {
            (PrefixRule::Fixed(bytes), _) => *bytes as usize,
            (PrefixRule::Delimiter(mark), _) => key
                .windows(mark.len())
                .position(|window| window == &**mark)
                .map_or(key.len(), |at| at + mark.len()),
            (PrefixRule::Custom(_), Some(extractor)) => extractor.prefix_len(key),
            (PrefixRule::Custom(_), None) => key.len(),
        };
        &key[..len.min(key.len())]
    }
}

impl fmt::Debug for Prefixer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.rule)
    }
}

/// Counts distinct prefixes of every length in one pass over sorted keys.
///
/// Two neighbours that share l bytes have different prefixes of length n if and only if n > l. The
/// same test holds for a key shorter than n, which is its own prefix.
#[derive(Clone, Debug)]
pub struct PrefixHistogram {
    /// How many neighbours share exactly this many bytes. The last element counts all longer
    /// matches.
    shared: Vec<u64>,
    last_key: Option<Vec<u8>>,
}

impl Default for PrefixHistogram {
    fn default() -> Self {
        PrefixHistogram { shared: vec![0; MAX_FIXED_BYTES as usize + 1], last_key: None }
    }
}

impl PrefixHistogram {
    /// Adds the next key. Keys must ascend; equal keys count once.
    pub fn add(&mut self, key: &[u8]) {
        let Some(last_key) = &mut self.last_key else {
            self.last_key = Some(key.to_vec());
            return;
        };
        if last_key.as_slice() == key {
            return;
        }
        let shared = last_key.iter().zip(key).take_while(|(a, b)| a == b).count();
        self.shared[shared.min(MAX_FIXED_BYTES as usize)] += 1;
        last_key.clear();
        last_key.extend_from_slice(key);
    }

    /// The smallest n with at least `wanted` distinct prefixes; the largest n allowed if no n has
    /// that many.
    pub fn choose(&self, wanted: u64) -> PrefixRule {
        let mut distinct = 1;
        for n in 1..=MAX_FIXED_BYTES {
            distinct += self.shared[n as usize - 1];
            if distinct >= wanted {
                return PrefixRule::Fixed(n);
            }
        }
        PrefixRule::Fixed(MAX_FIXED_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_survive_text_and_bad_ones_say_why() {
        for text in ["fixed(8)", "delimiter(/)", "delimiter(\\x00::)", "custom(user id)"] {
            let rule: PrefixRule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
        for text in ["", "fixed", "fixed()", "fixed(x)", "delimiter()", "prefix(3)", "fixed(3"] {
            assert!(matches!(text.parse::<PrefixRule>(), Err(PrefixError::Malformed(_))), "{text}");
        }
        assert_eq!("fixed(0)".parse::<PrefixRule>(), Err(PrefixError::Length(0)));
        assert_eq!("fixed(65)".parse::<PrefixRule>(), Err(PrefixError::Length(65)));
    }

    #[test]
    fn prefixes() {
        let prefixer = |text: &str| text.parse::<PrefixRule>().unwrap().resolve(&[]).unwrap();
        let fixed = prefixer("fixed(3)");
        assert_eq!(fixed.prefix(b"abcdef"), b"abc");
        assert_eq!(fixed.prefix(b"ab"), b"ab");
        let path = prefixer("delimiter(/)");
        assert_eq!(path.prefix(b"usr/lib/x"), b"usr/");
        assert_eq!(path.prefix(b"usr"), b"usr");
        let unknown = PrefixRule::Custom("mine".into()).resolve(&[]);
        assert_eq!(unknown.err(), Some(PrefixError::Unregistered("mine".into())));
    }

    #[test]
    fn the_shortest_prefix_that_tells_enough_keys_apart() {
        let mut histogram = PrefixHistogram::default();
        let keys: [&[u8]; 6] = [b"user1", b"user1", b"user12", b"user13", b"user2", b"z"];
        keys.iter().for_each(|key| histogram.add(key));
        // Distinct: 2 up to n = 4, 3 at n = 5, 5 at n = 6.
        assert_eq!(histogram.choose(1), PrefixRule::Fixed(1));
        assert_eq!(histogram.choose(2), PrefixRule::Fixed(1));
        assert_eq!(histogram.choose(3), PrefixRule::Fixed(5));
        assert_eq!(histogram.choose(5), PrefixRule::Fixed(6));
        assert_eq!(histogram.choose(6), PrefixRule::Fixed(MAX_FIXED_BYTES));
    }
}
