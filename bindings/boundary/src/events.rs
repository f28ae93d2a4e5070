//! The events of a store for other languages: a kind for programs, a text for people, and fields.
//! The kinds and the names of the fields never change; new ones may be added.

use std::fmt::Write;
use std::time::Duration;

use runstone::Event;

use crate::failure::Failure;

/// The value of a field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A number; durations are microseconds.
    Number(u64),
    /// A text.
    Text(String),
    /// Any number of texts.
    Texts(Vec<String>),
}

/// An event for another language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The kind, such as `log_end_lost`.
    pub kind: &'static str,
    /// Whether the event needs attention and is not ordinary work.
    pub is_warning: bool,
    /// What happened, for people.
    pub message: String,
    /// The details by name, such as `keyspace`.
    pub fields: Vec<(&'static str, Field)>,
}

impl From<u64> for Field {
    fn from(number: u64) -> Field {
        Field::Number(number)
    }
}

impl From<usize> for Field {
    fn from(number: usize) -> Field {
        Field::Number(number as u64)
    }
}

impl From<u32> for Field {
    fn from(number: u32) -> Field {
        Field::Number(number.into())
    }
}

impl From<Duration> for Field {
    fn from(time: Duration) -> Field {
        Field::Number(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<&String> for Field {
    fn from(text: &String) -> Field {
        Field::Text(text.clone())
    }
}

impl From<&'static str> for Field {
    fn from(text: &'static str) -> Field {
        Field::Text(text.to_string())
    }
}

/// `told!(kind, warns or not, message; field, field: value, ..)`.
macro_rules! told {
    ($kind:literal, $is_warning:literal, $message:expr; $($name:ident: $value:expr),*) => {
        Told {
            kind: $kind,
            is_warning: $is_warning,
            message: $message,
            fields: vec![$((stringify!($name), Field::from($value))),*],
        }
    };
}

impl Told {
    /// The event in the form for other languages; `None` if this release has no name for it.
    pub fn of(event: &Event) -> Option<Told> {
        work(event).or_else(|| trouble(event))
    }

    /// One object of JSON: `kind`, `warning` and `message`, and the fields after them.
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\"kind\":\"{}\",\"warning\":{}", self.kind, self.is_warning);
        json.push_str(",\"message\":");
        quote(&mut json, &self.message);
        for (name, field) in &self.fields {
            let _ = write!(json, ",\"{name}\":");
            match field {
                Field::Number(number) => {
                    let _ = write!(json, "{number}");
                }
                Field::Text(text) => quote(&mut json, text),
                Field::Texts(texts) => {
                    for (at, text) in texts.iter().enumerate() {
                        json.push(if at == 0 { '[' } else { ',' });
                        quote(&mut json, text);
                    }
                    json.push_str(if texts.is_empty() { "[]" } else { "]" });
                }
            }
        }
        json.push('}');
        json
    }
}

/// Events of ordinary work.
fn work(event: &Event) -> Option<Told> {
    Some(match event {
        Event::Flushed { keyspace, table, bytes, entries, took } => told!(
            "flushed", false, format!("{keyspace}: {entries} entries are in table {table}");
            keyspace: keyspace, table: *table, bytes: *bytes, entries: *entries, took_us: *took
        ),
        Event::Compacted {
            keyspace,
            why,
            input_tables,
            output_tables,
            moved_tables,
            parts,
            read_bytes,
            written_bytes,
            took,
        } => told!(
            "compacted", false,
            format!("{keyspace}: {input_tables} tables became {output_tables}: {why}");
            keyspace: keyspace, why: why, input_tables: *input_tables,
            output_tables: *output_tables, moved_tables: *moved_tables, parts: *parts,
            read_bytes: *read_bytes, written_bytes: *written_bytes, took_us: *took
        ),
        Event::Loaded { keyspace, tables, entries, bytes, took } => told!(
            "loaded", false, format!("{keyspace}: {entries} entries were loaded");
            keyspace: keyspace, tables: *tables, entries: *entries, bytes: *bytes, took_us: *took
        ),
        Event::Pressure { keyspace, level, cause } => {
            // Rounds up, so that 0 means only that the pressure has ended.
            let percent = level.parts().div_ceil(10);
            told!(
                "pressure", false, format!("writers are at {percent}% of a stop by {cause}");
                keyspace: keyspace, percent: percent, cause: *cause
            )
        }
        Event::ValuesCollected { keyspace, group, bytes_before, bytes_after, bytes_written } => {
            told!(
                "values_collected", false,
                format!("{keyspace}: group {group} shrank from {bytes_before} to {bytes_after}");
                keyspace: keyspace, group: *group, bytes_before: *bytes_before,
                bytes_after: *bytes_after, bytes_written: *bytes_written
            )
        }
        Event::Recovered => told!("recovered", false, "writes are accepted again".to_string();),
        _ => return None,
    })
}

/// Events that need attention.
fn trouble(event: &Event) -> Option<Told> {
    let text = |error: &runstone::Error| Failure::from(error.clone()).message;
    Some(match event {
        Event::CompactionFilterMissing { keyspace, filter } => told!(
            "compaction_filter_missing", true,
            format!("{keyspace} names the compaction filter {filter}, which is not registered");
            keyspace: keyspace, filter: filter
        ),
        Event::MergeFailed { keyspace, times, error } => told!(
            "merge_failed", true, format!("{keyspace}: {}", text(error));
            keyspace: keyspace, times: *times, error: &text(error)
        ),
        Event::LogEndLost { records, kept } => {
            let kept_in = match kept.as_slice() {
                [] => String::new(),
                names => format!("; they are kept in {}", names.join(", ")),
            };
            let message = format!(
                "{records} records of the log after a gap are not used, as after a power \
                 loss{kept_in}"
            );
            let kept = Field::Texts(kept.clone());
            told!("log_end_lost", true, message; records: *records, kept: kept)
        }
        Event::BudgetAboveLimit { budget_bytes: budget, limit_bytes: limit } => told!(
            "budget_above_limit", true,
            format!("the memory budget is {budget} bytes, and the control group allows {limit}");
            budget_bytes: *budget, limit_bytes: *limit
        ),
        Event::KeptLogGivenUp { segments, bytes } => told!(
            "kept_log_given_up", true,
            format!("the disk is full: {bytes} bytes of log kept for readers are removed");
            segments: *segments, bytes: *bytes
        ),
        Event::DamageFound { file, what } => told!(
            "damage_found", true, format!("{file}: {what}"); file: file, what: what
        ),
        Event::BackgroundError { error } => {
            told!("background_error", true, text(error); error: &text(error))
        }
        _ => return None,
    })
}

/// Appends a JSON string.
fn quote(json: &mut String, text: &str) {
    json.push('"');
    for one in text.chars() {
        match one {
            '"' | '\\' => json.extend(['\\', one]),
            _ if one < ' ' => {
                let _ = write!(json, "\\u{:04x}", one as u32);
            }
            _ => json.push(one),
        }
    }
    json.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_json() {
        let kept = vec!["lost-000002.wal".to_string(), "lost-000001.wal".to_string()];
        let told = Told::of(&Event::LogEndLost { records: 7, kept }).expect("known");
        assert!(told.is_warning);
        assert_eq!(
            told.to_json(),
            "{\"kind\":\"log_end_lost\",\"warning\":true,\"message\":\"7 records of the log after \
             a gap are not used, as after a power loss; they are kept in lost-000002.wal, \
             lost-000001.wal\",\"records\":7,\"kept\":[\"lost-000002.wal\",\"lost-000001.wal\"]}"
        );
        let told = Told::of(&Event::LogEndLost { records: 7, kept: Vec::new() }).expect("known");
        assert!(told.to_json().ends_with(",\"kept\":[]}"), "{}", told.to_json());
        let told = Told::of(&Event::KeptLogGivenUp { segments: 2, bytes: 70 }).expect("known");
        assert!(told.to_json().ends_with(",\"segments\":2,\"bytes\":70}"), "{}", told.to_json());
        let (file, what) = ("000001.table".to_string(), "a block is damaged".to_string());
        let told = Told::of(&Event::DamageFound { file, what }).expect("known");
        assert_eq!(told.message, "000001.table: a block is damaged");
        let told = Told::of(&Event::Recovered).expect("known");
        assert_eq!((told.kind, told.is_warning), ("recovered", false));
    }

    #[test]
    fn texts_are_quoted() {
        let keyspace = "a \"b\"\\\n".to_string();
        let filter = "\u{e4}".to_string();
        let told = Told::of(&Event::CompactionFilterMissing { keyspace, filter }).expect("known");
        let json = told.to_json();
        assert!(json.contains("\"keyspace\":\"a \\\"b\\\"\\\\\\u000a\""), "{json}");
        assert!(json.ends_with("\"filter\":\"\u{e4}\"}"), "{json}");
    }
}
