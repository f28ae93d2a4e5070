//! Typed keyspaces on a store: all calls, and entries of other types.

use std::time::Duration;

use runstone::{
    Batch, Error, KeyspaceOptions, Options, ReadOptions, Result, Store, TransactionOptions,
    WriteOptions,
};
use runstone_typed::{KeyPrefix, TypedKeyspace, ValueFormat};
use serde::{Deserialize, Serialize};

type Scores = TypedKeyspace<(i32, String), u64>;

fn on_scores(check: impl FnOnce(&Store, Scores) -> Result<()>) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), Options::default()).expect("opens");
    let scores = Scores::new(store.open_keyspace("scores", None).expect("opens"));
    for level in [-300i32, -1, 0, 1, 300] {
        for name in ["", "a", "a\0", "b"] {
            let value = level.unsigned_abs().into();
            scores.put(&(level, name.into()), &value).expect("puts");
        }
    }
    check(&store, scores).expect("passes");
}

fn levels(entries: impl Iterator<Item = Result<((i32, String), u64)>>) -> Vec<i32> {
    entries.map(|entry| entry.expect("is typed").0.0).collect()
}

#[test]
fn single_keys() {
    on_scores(|_, scores| {
        let (known, absent) = ((-300, "a\0".to_string()), (2, String::new()));
        assert_eq!((scores.get(&known)?, scores.get(&absent)?), (Some(300), None));
        assert_eq!(scores.multi_get([&absent, &known])?, [None, Some(300)]);
        assert!(scores.contains_key(&known)? && !scores.contains_key(&absent)?);
        assert_eq!(scores.first_key_value()?, Some(((-300, String::new()), 300)));
        assert_eq!(scores.last_key_value()?, Some(((300, "b".into()), 300)));
        scores.delete(&known)?;
        assert_eq!(scores.get(&known)?, None);
        scores.put_with_ttl(&known, &1, Duration::from_secs(600))?;
        scores.clone().put_with(&absent, &2, WriteOptions::sync())?;
        assert_eq!((scores.get(&known)?, scores.get(&absent)?), (Some(1), Some(2)));
        Ok(())
    });
}

#[test]
fn ranges_and_prefixes() {
    on_scores(|_, scores| {
        let at = |level: i32, name: &str| (level, name.to_string());
        assert_eq!(levels(scores.iter()?).len(), 20);
        let keys = scores.range(at(0, "")..)?.keys().rev().take(2).collect::<Result<Vec<_>>>()?;
        assert_eq!(keys, [at(300, "b"), at(300, "a\0")]);
        let middle = levels(scores.range(at(-1, "b")..at(1, "a"))?);
        assert_eq!(middle, [-1, 0, 0, 0, 0, 1]);
        let middle = levels(scores.range(at(-1, "b")..=at(1, "a"))?.rev());
        assert_eq!(middle, [1, 1, 0, 0, 0, 0, -1]);
        assert_eq!(levels(scores.range(..at(-300, "a"))?), [-300]);
        assert_eq!(levels(scores.range(at(2, "")..)?), [300; 4]);
        assert_eq!(scores.range(at(0, "")..at(0, ""))?.count(), 0);
        let error = scores.range(at(1, "")..at(0, "")).expect_err("inverted");
        assert!(error.to_string().contains("\"scores\" ends before its start"), "{error}");

        assert_eq!(levels(scores.prefix(&(-1,))?), [-1; 4]);
        scores.delete_range(at(-300, "a")..=at(-300, "a\0"))?;
        scores.delete_prefix(&(0,))?;
        let left = [-300, -300, -1, -1, -1, -1, 1, 1, 1, 1, 300, 300, 300, 300];
        assert_eq!(levels(scores.iter()?), left);
        Ok(())
    });
}

#[test]
fn entries_are_taken_from_both_ends() {
    on_scores(|_, scores| {
        let at = |level: i32, name: &str| (level, name.to_string());
        assert_eq!(scores.pop_first()?, Some((at(-300, ""), 300)));
        assert_eq!(scores.pop_last_with(WriteOptions::sync())?, Some((at(300, "b"), 300)));
        let taken = scores.drain(at(-1, "a")..at(1, ""), 5)?;
        assert_eq!(levels(taken.into_iter().map(Ok)), [-1, -1, -1, 0, 0]);
        assert!(scores.drain(at(1, "")..at(0, ""), 5).expect_err("inverted").is_invalid());
        scores.clear()?;
        assert_eq!(
            (scores.pop_first()?, scores.pop_last()?, scores.drain(.., 9)?),
            (None, None, vec![])
        );
        Ok(())
    });
}

/// An entry of other types is an error, and stays: nobody else could return what was removed.
#[test]
fn what_is_not_of_the_types_is_not_taken() {
    on_scores(|_, scores| {
        scores.clear()?;
        scores.put(&(1, "a".into()), &1)?;
        let (first, last) = (runstone_typed::key::encode(&(0, "a"))?, [255; 3]);
        scores.keyspace().put(&first, "no number")?;
        scores.keyspace().put(last, "1")?;
        scores.pop_first().expect_err("the value");
        scores.pop_last().expect_err("the key");
        scores.drain(.., 9).expect_err("both");
        assert_eq!(scores.keyspace().iter()?.count(), 3);
        Ok(())
    });
}

/// No key is above the keys of a prefix whose bytes are all 255.
#[test]
fn a_prefix_at_the_end() {
    on_scores(|store, _| {
        let pairs = TypedKeyspace::<(u8, u16), bool>::new(store.open_keyspace("pairs", None)?);
        for key in [(254, 0), (255, 0), (255, u16::MAX)] {
            pairs.put(&key, &true)?;
        }
        assert_eq!(pairs.prefix(&(255,))?.count(), 2);
        assert_eq!(pairs.prefix(&(254,))?.count(), 1);
        pairs.delete_prefix(&(255,))?;
        assert_eq!(pairs.iter()?.count(), 1);
        Ok(())
    });
}

#[test]
fn cursors_seek_both_ways() {
    on_scores(|_, scores| {
        let mut cursor = scores.cursor(ReadOptions::default())?;
        assert_eq!((cursor.valid(), cursor.key()?, cursor.value()?), (false, None, None));
        cursor.seek(&(-1, "aa".into()))?;
        assert_eq!((cursor.key()?, cursor.value()?), (Some((-1, "b".into())), Some(1)));
        cursor.next()?;
        assert_eq!(cursor.key()?, Some((0, String::new())));
        cursor.seek_for_prev(&(0, "aa".into()))?;
        cursor.prev()?;
        assert_eq!(cursor.key()?, Some((0, "a".into())));
        cursor.seek_to_last()?;
        assert_eq!(cursor.key()?, Some((300, "b".into())));
        cursor.seek_to_first()?;
        assert_eq!(cursor.key()?, Some((-300, String::new())));
        Ok(())
    });
}

#[test]
fn batches_snapshots_and_transactions() {
    on_scores(|store, scores| {
        let key = (0, "a".to_string());
        let snapshot = store.snapshot();
        let mut batch = Batch::new();
        scores.put_in(&mut batch, &key, &5)?;
        scores.delete_in(&mut batch, &(0, "b".into()))?;
        store.write(&batch, WriteOptions::default())?;
        assert_eq!((scores.get(&key)?, scores.get_in(&snapshot, &key)?), (Some(5), Some(0)));
        assert_eq!(scores.prefix_in(&snapshot, &(0,))?.count(), 4);

        let mut transaction = store.begin(TransactionOptions::default())?;
        scores.delete_in(&mut transaction, &key)?;
        scores.put_in(&mut transaction, &(0, "c".into()), &9)?;
        let own = scores.range_in(&transaction, (0, String::new())..)?.rev();
        assert_eq!(levels(own).last_chunk(), Some(&[0, 0, 0]));
        assert_eq!(scores.get_in(&transaction, &key)?, None);
        assert_eq!(levels(scores.prefix_in(&transaction, &(0,))?), [0; 3]);
        transaction.commit(WriteOptions::default())?;
        assert_eq!(scores.get(&(0, "c".into()))?, Some(9));

        let mut transaction = store.begin(TransactionOptions::pessimistic())?;
        let old = scores.get_for_update(&mut transaction, &(0, "c".into()))?;
        assert_eq!(old, Some(9));
        Ok(())
    });
}

/// A keyspace with entries of other types returns its good entries, and names the bad ones.
#[test]
fn entries_of_other_types_are_named() {
    on_scores(|_, scores| {
        scores.keyspace().put(b"\x80\0\0\x02zz", "1")?;
        scores.keyspace().put(b"\x80\0\0\x02\0", "\"text\"")?;
        let outcome: Vec<_> = scores.range((2, String::new())..)?.collect();
        assert_eq!(outcome.iter().filter(|entry| entry.is_ok()).count(), 4);
        let texts: Vec<String> =
            outcome.into_iter().filter_map(|entry| Some(entry.err()?.to_string())).collect();
        assert!(
            texts[0].starts_with(
                "the value of key \"\\x80\\x00\\x00\\x02\\x00\" in keyspace \"scores\" is not a u64"
            ),
            "{texts:?}"
        );
        assert!(
            texts[1].starts_with("in keyspace \"scores\", key \"\\x80\\x00\\x00\\x02zz\" is not a"),
            "{texts:?}"
        );
        let error = scores.get(&(2, String::new())).expect_err("not a number");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        Ok(())
    });
}

#[derive(Debug)]
struct LittleEndian;

impl ValueFormat<u64> for LittleEndian {
    fn encode(value: &u64) -> std::result::Result<Vec<u8>, String> {
        Ok(value.to_le_bytes().to_vec())
    }
    fn decode(bytes: &[u8]) -> std::result::Result<u64, String> {
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| "it has not 8 bytes".into())
    }
}

#[test]
fn another_format_reads_what_an_operator_wrote() {
    on_scores(|store, _| {
        let options = KeyspaceOptions::default().merge_operator("add-u64");
        let keyspace = store.open_keyspace("counters", Some(options))?;
        let counters = TypedKeyspace::<u32, u64, LittleEndian>::new(keyspace);
        counters.put(&7, &40)?;
        let key = runstone_typed::key::encode(&7u32)?;
        counters.keyspace().merge(key, 2u64.to_le_bytes())?;
        assert_eq!(counters.get(&7)?, Some(42));
        Ok(())
    });
}

#[test]
fn a_value_that_json_cannot_hold_is_refused() {
    on_scores(|store, _| {
        type Map = std::collections::BTreeMap<(u8, u8), u8>;
        let maps = TypedKeyspace::<u8, Map>::new(store.open_keyspace("maps", None)?);
        let error = maps.put(&1, &Map::from([((1, 2), 3)])).expect_err("keys must be strings");
        assert!(error.to_string().contains("cannot be stored: key must be a string"), "{error}");
        assert!(error.hint().contains("ValueFormat"));
        Ok(())
    });
}

/// A key that leaves out a field depending on its value, which serde does not report to the
/// encoder.
#[derive(Debug, Serialize, Deserialize)]
struct Omits(#[serde(skip_serializing_if = "Option::is_none")] Option<u8>, String);

#[derive(Debug, Serialize, Deserialize)]
enum Nested {
    Plain(u8, Full),
    Omits(#[serde(skip_serializing_if = "Option::is_none")] Option<u8>, String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Full(Option<u8>, String);

/// A tuple struct or a tuple variant that left out a field once got the bytes of another key:
/// `Omits(Some(1), "")` and `Omits(None, "\0")` were one key, and one value replaced the other.
#[test]
fn a_key_whose_tuple_leaves_out_a_field_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), Options::default()).expect("opens");
    let keyspace = || store.open_keyspace("keys", None).expect("opens");
    let omits = TypedKeyspace::<Omits, u8>::new(keyspace());
    omits.put(&Omits(Some(1), String::new()), &1).expect("all fields are there");
    let left_out = Omits(None, "\0".into());
    for refused in [omits.put(&left_out, &2), omits.delete(&left_out)] {
        let error = refused.expect_err("a field is missing").to_string();
        assert!(error.contains("Omits") && error.contains("left out"), "{error}");
    }
    assert!(omits.get(&left_out).is_err() && omits.range(left_out..).is_err());
    let nested = TypedKeyspace::<(Nested, Full), u8>::new(keyspace());
    let full = || Full(None, "a".into());
    nested.put(&(Nested::Plain(1, full()), full()), &1).expect("all fields are there");
    nested.put(&(Nested::Omits(Some(1), String::new()), full()), &1).expect("here too");
    let left_out = Nested::Omits(None, "\0".into());
    nested.put(&(left_out, full()), &2).expect_err("a field is missing");
    assert!(nested.delete_prefix(&(Nested::Plain(1, full()),)).is_ok());
    assert!(nested.delete_prefix(&(Nested::Omits(None, "\0".into()),)).is_err());
    let whole = TypedKeyspace::<Full, u8>::new(keyspace());
    whole.put(&full(), &3).expect("all fields are there");
    assert!(whole.delete_prefix(&(None,)).is_ok());
}

impl KeyPrefix<Full> for (Option<u8>,) {}

/// Written as a tuple struct, and read as a plain tuple, which is checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)")]
struct Span(u32, u32);

impl TryFrom<(u32, u32)> for Span {
    type Error = String;

    fn try_from((from, to): (u32, u32)) -> std::result::Result<Span, String> {
        if from <= to { Ok(Span(from, to)) } else { Err(format!("{from} to {to}")) }
    }
}

/// Written as a plain tuple, and read as a tuple struct.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "(u8, u8, u8)")]
struct Plain(u8, u8, u8);

impl From<Plain> for (u8, u8, u8) {
    fn from(plain: Plain) -> (u8, u8, u8) {
        (plain.0, plain.1, plain.2)
    }
}

/// A tuple struct inside a tuple struct, both at the same offset of the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outer(Option<Inner>, u8);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Inner(u8, String);

/// Written tuples were once compared with different tuples that were read.
#[test]
fn a_key_may_be_read_as_another_type_than_it_is_written_as() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path(), Options::default()).expect("opens");
    type Key = (Span, Plain, Outer, Inner);
    let keys = TypedKeyspace::<Key, u8>::new(store.open_keyspace("keys", None).expect("opens"));
    let inner = || Inner(4, "a".into());
    for key in [
        (Span(1, 2), Plain(1, 2, 3), Outer(None, 3), inner()),
        (Span(1, 3), Plain(1, 2, 3), Outer(Some(inner()), 3), inner()),
    ] {
        keys.put(&key, &1).expect("all fields are there");
        assert_eq!(keys.get(&key).expect("reads"), Some(1));
    }
    assert_eq!(keys.range(..).expect("opens").count(), 2);
}
