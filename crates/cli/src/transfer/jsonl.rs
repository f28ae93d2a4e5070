//! One JSON object per line: `{"key":..,"value":..}`. Text is written as it is, for the programs
//! that read such files; other bytes as base64, and `"encoding":"base64"` says so for both key and
//! value. An entry that expires has the field `expires_ms`. Objects that `--json` prints are read
//! as well.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{EXPIRES, Record, parse_expiry};
use crate::encoding::{from_base64, from_hex, to_base64, unescape};
use crate::range::Entry;

/// Which fields are key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub key: Option<String>,
    pub value: Option<String>,
    /// Whether the field that says when an entry expires is ignored.
    pub drop_expiry: bool,
}

/// A record, and how its key was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    pub record: Record,
    pub key: KeyKind,
}

/// How a key was written. A number and the text of its digits are two keys in JSON, but one key in
/// a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// A text that reads as no other value.
    Text,
    /// A text that reads as a number or another value.
    LikeLiteral,
    /// A number or another value.
    Literal,
}

/// Appends a line.
pub fn write(entry: Entry<'_>, out: &mut Vec<u8>) {
    let mut object = Map::new();
    match (std::str::from_utf8(entry.key), std::str::from_utf8(entry.value)) {
        (Ok(key), Ok(value)) => {
            object.insert("key".into(), key.into());
            object.insert("value".into(), value.into());
        }
        _ => {
            object.insert("key".into(), to_base64(entry.key).into());
            object.insert("value".into(), to_base64(entry.value).into());
            object.insert("encoding".into(), "base64".into());
        }
    }
    object.extend(entry.expires_ms.map(|at| (EXPIRES.to_string(), at.into())));
    out.extend_from_slice(Value::Object(object).to_string().as_bytes());
    out.push(b'\n');
}

/// Reads a line. With a key field but no value field the whole object is the value.
///
/// `encoding` applies to the fields `key` and `value`, and `expires_ms` applies to `value`, even if
/// the user names these fields. If the user names other fields, `encoding` is a field like any
/// other.
pub fn parse(line: &[u8], fields: &Fields) -> Result<Parsed, String> {
    let object: Object<'_> = match serde_json::from_slice(line.trim_ascii()) {
        Ok(object) => object,
        Err(error) if error.is_data() => return Err("the line is no JSON object".into()),
        Err(error) => return Err(what(&error)),
    };
    let key_name = fields.key.as_deref().unwrap_or("key");
    let value_name = match (&fields.key, &fields.value) {
        (Some(_), None) => None,
        (_, name) => Some(name.as_deref().unwrap_or("value")),
    };
    let decode = decoder(&object, fields)?;
    let bytes_of = |name: &str| match name {
        "key" | "value" => decode(field(&object, name)?),
        _ => Ok(field(&object, name)?.into_bytes()),
    };
    let key = bytes_of(key_name)?;
    let value = match value_name {
        None => trim(line).into_bytes(),
        Some(name) => bytes_of(name)?,
    };
    let expires_ms = match value_name {
        Some("value") if !fields.drop_expiry => expiry(&object)?,
        _ => None,
    };
    let key_kind = match find(&object, key_name)?.is_some_and(is_text) {
        true if is_like_literal(&key) => KeyKind::LikeLiteral,
        true => KeyKind::Text,
        false if key == b"null" => return Err(format!("field {key_name:?} is null")),
        false => KeyKind::Literal,
    };
    Ok(Parsed { record: Record { key, value, expires_ms }, key: key_kind })
}

/// Why a first line, and with it every similar line, cannot be a record: a text and what to do.
/// `None` also for a line that is malformed in another way, because the other lines may be fine.
pub fn refusal(line: &[u8], fields: &Fields) -> Option<(String, String)> {
    let text = line.trim_ascii();
    if text.starts_with(b"[") || text == b"{" {
        let what = "the file is JSON, but not one object on each line".to_string();
        let hint = "`jq -c '.[]' FILE` makes such lines of an array, and `jq -c . FILE` of objects \
                    over several lines: pipe them into `runstone import STORE - --format jsonl`";
        return Some((what, hint.to_string()));
    }
    let object: Object<'_> = serde_json::from_slice(text).ok()?;
    let value = match (&fields.key, &fields.value) {
        (Some(_), None) => None,
        (_, name) => Some(name.as_deref().unwrap_or("value")),
    };
    let wanted = [Some(fields.key.as_deref().unwrap_or("key")), value];
    let is_absent = |name: &&str| matches!(find(&object, name), Ok(None));
    let absent = wanted.into_iter().flatten().find(is_absent)?;
    let known: Vec<&str> = object.0.iter().map(|(name, _)| name.as_str()).collect();
    let how = match (&fields.key, known.len()) {
        (_, 0) => "name a file whose lines have fields".to_string(),
        (None, _) => {
            "pass --key FIELD, and --value FIELD or the whole line becomes the value".to_string()
        }
        (Some(_), _) => "pass one of them to --key and --value".to_string(),
    };
    let what = format!("the first line has no field {absent:?}");
    Some((what, format!("it has: {}; {how}", known.join(", "))))
}

/// How the texts of an object become bytes.
type Decode = fn(String) -> Result<Vec<u8>, String>;

/// The encoding that the object names. If the user names the fields, an unknown word does
/// not count as an encoding.
fn decoder(object: &Object<'_>, fields: &Fields) -> Result<Decode, String> {
    let as_it_is: Decode = |text| Ok(text.into_bytes());
    let is_wanted =
        |name: &Option<String>| name.as_deref().is_none_or(|name| name == "key" || name == "value");
    let Some(other) = object.get("encoding")? else { return Ok(as_it_is) };
    if !is_wanted(&fields.key) && !is_wanted(&fields.value) {
        return Ok(as_it_is);
    }
    Ok(match &*field(object, "encoding")? {
        "base64" => |text| from_base64(&text),
        "escaped" => |text| unescape(text.as_bytes()),
        "hex" => |text| from_hex(text.as_bytes()),
        _ if fields.key.is_some() => as_it_is,
        _ => return Err(format!("encoding {other} is not known; base64, escaped and hex are")),
    })
}

fn expiry(object: &Object<'_>) -> Result<Option<u64>, String> {
    match object.get(EXPIRES)?.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some(_) => parse_expiry(field(object, EXPIRES)?.as_bytes()),
    }
}

fn is_text(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

/// Whether the bytes are the JSON of a value that is not a text.
fn is_like_literal(bytes: &[u8]) -> bool {
    let begins = bytes.first().is_some_and(|first| b"-0123456789tf{[".contains(first));
    let read = || serde_json::from_slice::<&RawValue>(bytes);
    begins && read().is_ok_and(|value| value.get().len() == bytes.len())
}

/// Fields as they are written, in their order: a number that is parsed and printed again may
/// differ.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    /// The value of a field. A field that is there twice is an error.
    fn get(&self, name: &str) -> Result<Option<&'a RawValue>, String> {
        let mut found = self.0.iter().filter(|(known, _)| known == name);
        match (found.next(), found.next()) {
            (_, Some(_)) => Err(format!("the object has field {name:?} twice")),
            (first, None) => Ok(first.map(|(_, value)| *value)),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Collect)
    }
}

struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Object(fields))
    }
}

/// The message without the parser's line number: the parser saw only one line, and the report names
/// the line of the file.
fn what(error: &serde_json::Error) -> String {
    let what = error.to_string().replace(" at line 1 column ", " at column ");
    format!("the line is no JSON: {what}")
}

fn trim(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().to_string()
}

/// The value of a field, or of a field inside an object: `props.id`. A field whose own name
/// contains the dots takes precedence.
fn find<'a>(object: &Object<'a>, name: &str) -> Result<Option<&'a RawValue>, String> {
    if let Some(value) = object.get(name)? {
        return Ok(Some(value));
    }
    for (at, _) in name.match_indices('.') {
        let Some(outer) = object.get(&name[..at])? else { continue };
        let Ok(inner) = serde_json::from_str::<Object<'a>>(outer.get()) else { continue };
        if let Some(value) = find(&inner, &name[at + 1..])? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// The named fields of a value that is an object, as [`field`] takes them. A field that is absent
/// or null is empty.
pub fn columns(value: &[u8], names: &[String]) -> Result<Vec<String>, String> {
    let object: Object<'_> =
        serde_json::from_slice(value).map_err(|_| "its value is no JSON object".to_string())?;
    let cell = |name: &String| match find(&object, name)?.map(RawValue::get) {
        None | Some("null") => Ok(String::new()),
        Some(_) => field(&object, name),
    };
    names.iter().map(cell).collect()
}

/// The text of a field: a string as it is, any other value as its JSON text.
fn field(object: &Object<'_>, name: &str) -> Result<String, String> {
    let Some(value) = find(object, name)? else {
        return Err(format!("the object has no field {name:?}"));
    };
    if !is_text(value) {
        return Ok(value.get().to_string());
    }
    serde_json::from_str(value.get()).map_err(|error| format!("field {name:?}: {}", what(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(key: &str, value: Option<&str>) -> Fields {
        Fields { key: Some(key.into()), value: value.map(str::to_string), drop_expiry: false }
    }

    fn record(line: &[u8], fields: &Fields) -> Result<Record, String> {
        parse(line, fields).map(|parsed| parsed.record)
    }

    #[test]
    fn lines_come_back() {
        let own = Fields::default();
        for (key, value) in [(&b""[..], &b""[..]), (b"k\"\n", b"\xff\0"), (b"\xfe", "ä".as_bytes())]
        {
            for expires_ms in [None, Some(1 << 53 | 1)] {
                let mut line = Vec::new();
                write(Entry { key, value, expires_ms }, &mut line);
                assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
                let right = Record { key: key.to_vec(), value: value.to_vec(), expires_ms };
                assert_eq!(record(&line, &own), Ok(right.clone()));
                let named = fields("key", Some("value"));
                assert_eq!(record(&line, &named), Ok(right));
            }
        }
        for bad in ["", "[]", "{\"key\":1}", "{\"key\":\"a\",\"value\":\"b\"", "{\"value\":1}"] {
            assert!(parse(bad.as_bytes(), &own).is_err(), "{bad}");
        }
        let odd = br#"{"key":"a","value":"b","encoding":"rot13"}"#;
        assert!(parse(odd, &own).is_err_and(|what| what.contains("rot13")));
    }

    #[test]
    fn fields_inside_objects() {
        let line = br#"{"a.b":"dots","a":{"b":1,"c":{"d":"deep"}},"s":"{\"b\":1}"}"#;
        let key = |name: &str| {
            let key = record(line, &fields(name, None))?.key;
            Ok::<_, String>(String::from_utf8(key).expect("text"))
        };
        assert_eq!(key("a.b").as_deref(), Ok("dots"));
        assert_eq!(key("a.c.d").as_deref(), Ok("deep"));
        assert_eq!(key("a.c").as_deref(), Ok(r#"{"d":"deep"}"#));
        for absent in ["a.x", "a.", ".a", "a.b.c", "s.b", "a..b"] {
            assert!(key(absent).is_err_and(|what| what.contains(absent)), "{absent}");
        }
    }

    #[test]
    fn objects_have_columns() {
        let names = ["a", "b.c", "none", "null"].map(str::to_string);
        let cells = columns(br#"{"a":"x,y","b":{"c":[1, 2]},"null":null}"#, &names);
        assert_eq!(cells, Ok(["x,y", "[1, 2]", "", ""].map(str::to_string).to_vec()));
        assert!(columns(b"7", &names).is_err() && columns(b"\xff", &names).is_err());
    }

    #[test]
    fn foreign_objects() {
        let line = br#"{"id":7,"name":"x","encoding":"gzip"}"#;
        let mut fields = fields("id", Some("name"));
        let read = record(line, &fields);
        assert_eq!(read, Ok(Record::new(b"7".to_vec(), b"x".to_vec())));
        // No number is rounded, and an object keeps its order.
        let line = br#"{"id":12345678901234567890123,"name":{"b":1.10,"a":1e2}}"#;
        let read = record(line, &fields);
        let (key, value) = (b"12345678901234567890123".to_vec(), br#"{"b":1.10,"a":1e2}"#.to_vec());
        assert_eq!(read, Ok(Record::new(key, value)));
        let lone = record(br#"{"id":"\ud800","name":1}"#, &fields);
        assert!(lone.as_ref().is_err_and(|what| what.contains("\"id\"")), "{lone:?}");
        assert!(parse(b"{\"id\":\"\xff\",\"name\":1}", &fields).is_err());
        fields.value = None;
        assert_eq!(record(line, &fields).map(|record| record.value), Ok(line.to_vec()));
    }

    /// Once, a line with a field twice yielded the field's last value, and no error was reported.
    #[test]
    fn a_field_is_there_once() {
        let own = Fields::default();
        for field in ["\"key\":\"b\"", "\"value\":2", "\"encoding\":\"hex\"", "\"expires_ms\":1"] {
            let line = format!("{{{field},\"key\":\"61\",\"value\":\"62\",{field}}}");
            assert!(
                parse(line.as_bytes(), &own).is_err_and(|what| what.contains("twice")),
                "{line}"
            );
        }
        let line = br#"{"id":1,"a":{"b":1,"b":2},"x":0,"x":1}"#;
        assert!(parse(line, &fields("a.b", None)).is_err_and(|what| what.contains("twice")));
        assert!(parse(line, &fields("id", None)).is_ok(), "the other fields stay as they are");
    }

    #[test]
    fn keys_are_texts_or_other_values() {
        let kind = |key: &str| {
            let line = format!("{{\"key\":{key},\"value\":1}}");
            parse(line.as_bytes(), &Fields::default()).map(|parsed| parsed.key)
        };
        for literal in ["1", "-1.5e3", "true", "[1, 2]", "{}"] {
            assert_eq!(kind(literal), Ok(KeyKind::Literal));
            assert_eq!(kind(&format!("\"{literal}\"")), Ok(KeyKind::LikeLiteral));
        }
        for text in ["", "a", "1 ", "01", "t", "null", "[1"] {
            assert_eq!(kind(&format!("\"{text}\"")), Ok(KeyKind::Text), "{text}");
        }
        assert!(kind("null").is_err());
    }
}
