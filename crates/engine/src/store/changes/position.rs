//! Positions in the history of a store.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::keys::{MAX_SEQ, SeqNo};

/// A place in the history of a store, after a write. As text: `NUMBER@HISTORY`, the history in 16
/// hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    history: u64,
    seq: SeqNo,
}

impl Position {
    /// The place before everything, in no history: `0@0000000000000000`. Changes after it are those
    /// of [`ChangesFrom::Everything`](crate::ChangesFrom::Everything).
    pub const START: Position = Position { history: 0, seq: 0 };

    /// The place after a sequence number of a history.
    pub fn new(history: u64, seq: SeqNo) -> Position {
        Position { history, seq }
    }

    /// The id of the history.
    pub fn history(&self) -> u64 {
        self.history
    }

    /// The sequence number of the last write before it.
    pub fn seq(&self) -> SeqNo {
        self.seq
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:016x}", self.seq, self.history)
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(text: &str) -> Result<Position> {
        let parsed = text.split_once('@').and_then(|(seq, history)| {
            let is_whole = history.len() == 16 && !history.starts_with('+');
            let history = u64::from_str_radix(history, 16).ok().filter(|_| is_whole)?;
            Some(Position { history, seq: seq.parse().ok().filter(|seq| *seq <= MAX_SEQ)? })
        });
        parsed.ok_or_else(|| {
            Error::invalid(
                format!("{text:?} is no position"),
                "give it as it was printed: a number, `@`, and 16 hexadecimal digits",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_back_from_text() {
        for position in [Position::new(0, 0), Position::new(u64::MAX, MAX_SEQ)] {
            assert_eq!(position.to_string().parse::<Position>().expect("its own text"), position);
        }
        for bad in ["", "7", "@", "7@12", "x@0000000000000000", "7@+00000000000000f"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }
}
