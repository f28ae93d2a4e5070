//! Line and bar charts: axes, ticks, legend, title. There are two kinds of chart, one width and no
//! styles. The library `plotters` is not used: it draws no groups of bars, its SVG has neither
//! names on bars nor dash patterns, and it depends on further crates.
//!
//! No text overlaps another: a text that is too long is broken into lines, slanted or shortened,
//! and axis labels that do not fit are left out.

use std::fmt::Write as _;

use crate::axis::{Axis, Range};
use crate::canvas::{Anchor, Canvas, SIZE, Style, TEXT, TITLE, escape, shorten, text_width, wrap};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 44.0;
const PLOT_WIDTH: f64 = 480.0;
const PLOT_HEIGHT: f64 = 290.0;
/// Colours that people with any colour vision can distinguish (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d1f"];
/// Beyond the eighth series, colours repeat with another dash.
const DASHES: [&str; 3] = ["", " stroke-dasharray=\"6 3\"", " stroke-dasharray=\"2 3\""];
/// The colour of the background, and that of marks.
const GROUND: &str = "#fff";
const MARK: &str = "#c00000";
/// The width of a mark at a point of a line.
const MARK_WIDTH: f64 = 18.0;
/// A line with more points than this is drawn through this many of them, evenly chosen.
const MOST_POINTS: usize = 240;
/// A line with more points than this is drawn without circles at its points.
const MOST_CIRCLES: usize = 60;

/// The title of the vertical axis ends here.
const Y_TITLE: f64 = 26.0;
/// Degrees by which long names of groups are rotated, and the largest length of such a name.
const SLANT: f64 = 35.0;
const LONGEST_SLANTED: f64 = 190.0;
const LINE_HEIGHT: f64 = 14.0;

/// A line of a [`LineChart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// The points in the order in which the line joins them. Points that are not numbers are left
    /// out.
    pub points: Vec<(f64, f64)>,
    /// Points from another source.
    pub marks: Marks,
}

/// Values of another source for some points of a [`Line`], drawn as marks across the line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Marks {
    /// Name in the legend, taken from the first line with marks.
    pub name: String,
    /// Points that are not numbers draw no mark.
    pub points: Vec<(f64, f64)>,
}

/// Lines over a common axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineChart {
    /// Above the chart.
    pub title: String,
    /// Horizontal.
    pub x: Axis,
    /// Vertical.
    pub y: Axis,
    /// In the order of the legend.
    pub lines: Vec<Line>,
}

/// The bars of one colour of a [`BarChart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Name in the legend.
    pub name: String,
    /// One per category; a value that is not a number draws no bar.
    pub values: Vec<f64>,
    /// The value of another source for each category, drawn as a mark across the bar. A value that
    /// is not a number draws no mark.
    pub marks: Vec<f64>,
}

/// Groups of bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarChart {
    /// Above the chart.
    pub title: String,
    /// The title of the horizontal axis.
    pub x: String,
    /// Vertical.
    pub y: Axis,
    /// Below each group.
    pub categories: Vec<String>,
    /// In the order of the legend.
    pub bars: Vec<Bars>,
    /// The meaning of the marks, which the legend shows if there are any.
    pub marks: String,
}

/// A chart of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Chart {
    /// Lines.
    Line(LineChart),
    /// Bars.
    Bar(BarChart),
}

impl Chart {
    /// The title.
    pub fn title(&self) -> &str {
        match self {
            Chart::Line(chart) => &chart.title,
            Chart::Bar(chart) => &chart.title,
        }
    }
}

/// An SVG document with the charts one below another.
pub fn svg(charts: &[Chart]) -> String {
    let drawn: Vec<(Canvas, f64)> = charts.iter().map(draw).collect();
    let height = drawn.iter().fold(0.0, |sum, (_, height)| sum + height);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>"
    );
    let mut top = 0.0;
    for (canvas, height) in drawn {
        let _ = writeln!(text, "<g transform=\"translate(0 {top})\">\n{}</g>", canvas.svg);
        top += height;
    }
    text.push_str("</svg>\n");
    text
}

/// Draws a chart, and returns its height: [`HEIGHT`], unless labels need more.
fn draw(chart: &Chart) -> (Canvas, f64) {
    let mut canvas = Canvas::default();
    match chart {
        Chart::Line(chart) => draw_lines(&mut canvas, chart),
        Chart::Bar(chart) => draw_bars(&mut canvas, chart),
    }
    let lowest = canvas.places.iter().map(|place| place.bottom).fold(0.0, f64::max);
    (canvas, HEIGHT.max((lowest + 8.0).ceil()))
}

fn draw_lines(canvas: &mut Canvas, chart: &LineChart) {
    let all = |line: &Line| [&line.points[..], &line.marks.points].concat();
    let all: Vec<(f64, f64)> = chart.lines.iter().flat_map(all).filter(is_drawn).collect();
    let points = || all.iter();
    let x = Range::of(chart.x.scale, points().map(|point| point.0));
    let y = Range::of(chart.y.scale, points().map(|point| point.1));
    frame(canvas, &chart.title, &chart.y.title, &y);
    label_ticks(canvas, &x);
    below(canvas, &chart.x.title, TOP + PLOT_HEIGHT + 42.0);
    let mut names = Legend::default();
    for (i, line) in chart.lines.iter().enumerate() {
        let (colour, dash) = look(i);
        let place = |point| place((&x, &y), point);
        let drawn: Vec<(f64, f64)> = line.points.iter().filter_map(place).collect();
        let last = drawn.len().saturating_sub(1);
        let step = drawn.len().div_ceil(MOST_POINTS).max(1);
        let kept = (0..drawn.len()).filter(|at| at.is_multiple_of(step) || *at == last);
        let places: Vec<(f64, f64)> = kept.map(|at| drawn[at]).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        canvas.add(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            path.join(" ")
        ));
        // Circles around this many points would hide the line.
        for (x, y) in places.iter().filter(|_| places.len() <= MOST_CIRCLES) {
            canvas.add(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            ));
        }
        names.add(canvas, &line.name, Sample::Line(colour, dash));
    }
    mark_lines(canvas, chart, (&x, &y), &mut names);
}

/// The position of a point. `None` if it is not a number or has no place on an axis.
fn place((x, y): (&Range, &Range), point: &(f64, f64)) -> Option<(f64, f64)> {
    let (right, up) = (x.at(point.0), y.at(point.1));
    let is_placed = right.is_finite() && up.is_finite();
    is_placed.then_some((LEFT + right * PLOT_WIDTH, TOP + PLOT_HEIGHT - up * PLOT_HEIGHT))
}

/// Draws the labels that fit, from the left.
fn label_ticks(canvas: &mut Canvas, range: &Range) {
    let style = Style { anchor: Anchor::Middle, ..TEXT };
    let (bottom, mut free) = (TOP + PLOT_HEIGHT, f64::NEG_INFINITY);
    for (position, label) in range.labels() {
        let at = LEFT + position * PLOT_WIDTH;
        canvas.add(format_args!("<path d=\"M{at:.1} {bottom:.1}v5\" stroke=\"#444\"/>"));
        let place = Canvas::place(&label, at, bottom + 18.0, style);
        if place.left >= free {
            free = place.right + 6.0;
            canvas.text(&label, at, bottom + 18.0, style);
        }
    }
}

fn mark_lines(
    canvas: &mut Canvas,
    chart: &LineChart,
    (x, y): (&Range, &Range),
    names: &mut Legend,
) {
    let marks = || chart.lines.iter().map(|line| &line.marks);
    for (i, Marks { name, points }) in marks().enumerate() {
        for point in points {
            let Some((middle, at)) = place((x, y), point) else { continue };
            // A mark that extended beyond the ends of the axis would touch labels or the legend.
            let left = (middle - MARK_WIDTH / 2.0).clamp(LEFT, LEFT + PLOT_WIDTH - MARK_WIDTH);
            mark(canvas, (left, at, MARK_WIDTH), look(i).0, name, point.1);
        }
    }
    if let Some(first) = marks().find(|marks| marks.points.iter().any(is_drawn)) {
        names.add(canvas, &first.name, Sample::Line(MARK, ""));
    }
}

/// Draws a stroke of this width that begins at these coordinates. Its edges have the colour of its
/// line or of the background, because without edges it would not be visible on a bar of a similar
/// colour.
fn mark(
    canvas: &mut Canvas,
    (left, at, width): (f64, f64, f64),
    edges: &str,
    name: &str,
    value: f64,
) {
    let name = escape(name);
    canvas.add(format_args!(
        "<path d=\"M{left:.1} {at:.1}h{width:.1}\" stroke=\"{edges}\" stroke-width=\"7\"/>\
         <path d=\"M{left:.1} {at:.1}h{width:.1}\" stroke=\"{MARK}\" stroke-width=\"3\">\
         <title>{name}: {value}</title></path>"
    ));
}

fn draw_bars(canvas: &mut Canvas, chart: &BarChart) {
    let values = chart.bars.iter().flat_map(|bars| bars.values.iter().chain(&bars.marks).copied());
    let y = Range::of(chart.y.scale, values);
    frame(canvas, &chart.title, &chart.y.title, &y);
    let lowest = label_categories(canvas, &chart.categories);
    below(canvas, &chart.x, lowest + 24.0);
    let group = PLOT_WIDTH / chart.categories.len().max(1) as f64;
    let bar = group * 0.8 / chart.bars.len().max(1) as f64;
    let base = y.base();
    for at in 0..chart.categories.len() {
        for (i, bars) in chart.bars.iter().enumerate() {
            let left = LEFT + group * at as f64 + group * 0.1 + bar * i as f64;
            let is_placed = |value: &f64| y.at(*value).is_finite();
            let number = |values: &Vec<f64>| values.get(at).copied().filter(is_placed);
            if let Some(value) = number(&bars.values) {
                let (from, to) = (base.min(y.at(value)), base.max(y.at(value)));
                canvas.add(format_args!(
                    "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" \
                     {}><title>{}: {value}</title></rect>",
                    TOP + PLOT_HEIGHT * (1.0 - to),
                    PLOT_HEIGHT * (to - from),
                    paint_of_bar(i),
                    escape(&bars.name)
                ));
            }
            if let Some(value) = number(&bars.marks) {
                let at = TOP + PLOT_HEIGHT * (1.0 - y.at(value));
                mark(canvas, (left, at, bar), GROUND, &chart.marks, value);
            }
        }
    }
    let mut names = Legend::default();
    for (i, bars) in chart.bars.iter().enumerate() {
        names.add(canvas, &bars.name, Sample::Bar(i));
    }
    if chart.bars.iter().flat_map(|bars| &bars.marks).any(|mark| mark.is_finite()) {
        names.add(canvas, &chart.marks, Sample::Line(MARK, ""));
    }
}

/// Draws the names of groups below them: in lines if they are no wider than a group, otherwise
/// slanted. Returns where the last line is.
fn label_categories(canvas: &mut Canvas, categories: &[String]) -> f64 {
    let group = PLOT_WIDTH / categories.len().max(1) as f64;
    let (style, top) = (Style { anchor: Anchor::Middle, ..TEXT }, TOP + PLOT_HEIGHT + 18.0);
    let fits = |name: &String| {
        let widest = words(name).split(' ').map(|word| text_width(word, SIZE)).fold(0.0, f64::max);
        widest <= group - 6.0
    };
    if !categories.iter().all(fits) {
        return label_aslant(canvas, categories, group);
    }
    let mut lowest = top;
    for (at, category) in categories.iter().enumerate() {
        let x = LEFT + group * (at as f64 + 0.5);
        let is_one = text_width(category, SIZE) <= group - 6.0;
        let lines = if is_one { vec![category.clone()] } else { joined(&words(category), group) };
        for (line, y) in lines.iter().zip(0..) {
            let y = top + f64::from(y) * 14.0;
            canvas.text(line, x, y, style);
            lowest = y.max(lowest);
        }
    }
    lowest
}

/// Replaces a space between a number and its unit, so that no line ends there.
const BETWEEN: &str = "\u{1}";

/// Splits a name into words between which a line may end: a hyphen ends a word, and a unit does not
/// begin one.
fn words(name: &str) -> String {
    let mut words = String::new();
    for word in name.replace('-', "- ").split_whitespace() {
        let is_number = words.ends_with(|last: char| last.is_ascii_digit());
        let is_unit = word.len() <= 3 && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let before = if words.is_empty() { "" } else { " " };
        words.push_str(if is_number && is_unit { BETWEEN } else { before });
        words.push_str(word);
    }
    words
}

/// Breaks the result of [`words`] into lines.
fn joined(words: &str, group: f64) -> Vec<String> {
    let lines = wrap(words, group - 6.0, SIZE);
    lines.into_iter().map(|line| line.replace("- ", "-").replace(BETWEEN, " ")).collect()
}

/// Draws names that rise to the right, each with its end below the middle of its group. Leaves out
/// every second name, or more, if they would touch. Returns where the lowest begins.
fn label_aslant(canvas: &mut Canvas, categories: &[String], group: f64) -> f64 {
    // The distance of lines at this angle is the distance of groups times the sine of the angle.
    let sine = SLANT.to_radians().sin();
    let step = (LINE_HEIGHT / (group * sine)).ceil().max(1.0) as usize;
    let top = TOP + PLOT_HEIGHT + 14.0;
    let mut lowest = top;
    for (at, category) in categories.iter().enumerate().step_by(step) {
        let x = LEFT + group * (at as f64 + 0.5);
        // There is no room to the left of the drawing.
        let room = ((x - 30.0) / SLANT.to_radians().cos()).min(LONGEST_SLANTED);
        let name = shorten(category, room, SIZE);
        canvas.add(format_args!(
            "<text transform=\"translate({x:.1} {top:.1}) rotate(-{SLANT})\" \
             text-anchor=\"end\" font-size=\"{SIZE}\">{}</text>",
            escape(&name)
        ));
        lowest = (top + text_width(&name, SIZE) * sine + 6.0).max(lowest);
    }
    lowest
}

/// Draws the title of the horizontal axis.
fn below(canvas: &mut Canvas, title: &str, y: f64) {
    let middle = LEFT + PLOT_WIDTH / 2.0;
    // The legend on the right may extend down to the title.
    let title = shorten(title, PLOT_WIDTH + 40.0, SIZE);
    canvas.text(&title, middle, y, Style { anchor: Anchor::Middle, ..TEXT });
}

/// Draws the title, the title of the vertical axis, and the horizontal lines with their labels.
fn frame(canvas: &mut Canvas, title: &str, y: &str, range: &Range) {
    let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
    let middle = TOP + PLOT_HEIGHT / 2.0;
    let mut lines = wrap(title, (WIDTH - LEFT - 8.0) / 1.1, TITLE.size);
    if lines.len() > 2 {
        let rest = lines.split_off(1).join(" ");
        lines.push(shorten(&rest, (WIDTH - LEFT - 8.0) / 1.1, TITLE.size));
    }
    let first = if lines.len() > 1 { 16.0 } else { 24.0 };
    for (line, at) in lines.iter().zip(0..) {
        canvas.text(line, LEFT, first + 17.0 * f64::from(at), TITLE);
    }
    canvas.add(format_args!(
        "<text transform=\"translate(18 {middle:.1}) rotate(-90)\" \
         text-anchor=\"middle\">{}</text>",
        escape(&shorten(y, 2.0 * (middle - 8.0), SIZE))
    ));
    let mut free = f64::INFINITY;
    for (position, label) in range.labels() {
        let at = bottom - position * PLOT_HEIGHT;
        canvas.add(format_args!("<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>"));
        let label = shorten(&label, LEFT - 8.0 - Y_TITLE, SIZE);
        let style = Style { anchor: Anchor::End, ..TEXT };
        let place = Canvas::place(&label, LEFT - 8.0, at + 4.0, style);
        if place.bottom <= free {
            free = place.top;
            canvas.text(&label, LEFT - 8.0, at + 4.0, style);
        }
    }
    canvas.add(format_args!(
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#444\"/>"
    ));
}

/// How the plot shows a series that the legend names.
enum Sample {
    /// Colour and dash.
    Line(&'static str, &'static str),
    /// The bars at this position in each group.
    Bar(usize),
}

/// Names of colours, one below another.
struct Legend {
    y: f64,
}

impl Default for Legend {
    fn default() -> Legend {
        Legend { y: TOP + 8.0 }
    }
}

impl Legend {
    fn add(&mut self, canvas: &mut Canvas, name: &str, sample: Sample) {
        let (x, y) = (LEFT + PLOT_WIDTH + 16.0, self.y);
        match sample {
            Sample::Line(colour, dash) => canvas.add(format_args!(
                "<path d=\"M{x} {y}h20\" stroke=\"{colour}\" stroke-width=\"3\"{dash}/>"
            )),
            Sample::Bar(at) => canvas.add(format_args!(
                "<rect x=\"{x}\" y=\"{}\" width=\"20\" height=\"10\" {}/>",
                y - 5.0,
                paint_of_bar(at)
            )),
        }
        let lines = wrap(name, WIDTH - x - 26.0 - 6.0, SIZE);
        for (line, at) in lines.iter().zip(0..) {
            canvas.text(line, x + 26.0, y + 4.0 + 14.0 * f64::from(at), TEXT);
        }
        self.y += 14.0 * lines.len().saturating_sub(1) as f64 + 18.0;
    }
}

fn look(index: usize) -> (&'static str, &'static str) {
    (COLOURS[index % COLOURS.len()], DASHES[index / COLOURS.len() % DASHES.len()])
}

/// If a colour is repeated, the bars are pale, with the edge that a line of the series would have.
fn paint_of_bar(index: usize) -> String {
    match look(index) {
        (colour, "") => format!("fill=\"{colour}\""),
        (colour, dash) => {
            format!("fill=\"{colour}\" fill-opacity=\"0.25\" stroke=\"{colour}\"{dash}")
        }
    }
}

fn is_drawn(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canvas::Place;
    use crate::canvas::tests::{assert_apart, meet};

    fn lines() -> LineChart {
        let line = |name: &str, factor: f64| Line {
            name: name.into(),
            points: (26..44).map(|i| (f64::from(i).exp2(), factor * f64::from(i))).collect(),
            marks: Marks::default(),
        };
        LineChart {
            title: "a < b & c".into(),
            x: Axis::bytes("data written"),
            y: Axis::linear("bytes written per byte"),
            lines: vec![line("one", 1.0), line("two", 0.5)],
        }
    }

    #[test]
    fn a_line_chart_is_whole_and_the_same_each_time() {
        let text = svg(&[Chart::Line(lines()), Chart::Line(lines())]);
        assert_eq!(text, svg(&[Chart::Line(lines()), Chart::Line(lines())]));
        for name in ["svg", "text", "g "] {
            let closing = name.trim();
            let opened = text.matches(&format!("<{name}")).count();
            assert_eq!(opened, text.matches(&format!("</{closing}>")).count(), "{name}");
        }
        assert_eq!(text.matches("<polyline").count(), 4);
        assert_eq!(text.matches("<circle").count(), 72);
        for shown in
            ["a &lt; b &amp; c", "data written", "bytes written per byte", ">one<", ">4 TiB<"]
        {
            assert!(text.contains(shown), "{shown}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn no_two_series_look_alike() {
        let count = COLOURS.len() * DASHES.len();
        let paints: std::collections::BTreeSet<String> = (0..count).map(paint_of_bar).collect();
        assert_eq!(paints.len(), count);
    }

    /// The ninth series has the colour of the first.
    #[test]
    fn nine_series_differ_in_the_plot_and_look_the_same_in_the_legend() {
        let names: Vec<String> = (1..=9).map(|at| format!("series {at}")).collect();
        let line = |name: &String| Line {
            name: name.clone(),
            points: vec![(1.0, 1.0), (2.0, 2.0)],
            marks: Marks::default(),
        };
        let bars =
            |name: &String| Bars { name: name.clone(), values: vec![1.0], marks: Vec::new() };
        let lines = names.iter().map(line).collect();
        let lines = svg(&[Chart::Line(LineChart { lines, ..LineChart::default() })]);
        let (categories, bars) = (vec!["one".into()], names.iter().map(bars).collect());
        let bars = svg(&[Chart::Bar(BarChart { categories, bars, ..BarChart::default() })]);
        let looks = |svg: &str, part: &str, attributes: &[&str]| -> Vec<Vec<String>> {
            let of = |line: &str| attributes.iter().map(|name| text_of(line, name)).collect();
            svg.lines().filter(|line| line.contains(part)).map(of).collect()
        };
        let stroke = ["stroke", "stroke-dasharray"];
        let paint = ["fill", "fill-opacity", "stroke", "stroke-dasharray"];
        let shown = [
            (looks(&lines, "<polyline", &stroke), looks(&lines, "M576 ", &stroke)),
            (looks(&bars, "<title>", &paint), looks(&bars, "x=\"576\"", &paint)),
        ];
        for (mut plot, legend) in shown {
            assert_eq!((plot.len(), &plot), (9, &legend));
            plot.sort();
            plot.dedup();
            assert_eq!(plot.len(), 9);
        }
    }

    #[test]
    fn bars_on_a_doubling_axis_stand_on_one() {
        let values = vec![0.5, 2.0, 0.0];
        let chart = BarChart {
            y: Axis::doubling("times"),
            categories: ["a", "b", "c"].map(String::from).to_vec(),
            bars: vec![Bars { name: "n".into(), values, marks: vec![f64::NAN, 0.5] }],
            ..BarChart::default()
        };
        let text = svg(&[Chart::Bar(chart)]);
        let half = PLOT_HEIGHT / 2.0;
        for top in [TOP + half, TOP] {
            let bar = format!("y=\"{top:.1}\" width=\"128.0\" height=\"{half:.1}\"");
            assert!(text.contains(&bar), "{bar}: {text}");
        }
        assert_eq!(text.matches("<title>n: ").count(), 2, "0 has no place: {text}");
        let marks = text.matches(&format!("stroke=\"{MARK}\"")).count();
        assert_eq!(marks, 2, "one of them in the legend: {text}");
        let points = vec![(0.0, 1.0), (1.0, 1.0), (4.0, 2.0)];
        let lines = vec![Line { name: "n".into(), points, ..Line::default() }];
        let x = Axis::doubling("us");
        let text = svg(&[Chart::Line(LineChart { x, lines, ..LineChart::default() })]);
        assert!(!text.contains("NaN") && text.matches("<circle").count() == 2, "{text}");
    }

    /// The quoted value of an attribute. Empty if the line does not have the attribute.
    fn text_of(line: &str, attribute: &str) -> String {
        let value = line.split_once(&format!(" {attribute}=\"")).map(|(_, rest)| rest);
        value.and_then(|rest| rest.split('"').next()).unwrap_or_default().into()
    }

    fn number_of(line: &str, attribute: &str) -> f64 {
        text_of(line, attribute).parse().unwrap_or(f64::NAN)
    }

    /// The place of the text or mark in a line of a chart's SVG.
    fn place_of(line: &str) -> Option<Place> {
        if line.starts_with("<text ") {
            let end = line.find("</text>").expect("texts end on their line");
            let text = &line[line.find('>').expect("a tag") + 1..end];
            let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
            if let Some(turned) = line.split_once("rotate(-90)").map(|_| text_of(line, "transform"))
            {
                let (x, y) =
                    turned.strip_prefix("translate(")?.split_once(')')?.0.split_once(' ')?;
                let (x, y): (f64, f64) = (x.parse().ok()?, y.parse().ok()?);
                let half = text_width(&text, SIZE) / 2.0;
                let (left, right) = (x - SIZE * 0.8, x + SIZE * 0.25);
                return Some(Place { text, left, right, top: y - half, bottom: y + half });
            }
            let anchor = match &text_of(line, "text-anchor")[..] {
                "middle" => Anchor::Middle,
                "end" => Anchor::End,
                _ => Anchor::Start,
            };
            let is_bold = line.contains("font-weight");
            let style = Style { anchor, size: number_of(line, "font-size"), is_bold, ..TEXT };
            return Some(Canvas::place(&text, number_of(line, "x"), number_of(line, "y"), style));
        }
        let mark = line.strip_prefix("<path d=\"M").filter(|_| line.contains(MARK))?;
        let (x, rest) = mark.split_once(' ')?;
        let (y, width) = rest.split_once('"')?.0.split_once('h')?;
        let [left, y, width] = [x, y, width].map(|number| number.parse().unwrap_or(f64::NAN));
        let text = "a mark".into();
        Some(Place { text, left, right: left + width, top: y - 1.5, bottom: y + 1.5 })
    }

    /// Checks the figures of the papers' pages. Marks may touch each other, but not a label or the
    /// legend.
    #[test]
    fn labels_of_the_papers_figures_lie_apart() {
        let figures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers/figures");
        let mut count = 0;
        for entry in std::fs::read_dir(figures).expect("a directory of the repository") {
            let path = entry.expect("readable").path();
            let svg = std::fs::read_to_string(&path).expect("readable");
            let places: Vec<Place> = svg.lines().filter_map(place_of).collect();
            let (marks, texts): (Vec<Place>, Vec<Place>) =
                places.into_iter().partition(|place| place.text == "a mark");
            assert!(texts.len() > 5, "{path:?}");
            let box_of = text_of(&svg, "viewBox");
            let sides: Vec<f64> = box_of.split(' ').filter_map(|side| side.parse().ok()).collect();
            println!("{}", path.display());
            assert_apart(&texts, sides[2], sides[3]);
            for mark in marks.iter().filter(|mark| mark.left < LEFT + PLOT_WIDTH) {
                assert!(mark.right <= LEFT + PLOT_WIDTH + 0.1, "{path:?}: {mark:?}");
                assert!(!texts.iter().any(|text| meet(mark, text)), "{path:?}: {mark:?}");
            }
            count += 1;
        }
        assert!(count > 50, "{count}");
    }

    #[test]
    fn bars_stand_on_zero_and_reach_their_values() {
        let chart = BarChart {
            title: "bars".into(),
            x: "policy".into(),
            y: Axis::linear("tables"),
            categories: vec!["a".into(), "b".into()],
            bars: vec![Bars { name: "n".into(), values: vec![10.0, f64::NAN], marks: vec![5.0] }],
            marks: "the paper".into(),
        };
        let text = svg(&[Chart::Bar(chart)]);
        let whole = format!("y=\"{TOP:.1}\" width=\"192.0\" height=\"{PLOT_HEIGHT:.1}\"");
        assert!(text.contains(&whole), "the largest value takes the whole height: {text}");
        // These are the bar, the background and the legend.
        assert_eq!(text.matches("<rect").count(), 3, "what is no number draws no bar");
        let middle = format!("<path d=\"M104.0 {:.1}h192.0\"", TOP + PLOT_HEIGHT / 2.0);
        assert!(text.contains(&middle) && text.contains(">the paper</text>"), "{text}");
    }

    #[test]
    fn marks_of_lines_count_for_the_axes_and_stand_in_the_legend() {
        let marks = Marks { name: "the paper".into(), points: vec![(2.0, 20.0), (1.0, f64::NAN)] };
        let points = vec![(0.0, 10.0), (4.0, 10.0)];
        let lines = vec![Line { name: "here".into(), points, marks }];
        let text = svg(&[Chart::Line(LineChart { lines, ..LineChart::default() })]);
        let middle = LEFT + PLOT_WIDTH / 2.0 - MARK_WIDTH / 2.0;
        assert!(text.contains(&format!("<path d=\"M{middle:.1} {TOP:.1}h18.0\"")), "{text}");
        assert_eq!(text.matches(">the paper: ").count(), 1, "what is no number draws no mark");
        assert!(text.contains(">the paper</text>"));
    }

    #[test]
    fn a_line_of_very_many_points_is_thinned() {
        let points = (0..1001).map(|at| (f64::from(at), 1.0)).collect();
        let lines = vec![Line { name: "many".into(), points, ..Line::default() }];
        let text = svg(&[Chart::Line(LineChart { lines, ..LineChart::default() })]);
        assert!(!text.contains("<circle"));
        let drawn = text.lines().find(|line| line.starts_with("<polyline")).expect("a line");
        let places = drawn.matches(',').count();
        assert!((200..=MOST_POINTS + 1).contains(&places), "{places}");
    }

    /// Long names of lines once extended beyond the drawing, and names of groups and large numbers
    /// overlapped their neighbours.
    #[test]
    fn labels_lie_apart() {
        let long = "a name of several words, and_one_that_cannot_be_broken_anywhere_at_all";
        let line = |name: &str, scale: f64| Line {
            name: name.into(),
            points: vec![(0.0, 0.0), (scale, scale), (scale * 1.001, scale * 0.999)],
            marks: Marks { name: long.into(), points: vec![(scale, scale)] },
        };
        let mut charts = Vec::new();
        for scale in [1e-7, 0.003, 1.0, 123.0, 1e6, 123_456_789.0, 1e15] {
            for axis in [Axis::linear, Axis::bytes] {
                charts.push(Chart::Line(LineChart {
                    title: long.repeat(4),
                    x: axis(long.repeat(3)),
                    y: axis(long.repeat(3)),
                    lines: (0..14).map(|_| line(long, scale)).collect(),
                }));
            }
        }
        for (count, name) in
            [(1, long), (3, "lazy-leveling"), (6, "fragmented-leveling"), (6, "10 GiB"), (70, "x")]
        {
            let bars = |name: &str| Bars {
                name: name.into(),
                values: vec![1e9; count],
                marks: vec![2e9; count],
            };
            charts.push(Chart::Bar(BarChart {
                title: "bars".into(),
                x: long.into(),
                y: Axis::linear("tables"),
                categories: vec![name.to_string(); count],
                bars: vec![bars("one"), bars(long)],
                marks: long.into(),
            }));
        }
        for chart in &charts {
            let (canvas, height) = draw(chart);
            assert_apart(&canvas.places, WIDTH, height);
            // The title of the vertical axis has a column of its own.
            let left = canvas.places.iter().map(|place| place.left).fold(f64::INFINITY, f64::min);
            assert!(left >= Y_TITLE || matches!(chart, Chart::Bar(_)), "{left}");
            assert!(height >= HEIGHT);
        }
    }

    #[test]
    fn names_of_groups_are_broken_or_turned() {
        let drawn = |count: usize, name: &str| {
            let mut canvas = Canvas::default();
            let lowest = label_categories(&mut canvas, &vec![name.to_string(); count]);
            (canvas.svg, lowest)
        };
        let (flat, first) = drawn(3, "tiering");
        assert_eq!((flat.matches("rotate").count(), flat.matches(">tiering<").count()), (0, 3));
        let (broken, second) = drawn(5, "fragmented-leveling");
        assert_eq!(broken.matches(">fragmented-<").count(), 5, "{broken}");
        let (turned, third) = drawn(9, "fragmented-leveling");
        assert_eq!(turned.matches("rotate(-35)").count(), 9);
        assert!(first < second && second < third);
        let (units, _) = drawn(6, "fillseq 100 KiB");
        assert_eq!(units.matches(">100 KiB<").count(), 6, "{units}");
        assert!(drawn(200, "leveling").0.matches("rotate").count() < 40, "some are left out");
    }

    #[test]
    fn nothing_to_draw_is_still_a_chart() {
        let text = svg(&[Chart::Line(LineChart::default()), Chart::Bar(BarChart::default())]);
        assert!(text.ends_with("</svg>\n") && !text.contains("NaN"), "{text}");
        assert!(svg(&[]).contains("viewBox=\"0 0 760 0\""));
    }
}
