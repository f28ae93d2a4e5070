//! Text on a drawing: its largest width, breaking into lines that fit, and the place of each text,
//! so that tests can check that no two overlap. Also formats numbers of bytes with units.

use std::fmt::Write as _;

use crate::picture::{Drawn, Paint};

/// Which point of a text is at its coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The alignment and the appearance of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) anchor: Anchor,
    pub(crate) size: f64,
    pub(crate) is_bold: bool,
    /// The class, to which the style sheet assigns a colour.
    pub(crate) class: &'static str,
}

/// The margin around a drawing.
pub(crate) const MARGIN: f64 = 14.0;
/// The distance from one line to the next.
pub(crate) const LINE: f64 = 17.0;
/// The size of most texts.
pub(crate) const SIZE: f64 = 12.0;
pub(crate) const TEXT: Style =
    Style { anchor: Anchor::Start, size: SIZE, is_bold: false, class: "text" };
pub(crate) const BOLD: Style = Style { is_bold: true, ..TEXT };
pub(crate) const TITLE: Style = Style { size: 15.0, ..BOLD };
pub(crate) const FAINT: Style = Style { class: "faint", ..TEXT };

/// The largest rectangle that a text may cover.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) text: String,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

/// A drawing in progress.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    pub(crate) svg: String,
    pub(crate) places: Vec<Place>,
}

impl Canvas {
    /// Adds markup and a line end. Writing to a string cannot fail, here and below.
    pub(crate) fn add(&mut self, markup: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.svg, "{markup}");
    }

    /// The place of a text whose baseline is at `y`.
    pub(crate) fn place(text: &str, x: f64, y: f64, style: Style) -> Place {
        let factor = if style.is_bold { 1.1 } else { 1.0 };
        let width = text_width(text, style.size) * factor;
        let left = match style.anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        let (top, bottom) = (y - style.size * 0.8, y + style.size * 0.25);
        Place { text: text.to_string(), left, right: left + width, top, bottom }
    }

    /// The drawing, with its background.
    pub(crate) fn end(self, width: f64, height: f64) -> Drawn {
        let height = height.ceil();
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" role=\"img\">\n\
             <rect width=\"{width}\" height=\"{height}\" class=\"ground\"/>\n{}</svg>\n",
            self.svg
        );
        Drawn { svg, width, height }
    }

    /// Draws a text.
    pub(crate) fn text(&mut self, text: &str, x: f64, y: f64, style: Style) {
        self.places.push(Canvas::place(text, x, y, style));
        let anchor = match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let bold = if style.is_bold { " font-weight=\"bold\"" } else { "" };
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\"{anchor}{bold} \
             class=\"{}\">{}</text>",
            style.size,
            style.class,
            escape(text)
        ));
    }
}

/// Draws text in lines over the whole width, below `y`. Returns where it ends.
pub(crate) fn lines(canvas: &mut Canvas, text: &str, style: Style, width: f64, y: f64) -> f64 {
    let bold = if style.is_bold { 1.1 } else { 1.0 };
    let lines = wrap(text, (width - 2.0 * MARGIN) / bold, style.size);
    let height = style.size + 5.0;
    for (at, line) in lines.iter().enumerate() {
        canvas.text(line, MARGIN, y + height * (at + 1) as f64 - 5.0, style);
    }
    y + height * lines.len() as f64
}

/// Draws a title and notes from the top; returns where they end.
pub(crate) fn heading(
    canvas: &mut Canvas,
    (title, style): (&str, Style),
    notes: &[String],
    width: f64,
) -> f64 {
    let y = lines(canvas, title, style, width, MARGIN);
    notes.iter().fold(y, |y, note| lines(canvas, note, FAINT, width, y))
}

/// Draws a square and a name for each paint that is used, below `y`; returns where they end.
pub(crate) fn legend(
    canvas: &mut Canvas,
    used: impl Iterator<Item = usize>,
    paints: &[Paint],
    width: f64,
    y: f64,
) -> f64 {
    let mut used: Vec<usize> = used.filter(|at| *at < paints.len()).collect();
    used.sort_unstable();
    used.dedup();
    let is_empty = used.is_empty();
    let (mut x, mut top) = (MARGIN, y + 4.0);
    for Paint { fill, name } in used.into_iter().map(|at| paints[at]) {
        let name = shorten(name, width - 2.0 * MARGIN - 18.0, SIZE);
        let taken = 18.0 + text_width(&name, SIZE);
        if x > MARGIN && x + taken > width - MARGIN {
            (x, top) = (MARGIN, top + LINE);
        }
        canvas.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{fill}\"/>",
            top + 2.0
        ));
        canvas.text(&name, x + 18.0, top + 12.0, TEXT);
        x += taken + 18.0;
    }
    if is_empty { y } else { top + LINE }
}

/// The largest width of a text in a sans-serif font of this size: the widths are those of DejaVu
/// Sans, and most fonts are narrower.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | '\'' | '|' | ' ' | '.' | ',' | ':' | ';' | '!' | 'I' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '/' | '\\' | '-' | '"' => 0.46,
        'm' | 'w' | 'M' | 'W' | '@' | '%' | '…' | '—' => 1.0,
        'A'..='Z' | '&' | '<' | '>' | '=' | '+' | '#' | '~' => 0.84,
        _ if c.is_ascii() => 0.64,
        _ => 1.0,
    };
    text.chars().map(of).sum::<f64>() * size
}

/// Shortens a text to at most this width. A `…` replaces the middle part that is left out.
pub(crate) fn shorten(text: &str, width: f64, size: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_string();
    }
    let chars: Vec<char> = text.chars().collect();
    let shortened = |kept: usize| {
        let (head, tail) = (kept.div_ceil(2), kept / 2);
        let head = chars[..head].iter();
        head.chain(&['…']).chain(&chars[chars.len() - tail..]).collect::<String>()
    };
    let fits = |kept: &usize| text_width(&shortened(*kept), size) <= width;
    shortened((0..chars.len()).rev().find(fits).unwrap_or(0))
}

/// Breaks a text between words into lines of at most this width. A wider word is shortened.
pub(crate) fn wrap(text: &str, width: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shorten(word, width, size);
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Escapes characters that have a meaning in markup, and replaces those that XML forbids.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push(c),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// `512 B`, `1.5 MiB`.
pub fn format_size(bytes: u64) -> String {
    let short = runstone_policy::text::format_bytes(bytes);
    match short.strip_suffix(['K', 'M', 'G', 'T']) {
        Some(number) => format!("{number} {}iB", &short[number.len()..]),
        None => format!("{short} B"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn meet(a: &Place, b: &Place) -> bool {
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
    }

    /// Panics if two texts overlap, or if one is outside the drawing.
    pub(crate) fn assert_apart(places: &[Place], width: f64, height: f64) {
        for (at, place) in places.iter().enumerate() {
            let inside = place.left >= 0.0 && place.right <= width;
            assert!(inside && place.top >= 0.0 && place.bottom <= height, "{place:?}");
            for other in &places[at + 1..] {
                assert!(!meet(place, other), "{place:?}\n{other:?}");
            }
        }
    }

    #[test]
    fn texts_are_shortened_and_wrapped() {
        assert_eq!(shorten("abc", 100.0, 10.0), "abc");
        let short = shorten("abcdefghijklmnopqrstuvwxyz", 60.0, 10.0);
        assert!(
            short.starts_with("abc") && short.contains('…') && short.ends_with("yz"),
            "{short}"
        );
        assert!(text_width(&short, 10.0) <= 60.0);
        assert_eq!(shorten("abc", 0.0, 10.0), "…");
        let lines = wrap("one two three abcdefghijklmnopqrstuvwxyz", 60.0, 10.0);
        assert_eq!(&lines[..2], ["one two", "three"], "{lines:?}");
        assert!(lines.iter().all(|line| text_width(line, 10.0) <= 60.0), "{lines:?}");
        assert!(wrap("", 9.0, 9.0).is_empty());
    }

    #[test]
    fn sizes_have_units() {
        let cases = [(0, "0 B"), (700, "700 B"), (1536, "1.5 KiB"), (3 << 40, "3 TiB")];
        for (bytes, text) in cases {
            assert_eq!(format_size(bytes), text);
        }
    }
}
