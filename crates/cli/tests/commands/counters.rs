//! Keyspaces that add numbers, as a person uses them.

use crate::Place;
use crate::terminal::{Terminal, lines};

fn counters(operator: &str) -> Place {
    let place = Place::new();
    place.write("o.toml", format!("merge_operator = \"{operator}\"\n"));
    place.write("old.tsv", "old\\x00\t\\x07\\x00\\x00\\x00\\x00\\x00\\x00\\x00\n");
    place.ok(&["import", "s", "old.tsv", "--options", "o.toml"]);
    place
}

/// Once, counters were printed as eight escaped bytes. A pipe still gets the bytes, for an import.
#[test]
fn counters_are_numbers_on_a_terminal() {
    for (operator, operand) in [("add-i64", "-5"), ("add-u64", "18446744073709551615")] {
        let place = counters(operator);
        place.ok(&["merge", "s", "visits", operand]);
        for (arguments, shown) in [("get s visits", operand), ("get s 'old\\x00'", "7")] {
            let (code, seen) = Terminal::open(&place, arguments).end();
            assert_eq!((code, lines(&seen)[0].as_str()), (0, shown), "{arguments}: {seen}");
        }
        let (_, seen) = Terminal::open(&place, "scan s").end();
        assert_eq!(lines(&seen)[1].split_whitespace().last(), Some(operand), "{seen}");
        assert_eq!(place.run(&["get", "s", "visits"]).bytes.len(), 8);
        assert_eq!(place.ok(&["get", "s", "visits", "--text"]), format!("{operand}\n"));
        place.write("copy.tsv", place.ok(&["scan", "s"]));
        place.ok(&["import", "t", "copy.tsv", "--options", "o.toml"]);
        assert_eq!(place.ok(&["get", "t", "visits", "--text"]), format!("{operand}\n"));
    }
}

/// Once, a decimal text was stored as it is, and the first operand made the key unreadable. A text
/// of eight digits was even taken for a different number.
#[test]
fn a_text_is_no_counter() {
    let place = counters("add-i64");
    for value in ["10", "12345678", "ten", ""] {
        for refused in [
            place.run(&["put", "s", "c", value]),
            place.run(&["put", "s", "c", value, "--ttl", "1h"]),
            place.run(&["put", "new", "c", value, "--options", "o.toml"]),
            place.pipe(&["shell", "s"], format!("put c \"{value}\"\n")),
        ] {
            assert_eq!(refused.code, 3, "{value:?}: {}", refused.stderr);
            assert!(refused.stderr.contains("`runstone merge STORE KEY "), "{}", refused.stderr);
        }
    }
    assert!(!place.path("new").exists(), "no store is made for a value that it refuses");
    // The hint advises this.
    place.ok(&["merge", "s", "c", "10"]);
    assert_eq!(place.ok(&["get", "s", "c", "--text"]), "10\n");
    place.ok(&["delete", "s", "c"]);
    place.ok(&["merge", "s", "c", "4"]);
    assert_eq!(place.ok(&["get", "s", "c", "--text"]), "4\n");
    place.ok(&["put", "s", "63", "0900000000000000", "--hex"]);
    assert_eq!(place.ok(&["get", "s", "c", "--text"]), "9\n");
}

/// An import refuses such values in batches and in loads.
#[test]
fn an_import_tells_values_that_are_no_counters() {
    for rest in [&["--batch", "10"][..], &[]] {
        let place = counters("add-u64");
        let line = |i: u32| match i {
            700 => "k00700\t700\n".to_string(),
            _ => format!("k{i:05}\t{}\n", "\\x00".repeat(8)),
        };
        place.write("x.tsv", (0..2000).map(line).collect::<String>());
        let report = place.json(&[&["import", "s", "x.tsv"][..], rest].concat());
        assert_eq!((&report["records"], &report["malformed"]), (&1999.into(), &1.into()));
        let told = &report["malformed_records"][0];
        assert_eq!(told["line"], 701, "{told}");
        let what = "the keyspace adds numbers (add-u64), and a value of 3 bytes is no integer of 8 \
                    bytes";
        assert_eq!(told["what"], what);
    }
}
