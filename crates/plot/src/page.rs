//! Pages and files with drawings. A page contains a wide drawing and a narrow one, and its style
//! sheet shows one of them. A file contains one drawing whose text is legible at 390 pixels and at
//! twice that width: when another page embeds the file as an image, two drawings would get the same
//! height.

use crate::canvas::escape;
use crate::picture::Picture;

/// Widths in pixels.
const WIDE: f64 = 960.0;
const NARROW: f64 = 360.0;
const FILE: f64 = 480.0;

/// Colours of elements that have none of their own, in light and in dark mode.
pub const STYLE: &str = "\
.ground{fill:#fff}.text{fill:#222}.faint{fill:#595959}.grid{stroke:#ddd;fill:none}\
.empty{fill:#e9e9e9}\
.bar{stroke:#fff;stroke-width:.6}.mark{stroke:#222;stroke-width:1.2}
@media (prefers-color-scheme:dark){.ground{fill:#16181c}.text{fill:#e6e6e6}.faint{fill:#aaa}\
.grid{stroke:#3a3d44}.empty{fill:#33363d}\
.bar{stroke:#16181c}.mark{stroke:#fff}}
";

/// An SVG document.
pub fn svg(picture: &dyn Picture) -> String {
    let drawn = picture.draw(FILE).svg;
    let (root, rest) = drawn.split_once('\n').unwrap_or((&drawn, ""));
    format!("{root}\n<style>{STYLE}:root{{max-width:100%;height:auto}}</style>\n{rest}")
}

/// Both drawings for a page that has [`STYLE`] and [`PAGE_STYLE`].
pub fn inline(picture: &dyn Picture) -> String {
    let (wide, narrow) = (picture.draw(WIDE).svg, picture.draw(NARROW).svg);
    format!("<div class=\"wide\">{wide}</div>\n<div class=\"narrow\">{narrow}</div>\n")
}

/// The style that a page adds to [`STYLE`]: drawings are as wide as the window, with text around
/// them.
pub const PAGE_STYLE: &str = "\
body{font-family:sans-serif;margin:0 auto;padding:8px;max-width:1100px;line-height:1.4;\
background:#fff;color:#222;overflow-wrap:break-word}svg{width:100%;height:auto;display:block}\
table{border-collapse:collapse}td,th{padding:2px 12px 2px 0;text-align:left;vertical-align:top}
.narrow{display:none;max-width:520px}
@media (max-width:759px){.wide{display:none}.narrow{display:block}}
@media (prefers-color-scheme:dark){body{background:#16181c;color:#e6e6e6}}
";

/// A page that needs no other file; `below` is markup.
pub fn html(picture: &dyn Picture, below: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>{STYLE}{PAGE_STYLE}</style></head>\n<body>\n{}{below}\
         </body></html>\n",
        escape(picture.title()),
        inline(picture)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    #[test]
    fn each_window_has_its_drawing() {
        let rows = Rows { title: "a <b>".into(), ..Rows::default() };
        let drawn = svg(&rows);
        assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "{drawn}");
        assert!(drawn.contains("<style>") && drawn.matches("<svg").count() == 1, "{drawn}");
        let page = html(&rows, "<p>below</p>");
        assert!(page.contains("<title>a &lt;b&gt;</title>") && page.contains("name=\"viewport\""));
        assert!(page.contains("class=\"wide\"") && page.contains("class=\"narrow\""));
        for text in [drawn, page] {
            assert!(text.contains("prefers-color-scheme:dark"));
        }
    }
}
