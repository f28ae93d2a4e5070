//! Records of manifests: edits as a list of numbered fields. LevelDB has fields up to number 9. For
//! RocksDB fields that do not affect the place of data, only the length is read. An unknown field
//! that must not be skipped is refused.

use crate::bytes::Input;
use crate::error::Fault;
use crate::keys::{Dialect, parts};
use crate::version::{Edit, Table};

/// From this bit on, RocksDB skips fields that it does not know.
const IGNORABLE: u32 = 1 << 13;
/// Fields of a new table with this bit must be understood.
const MUST_KNOW: u32 = 1 << 6;
/// Blob files have fields of their own with this bit.
const BLOB_MUST_KNOW: u32 = 1 << 6;

const NEWER: &str = "import with a newer release of this program, or compact it with an older one \
                     of RocksDB";

/// Reads one record.
pub fn edit(record: &[u8], dialect: Dialect) -> Result<Edit, Fault> {
    let mut input = Input(record);
    let mut edit = Edit::default();
    while !input.is_empty() {
        let tag = input.varint32().ok_or_else(|| short("a field"))?;
        edit.is_of_rocksdb |= tag > 9;
        let read = match (tag, dialect) {
            (0..=9, _) => common(tag, &mut input, &mut edit)?,
            (_, Dialect::LevelDb) => return Err(of_rocksdb()),
            _ if tag & IGNORABLE == 0 => rocksdb(tag, &mut input, &mut edit)?,
            _ => ignorable(tag, &mut input)?,
        };
        read.ok_or_else(|| short(&format!("field {tag}")))?;
    }
    Ok(edit)
}

/// The manifest of a RocksDB database where a LevelDB database was requested.
pub fn of_rocksdb() -> Fault {
    Fault::unsupported("this is a RocksDB database", "write rocksdb: before its directory")
}

fn short(what: &str) -> Fault {
    Fault::damaged(format!("an edit of the manifest ends within {what}"))
}

fn text(bytes: &[u8]) -> Result<String, Fault> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_string()),
        Err(_) => {
            let what = format!("the name {} is no UTF-8", bytes.escape_ascii());
            Err(Fault::unsupported(what, "rename the column family before the import"))
        }
    }
}

/// Fields of both stores. The inner `None` means that bytes are missing.
fn common(tag: u32, input: &mut Input<'_>, edit: &mut Edit) -> Result<Option<()>, Fault> {
    let read = match tag {
        1 => {
            let Some(name) = input.string() else { return Ok(None) };
            edit.comparator = Some(text(name)?);
            Some(())
        }
        2 => input.varint64().map(|number| edit.log_number = Some(number)),
        // The next file number, and the last sequence number.
        3 | 4 => input.varint64().map(drop),
        // The key at which a level is compacted next.
        5 => input.varint32().and_then(|_| input.string()).map(drop),
        6 => deleted(input).map(|deleted| edit.deleted.push(deleted)),
        7 => table(input, Form { has_path: false, has_seqs: false, has_fields: false }, edit)?,
        9 => input.varint64().map(|number| edit.previous_log = Some(number)),
        _ => return Err(unknown(tag)),
    };
    Ok(read)
}

fn unknown(tag: u32) -> Fault {
    Fault::unsupported(format!("the manifest has the unknown field {tag}"), NEWER)
}

fn deleted(input: &mut Input<'_>) -> Option<(u32, u64)> {
    Some((input.varint32()?, input.varint64()?))
}

/// Fields that must be understood.
fn rocksdb(tag: u32, input: &mut Input<'_>, edit: &mut Edit) -> Result<Option<()>, Fault> {
    let read = match tag {
        10 => input.varint64().map(|number| edit.oldest_log = Some(number)),
        100 | 102 | 103 => {
            let form = Form { has_path: tag == 102, has_seqs: true, has_fields: tag == 103 };
            table(input, form, edit)?
        }
        200 => input.varint32().map(|family| edit.family = family),
        201 => {
            let Some(name) = input.string() else { return Ok(None) };
            edit.added_family = Some(text(name)?);
            Some(())
        }
        202 => {
            edit.drops_family = true;
            Some(())
        }
        // The largest number of a family so far.
        203 => input.varint32().map(drop),
        300 => input.varint32().map(|rest| edit.group_rest = Some(rest)),
        400 => blob_file(input, true)?,
        401 => blob_file(input, false)?,
        _ => return Err(unknown(tag)),
    };
    Ok(read)
}

/// Fields that may be skipped. Old ones have no length.
fn ignorable(tag: u32, input: &mut Input<'_>) -> Result<Option<()>, Fault> {
    match tag - IGNORABLE {
        2 => blob_file(input, true),
        3 => blob_file(input, false),
        4 => Ok(old_log_addition(input)),
        5 => Ok(input.varint64().map(drop)),
        6 => Err(timestamps()),
        _ => Ok(input.string().map(drop)),
    }
}

fn timestamps() -> Fault {
    let hint = "import a copy of the data without timestamps";
    Fault::unsupported("the database has user-defined timestamps", hint)
}

fn old_log_addition(input: &mut Input<'_>) -> Option<()> {
    input.varint64()?;
    while input.varint32()? != 1 {
        input.varint64()?;
    }
    Some(())
}

/// A new blob file, or garbage in a blob file. Each table records whether it needs blob files.
fn blob_file(input: &mut Input<'_>, has_checksum: bool) -> Result<Option<()>, Fault> {
    let head = (0..3).try_for_each(|_| input.varint64().map(drop));
    let strings = if has_checksum { 2 } else { 0 };
    let head = head.and_then(|()| (0..strings).try_for_each(|_| input.string().map(drop)));
    if head.is_none() {
        return Ok(None);
    }
    loop {
        match input.varint32() {
            Some(0) => return Ok(Some(())),
            Some(tag) if tag & BLOB_MUST_KNOW != 0 => return Err(unknown(tag)),
            Some(_) if input.string().is_some() => {}
            _ => return Ok(None),
        }
    }
}

/// The form of a new table in an edit, which was extended several times.
#[derive(Clone, Copy)]
struct Form {
    has_path: bool,
    has_seqs: bool,
    has_fields: bool,
}

fn table(input: &mut Input<'_>, form: Form, edit: &mut Edit) -> Result<Option<()>, Fault> {
    let Some((level, mut table)) = table_head(input, form) else { return Ok(None) };
    if parts(&table.smallest).is_none() || parts(&table.largest).is_none() {
        return Err(Fault::damaged("the bounds of a table are no keys"));
    }
    if form.has_fields && table_fields(input, &mut table, edit)?.is_none() {
        return Ok(None);
    }
    edit.added.push((level, table));
    Ok(Some(()))
}

/// Fields up to the one that ends them.
fn table_fields(
    input: &mut Input<'_>,
    table: &mut Table,
    edit: &mut Edit,
) -> Result<Option<()>, Fault> {
    loop {
        let Some(tag) = input.varint32() else { return Ok(None) };
        if tag == 1 {
            return Ok(Some(()));
        }
        let Some(field) = input.string() else { return Ok(None) };
        table_field(tag, field, table, edit)?;
    }
}

fn table_head(input: &mut Input<'_>, form: Form) -> Option<(u32, Table)> {
    let (level, number) = (input.varint32()?, input.varint64()?);
    let path = if form.has_path { input.varint32()? as u8 } else { 0 };
    let bytes = input.varint64()?;
    let (smallest, largest) = (input.string()?.to_vec(), input.string()?.to_vec());
    let mut largest_seq = None;
    if form.has_seqs {
        input.varint64()?;
        largest_seq = Some(input.varint64()?);
    }
    let has_blobs = false;
    Some((level, Table { number, bytes, smallest, largest, largest_seq, path, has_blobs }))
}

fn table_field(tag: u32, field: &[u8], table: &mut Table, edit: &mut Edit) -> Result<(), Fault> {
    match tag {
        // A field of the whole edit. It is among the fields of a table so that older releases skip
        // it.
        3 => edit.oldest_log = Input(field).fixed64(),
        4 => table.has_blobs = Input(field).varint64().is_some_and(|number| number != 0),
        10 | 11 if !field.is_empty() => return Err(timestamps()),
        65 => table.path = field.first().copied().unwrap_or(0),
        tag if tag & MUST_KNOW != 0 => {
            let what = format!("a table in the manifest has the unknown field {tag}");
            return Err(Fault::unsupported(what, NEWER));
        }
        _ => {}
    }
    Ok(())
}
