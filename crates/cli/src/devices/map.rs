//! Pictures of a KVSSD: its key-range tree level by level, and the flash block by block.

use std::fmt::Write as _;

use runstone_device::KvSsdStore;
use runstone_flash::kvssd::BlockReport;
use runstone_flash::nand::PageType;
use runstone_plot::grid::{Cell, Grid};
use runstone_plot::page;
use runstone_plot::picture::Paint;
use serde_json::{Value, json};

use crate::layout::plural;
use crate::opened::{Caption, Drawing};

const MAP_COLUMNS: usize = 64;
/// Colours by the deepest level of a block's tables, and for other contents of blocks.
const PAINTS: [Paint; 10] = [
    Paint { fill: "#b2182b", name: "tables of L0" },
    Paint { fill: "#ef8a62", name: "tables down to L1" },
    Paint { fill: "#e8c07a", name: "L2" },
    Paint { fill: "#8fc1e3", name: "L3" },
    Paint { fill: "#4a90c2", name: "L4" },
    Paint { fill: "#2166ac", name: "L5 or deeper" },
    Paint { fill: "#4daf4a", name: "metadata" },
    Paint { fill: "#a65628", name: "values" },
    Paint { fill: "#984ea3", name: "journal, log, checkpoint" },
    Paint { fill: "#5c5c5c", name: "bad" },
];
const LEVELS: usize = 6;

/// The tables and blocks that are drawn.
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

    /// A cell for each block, filled from below in proportion to the pages that are needed.
    fn grid(&self, caption: &Caption) -> Grid {
        let cells = self.blocks.iter().enumerate().map(|(at, block)| {
            let (live, pages) = (block.live_pages, self.block_pages);
            let filled = f64::from(live) / f64::from(pages.max(1));
            let tip =
                format!("block {at}: {live} of {pages} pages live, {} erases", block.erase_count);
            // A bad block is not in use, but is drawn as full.
            let filled = if block.is_retired { 1.0 } else { filled };
            Cell { paint: paint(block), filled, tip }
        });
        let blocks = plural(self.blocks.len() as u64, "block");
        Grid {
            title: caption.store.clone(),
            notes: vec![
                caption.taken.clone(),
                format!("{blocks} of flash, each filled as far as its pages are live"),
            ],
            paints: PAINTS.to_vec(),
            cells: cells.collect(),
        }
    }
}

impl Drawing for Map {
    fn svg(&self, caption: &Caption) -> String {
        page::svg(&self.grid(caption))
    }

    fn html(&self, caption: &Caption) -> String {
        page::html(&self.grid(caption), "")
    }

    fn to_json(&self) -> Value {
        let letters: String = self.blocks.iter().map(letter).collect();
        json!({ "levels": self.levels, "flash": letters })
    }

    /// The text has the width of the map and ignores `_columns`.
    fn to_text(&self, _columns: usize) -> String {
        draw(self)
    }
}

/// One letter for a block: the deepest level of its tables, or its other contents.
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

/// How many pages of the block are live, in eighths.
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

fn paint(block: &BlockReport) -> Option<usize> {
    match (block.is_retired, block.page_type) {
        (true, _) => Some(LEVELS + 3),
        (false, None) => None,
        (false, Some(PageType::Kv)) => Some(usize::from(block.level.unwrap_or(0)).min(LEVELS - 1)),
        (false, Some(PageType::Meta)) => Some(LEVELS),
        (false, Some(PageType::Value)) => Some(LEVELS + 1),
        (false, Some(_)) => Some(LEVELS + 2),
    }
}
