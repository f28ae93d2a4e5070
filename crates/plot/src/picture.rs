//! The trait of pictures that can be drawn for any window width, and the type of a drawing.

/// A colour and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    /// The colour as SVG writes it.
    pub fill: &'static str,
    /// Its name in the legend.
    pub name: &'static str,
}

/// A drawing and its size.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// An `svg` element, whose colours are defined by `page::STYLE`.
    pub svg: String,
    /// In pixels.
    pub width: f64,
    /// In pixels.
    pub height: f64,
}

/// A picture that can be drawn for any width.
pub trait Picture {
    /// The title.
    fn title(&self) -> &str;
    /// Draws for a width in pixels, at least 300. Text has the same size at any width.
    fn draw(&self, width: f64) -> Drawn;
}
