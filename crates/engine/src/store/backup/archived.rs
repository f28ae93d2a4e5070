//! The archive in a directory of backups: the changes committed since a backup, one by one.
//!
//! ```text
//! NNNNNN.archive  records (`log/`), of which the first is a begin
//! begin     := 0 u8 | history (id u64 | count varint | (earlier id u64 | last common varint)*)
//!              | seq varint: the file continues after it
//! change    := 1 u8 | place | operations as the log has them
//! note      := 2 u8 | place | a note as the log has it
//! load      := 3 u8 | place | keyspace varint, then entries, then its end
//! entries   := 4 u8 | operations
//! load end  := 5 u8
//! place     := history u64 | seq varint: the position after it
//! ```
//!
//! A file ends with its last whole change: bytes that a crash left after it do not count. The next
//! file continues after that change.

use std::collections::BTreeMap;

use runstone_storage::{Category, Storage};

use super::{ArchiveInfo, numbers};
use crate::error::{Error, Result};
use crate::keys::codec::{
    Decoded, Reader, Truncated, put_varint, take_list, take_number, take_u32,
};
use crate::keys::{KeyspaceId, SeqNo};
use crate::log::{BadHeader, FRAME_BYTES, HEADER_BYTES, LogHeader, LogKind, LogReader, Next};
use crate::store::changes::{Change, Position};
use crate::store::verify::Damage;
use crate::tree::history::History;
use crate::wal::batch::{Batch, take_operation};
use crate::wal::note::Note;

pub(super) fn archive_name(number: u64) -> String {
    format!("{number:06}.archive")
}

/// A record of an archive.
#[derive(Debug)]
pub(super) enum Archived {
    /// The file continues after this sequence number of this history.
    Begin(History, SeqNo),
    Writes(Position, Batch),
    Note(Position, Note),
    Load(Position, KeyspaceId),
    Entries(Batch),
    LoadEnd,
}

impl Archived {
    /// The bytes of the record in two parts. The second one may be long, and is not copied.
    pub(super) fn encode(&self) -> (Vec<u8>, &[u8]) {
        let (mut out, mut rest) = (Vec::new(), &[][..]);
        match self {
            Archived::Begin(history, seq) => {
                out.push(0);
                put_history(&mut out, history);
                put_varint(&mut out, *seq);
            }
            Archived::Writes(position, batch) => {
                put_place(&mut out, 1, *position);
                rest = batch.encoded();
            }
            Archived::Note(position, note) => {
                put_place(&mut out, 2, *position);
                out.extend(note.encode());
            }
            Archived::Load(position, keyspace) => {
                put_place(&mut out, 3, *position);
                put_varint(&mut out, u64::from(*keyspace));
            }
            Archived::Entries(batch) => {
                out.push(4);
                rest = batch.encoded();
            }
            Archived::LoadEnd => out.push(5),
        }
        (out, rest)
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Archived> {
        let mut reader = Reader::new(bytes);
        Ok(match reader.take_u8()? {
            0 => {
                let begin = Archived::Begin(take_history(&mut reader)?, take_number(&mut reader)?);
                return reader.is_empty().then_some(begin).ok_or(Truncated);
            }
            1 => Archived::Writes(take_place(&mut reader)?, take_batch(&mut reader)?),
            2 => {
                let position = take_place(&mut reader)?;
                Archived::Note(position, Note::decode(reader.take(reader.remaining())?)?)
            }
            3 => {
                let load = Archived::Load(take_place(&mut reader)?, take_u32(&mut reader)?);
                return reader.is_empty().then_some(load).ok_or(Truncated);
            }
            4 => Archived::Entries(take_batch(&mut reader)?),
            5 if reader.is_empty() => Archived::LoadEnd,
            _ => return Err(Truncated),
        })
    }
}

fn put_place(out: &mut Vec<u8>, kind: u8, position: Position) {
    out.push(kind);
    out.extend(position.history().to_le_bytes());
    put_varint(out, position.seq());
}

fn take_place(reader: &mut Reader<'_>) -> Decoded<Position> {
    Ok(Position::new(reader.take_u64()?, take_number(reader)?))
}

fn put_history(out: &mut Vec<u8>, history: &History) {
    out.extend(history.id.to_le_bytes());
    put_varint(out, history.forks.len() as u64);
    for (id, last_common) in &history.forks {
        out.extend(id.to_le_bytes());
        put_varint(out, *last_common);
    }
}

fn take_history(reader: &mut Reader<'_>) -> Decoded<History> {
    let id = reader.take_u64()?;
    let forks = take_list(reader, |reader| Ok((reader.take_u64()?, take_number(reader)?)))?;
    Ok(History { id, forks, ..History::default() })
}

fn take_batch(reader: &mut Reader<'_>) -> Decoded<Batch> {
    let mut batch = Batch::with_capacity(reader.remaining());
    while !reader.is_empty() {
        batch.push_same(&take_operation(reader)?);
    }
    Ok(batch)
}

/// The note that represents a change in an archive; `None` for writes and loads.
pub(super) fn note_of(position: Position, change: &Change) -> Option<Note> {
    match change {
        Change::Keyspace(keyspace) => Some(Note::Keyspace(keyspace.clone())),
        Change::Dropped(id) => Some(Note::Dropped(*id)),
        Change::Keyspaces(all) => Some(Note::Opened {
            history: position.history(),
            forked_at: position.seq(),
            keyspaces: all.clone(),
        }),
        Change::Time(ms) => Some(Note::Time(*ms)),
        // After a gap, an archiver begins with a backup.
        Change::Gap(_) | Change::State(_) | Change::GapEnd => None,
        Change::Writes(_) | Change::Loaded(_) => None,
    }
}

/// The change that a note of an archive represents.
pub(super) fn change_of(note: Note) -> Option<Change> {
    match note {
        Note::Keyspace(keyspace) => Some(Change::Keyspace(keyspace)),
        Note::Dropped(id) => Some(Change::Dropped(id)),
        Note::Opened { keyspaces, .. } => Some(Change::Keyspaces(keyspaces)),
        Note::Time(ms) => Some(Change::Time(ms)),
        Note::Repeats(_) => None,
    }
}

/// A file of a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainFile {
    pub(super) number: u64,
    /// The file continues after this sequence number.
    from: SeqNo,
    /// How many of the chain's times are before the file.
    pub(super) times_before: usize,
}

/// Files of an archive without a gap between them.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The position after which the first file continues.
    pub(super) from: SeqNo,
    /// The end of the last change.
    pub(super) through: Position,
    /// The history at the end of the chain.
    history: u64,
    /// The last sequence number that each history shares with `history`.
    common: BTreeMap<u64, SeqNo>,
    files: Vec<ChainFile>,
    /// The times in the chain, in order of the records, with the sequence number before each.
    pub(super) times: Vec<(SeqNo, u64)>,
    pub(super) bytes: u64,
}

impl Chain {
    /// The description of the chain for users.
    pub(super) fn info(&self) -> ArchiveInfo {
        ArchiveInfo {
            from_seq: self.from,
            through: self.through,
            from_ms: self.times.first().map(|(_, ms)| *ms),
            through_ms: self.times.last().map(|(_, ms)| *ms),
            bytes: self.bytes,
        }
    }

    /// Whether the chain contains a state of the store.
    pub(super) fn holds(&self, history: &History, seq: SeqNo) -> bool {
        self.has(history.id, seq)
    }

    /// Whether the chain has the state of a history after a sequence number.
    pub(super) fn has(&self, history: u64, seq: SeqNo) -> bool {
        let common = self.common.get(&history);
        common.is_some_and(|common| seq <= *common) && self.from <= seq && seq <= self.through.seq()
    }

    pub(super) fn begin(number: u64, history: History, from: SeqNo) -> Chain {
        let mut chain = Chain {
            from,
            through: Position::new(history.id, from),
            history: history.id,
            common: BTreeMap::from([(history.id, SeqNo::MAX)]),
            files: vec![ChainFile { number, from, times_before: 0 }],
            times: Vec::new(),
            bytes: 0,
        };
        chain.know(&history);
        chain
    }

    /// The files that a backup with this last sequence number needs. A file that ends at this
    /// number may have notes from after the backup.
    pub(super) fn files_after(&self, seq: SeqNo) -> impl Iterator<Item = ChainFile> {
        let earlier = self.files.partition_point(|file| file.from < seq);
        self.files[earlier.saturating_sub(1)..].iter().copied()
    }

    /// Continues in another history, which shares sequence numbers up to `common` with the one
    /// before.
    fn fork(&mut self, id: u64, common: SeqNo) {
        self.common.values_mut().for_each(|one| *one = common.min(*one));
        self.common.insert(id, SeqNo::MAX);
        self.history = id;
    }

    /// Adds what a history records about earlier histories.
    fn know(&mut self, history: &History) {
        for (earlier, _) in &history.forks {
            let common = history.last_common(*earlier).unwrap_or(0);
            self.common.entry(*earlier).or_insert(common);
        }
    }

    /// Adds another file, if it continues where this chain ends.
    fn goes_on(&mut self, number: u64, history: &History, from: SeqNo) -> bool {
        let common = history.last_common(self.through.history());
        let goes_on = from == self.through.seq() && common.is_some_and(|common| from <= common);
        if goes_on {
            self.files.push(ChainFile { number, from, times_before: self.times.len() });
            if let Some(common) =
                history.last_common(self.history).filter(|_| history.id != self.history)
            {
                self.fork(history.id, common);
            }
            self.know(history);
            self.through = Position::new(history.id, from);
        }
        goes_on
    }
}

/// A file of an archive, and its begin record.
struct Opened {
    /// A reader of the other records.
    reader: LogReader,
    history: History,
    from: SeqNo,
    /// Its length.
    bytes: u64,
}

/// Opens a file of an archive. `None` if a crash left the last file without its begin record.
fn open(storage: &dyn Storage, number: u64, is_last: bool) -> Result<Option<Opened>> {
    let name = archive_name(number);
    let file = storage.open(&name, Category::Other)?;
    let mut head = [0; HEADER_BYTES as usize];
    let bytes = file.len()?;
    if bytes >= HEADER_BYTES {
        file.read_at(0, &mut head)?;
    }
    // The begin record is durable before anything follows it.
    let is_last = is_last && bytes < FRAME_BYTES;
    let header = match LogHeader::decode(&head, LogKind::Archive) {
        Err(BadHeader::Invalid) if is_last => return Ok(None),
        header => header.map_err(|bad| bad.in_file(&name))?,
    };
    let mut reader = LogReader::new(file, &header)?;
    match reader.next()? {
        Next::End { .. } if is_last => Ok(None),
        Next::End { offset } => Err(Error::corruption(name, offset, "the first record is damaged")),
        Next::Record { offset, bytes: record } => match Archived::decode(&record) {
            Ok(Archived::Begin(history, from)) => Ok(Some(Opened { reader, history, from, bytes })),
            _ => Err(Error::corruption(name, offset, "the first record does not decode")),
        },
    }
}

/// Passes the records of a file to `see`, until it returns `false`.
pub(super) fn each(
    storage: &dyn Storage,
    number: u64,
    see: impl FnMut(Archived) -> Result<bool>,
) -> Result<()> {
    // The caller has checked whether the file may lack its begin record.
    match open(storage, number, true)? {
        Some(opened) => each_of(opened.reader, number, see),
        None => Ok(()),
    }
}

fn each_of(
    mut reader: LogReader,
    number: u64,
    mut see: impl FnMut(Archived) -> Result<bool>,
) -> Result<()> {
    while let Next::Record { offset, bytes } = reader.next()? {
        let record = Archived::decode(&bytes).map_err(|_| {
            Error::corruption(archive_name(number), offset, "a record does not decode")
        })?;
        // Freed early, because a batch may be 256 MiB large.
        drop(bytes);
        if !see(record)? {
            break;
        }
    }
    Ok(())
}

/// The numbers of the files of the archive, ascending.
pub(super) fn archives(storage: &dyn Storage) -> Result<Vec<u64>> {
    Ok(numbers(&storage.list()?, "archive"))
}

/// The first file that a restore from a backup may need: the newest file of the backup's history
/// that begins before the backup. `None` if there is no such file. O(files), because only the begin
/// records are read: a prune every night must not read the archive.
pub(super) fn first_needed(
    storage: &dyn Storage,
    history: &History,
    seq: SeqNo,
) -> Result<Option<u64>> {
    let mut needed = None;
    let numbers = archives(storage)?;
    for number in &numbers {
        let file = match open(storage, *number, numbers.last() == Some(number)) {
            // An archiver on a full disk removes the file that it has just begun.
            Err(error) if is_pruned(&error) => continue,
            opened => opened?,
        };
        let Some(file) = file else { continue };
        let common = file.history.last_common(history.id);
        // A file that ends at the number of the backup may have notes from after the backup.
        if file.from < seq && common.is_some_and(|common| seq <= common) {
            needed = Some(*number);
        }
    }
    Ok(needed)
}

/// Finds the damage in the archive. O(its bytes).
pub(super) fn verify(storage: &dyn Storage) -> Result<Vec<Damage>> {
    let mut damage = Vec::new();
    let numbers = archives(storage)?;
    for number in &numbers {
        let outcome = verify_file(storage, *number, numbers.last() == Some(number));
        match outcome {
            Ok(None) => {}
            Ok(Some(what)) => damage.push(Damage::new(archive_name(*number), what)),
            Err(Error::Corruption { file, offset, what }) => {
                damage.push(Damage::new(file, format!("byte {offset}: {what}")));
            }
            Err(error) if is_pruned(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(damage)
}

fn verify_file(storage: &dyn Storage, number: u64, is_last: bool) -> Result<Option<String>> {
    let Some(Opened { mut reader, .. }) = open(storage, number, is_last)? else { return Ok(None) };
    loop {
        match reader.next()? {
            Next::Record { offset, bytes } => {
                if Archived::decode(&bytes).is_err() {
                    return Ok(Some(format!("byte {offset}: a record does not decode")));
                }
            }
            Next::End { offset } => {
                let mut later = 0;
                reader.scan_after(offset, |_, _| later += 1)?;
                let what = format!("byte {offset}: damaged here; valid records behind it: {later}");
                return Ok((later > 0).then_some(what));
            }
        }
    }
}

/// Completes the archive that another archiver left. The last file is removed if a crash or a full
/// disk left it without its begin record, because it would look damaged once another file follows.
/// The file is also removed if it has only its begin record: an empty part would hide what the
/// archive lacks before it. Bytes written to the file are made durable before anything continues
/// after it.
pub(super) fn make_whole(storage: &dyn Storage) -> Result<()> {
    let Some(last) = archives(storage)?.pop() else { return Ok(()) };
    let begun = open(storage, last, true)?.map(|opened| has_records(opened.reader)).transpose()?;
    match begun.filter(|has_records| *has_records) {
        None => {
            storage.remove(&archive_name(last))?;
            Ok(storage.sync_dir()?)
        }
        Some(_) => Ok(storage.open(&archive_name(last), Category::Other)?.sync()?),
    }
}

/// Whether there are records after the begin record, even after damage.
fn has_records(mut reader: LogReader) -> Result<bool> {
    let Next::End { offset } = reader.next()? else { return Ok(true) };
    let mut later = 0;
    reader.scan_after(offset, |_, _| later += 1)?;
    Ok(later > 0)
}

/// Cuts a file to the part that is known to be durable; removes it if there is no such part. A file
/// that no longer exists was removed by an earlier attempt.
pub(super) fn cut(storage: &dyn Storage, number: u64, bytes: u64) -> Result<()> {
    let name = archive_name(number);
    let outcome = match bytes {
        0 => storage.remove(&name),
        _ => shorten(storage, &name, bytes),
    };
    match outcome {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(storage.sync_dir()?),
    }
}

fn shorten(storage: &dyn Storage, name: &str, bytes: u64) -> runstone_storage::Result<()> {
    let file = storage.open(name, Category::Other)?;
    if file.len()? > bytes {
        file.set_len(bytes)?;
        file.sync()?;
    }
    Ok(())
}

/// The archive, the oldest part first. O(its bytes).
pub(super) fn chains(storage: &dyn Storage) -> Result<Vec<Chain>> {
    let mut chains: Vec<Chain> = Vec::new();
    let numbers = archives(storage)?;
    for number in &numbers {
        let (number, is_last) = (*number, numbers.last() == Some(number));
        let opened = match open(storage, number, is_last) {
            Err(error) if is_pruned(&error) => continue,
            opened => opened?,
        };
        let Some(Opened { reader, history, from, bytes }) = opened else { continue };
        if !chains.last_mut().is_some_and(|chain| chain.goes_on(number, &history, from)) {
            chains.push(Chain::begin(number, history, from));
        }
        let Some(chain) = chains.last_mut() else { continue };
        read_into(reader, number, chain)?;
        chain.bytes += bytes;
    }
    Ok(chains)
}

/// Where the archive ends, according to its last file; `None` if there is no archive.
pub(super) fn end(storage: &dyn Storage) -> Result<Option<Position>> {
    let numbers = archives(storage)?;
    for number in numbers.iter().rev() {
        let is_last = numbers.last() == Some(number);
        if let Some(Opened { reader, history, from, .. }) = open(storage, *number, is_last)? {
            let mut chain = Chain::begin(*number, history, from);
            read_into(reader, *number, &mut chain)?;
            return Ok(Some(chain.through));
        }
    }
    Ok(None)
}

/// Whether a prune in another process removed the file since the directory was listed.
fn is_pruned(error: &Error) -> bool {
    matches!(error, Error::Storage(error) if error.is_not_found())
}

fn read_into(reader: LogReader, number: u64, chain: &mut Chain) -> Result<()> {
    let mut load = None;
    each_of(reader, number, |record| {
        let position = match record {
            Archived::Begin(..) | Archived::Entries(_) => return Ok(true),
            Archived::Load(position, _) => {
                load = Some(position);
                return Ok(true);
            }
            Archived::LoadEnd => load.take(),
            Archived::Writes(position, _) => Some(position),
            Archived::Note(position, note) => {
                if let Note::Time(ms) = note {
                    chain.times.push((position.seq(), ms));
                }
                Some(position)
            }
        };
        if let Some(position) = position {
            if position.history() != chain.history {
                // It is not known what the two histories share after this sequence number.
                chain.fork(position.history(), chain.through.seq());
            }
            chain.through = position;
        }
        Ok(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Kind;

    #[test]
    fn records_come_back_and_cut_ones_do_not_pass_for_others() {
        let mut batch = Batch::new();
        batch.push(Kind::Put, 3, b"key", b"value").expect("fits");
        batch.push(Kind::RangeDelete, 3, b"a", b"").expect("fits");
        let position = Position::new(7, 300);
        let mut history = History::first(1);
        history.fork(2, 9);
        let records = [
            Archived::Begin(history, 12),
            Archived::Writes(position, batch.clone()),
            Archived::Note(position, Note::Time(5)),
            Archived::Load(position, 4),
            Archived::Entries(batch),
            Archived::LoadEnd,
        ];
        for record in records {
            let (head, rest) = record.encode();
            let bytes = [&head, rest].concat();
            let again = Archived::decode(&bytes).expect("its own bytes");
            assert_eq!(format!("{again:?}"), format!("{record:?}"));
        }
        assert!(Archived::decode(&[9]).is_err());
        assert!(Archived::decode(&[5, 0]).is_err());
        assert!(Archived::decode(&[]).is_err());
    }
}
