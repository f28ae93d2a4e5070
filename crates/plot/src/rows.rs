//! Rows of bars on a common axis: a tree with its runs of tables. Drawn for a given width, so that
//! a page can contain a wide drawing and a narrow one with text of the same size.
//!
//! ```text
//! title                                  title
//! notes                                  notes
//! [] legend  [] legend                   [] legend
//!               a     m      z           [] legend
//! L0  3 runs                             L0  3 runs
//! run 7  1 MiB  ████████               run 7  1 MiB
//! run 5  2 MiB    ██████████           ████████████
//! ```

use crate::canvas::{
    Anchor, BOLD, Canvas, FAINT, LINE, MARGIN, SIZE, Style, TEXT, TITLE, escape, heading, legend,
    lines, shorten, text_width,
};
use crate::picture::{Drawn, Paint, Picture};

/// In a drawing narrower than this, the labels of rows are above the bars.
const NARROW: f64 = 600.0;
const LABELS: f64 = 190.0;
const BAR: f64 = 13.0;
/// A narrower bar is joined with its neighbours.
const LEAST_BAR: f64 = 1.5;
/// The least space between two labels of the axis.
const BETWEEN_TICKS: f64 = 12.0;

/// Rows of bars.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The text above everything.
    pub title: String,
    /// Texts below the title, each on lines of its own.
    pub notes: Vec<String>,
    /// In the order of the legend, which shows those that are used. Bars that are joined are drawn
    /// with the last of their paints.
    pub paints: Vec<Paint>,
    /// Labels of the axis: place from 0 to 1, in ascending order, and text. Labels without room are
    /// left out, the ends last.
    pub ticks: Vec<(f64, String)>,
    /// From top to bottom.
    pub sections: Vec<Section>,
}

/// Rows with a heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Above the rows.
    pub heading: String,
    /// Whether the rows share the axis of [`Rows::ticks`].
    pub is_on_axis: bool,
    /// From top to bottom.
    pub rows: Vec<Row>,
    /// The text below the rows, if it is not empty.
    pub rest: String,
}

/// Bars side by side.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The name of the row.
    pub name: String,
    /// Its size, as text.
    pub size: String,
    /// From left to right; they do not overlap.
    pub bars: Vec<Bar>,
    /// Lines across the row.
    pub lines: Vec<f64>,
}

/// A bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// Where it begins, from 0 to 1.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Index into [`Rows::paints`].
    pub paint: usize,
    /// The text that is shown when the pointer is over it.
    pub tip: String,
}

impl Picture for Rows {
    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, width: f64) -> Drawn {
        let mut drawing = Drawing::new(self, width.max(300.0));
        drawing.all();
        drawing.canvas.end(drawing.width, drawing.y + MARGIN)
    }
}

/// A drawing that grows downwards.
struct Drawing<'a> {
    rows: &'a Rows,
    canvas: Canvas,
    width: f64,
    is_narrow: bool,
    /// Where bars begin and end.
    left: f64,
    right: f64,
    /// The vertical position at which the drawing ends so far.
    y: f64,
    /// The ticks that fit.
    ticks: Vec<(f64, String, Anchor)>,
}

impl<'a> Drawing<'a> {
    fn new(rows: &'a Rows, width: f64) -> Drawing<'a> {
        let is_narrow = width < NARROW;
        let left = if is_narrow { MARGIN } else { MARGIN + LABELS };
        let (canvas, right) = (Canvas::default(), width - MARGIN);
        let mut drawing =
            Drawing { rows, canvas, width, is_narrow, left, right, y: 0.0, ticks: Vec::new() };
        drawing.choose_ticks();
        drawing
    }

    fn all(&mut self) {
        let rows = self.rows;
        self.y = heading(&mut self.canvas, (&rows.title, TITLE), &rows.notes, self.width);
        let sections = &rows.sections;
        let used = sections.iter().flat_map(|section| &section.rows).flat_map(|row| &row.bars);
        let used = used.map(|bar| bar.paint);
        self.y = legend(&mut self.canvas, used, &rows.paints, self.width, self.y);
        let last_on_axis = sections.iter().rposition(|section| section.is_on_axis);
        let mut began = false;
        for (at, section) in sections.iter().enumerate() {
            if section.is_on_axis && !began {
                self.y += 6.0;
                self.axis();
                began = true;
            }
            self.section(section);
            if Some(at) == last_on_axis {
                self.axis();
            }
        }
    }

    fn lines(&mut self, text: &str, style: Style) {
        self.y = lines(&mut self.canvas, text, style, self.width, self.y);
    }

    fn section(&mut self, section: &Section) {
        self.y += 8.0;
        self.lines(&section.heading, BOLD);
        self.y += 2.0;
        let (top, at) = (self.y, self.canvas.svg.len());
        for row in &section.rows {
            self.row(row);
        }
        if section.is_on_axis && !section.rows.is_empty() {
            self.grid(top, at);
        }
        self.lines(&section.rest, FAINT);
    }

    fn row(&mut self, row: &Row) {
        let size = Style { anchor: Anchor::End, ..FAINT };
        let column = if self.is_narrow { self.right } else { self.left - 10.0 };
        let room = column - MARGIN - text_width(&row.size, SIZE) - 8.0;
        self.canvas.text(&shorten(&row.name, room, SIZE), MARGIN, self.y + 11.0, TEXT);
        if !row.size.is_empty() {
            self.canvas.text(&row.size, column, self.y + 11.0, size);
        }
        self.y += if self.is_narrow { LINE - 2.0 } else { 0.0 };
        let top = self.y + 1.0;
        for bar in merged(&row.bars, LEAST_BAR / (self.right - self.left)) {
            let (from, to) = (self.x(bar.from), self.x(bar.to));
            // A bar at the right end must be as visible as others.
            let from = from.min(self.right - LEAST_BAR).max(self.left);
            let width = (to - from).max(LEAST_BAR);
            // A line around a narrow bar would hide the bar.
            let class = if width > 4.0 { " class=\"bar\"" } else { "" };
            let fill = self.rows.paints.get(bar.paint).map_or("#888", |paint| paint.fill);
            self.canvas.add(format_args!(
                "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
                 fill=\"{fill}\"{class}><title>{}</title></rect>",
                escape(&bar.tip)
            ));
        }
        // Lines that are too close to the previous one are left out, because many lines would
        // blacken the row.
        let mut free = f64::NEG_INFINITY;
        for line in &row.lines {
            let x = self.x(*line);
            if x >= free {
                free = x + 4.0;
                self.canvas
                    .add(format_args!("<path d=\"M{x:.1} {top:.1}v{BAR}\" class=\"mark\"/>"));
            }
        }
        self.y += LINE;
    }

    fn x(&self, place: f64) -> f64 {
        self.left + place.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Chooses both ends first, each at most half as long as the axis, then the ticks that fit in
    /// between.
    fn choose_ticks(&mut self) {
        let room = self.right - self.left;
        let [ticks @ .., last] = &self.rows.ticks[..] else { return };
        let half = if ticks.is_empty() { room } else { room / 2.0 - BETWEEN_TICKS };
        let fitted = |(place, text): &(f64, String)| (*place, shorten(text, half, SIZE));
        let place = |x: f64, text: &str, anchor: Anchor| {
            Canvas::place(text, x, 0.0, Style { anchor, ..FAINT })
        };
        let (last, text) = fitted(last);
        let end = place(self.right, &text, Anchor::End);
        let mut chosen: Vec<(f64, String, Anchor)> = Vec::new();
        let mut free = f64::NEG_INFINITY;
        for (at, tick) in ticks.iter().enumerate() {
            let (tick, text) = fitted(tick);
            let anchor = if at == 0 { Anchor::Start } else { Anchor::Middle };
            let x = if at == 0 { self.left } else { self.x(tick) };
            let here = place(x, &text, anchor);
            if at == 0 || here.left >= free && here.right + BETWEEN_TICKS <= end.left {
                free = here.right + BETWEEN_TICKS;
                chosen.push((tick, text, anchor));
            }
        }
        chosen.push((last, text, Anchor::End));
        self.ticks = chosen;
    }

    fn axis(&mut self) {
        let y = self.y + 13.0;
        for (place, text, anchor) in std::mem::take(&mut self.ticks) {
            let x = match anchor {
                Anchor::Start => self.left,
                Anchor::Middle => self.x(place),
                Anchor::End => self.right,
            };
            self.canvas.text(&text, x, y, Style { anchor, ..FAINT });
            self.ticks.push((place, text, anchor));
        }
        self.y += if self.ticks.is_empty() { 0.0 } else { LINE };
    }

    /// Draws lines at the ticks, behind the rows that were drawn below `top`.
    fn grid(&mut self, top: f64, at: usize) {
        let mut lines = String::new();
        // In a narrow drawing, names and sizes are at the ends.
        let is_shown = |anchor: Anchor| !self.is_narrow || anchor == Anchor::Middle;
        for (place, ..) in self.ticks.iter().filter(|(_, _, anchor)| is_shown(*anchor)) {
            let (x, bottom) = (self.x(*place), self.y);
            lines.push_str(&format!("<path d=\"M{x:.1} {top:.1}V{bottom:.1}\" class=\"grid\"/>\n"));
        }
        self.canvas.svg.insert_str(at, &lines);
    }
}

/// Joins neighbours that are narrower than `least`, so that a tree of many tables does not make a
/// large drawing. A joined bar covers less than `least`; every other bar stays as it is.
fn merged(bars: &[Bar], least: f64) -> Vec<Bar> {
    let mut merged: Vec<(Bar, usize)> = Vec::new();
    for bar in bars {
        match merged.last_mut() {
            Some((last, count)) if bar.to - last.from < least => {
                last.to = bar.to;
                last.paint = last.paint.max(bar.paint);
                *count += 1;
            }
            _ => merged.push((bar.clone(), 1)),
        }
    }
    let told = |(mut bar, count): (Bar, usize)| {
        if count > 1 {
            bar.tip = format!("the first of {count} in one place: {}", bar.tip);
        }
        bar
    };
    merged.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canvas::tests::assert_apart;

    fn bar(from: f64, to: f64, paint: usize) -> Bar {
        Bar { from, to, paint, tip: "a <tip> & more".into() }
    }

    fn tricky() -> Rows {
        let long = "an_unbroken_word_that_is_long_".repeat(9);
        let row = |name: &str, size: &str, bars: Vec<Bar>| Row {
            name: name.into(),
            size: size.into(),
            bars,
            lines: vec![0.0, 0.5, 1.0],
        };
        let section = |heading: &str, is_on_axis| Section {
            heading: heading.into(),
            is_on_axis,
            rows: vec![
                row("run 7", "165.7 KiB", vec![bar(0.0, 0.4, 0), bar(0.4, 1.0, 1)]),
                row(&long, "16777215.9 TiB", vec![bar(0.999_999, 1.0, 0)]),
                row("", "", vec![]),
            ],
            rest: "and 7 more runs with 12 MiB".into(),
        };
        let paint = |name| Paint { fill: "#123456", name };
        Rows {
            title: long.clone(),
            notes: vec!["words of a note that go on and on ".repeat(9), "<&> \u{202e}".into()],
            paints: vec![
                paint("one"),
                paint("a name that is so long that it takes more than a whole line of 360 pixels"),
                paint("never used"),
                paint("another"),
            ],
            ticks: vec![
                (0.0, "k".repeat(90)),
                (0.49, "user00000007".into()),
                (0.5, "user00000008".into()),
                (0.51, "user00000009".into()),
                (1.0, "z".repeat(90)),
            ],
            sections: vec![section("L0", true), section(&long, true), section("values", false)],
        }
    }

    fn drawing(rows: &Rows, width: f64) -> Drawing<'_> {
        let mut drawing = Drawing::new(rows, width);
        drawing.all();
        drawing
    }

    #[test]
    fn labels_lie_apart_at_every_width() {
        let none = Rows::default();
        let mut short = tricky();
        short.ticks =
            vec![(0.0, "a".into()), (0.5, "m".into()), (0.52, "n".into()), (1.0, "z".into())];
        let mut one = tricky();
        one.ticks.truncate(1);
        for rows in [&none, &tricky(), &short, &one] {
            for width in [300.0, 360.0, 390.0, 599.0, 600.0, 960.0, 1600.0] {
                let drawn = drawing(rows, width);
                assert_apart(&drawn.canvas.places, width, drawn.y + MARGIN);
            }
        }
        let texts = |width| {
            let drawn = drawing(&short, width);
            drawn.canvas.places.iter().map(|place| place.text.clone()).collect::<Vec<_>>()
        };
        assert!(texts(960.0).iter().any(|text| text == "m"), "a label that has room is shown");
        assert!(!texts(960.0).iter().any(|text| text == "n"), "one that has none is not");
    }

    #[test]
    fn every_colour_that_is_used_is_told() {
        let drawn = tricky().draw(960.0).svg;
        assert!(drawn.contains(">one<") && drawn.contains(">a name that"));
        assert!(!drawn.contains("never used") && !drawn.contains(">another<"));
        for name in ["svg", "text", "title"] {
            let opened = drawn.matches(&format!("<{name}")).count();
            assert_eq!(opened, drawn.matches(&format!("</{name}>")).count(), "{name}");
        }
        assert!(drawn.contains("a &lt;tip&gt; &amp; more"));
    }

    #[test]
    fn bars_lie_where_they_say_and_the_narrowest_is_seen() {
        let rows = Rows {
            paints: vec![Paint { fill: "#123456", name: "p" }],
            sections: vec![Section {
                rows: vec![Row {
                    bars: vec![bar(0.25, 0.5, 0), bar(1.0, 1.0, 0)],
                    ..Row::default()
                }],
                ..Section::default()
            }],
            ..Rows::default()
        };
        let svg = rows.draw(414.0 + 2.0 * MARGIN).svg;
        assert!(svg.contains("x=\"117.5\"") && svg.contains("width=\"103.5\""), "{svg}");
        assert!(svg.contains("x=\"426.5\"") && svg.contains("width=\"1.5\""), "{svg}");
    }

    /// Thousands of tables do not make a drawing of megabytes, and a rare table stays visible among
    /// them.
    #[test]
    fn very_many_bars_are_drawn_together() {
        let bars = (0..100_000).map(|i| {
            let place = |i: u32| f64::from(i) / 1e5;
            bar(place(i), place(i + 1), usize::from(i == 70_007))
        });
        let drawn = merged(&bars.collect::<Vec<_>>(), 0.01);
        assert!((100..=112).contains(&drawn.len()), "{}", drawn.len());
        assert_eq!(drawn.iter().filter(|bar| bar.paint == 1).count(), 1);
        assert!(drawn.windows(2).all(|pair| pair[0].to <= pair[1].from));
        assert!(drawn[3].tip.starts_with("the first of 9"), "{}", drawn[3].tip);
    }
}
