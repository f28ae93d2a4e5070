//! A key of the memtable, or a bound of a clip. Short keys are stored inline, so that a search
//! compares them without following a pointer for each. The decoding of a metadata page also saves
//! two allocations per entry.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Deref;

/// The longest key that is stored inline: two of them fit a cache line.
const MOST_INLINE_BYTES: usize = 30;

/// The bytes of a key, in byte order.
#[derive(Clone)]
pub struct Key(Bytes);

#[derive(Clone)]
enum Bytes {
    /// The bytes after the key are zeros.
    Inline {
        len: u8,
        bytes: [u8; MOST_INLINE_BYTES],
    },
    Boxed(Box<[u8]>),
}

impl Key {
    /// The smallest key above the given one.
    pub fn after(key: &[u8]) -> Key {
        if key.len() >= MOST_INLINE_BYTES {
            return Key(Bytes::Boxed([key, &[0]].concat().into()));
        }
        let mut bytes = [0; MOST_INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        Key(Bytes::Inline { len: key.len() as u8 + 1, bytes })
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        if key.len() > MOST_INLINE_BYTES {
            return Key(Bytes::Boxed(key.into()));
        }
        let mut bytes = [0; MOST_INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        Key(Bytes::Inline { len: key.len() as u8, bytes })
    }
}

impl Default for Key {
    fn default() -> Key {
        Key::from(&[][..])
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Boxed(bytes) => bytes,
        }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Ord for Key {
    /// Inline keys are compared as a whole, which needs no call. If two differ only in zeros at
    /// their ends, the shorter one comes first.
    fn cmp(&self, other: &Key) -> Ordering {
        match (&self.0, &other.0) {
            (
                Bytes::Inline { len, bytes },
                Bytes::Inline { len: other_len, bytes: other_bytes },
            ) => bytes.cmp(other_bytes).then(len.cmp(other_len)),
            _ => (**self).cmp(&**other),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_their_bytes() {
        let long = [7; MOST_INLINE_BYTES + 1];
        let keys = [&[][..], &[0], &[0, 0], &[1], &[7], &long[1..], &long, &[8], &[8, 0], &[8, 1]];
        for (at, one) in keys.iter().enumerate() {
            assert_eq!(*Key::from(*one), **one);
            for (other_at, other) in keys.iter().enumerate() {
                assert_eq!(Key::from(*one).cmp(&Key::from(*other)), at.cmp(&other_at));
            }
        }
    }

    #[test]
    fn the_next_key_has_a_zero_more() {
        for len in [0, 1, MOST_INLINE_BYTES - 1, MOST_INLINE_BYTES, MOST_INLINE_BYTES + 1] {
            assert_eq!(*Key::after(&vec![9; len]), [&vec![9; len][..], &[0]].concat());
        }
    }
}
