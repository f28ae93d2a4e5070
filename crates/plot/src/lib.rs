//! Pictures as SVG, written by hand: charts of lines and bars, rows of bars on an axis of
//! keys, cells of a device. The same data gives the same text on every machine. Not a plotting
//! library: it has only the kinds of pictures that this project needs.

pub mod grid;
pub mod keys;
pub mod page;
pub mod picture;
pub mod rows;

mod axis;
mod canvas;
mod chart;

pub use axis::{Axis, Scale};
pub use canvas::{escape, format_size};
pub use chart::{BarChart, Bars, Chart, Line, LineChart, Marks, svg};
