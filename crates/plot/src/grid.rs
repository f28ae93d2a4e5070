//! Cells in lines, such as blocks of a device: each filled from the bottom in proportion to its
//! part in use. Drawn for a width, like `rows.rs`.

use crate::canvas::{Canvas, MARGIN, TITLE, escape, heading, legend};
use crate::picture::{Drawn, Paint, Picture};

const CELL: f64 = 11.0;
/// More cells in a line would be hard to count.
const MOST_COLUMNS: usize = 64;

/// Cells in lines.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// The text above everything.
    pub title: String,
    /// Texts below the title, each on lines of its own.
    pub notes: Vec<String>,
    /// In the order of the legend, which shows those that are used.
    pub paints: Vec<Paint>,
    /// From left to right and from top to bottom.
    pub cells: Vec<Cell>,
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Index into [`Grid::paints`]; `None` for a cell that is not in use.
    pub paint: Option<usize>,
    /// How much of it is filled, from 0 to 1.
    pub filled: f64,
    /// The text that is shown when the pointer is over it.
    pub tip: String,
}

impl Picture for Grid {
    fn title(&self) -> &str {
        &self.title
    }

    fn draw(&self, width: f64) -> Drawn {
        let mut canvas = Canvas::default();
        let top = heading(&mut canvas, (&self.title, TITLE), &self.notes, width);
        let used = self.cells.iter().filter_map(|cell| cell.paint);
        let top = legend(&mut canvas, used, &self.paints, width, top) + 10.0;
        let fitting = ((width - 2.0 * MARGIN) / CELL) as usize;
        let columns = fitting.clamp(1, MOST_COLUMNS);
        for (at, cell) in self.cells.iter().enumerate() {
            let x = MARGIN + (at % columns) as f64 * CELL;
            let y = top + (at / columns) as f64 * CELL;
            let inside = CELL - 1.0;
            let filled = inside * cell.filled.clamp(0.0, 1.0);
            canvas.add(format_args!(
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{inside}\" height=\"{inside}\" \
                 class=\"empty\"><title>{}</title></rect>",
                escape(&cell.tip)
            ));
            if let Some(paint) = cell.paint.and_then(|at| self.paints.get(at)) {
                canvas.add(format_args!(
                    "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{inside}\" height=\"{filled:.1}\" \
                     fill=\"{}\" pointer-events=\"none\"/>",
                    y + inside - filled,
                    paint.fill
                ));
            }
        }
        let lines = self.cells.len().div_ceil(columns);
        canvas.end(width, top + lines as f64 * CELL + MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_filled_from_below_and_their_colours_told() {
        let paint = |name| Paint { fill: "#123456", name };
        let cell = |paint, filled| Cell { paint, filled, tip: "block <1>".into() };
        let grid = Grid {
            title: "t".into(),
            notes: vec!["n".into()],
            paints: vec![paint("values"), paint("log")],
            cells: vec![cell(Some(0), 0.5), cell(None, 0.0), cell(Some(0), 2.0)],
        };
        let drawn = grid.draw(360.0);
        assert!(drawn.svg.contains(">values<") && !drawn.svg.contains(">log<"), "{}", drawn.svg);
        assert_eq!(drawn.svg.matches("height=\"5.0\"").count(), 1);
        assert_eq!(drawn.svg.matches("height=\"10.0\"").count(), 1, "no cell is more than full");
        assert_eq!(drawn.svg.matches("block &lt;1&gt;").count(), 3);
        let many = Grid { cells: vec![cell(None, 0.0); 128], ..Grid::default() };
        assert!(many.draw(360.0).height > many.draw(960.0).height);
    }
}
