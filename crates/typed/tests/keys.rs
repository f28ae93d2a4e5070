//! The bytes of keys sort as the keys do, decode to the same keys, and are prefixes of no other
//! keys.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

use proptest::prelude::*;
use runstone_typed::key;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A float that compares as its bytes do.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Float(f64);

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Float {}
impl PartialOrd for Float {
    fn partial_cmp(&self, other: &Float) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Float {
    fn cmp(&self, other: &Float) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Shape {
    Nothing,
    Named(String),
    Pair(i8, Option<bool>),
    Fields { at: i64, tags: Vec<String> },
    Both(Box<Shape>, Box<Shape>),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Everything {
    shape: Shape,
    text: String,
    float: Float,
    wide: (i128, u128),
    bytes: [u8; 2],
    letter: char,
    unit: (),
}

/// Strings of few different letters, including escaped ones, so that strings share prefixes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[\u{0}\u{1}\u{2}a\u{ff}]{0,4}", ".{0,5}"]
}

fn float() -> impl Strategy<Value = Float> {
    let special = vec![0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MIN];
    prop_oneof![prop::sample::select(special), any::<u64>().prop_map(f64::from_bits), -2.0..2.0]
        .prop_map(Float)
}

fn shape() -> impl Strategy<Value = Shape> {
    let leaf = prop_oneof![
        Just(Shape::Nothing),
        text().prop_map(Shape::Named),
        any::<(i8, Option<bool>)>().prop_map(|(a, b)| Shape::Pair(a, b)),
        (-2i64..2, prop::collection::vec(text(), 0..3))
            .prop_map(|(at, tags)| Shape::Fields { at, tags }),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        (inner.clone(), inner).prop_map(|(a, b)| Shape::Both(a.into(), b.into()))
    })
}

fn everything() -> impl Strategy<Value = Everything> {
    let wide = (prop_oneof![any::<i128>(), -2i128..2], any::<u128>());
    (shape(), text(), float(), wide, any::<[u8; 2]>(), any::<char>()).prop_map(
        |(shape, text, float, wide, bytes, letter)| Everything {
            shape,
            text,
            float,
            wide,
            bytes,
            letter,
            unit: (),
        },
    )
}

fn check<K: Serialize + DeserializeOwned + Ord + Debug>(a: &K, b: &K) {
    let (x, y) = (key::encode(a).expect("encodes"), key::encode(b).expect("encodes"));
    assert_eq!(x.cmp(&y), a.cmp(b), "{a:?} {x:?}, {b:?} {y:?}");
    assert_eq!(&key::decode::<K>(&x).expect("decodes"), a);
    assert!(a == b || !y.starts_with(&x), "{a:?} is a prefix of {b:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn numbers_order(a: (i8, i16, i32, i64), b: (i8, i16, i32, i64), c: (u8, u16, u32, u64),
                     d: (u8, u16, u32, u64), e: (bool, char), f: (bool, char)) {
        check(&a, &b);
        check(&c, &d);
        check(&e, &f);
        for (x, y) in [(a.3, b.3), (a.0.into(), b.0.into()), (a.1.into(), b.0.into())] {
            check(&x, &y);
        }
    }

    #[test]
    fn texts_and_sequences_order(a in (text(), text()), b in (text(), text()),
                                 c: Vec<Vec<u8>>, d: Vec<Vec<u8>>) {
        check(&a, &b);
        check(&c, &d);
        check(&(c.concat(), Some(a.0)), &(d.concat(), Some(b.0)));
    }

    #[test]
    fn floats_order(a in float(), b in float()) {
        check(&a, &b);
        let (x, y) = (a.0 as f32, b.0 as f32);
        let (p, q) = (key::encode(&x).expect("encodes"), key::encode(&y).expect("encodes"));
        prop_assert_eq!(p.cmp(&q), x.total_cmp(&y));
    }

    #[test]
    fn everything_orders(a in everything(), b in everything()) {
        check(&a.shape, &b.shape);
        check(&a, &b);
        // The first parts are equal, so the later ones decide.
        let same = Everything { text: b.text.clone(), float: b.float, ..a.clone() };
        check(&a, &same);
        check(&BTreeSet::from([a.clone(), b.clone()]), &BTreeSet::from([same]));
    }

    /// A key begins with the bytes of first parts if and only if they are its first parts.
    #[test]
    fn first_parts_are_prefixes(a in (text(), shape(), 0u8..2), text in text(), shape in shape()) {
        let whole = key::encode(&a).expect("encodes");
        for (first, second) in [(&text, &shape), (&a.0, &shape), (&a.0, &a.1), (&text, &a.1)] {
            let one = key::encode(&(first,)).expect("encodes");
            prop_assert_eq!(whole.starts_with(&one), *first == a.0);
            let two = key::encode(&(first, second)).expect("encodes");
            prop_assert_eq!(whole.starts_with(&two), *first == a.0 && *second == a.1);
        }
    }

    /// Any bytes are an error, or the bytes of the key that they decode to.
    #[test]
    fn any_bytes_are_a_key_or_an_error(bytes: Vec<u8>, flip in 0usize..64, shape in shape()) {
        if let Ok(found) = key::decode::<Shape>(&bytes) {
            prop_assert_eq!(key::encode(&found).expect("encodes"), bytes);
        }
        let mut bytes = key::encode(&shape).expect("encodes");
        let at = flip % bytes.len();
        bytes[at] ^= 1 << (flip % 8);
        match key::decode::<Shape>(&bytes) {
            Ok(found) => prop_assert_eq!(key::encode(&found).expect("encodes"), bytes),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn the_bytes_are_those_that_the_documentation_draws() {
    let bytes = |outcome: runstone::Result<Vec<u8>>| outcome.expect("encodes");
    assert_eq!(bytes(key::encode(&(1u16, -1i16, 'a'))), b"\0\x01\x7f\xff\0\0\0a");
    assert_eq!(bytes(key::encode(&("a\0b\x01", true))), b"a\x01\x01b\x01\x02\0\x01");
    assert_eq!(bytes(key::encode(&(Some(2u8), None::<u8>))), b"\x01\x02\0");
    assert_eq!(bytes(key::encode(&[[1u8, 2]; 2])), [1, 2, 1, 2]);
    assert_eq!(bytes(key::encode(&vec![7u8, 8])), [1, 7, 1, 8, 0]);
    assert_eq!(bytes(key::encode(&Shape::Pair(0, Some(true)))), b"\x02\x80\x01\x01");
    assert_eq!(bytes(key::encode(&1.0f32)), [0xbf, 0x80, 0, 0]);
    assert!(bytes(key::encode(&())).is_empty());
}

/// Tests types of the standard library that serde writes differently in human-readable formats.
#[test]
fn addresses_and_times_are_compact() {
    let addresses = ["1.2.3.4", "10.0.0.1", "::1"].map(|text| text.parse().expect("an address"));
    for pair in addresses.windows(2) {
        check::<IpAddr>(&pair[0], &pair[1]);
    }
    let second = std::time::Duration::from_secs(1);
    check(&second, &(second / 2));
    assert_eq!(key::encode(&addresses[0]).expect("encodes").len(), 5);
}

/// A variant number above 254 takes five bytes, and still sorts after smaller numbers.
#[test]
fn many_variants_order() {
    struct Numbered(u32);
    impl Serialize for Numbered {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit_variant("Numbered", self.0, "")
        }
    }
    let keys = [0, 1, 254, 255, 256, u32::MAX].map(|n| key::encode(&Numbered(n)).expect("encodes"));
    assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
}

#[derive(Debug, Serialize, Deserialize)]
struct Optional {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(u8),
}

#[test]
fn what_has_no_order_is_refused() {
    let maps = key::encode(&BTreeMap::from([(1, 2)])).expect_err("a map");
    assert!(maps.to_string().contains("holds a map"), "{maps}");
    assert!(maps.hint().contains("tuples"), "{}", maps.hint());
    let left_out = key::encode(&Optional { at: None }).expect_err("a field is missing");
    assert!(left_out.to_string().contains("field at is left out"), "{left_out}");
    let untagged = key::encode(&Untagged::Number(1)).expect("encodes");
    let error = key::decode::<Untagged>(&untagged).expect_err("no types");
    assert!(error.to_string().contains("untagged"), "{error}");
}

/// A key of a recursive type could be nested as deeply as it is long, and reading it would use up
/// the stack.
#[test]
fn deep_keys_are_refused() {
    let error = key::decode::<Shape>(&[4; 60_000]).expect_err("too deep");
    assert!(error.to_string().contains("nested more than 128 deep, at byte 129"), "{error}");
    let lists = key::decode::<Linked>(&[1; 60_000]).expect_err("too deep");
    assert!(lists.to_string().contains("128 deep"));
}

/// A type that contains itself in every possible way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Deep {
    End,
    Empty(),
    List(Vec<Deep>),
    One(Box<Deep>),
    Two(u8, Box<Deep>),
    Named { within: Option<Box<Deep>> },
}

/// Every key that can be written can be read, down to the deepest level. A key whose deepest value
/// was an empty list or an empty variant once could not be read.
#[test]
fn all_that_encodes_decodes() {
    type Wrap = fn(Deep) -> Deep;
    let ends = [Deep::End, Deep::Empty(), Deep::List(Vec::new()), Deep::Named { within: None }];
    let wraps: [Wrap; 4] = [
        |deep| Deep::List(vec![deep]),
        |deep| Deep::One(deep.into()),
        |deep| Deep::Two(7, deep.into()),
        |deep| Deep::Named { within: Some(deep.into()) },
    ];
    let mut refused = 0;
    for end in &ends {
        for (step, levels) in
            (0..8usize).flat_map(|step| (40..140usize).map(move |levels| (step, levels)))
        {
            let wrap = |deep: Deep, level: usize| match step {
                0..4 => wraps[step](deep),
                _ => wraps[(level + step) % 4](deep),
            };
            let deep = (0..levels).fold(end.clone(), wrap);
            match key::encode(&deep) {
                Ok(bytes) => {
                    let back = key::decode::<Deep>(&bytes);
                    assert_eq!(back.expect("it was written"), deep, "{levels} levels");
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 100, "some are too deep");
}

#[derive(Debug, Serialize, Deserialize)]
struct Linked(Option<Box<Linked>>);

#[test]
fn errors_name_the_bytes_and_the_place() {
    let error = |outcome: runstone::Result<(u16, String)>| outcome.expect_err("fails").to_string();
    assert_eq!(
        error(key::decode(b"\0\x07ab")),
        "key \"\\x00\\x07ab\" is not a (u16, alloc::string::String): \
         it ends too early (wanted: 1, left: 0), at byte 4"
    );
    assert!(
        error(key::decode(b"\0\x07a\0b")).contains("more follows behind it (bytes: 1), at byte 4")
    );
    assert!(error(key::decode(b"\0\x07a\x01\x07\0")).contains("byte 0x07 ends no escape"));
    assert!(error(key::decode(b"\0\x07\xff\0")).contains("not UTF-8"));
    assert!(
        key::decode::<char>(&[0, 0, 0xd8, 0])
            .expect_err("a surrogate")
            .to_string()
            .contains("0xd800 is not the number of a char")
    );
    let variant = key::decode::<Shape>(&[9]).expect_err("five variants").to_string();
    assert!(variant.contains("variant index"), "{variant}");
}
