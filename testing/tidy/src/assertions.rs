//! Assertions say what broke.

use crate::code::{bare, without_tests};
use crate::files::{Files, rust};

/// Programs that only tests and measurements run; their assertions are the tests themselves.
const OF_TESTS: [&str; 3] = ["/tests/", "/examples/", "/benches/"];
const TESTING: [&str; 3] = ["testing/", "lab/", "integrations/"];
/// Modules that only tests compile.
const TEST_MODULES: [&str; 3] = ["/tests.rs", "/model.rs", "/weak.rs"];

/// The macros, and how many arguments come before the message.
const MACROS: [(&str, usize); 3] = [("assert!(", 1), ("assert_eq!(", 2), ("assert_ne!(", 2)];

/// Assertions outside tests that have no message.
pub fn without_message(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (place, text) in rust(files) {
        let is_test = OF_TESTS.iter().any(|folder| place.contains(folder))
            || TESTING.iter().any(|folder| place.starts_with(folder))
            || TEST_MODULES.iter().any(|file| place.ends_with(file));
        if is_test {
            continue;
        }
        let code = without_tests(&bare(text, '_'));
        for (name, least) in MACROS {
            let short = code.match_indices(name).map(|(at, _)| &code[at + name.len()..]);
            let short = short.filter(|inside| arguments(inside) <= least);
            found.extend(short.map(|inside| {
                let condition: String = inside.lines().next().unwrap_or("").trim().into();
                format!("{place}: {name}{condition} says nothing when it fails")
            }));
        }
    }
    found
}

/// How many arguments there are up to the closing parenthesis.
fn arguments(inside: &str) -> usize {
    let (mut depth, mut count, mut is_empty) = (1, 0, true);
    for letter in inside.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if letter == ',' && depth == 1 {
            count += usize::from(!is_empty);
            is_empty = true;
        } else if !letter.is_whitespace() {
            is_empty = false;
        }
    }
    count + usize::from(!is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::of;

    #[test]
    fn an_assertion_without_a_message_is_found() {
        for bad in [
            "fn f() {\n    assert!(a > b);\n}\n",
            "fn f() {\n    debug_assert!(f(a, b));\n}\n",
            "fn f() {\n    assert_eq!(f(a, b), \"a, b\",);\n}\n",
            "fn f() {\n    debug_assert_ne!(\n        [a, b],\n        c,\n    );\n}\n",
        ] {
            assert_eq!(without_message(&of([("a.rs", bad)])).len(), 1, "{bad}");
            assert!(without_message(&of([("a/tests/b.rs", bad)])).is_empty(), "{bad}");
        }
        for good in [
            "fn f() {\n    assert!(a > b, \"b is above\");\n}\n",
            "fn f() {\n    assert_eq!(\n        f(a, b),\n        c,\n        \"{d}\",\n    );\n}",
            "// assert!(a)\n#[cfg(test)]\nmod tests {\n    fn f() { assert!(a); }\n}\n",
        ] {
            assert!(without_message(&of([("a.rs", good)])).is_empty(), "{good}");
        }
    }
}
