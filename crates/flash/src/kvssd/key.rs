//! A key of the memtable: short ones lie in the node of the tree, so that a search compares them
//! without following a pointer each.

use std::borrow::Borrow;
use std::cmp::Ordering;

/// Longest key that lies in place.
const MOST_INLINE_BYTES: usize = 30;

/// Bytes of a key, ordered as such.
#[derive(Clone, Debug)]
pub(super) enum Key {
    Inline { len: u8, bytes: [u8; MOST_INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Key {
        if key.len() > MOST_INLINE_BYTES {
            return Key::Boxed(key.into());
        }
        let mut bytes = [0; MOST_INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        Key::Inline { len: key.len() as u8, bytes }
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        match self {
            Key::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Key::Boxed(bytes) => bytes,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        Borrow::<[u8]>::borrow(self).cmp(other.borrow())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_their_bytes() {
        let long = [7; MOST_INLINE_BYTES + 1];
        let keys = [&[][..], &[0], &[0, 0], &[1], &[7], &long[1..], &long, &[8]];
        for (at, one) in keys.iter().enumerate() {
            assert_eq!(Borrow::<[u8]>::borrow(&Key::from(*one)), *one);
            for (other_at, other) in keys.iter().enumerate() {
                assert_eq!(Key::from(*one).cmp(&Key::from(*other)), at.cmp(&other_at));
            }
        }
    }
}
