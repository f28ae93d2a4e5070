//! One JSON object per line: `{"key":..,"value":..}`. Text is written as it is, for the programs
//! that read such files; bytes that are not text as base64, and `"encoding":"base64"` says so for
//! both key and value. What `--json` prints is read as well.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Record;
use crate::encoding::{from_base64, from_hex, to_base64, unescape};

/// Fields as they are written: a number that is parsed and printed again may differ.
type Object<'a> = BTreeMap<String, &'a RawValue>;

/// Which fields of foreign objects are key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub key: Option<String>,
    pub value: Option<String>,
}

/// An entry as an object.
pub fn object(key: &[u8], value: Option<&[u8]>) -> Value {
    let mut object = Map::new();
    let texts = (std::str::from_utf8(key), value.map(std::str::from_utf8).transpose());
    if let (Ok(key), Ok(value)) = texts {
        object.insert("key".into(), key.into());
        object.extend(value.map(|value| ("value".into(), value.into())));
    } else {
        object.insert("key".into(), to_base64(key).into());
        object.extend(value.map(|value| ("value".into(), to_base64(value).into())));
        object.insert("encoding".into(), "base64".into());
    }
    Value::Object(object)
}

/// Appends a line.
pub fn write(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(object(key, Some(value)).to_string().as_bytes());
    out.push(b'\n');
}

/// Reads a line. With a key field but no value field the whole object is the value.
pub fn parse(line: &[u8], fields: &Fields) -> Result<Record, String> {
    let object: Object<'_> = match serde_json::from_slice(line.trim_ascii()) {
        Ok(object) => object,
        Err(error) if error.is_data() => return Err("the line is no JSON object".into()),
        Err(error) => return Err(what(&error)),
    };
    let is_own = fields.key.is_none() && fields.value.is_none();
    let decode = match object.get("encoding").filter(|_| is_own) {
        None => |text: String| Ok(text.into_bytes()),
        Some(other) => match &*field(&object, "encoding")? {
            "base64" => |text: String| from_base64(&text),
            "escaped" => |text: String| unescape(text.as_bytes()),
            "hex" => |text: String| from_hex(text.as_bytes()),
            _ => return Err(format!("encoding {other} is not known; base64, escaped and hex are")),
        },
    };
    let key = field(&object, fields.key.as_deref().unwrap_or("key"))?;
    let value = match (&fields.key, &fields.value) {
        (Some(_), None) => trim(line),
        (_, name) => field(&object, name.as_deref().unwrap_or("value"))?,
    };
    Ok(Record { key: decode(key)?, value: decode(value)? })
}

/// The message names the line of the file; the parser saw one line only, so its number says
/// nothing.
fn what(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

fn trim(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().to_string()
}

/// The value of a field, or of a field inside an object: `props.id`. A field whose own name has the
/// dots goes first.
fn find<'a>(object: &Object<'a>, name: &str) -> Option<&'a RawValue> {
    if let Some(value) = object.get(name) {
        return Some(value);
    }
    name.match_indices('.').find_map(|(at, _)| {
        let inner: Object<'a> = serde_json::from_str(object.get(&name[..at])?.get()).ok()?;
        find(&inner, &name[at + 1..])
    })
}

/// The named fields of a value that is an object, as [`field`] takes them. A field that is absent
/// or null is empty.
pub fn columns(value: &[u8], names: &[String]) -> Result<Vec<String>, String> {
    let object: Object<'_> =
        serde_json::from_slice(value).map_err(|_| "its value is no JSON object".to_string())?;
    let cell = |name: &String| match find(&object, name).map(RawValue::get) {
        None | Some("null") => Ok(String::new()),
        Some(_) => field(&object, name),
    };
    names.iter().map(cell).collect()
}

/// A string is taken as it is, anything else as its JSON text.
fn field(object: &Object<'_>, name: &str) -> Result<String, String> {
    let Some(value) = find(object, name) else {
        return Err(format!("the object has no field {name:?}"));
    };
    if !value.get().starts_with('"') {
        return Ok(value.get().to_string());
    }
    serde_json::from_str(value.get()).map_err(|error| format!("field {name:?}: {}", what(&error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back() {
        let own = Fields::default();
        for (key, value) in [(&b""[..], &b""[..]), (b"k\"\n", b"\xff\0"), (b"\xfe", "ä".as_bytes())]
        {
            let mut line = Vec::new();
            write(key, value, &mut line);
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let read = parse(&line, &own);
            assert_eq!(read, Ok(Record { key: key.to_vec(), value: value.to_vec() }));
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
            let fields = Fields { key: Some(name.into()), value: None };
            parse(line, &fields).map(|record| String::from_utf8(record.key).expect("text"))
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
        let mut fields = Fields { key: Some("id".into()), value: Some("name".into()) };
        let read = parse(line, &fields);
        assert_eq!(read, Ok(Record { key: b"7".to_vec(), value: b"x".to_vec() }));
        // No number is rounded, and an object keeps its order.
        let line = br#"{"id":12345678901234567890123,"name":{"b":1.10,"a":1e2}}"#;
        let read = parse(line, &fields);
        let (key, value) = (b"12345678901234567890123".to_vec(), br#"{"b":1.10,"a":1e2}"#.to_vec());
        assert_eq!(read, Ok(Record { key, value }));
        let lone = parse(br#"{"id":"\ud800","name":1}"#, &fields);
        assert!(lone.as_ref().is_err_and(|what| what.contains("\"id\"")), "{lone:?}");
        assert!(parse(b"{\"id\":\"\xff\",\"name\":1}", &fields).is_err());
        fields.value = None;
        assert_eq!(parse(line, &fields).map(|record| record.value), Ok(line.to_vec()));
    }
}
