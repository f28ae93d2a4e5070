//! What can be drawn for any width of a window, and what a drawing is.

/// A colour and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// As SVG writes colours.
    pub fill: &'static str,
    /// In the legend.
    pub name: &'static str,
}

/// A drawing, and how large it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// An `svg` element, whose colours are defined by `page::STYLE`.
    pub svg: String,
    /// In pixels.
    pub width: f64,
    /// In pixels.
    pub height: f64,
}

/// What can be drawn for any width.
pub trait Picture {
    /// What it is.
    fn title(&self) -> &str;
    /// Draws for a width in pixels, 300 at least. Text has the same size in each.
    fn draw(&self, width: f64) -> Drawn;
}
