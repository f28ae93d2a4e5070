//! Pictures of a KVSSD: its key-range tree level by level, and the flash block by block.

use std::fmt::Write as _;

use runstone_device::KvSsdStore;
use runstone_flash::kvssd::BlockReport;
use runstone_flash::nand::PageType;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::opened::Drawing;

const MAP_COLUMNS: usize = 64;
const CELL: usize = 10;
const LEVEL_COLORS: [&str; 6] = ["#b2182b", "#ef8a62", "#fddbc7", "#a6cee3", "#67a9cf", "#2166ac"];

/// What is drawn.
pub struct Map {
    levels: Vec<Value>,
    blocks: Vec<BlockReport>,
    block_pages: u32,
}

impl Map {
    pub fn of(store: &KvSsdStore) -> Map {
        let device = store.device();
        let geometry = device.nand().geometry();
        let shape = device.tree().shape();
        let levels = shape.levels.iter().enumerate().map(|(at, level)| {
            let ids: Vec<u64> = level.tables().map(|table| table.id).collect();
            let nodes = || ids.iter().filter_map(|id| device.tree().node(*id));
            let pages: u32 = nodes().map(|node| node.charged_pages).sum();
            let remapped = nodes().filter(|node| node.counter > 1).count();
            json!({ "level": at, "runs": level.runs().len(), "tables": ids.len(), "pages": pages,
                "remapped": remapped })
        });
        Map {
            levels: levels.collect(),
            blocks: (0..geometry.block_count).map(|block| device.block(block)).collect(),
            block_pages: geometry.block_pages,
        }
    }
}

impl Drawing for Map {
    fn svg(&self) -> String {
        picture(&self.blocks, self.block_pages)
    }

    fn html(&self) -> Result<String> {
        let what = "the map of a KVSSD is no page";
        Err(Failure::usage(what, "pass --svg").at("--html"))
    }

    fn to_json(&self) -> Value {
        let letters: String = self.blocks.iter().map(letter).collect();
        json!({ "levels": self.levels, "flash": letters })
    }

    /// As wide as the map is.
    fn to_text(&self, _columns: usize) -> String {
        draw(self)
    }
}

/// One letter for a block: the deepest level of its tables, or what else it holds.
fn letter(block: &BlockReport) -> char {
    match (block.is_retired, block.page_type) {
        (true, _) => 'x',
        (false, None) => '.',
        (false, Some(PageType::Kv)) => {
            let level = block.level.and_then(|level| char::from_digit(u32::from(level), 36));
            level.unwrap_or('-')
        }
        (false, Some(PageType::Meta)) => 'M',
        (false, Some(PageType::Journal)) => 'J',
        (false, Some(PageType::Checkpoint)) => 'C',
        (false, Some(PageType::Log)) => 'W',
        (false, Some(PageType::Value)) => 'V',
        (false, Some(PageType::Host)) => '?',
    }
}

/// How many of its pages are needed, in eighths.
fn fill(block: &BlockReport, block_pages: u32) -> char {
    const FILLS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    FILLS[(block.live_pages * 8).div_ceil(block_pages.max(1)).min(8) as usize]
}

fn draw(map: &Map) -> String {
    let Map { levels, blocks, block_pages } = map;
    let mut text = String::new();
    let most = levels.iter().filter_map(|level| level["pages"].as_u64()).max().unwrap_or(1).max(1);
    for level in levels {
        let pages = level["pages"].as_u64().unwrap_or(0);
        let bar = "█".repeat((pages * 40).div_ceil(most) as usize);
        let (at, runs, tables) = (&level["level"], &level["runs"], &level["tables"]);
        let remapped = &level["remapped"];
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "L{at} {runs:>3} runs {tables:>5} tables {pages:>7} pages {remapped:>5} remapped  {bar}"
        );
    }
    text.push_str(
        "\nflash: a digit is the deepest level of a block's tables, below how full it is\n",
    );
    for row in blocks.chunks(MAP_COLUMNS) {
        let letters: String = row.iter().map(letter).collect();
        let fills: String = row.iter().map(|block| fill(block, *block_pages)).collect();
        let _ = writeln!(text, "  {letters}\n  {fills}");
    }
    text.push_str("M metadata  J journal  C checkpoint  W log  V values  . free  x bad\n");
    text
}

fn color(block: &BlockReport) -> &'static str {
    match (block.is_retired, block.page_type) {
        (true, _) => "#000000",
        (false, None) => "#ffffff",
        (false, Some(PageType::Kv)) => {
            let level = usize::from(block.level.unwrap_or(0));
            LEVEL_COLORS[level.min(LEVEL_COLORS.len() - 1)]
        }
        (false, Some(PageType::Meta)) => "#4daf4a",
        (false, Some(PageType::Value)) => "#a65628",
        (false, Some(_)) => "#984ea3",
    }
}

/// A square for each block, filled from below as far as its pages are needed.
fn picture(blocks: &[BlockReport], block_pages: u32) -> String {
    let rows = blocks.len().div_ceil(MAP_COLUMNS);
    let (width, height) = (MAP_COLUMNS * CELL, rows * CELL);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#eeeeee\"/>\n"
    );
    for (at, block) in blocks.iter().enumerate() {
        let (x, y) = (at % MAP_COLUMNS * CELL, at / MAP_COLUMNS * CELL);
        let inside = CELL - 1;
        let full = (block.live_pages as usize * inside).div_ceil(block_pages.max(1) as usize);
        let top = y + inside - full.min(inside);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{inside}\" height=\"{inside}\" fill=\"#ffffff\">\
             <title>block {at}: {} live pages, {} erases</title></rect>\
             <rect x=\"{x}\" y=\"{top}\" width=\"{inside}\" height=\"{full}\" fill=\"{}\"/>",
            block.live_pages,
            block.erase_count,
            color(block)
        );
    }
    svg.push_str("</svg>\n");
    svg
}
