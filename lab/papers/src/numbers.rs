//! The format of the numbers in rows, in one place, so that all papers write them alike.

use std::borrow::Borrow;

/// Numbers, separated by commas.
pub(super) fn list(values: impl IntoIterator<Item = impl Borrow<f64>>, digits: usize) -> String {
    joined(values, digits, ", ")
}

/// Numbers, separated by slashes.
pub(super) fn strokes(values: impl IntoIterator<Item = impl Borrow<f64>>, digits: usize) -> String {
    joined(values, digits, " / ")
}

fn joined(
    values: impl IntoIterator<Item = impl Borrow<f64>>,
    digits: usize,
    between: &str,
) -> String {
    let texts = values.into_iter().map(|value| format!("{:.digits$}", value.borrow()));
    texts.collect::<Vec<_>>().join(between)
}

/// Two numbers with their ratio as text, `A / B unit = R`; and the ratio.
pub(super) fn ratio(a: f64, b: f64, digits: usize, unit: &str) -> (String, f64) {
    (format!("{a:.digits$} / {b:.digits$}{unit} = {:.2}", a / b), a / b)
}

/// How many percent less `to` is than `from`.
pub(super) fn percent_less(from: f64, to: f64) -> f64 {
    (1.0 - to / from) * 100.0
}

/// How many percent more `to` is than `from`.
pub(super) fn percent_more(from: f64, to: f64) -> f64 {
    (to / from - 1.0) * 100.0
}

/// Bytes in MiB.
pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
