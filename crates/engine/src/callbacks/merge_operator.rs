//! Merge operators: how an operand changes a value. An operand is written without a read. Built-in
//! operators have names; programs register others in [`crate::Options::merge_operators`].
//!
//! The operands of a key are stored as versions of kind `Merge`, above a value or above nothing. A
//! read applies them, oldest first. Flushes and compactions fold operands together where no
//! snapshot is between them.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use runstone_policy::registry::{nearest, suggest};
use serde_json::Value as Json;

use crate::callbacks::callback::{Inside, InsideMerge};
use crate::error::{Error, Result};
use crate::keys::{MAX_VALUE_BYTES, check_length};

/// Changes values with operands. The result of a call must depend only on its arguments, on every
/// machine and at any time, because any compaction may fold values.
///
/// ```
/// use std::sync::Arc;
///
/// use runstone::{KeyspaceOptions, MergeOperator, Store};
///
/// /// Keeps the longest.
/// #[derive(Debug)]
/// struct Longest;
///
/// impl MergeOperator for Longest {
///     fn name(&self) -> &str {
///         "longest"
///     }
///
///     fn full_merge(
///         &self,
///         _key: &[u8],
///         base: Option<&[u8]>,
///         operands: &[&[u8]],
///     ) -> Result<Vec<u8>, String> {
///         let all = base.iter().chain(operands);
///         Ok(all.max_by_key(|bytes| bytes.len()).copied().unwrap_or_default().to_vec())
///     }
/// }
///
/// # fn main() -> runstone::Result<()> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// let store = Store::builder(dir.path())
///     .merge_operator(Arc::new(Longest))
///     .keyspace(KeyspaceOptions::default().merge_operator("longest"))
///     .open()?;
/// store.default_keyspace().merge("word", "store")?;
/// store.default_keyspace().merge("word", "log")?;
/// assert_eq!(store.get("word")?.as_deref(), Some(&b"store"[..]));
/// # Ok(())
/// # }
/// ```
pub trait MergeOperator: Debug + Send + Sync {
    /// The name that a keyspace stores. An operator that behaves differently needs a different
    /// name.
    fn name(&self) -> &str;

    /// Applies `operands`, oldest first, to `base`, and returns the value. An error is returned to
    /// the reader, and the operands stay. One call gets all operands of a read or a compaction, so
    /// an operator can copy a long value once, not once for each operand.
    fn full_merge(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, String>;

    /// Whether several operands without a base can be merged into one operand that replaces them.
    fn is_associative(&self) -> bool {
        false
    }

    /// Returns one operand that replaces several, which are given oldest first. `None` if there is
    /// no such operand.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.is_associative().then(|| self.full_merge(key, None, operands).ok()).flatten()
    }

    /// Refuses an operand that cannot be applied to any value, before it is written.
    fn check(&self, _operand: &[u8]) -> std::result::Result<(), String> {
        Ok(())
    }
}

/// What [`MergeOperator::full_merge`] returns.
type Merged = std::result::Result<Vec<u8>, String>;

/// Adds integers of eight bytes, little-endian, and stops at the largest or smallest on overflow.
/// An absent key counts as 0.
#[derive(Debug)]
struct Add {
    is_signed: bool,
}

impl Add {
    fn number(bytes: &[u8]) -> std::result::Result<[u8; 8], String> {
        let len = bytes.len();
        bytes.try_into().map_err(|_| format!("{len} bytes are no integer of 8 bytes"))
    }

    fn sum(&self, one: [u8; 8], other: [u8; 8]) -> [u8; 8] {
        match self.is_signed {
            true => i64::from_le_bytes(one).saturating_add(i64::from_le_bytes(other)).to_le_bytes(),
            false => {
                u64::from_le_bytes(one).saturating_add(u64::from_le_bytes(other)).to_le_bytes()
            }
        }
    }
}

impl MergeOperator for Add {
    fn name(&self) -> &str {
        if self.is_signed { "add-i64" } else { "add-u64" }
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        let mut sum = base.map_or(Ok([0; 8]), Add::number)?;
        for operand in operands {
            sum = self.sum(sum, Add::number(operand)?);
        }
        Ok(sum.to_vec())
    }

    fn is_associative(&self) -> bool {
        !self.is_signed
    }

    /// Signed sums saturate at both ends, so the order matters: above a base near the largest
    /// integer, +1 and -1 are not 0. Operands of one sign only move the value towards one end, and
    /// it stays there. So their sum replaces them, if it fits an integer. It may not fit: above a
    /// base near the other end, two large operands need not saturate.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        if !self.is_signed {
            return self.full_merge(key, None, operands).ok();
        }
        let (mut sum, mut sign) = (0_i64, 0);
        for operand in operands {
            let number = i64::from_le_bytes(Add::number(operand).ok()?);
            if number.signum() * sign < 0 {
                return None;
            }
            sum = sum.checked_add(number)?;
            sign = sum.signum();
        }
        Some(sum.to_le_bytes().to_vec())
    }

    fn check(&self, operand: &[u8]) -> std::result::Result<(), String> {
        Add::number(operand).map(drop)
    }
}

/// Keeps the smallest or the largest value, in the order of keys.
#[derive(Debug)]
struct Extreme {
    is_largest: bool,
}

impl MergeOperator for Extreme {
    fn name(&self) -> &str {
        if self.is_largest { "max" } else { "min" }
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        let all = base.iter().chain(operands);
        let found = if self.is_largest { all.max() } else { all.min() };
        Ok(found.copied().unwrap_or_default().to_vec())
    }

    fn is_associative(&self) -> bool {
        true
    }
}

/// Appends operands, with a separator between them.
#[derive(Debug)]
struct Append {
    name: String,
    separator: String,
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        let all: Vec<&[u8]> = base.iter().chain(operands).copied().collect();
        Ok(all.join(self.separator.as_bytes()))
    }

    fn is_associative(&self) -> bool {
        true
    }
}

/// Applies JSON merge patches (RFC 7396).
#[derive(Debug)]
struct JsonMergePatch;

impl JsonMergePatch {
    fn parse(bytes: &[u8]) -> std::result::Result<Json, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("it is no JSON: {error}"))
    }
}

/// The patched target, as section 2 of the RFC defines it.
fn patched(target: Json, patch: Json) -> Json {
    let Json::Object(patch) = patch else { return patch };
    let mut fields = match target {
        Json::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    for (name, value) in patch {
        match value {
            Json::Null => _ = fields.remove(&name),
            value => {
                let old = fields.remove(&name).unwrap_or(Json::Null);
                fields.insert(name, patched(old, value));
            }
        }
    }
    Json::Object(fields)
}

impl MergeOperator for JsonMergePatch {
    fn name(&self) -> &str {
        "json-merge-patch"
    }

    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Merged {
        let mut value = base.map_or(Ok(Json::Null), JsonMergePatch::parse)?;
        for operand in operands {
            value = patched(value, JsonMergePatch::parse(operand)?);
        }
        serde_json::to_vec(&value).map_err(|error| error.to_string())
    }

    fn check(&self, operand: &[u8]) -> std::result::Result<(), String> {
        JsonMergePatch::parse(operand).map(drop)
    }
}

/// The names of the built-in operators, in a text for people.
pub const BUILT_IN: &str = "add-i64, add-u64, min, max, append(SEPARATOR), json-merge-patch";

/// Refuses an operator that is not built in, for programs that register none.
pub(crate) fn check_built_in(name: &str) -> Result<()> {
    if name.is_empty() || built_in(name).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = BUILT_IN.split(", ").collect();
    Err(Error::invalid(
        format!("no built-in merge operator is named {name:?}{}", suggest(&nearest(name, &known))),
        format!("built in are: {BUILT_IN}; a program that registers it can use it"),
    ))
}

/// The built-in operator with this name, if there is one.
fn built_in(name: &str) -> Option<Arc<dyn MergeOperator>> {
    let separator = name.strip_prefix("append(").and_then(|rest| rest.strip_suffix(')'));
    Some(match name {
        "add-i64" => Arc::new(Add { is_signed: true }),
        "add-u64" => Arc::new(Add { is_signed: false }),
        "min" => Arc::new(Extreme { is_largest: false }),
        "max" => Arc::new(Extreme { is_largest: true }),
        "json-merge-patch" => Arc::new(JsonMergePatch),
        _ => Arc::new(Append { name: name.into(), separator: separator?.into() }),
    })
}

/// The merge operator of a keyspace.
#[derive(Debug, Default)]
pub(crate) struct Merging {
    /// Empty if the keyspace has no operator.
    name: String,
    /// `None` if no operator of this name is registered.
    operator: Option<Arc<dyn MergeOperator>>,
    /// Identifies the open store that calls the operator.
    opening: u64,
}

impl Merging {
    /// Finds the operator that a keyspace names, among the registered and the built-in ones.
    pub(crate) fn find(name: &str, registered: &[Arc<dyn MergeOperator>], opening: u64) -> Merging {
        let own = registered.iter().find(|operator| operator.name() == name).cloned();
        let operator = own.or_else(|| built_in(name)).filter(|_| !name.is_empty());
        Merging { name: name.to_string(), operator, opening }
    }

    /// Whether the keyspace may have operands.
    pub(crate) fn is_used(&self) -> bool {
        !self.name.is_empty()
    }

    /// Refuses an operand that cannot be written.
    pub(crate) fn check(&self, keyspace: &str, operand: &[u8]) -> Result<()> {
        if !self.is_used() {
            return Err(Error::invalid(
                format!("keyspace {keyspace:?} has no merge operator"),
                format!(
                    "set its option merge_operator (in a program by Store::open_keyspace, else \
                     by `runstone set STORE merge_operator=NAME --keyspace {keyspace}`) to one of: \
                     {BUILT_IN}; or to one of your own"
                ),
            ));
        }
        let _inside = Inside::of(self.opening);
        let checked = self.operator.as_ref().map_or(Ok(()), |operator| operator.check(operand));
        checked.map_err(|what| {
            Error::invalid(
                format!("merge operator {} refuses the operand: {what}", self.name),
                "see what the operator takes, and write that",
            )
        })
    }

    /// The value after these operands, which are given oldest first.
    pub(crate) fn full(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>> {
        let Some(operator) = &self.operator else {
            return Err(Error::invalid(
                format!(
                    "the value of key \"{}\" needs merge operator {}",
                    key.escape_ascii(),
                    self.name
                ),
                "register it in Options::merge_operators",
            ));
        };
        let _inside = InsideMerge::of(self.opening)?;
        let call = || operator.full_merge(key, base, operands);
        let merged = catch_unwind(AssertUnwindSafe(call));
        let merged = merged.unwrap_or_else(|_| Err("it panicked".to_string()));
        merged.and_then(|value| check_length(value, MAX_VALUE_BYTES)).map_err(|what| {
            let (operator, key) = (self.name.clone(), key.escape_ascii().to_string());
            Error::MergeFailed { operator, key, what }
        })
    }

    /// One operand that replaces several, if the operator returns one and it is no longer than a
    /// value may be.
    pub(crate) fn partial(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let operator = self.operator.as_ref()?;
        let _inside = InsideMerge::of(self.opening).ok()?;
        let operand = catch_unwind(AssertUnwindSafe(|| operator.partial_merge(key, operands)));
        operand.ok()?.and_then(|operand| check_length(operand, MAX_VALUE_BYTES).ok())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::callbacks::callback::NONE;

    fn merged(name: &str, base: Option<&str>, operands: &[&str]) -> Result<String> {
        let operands: Vec<&[u8]> = operands.iter().map(|one| one.as_bytes()).collect();
        let merging = Merging::find(name, &[], NONE);
        let value = merging.full(b"k", base.map(str::as_bytes), &operands)?;
        Ok(String::from_utf8(value).expect("text"))
    }

    #[test]
    fn built_in_operators() {
        assert_eq!(merged("append(, )", Some("a"), &["b", "c"]).unwrap(), "a, b, c");
        assert_eq!(merged("append()", None, &["b", "c"]).unwrap(), "bc");
        assert_eq!(merged("max", Some("b"), &["c", "a"]).unwrap(), "c");
        assert_eq!(merged("min", None, &["c", "b"]).unwrap(), "b");
        let number = |number: i64| number.to_le_bytes();
        let add = Merging::find("add-i64", &[], NONE);
        let sum = add.full(b"k", Some(&number(5)), &[&number(-7), &number(1)]).unwrap();
        assert_eq!(sum, number(-1));
        let most = add.full(b"k", Some(&number(i64::MAX)), &[&number(1)]).unwrap();
        assert_eq!(most, number(i64::MAX), "it saturates");
        assert!(add.full(b"k", Some(b"text"), &[&number(1)]).is_err());
        assert!(add.check("default", b"1").is_err() && add.check("default", &number(1)).is_ok());
        assert!(Merging::find("", &[], NONE).check("default", b"1").is_err());
        assert!(Merging::find("unknown", &[], NONE).full(b"k", None, &[]).is_err());
    }

    /// The examples of RFC 7396, appendix A.
    #[test]
    fn json_merge_patch_is_that_of_the_rfc() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(merged("json-merge-patch", Some(target), &[patch]).unwrap(), result);
        }
        assert!(merged("json-merge-patch", Some("text"), &["{}"]).is_err());
    }
    /// Integers near both ends, near 0, and anywhere; and bytes that are not an integer.
    fn operands() -> impl Strategy<Value = Vec<u8>> {
        let number = prop_oneof![
            4 => -3..4_i64,
            1 => i64::MAX - 3..=i64::MAX,
            1 => i64::MIN..i64::MIN + 4,
            2 => any::<i64>(),
        ];
        prop_oneof![
            30 => number.prop_map(|number| number.to_le_bytes().to_vec()),
            1 => proptest::collection::vec(any::<u8>(), 0..12),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// Wherever flushes fold neighbouring operands into one, a read finds what it would have
        /// found without the fold: the same integer or the same error, above each base.
        #[test]
        fn a_partial_sum_changes_nothing(
            base in proptest::option::of(operands()),
            all in proptest::collection::vec(operands(), 2..7),
            cut in any::<(prop::sample::Index, prop::sample::Index)>(),
            is_signed in any::<bool>(),
        ) {
            let add = Add { is_signed };
            let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let (one, two) = (cut.0.index(all.len() + 1), cut.1.index(all.len() + 1));
            let (from, to) = (one.min(two), one.max(two));
            if let Some(folded) = add.partial_merge(b"k", &all[from..to]) {
                let fewer = [&all[..from], &[&folded[..]], &all[to..]].concat();
                let base = base.as_deref();
                prop_assert_eq!(
                    add.full_merge(b"k", base, &fewer),
                    add.full_merge(b"k", base, &all)
                );
            }
        }
    }

    /// Operands of a counter that only grows or only falls are folded. Operands of both signs, or
    /// operands whose sum overflows, are not.
    #[test]
    fn signed_sums_of_one_sign_fold() {
        let add = Merging::find("add-i64", &[], NONE);
        let partial = |numbers: &[i64]| {
            let all: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
            let all: Vec<&[u8]> = all.iter().map(|number| &number[..]).collect();
            let sum = add.partial(b"k", &all)?;
            Some(i64::from_le_bytes(sum.try_into().expect("eight bytes")))
        };
        assert_eq!(partial(&[0, 1, 0, 2]), Some(3));
        assert_eq!(partial(&[-1, 0, -2]), Some(-3));
        assert_eq!(partial(&[i64::MIN + 1, -1]), Some(i64::MIN));
        assert_eq!(partial(&[1, -1]), None);
        assert_eq!(partial(&[i64::MAX, 1]), None);
    }
}
