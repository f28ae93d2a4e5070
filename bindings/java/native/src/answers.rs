//! Results with several fields, as one array of bytes.
//!
//! ```text
//! answer := field*
//! field  := number u64 | size u32, bytes                      (little-endian)
//! ```
//!
//! Java's class `Answer` reads the fields. A list is preceded by its number of entries, and an
//! optional field by 0 or 1.

use jni::Env;
use jni::objects::JByteArray;
use runstone_boundary::Result;

use crate::bytes::{array, size};

/// An answer under construction.
#[derive(Debug, Default)]
pub struct Answer(Vec<u8>);

impl Answer {
    /// Adds a number.
    pub fn number(mut self, number: u64) -> Answer {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds numbers.
    pub fn numbers(self, numbers: impl IntoIterator<Item = u64>) -> Answer {
        numbers.into_iter().fold(self, Answer::number)
    }

    /// Adds bytes, or a text.
    pub fn bytes(mut self, bytes: impl AsRef<[u8]>) -> Answer {
        let bytes = bytes.as_ref();
        self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds a list.
    pub fn list<T>(
        self,
        all: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        add: impl FnMut(Answer, T) -> Answer,
    ) -> Answer {
        let all = all.into_iter();
        let begun = self.number(all.len() as u64);
        all.fold(begun, add)
    }

    /// Adds an optional field.
    pub fn optional<T>(self, some: Option<T>, add: impl FnOnce(Answer, T) -> Answer) -> Answer {
        match some {
            None => self.number(0),
            Some(one) => add(self.number(1), one),
        }
    }

    /// The array for Java.
    pub fn give<'l>(self, env: &mut Env<'l>) -> Result<JByteArray<'l>> {
        size(self.0.len())?;
        array(env, &self.0)
    }
}
