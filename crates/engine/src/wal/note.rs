//! Notes in the log besides writes: which keyspaces exist, what time it is, and where a history
//! begins. Recovery needs no notes, because the manifest has the present state. Readers of the log
//! as a history need them, because the manifest does not keep past states.
//!
//! ```text
//! note     := tag u8 | body
//! tags        1 keyspace: id varint | name bytes | options bytes (made, or its options changed)
//!             2 dropped: id varint
//!             3 time: milliseconds since 1970 varint
//!             4 opened: history u64 | forked at varint | count varint | (body of tag 1)*
//!             5 repeats: first varint
//! ```
//!
//! A note uses no sequence number. Its place is between two writes. A reader that begins again at
//! the sequence number of the first of them gets the note again, so each note can be applied twice.

use crate::keys::codec::{
    Reader, Truncated, put_bytes, put_varint, take_list, take_number, take_u32,
};
use crate::keys::{KeyspaceId, SeqNo};

/// A keyspace, as a note describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotedKeyspace {
    /// Its id, which no other keyspace of the store ever gets.
    pub id: KeyspaceId,
    /// Its name.
    pub name: String,
    /// Its options as TOML.
    pub options: String,
}

/// A note of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A keyspace was made, or its options changed.
    Keyspace(NotedKeyspace),
    /// A keyspace was dropped.
    Dropped(KeyspaceId),
    /// The time by the clock of the machine, in milliseconds since 1970. It may go back.
    Time(u64),
    /// The store was opened after a crash.
    Opened {
        /// The history that begins here.
        history: u64,
        /// The last sequence number that the previous history shares with this one.
        forked_at: SeqNo,
        /// All keyspaces.
        keyspaces: Vec<NotedKeyspace>,
    },
    /// The next record repeats what an open found in the log, from this number on.
    Repeats(SeqNo),
}

impl Note {
    /// The note in bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Note::Keyspace(keyspace) => {
                out.push(1);
                put_keyspace(&mut out, keyspace);
            }
            Note::Dropped(id) => {
                out.push(2);
                put_varint(&mut out, u64::from(*id));
            }
            Note::Time(ms) => {
                out.push(3);
                put_varint(&mut out, *ms);
            }
            Note::Opened { history, forked_at, keyspaces } => {
                out.push(4);
                out.extend(history.to_le_bytes());
                put_varint(&mut out, *forked_at);
                put_varint(&mut out, keyspaces.len() as u64);
                keyspaces.iter().for_each(|keyspace| put_keyspace(&mut out, keyspace));
            }
            Note::Repeats(first) => {
                out.push(5);
                put_varint(&mut out, *first);
            }
        }
        out
    }

    /// Reads a note.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Note, Truncated> {
        let mut reader = Reader::new(bytes);
        let note = match reader.take_u8()? {
            1 => Note::Keyspace(take_keyspace(&mut reader)?),
            2 => Note::Dropped(take_u32(&mut reader)?),
            3 => Note::Time(reader.take_varint()?),
            4 => Note::Opened {
                history: reader.take_u64()?,
                forked_at: take_number(&mut reader)?,
                keyspaces: take_list(&mut reader, take_keyspace)?,
            },
            5 => Note::Repeats(take_number(&mut reader)?),
            _ => return Err(Truncated),
        };
        reader.is_empty().then_some(note).ok_or(Truncated)
    }
}

fn put_keyspace(out: &mut Vec<u8>, keyspace: &NotedKeyspace) {
    put_varint(out, u64::from(keyspace.id));
    put_bytes(out, keyspace.name.as_bytes());
    put_bytes(out, keyspace.options.as_bytes());
}

fn take_keyspace(reader: &mut Reader<'_>) -> Result<NotedKeyspace, Truncated> {
    let id = take_u32(reader)?;
    let mut text = || String::from_utf8(reader.take_bytes()?.to_vec()).map_err(|_| Truncated);
    Ok(NotedKeyspace { id, name: text()?, options: text()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_come_back_and_cut_ones_do_not() {
        let keyspace = |id| NotedKeyspace { id, name: format!("n{id}"), options: "a = 1".into() };
        let notes = [
            Note::Keyspace(keyspace(300)),
            Note::Dropped(7),
            Note::Time(u64::MAX),
            Note::Opened { history: 9, forked_at: 5, keyspaces: vec![keyspace(0), keyspace(1)] },
            Note::Repeats(1 << 40),
        ];
        for note in notes {
            let bytes = note.encode();
            assert_eq!(Note::decode(&bytes), Ok(note));
            for end in 0..bytes.len() {
                assert!(Note::decode(&bytes[..end]).is_err());
            }
        }
        assert!(Note::decode(&[6, 0]).is_err());
    }
}
