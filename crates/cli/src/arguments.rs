//! Arguments that several commands share, and how sizes, keys and values are written.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};

use runstone::{DEFAULT_KEYSPACE, PRESETS};
use runstone_policy::registry::POLICIES;
use serde_json::{Map, Value};

use crate::encoding::{from_hex, shown, to_hex, unescape};
use crate::failure::{Failure, Result};
use crate::option_docs::summary;

/// The argument that names a keyspace.
#[derive(Args, Clone, Debug, Default)]
pub struct KeyspaceArgument {
    /// Keyspace inside the store; without it the default one, in the shell the current one.
    #[arg(long, value_name = "NAME")]
    pub keyspace: Option<String>,
}

impl KeyspaceArgument {
    /// The given name, or the name of the default keyspace.
    pub fn name(&self) -> &str {
        self.keyspace.as_deref().unwrap_or(DEFAULT_KEYSPACE)
    }
}

/// How keys and values are written, in input and output: printed text can be typed again.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Encoding {
    /// Write keys and values in hexadecimal, in and out; `runstone help encoding`.
    #[arg(long)]
    pub hex: bool,
}

impl Encoding {
    /// A key or value as it was typed.
    pub fn read(self, text: &OsStr) -> Result<Vec<u8>> {
        let (bytes, hint) = match self.hex {
            true => (from_hex(text.as_bytes()), "write two digits per byte, or leave out --hex"),
            false => (unescape(text.as_bytes()), "see `runstone help encoding`"),
        };
        bytes.map_err(|why| {
            let what = if self.hex { " is not hexadecimal" } else { "" };
            Failure::usage(format!("{}{what}: {why}", text.display()), hint)
        })
    }

    /// Writes a key or value on one line.
    pub fn show(self, bytes: &[u8]) -> String {
        if self.hex { to_hex(bytes) } else { shown(bytes) }
    }

    /// An entry for machines. Its texts can be typed as they are. The field `encoding` is present
    /// if the texts differ from the bytes, and `expires_ms` if the entry expires.
    pub fn object(self, key: &[u8], value: Option<&[u8]>, expires_ms: Option<u64>) -> Value {
        let mut object = Map::new();
        let mut differs = false;
        let fields = [("key", Some(key)), ("value", value)];
        for (name, bytes) in fields.into_iter().filter_map(|(name, b)| Some((name, b?))) {
            let text = self.show(bytes);
            differs |= text.as_bytes() != bytes;
            object.insert(name.into(), text.into());
        }
        match self.hex {
            true => object.insert("encoding".into(), "hex".into()),
            false if differs => object.insert("encoding".into(), "escaped".into()),
            false => None,
        };
        object.extend(expires_ms.map(|at| ("expires_ms".into(), at.into())));
        Value::Object(object)
    }
}

/// The options of a new store, for commands that may make one.
#[derive(Args, Clone, Debug, Default)]
pub struct MakeArguments {
    /// Options of the keyspace by name; `runstone presets` lists them.
    #[arg(long, value_name = "NAME", value_parser = preset_names(), hide_possible_values = true,
          conflicts_with = "options")]
    pub preset: Option<String>,
    /// Options of the keyspace from a TOML file; `runstone help options` lists them.
    #[arg(long, value_name = "FILE.toml")]
    pub options: Option<PathBuf>,
    #[arg(long, value_name = "NAME", value_parser = policy_names(), hide_possible_values = true,
          help = summary("policy"))]
    pub policy: Option<String>,
    #[arg(long, value_name = "SIZE", value_parser = parse_size,
          help = summary("memory_budget_bytes"))]
    pub memory_budget: Option<u64>,
    /// Whether the command writes a single entry.
    #[arg(skip)]
    pub is_little: bool,
}

impl MakeArguments {
    /// Whether the arguments give an option that only a store of files has.
    pub fn has_engine_options(&self) -> bool {
        self.preset.is_some()
            || self.options.is_some()
            || self.policy.is_some()
            || self.memory_budget.is_some()
    }
}

/// Accepts any text, and lists the existing names for completion. The code that looks a name up
/// reports an unknown one, and suggests a similar one.
#[derive(Clone, Copy)]
pub struct Names(pub fn() -> Vec<&'static str>);

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}

/// The names of compaction policies.
pub fn policy_names() -> Names {
    Names(|| POLICIES.iter().map(|policy| policy.name()).collect())
}

/// The names of presets.
pub fn preset_names() -> Names {
    Names(|| PRESETS.iter().map(|preset| preset.name).collect())
}

/// The part of a store that a command works on.
#[derive(Args, Clone, Debug, Default)]
pub struct Part {
    /// Only keys that begin with this.
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub prefix: Option<OsString>,
    /// First key.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub from: Option<OsString>,
    /// First key beyond the range.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub to: Option<OsString>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgument,
    #[command(flatten)]
    pub encoding: Encoding,
}

/// Which entries of a part a command visits, and in which order.
#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    #[command(flatten)]
    pub part: Part,
    /// Stop after this many keys.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// From the last key to the first.
    #[arg(long)]
    pub reverse: bool,
}

/// Reads `4096`, `64K`, `64M`, `1.5G`, `2T`, also as `64MiB` and `64MB` (which mean the same).
pub fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let wrong = || format!("{text:?} is not a size; write a number such as 4096, 64M or 1G");
    let digits_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_len);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(wrong()),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(wrong);
    }
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes = number * (1_u64 << shift) as f64;
    if bytes < 1e18 { Ok(bytes as u64) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64M", 64 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        assert_eq!(parse_size("1.5k"), Ok(1536));
        for bad in ["", "M", "-1", "1X", "1..2", "99999999999T", "1e3"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_shown_is_read() {
        for (hex, text) in [(true, "00ff"), (false, "\\x00\\xff")] {
            let encoding = Encoding { hex };
            assert_eq!(encoding.show(&[0, 255]), text);
            assert_eq!(encoding.read(OsStr::new(text)).ok(), Some(vec![0, 255]));
            assert!(encoding.read(OsStr::new("\\")).is_err());
        }
        let object = |key, value| Encoding::default().object(key, value, None).to_string();
        assert_eq!(object(b"k", Some(b"v")), r#"{"key":"k","value":"v"}"#);
        assert_eq!(object(b"\\", None), r#"{"encoding":"escaped","key":"\\\\"}"#);
    }
}
