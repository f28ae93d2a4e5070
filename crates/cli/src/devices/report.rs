//! Figures of a KVSSD: statistics, verification, tables and blocks one by one.

use runstone_device::KvSsdStore;
use runstone_flash::kvssd::{self, BlockReport, Cause, KvSsd};
use runstone_flash::nand::PageType;
use serde_json::{Value, json};

use crate::devices::layers::factor;
use crate::encoding::shown;
use crate::failure::Result;
use crate::opened::{Figures, Verified};
use crate::output::{columns, size};

/// Sizes, wear and counters.
pub fn figures(device: &KvSsd) -> Figures {
    Figures { text: to_text(device), json: to_json(device) }
}

fn programs(device: &KvSsd) -> impl Iterator<Item = (&'static str, u64)> {
    let programs = device.programs();
    Cause::ALL.iter().map(move |cause| (cause.name(), programs.by(*cause)))
}

fn to_json(device: &KvSsd) -> Value {
    let (nand, counters, ram) = (device.nand(), device.counters(), device.ram());
    let (layers, wear) = (device.write_amplification(), nand.wear());
    json!({
        "device": device.options().name(),
        "geometry": nand.geometry().to_string(),
        "timing": nand.timing().name,
        "tables": device.tree().nodes().count(),
        "live_pages": device.live_pages(),
        "limit_pages": device.limit_pages(),
        "values": device.options().values.name(),
        "value_pages": device.value_pages().0,
        "needed_value_pages": device.value_pages().1,
        "page_bytes": nand.geometry().page_bytes,
        "memtable_bytes": device.memtable_bytes().0,
        "ram_bytes": ram.total_bytes(),
        "erase_counts": { "min": wear.min, "max": wear.max, "sum": wear.sum },
        "retired_blocks": wear.retired_count,
        "programs": programs(device).map(|(name, count)| (name.to_string(), json!(count)))
            .collect::<serde_json::Map<String, Value>>(),
        "user_bytes": counters.user_bytes,
        "compaction_factor": factor(layers.compaction_milli()),
        "collection_factor": factor(layers.gc_milli()),
        "total_factor": factor(layers.total_milli()),
        "simulated_ns": nand.elapsed_ns(),
    })
}

fn to_text(device: &KvSsd) -> String {
    let (nand, ram, wear) = (device.nand(), device.ram(), device.nand().wear());
    let page_bytes = u64::from(nand.geometry().page_bytes);
    let mut text = format!(
        "{}: {}\n{} tables; {} of {} in use; memtable {}\n\
         RAM of a controller: tree {}, lists {}, counters {}\n\
         erases of a block: {} to {}, {} in all; {} blocks retired\n",
        device.options().name(),
        nand.geometry(),
        device.tree().nodes().count(),
        size(device.live_pages() * page_bytes),
        size(device.limit_pages() * page_bytes),
        size(device.memtable_bytes().0),
        size(ram.tree_bytes),
        size(ram.list_bytes),
        size(ram.counter_bytes),
        wear.min,
        wear.max,
        wear.sum,
        wear.retired_count
    );
    if let (used @ 1.., needed) = device.value_pages() {
        // If all values seem to be needed, they have not been counted since the device was opened.
        let needed = match needed < used {
            true => format!(", of which {} are needed", size(needed * page_bytes)),
            false => String::new(),
        };
        let (used, ram) = (size(used * page_bytes), size(ram.value_bytes));
        text.push_str(&format!("separated values: {used}{needed}; RAM {ram}\n"));
    }
    if device.counters().user_bytes > 0 {
        text.push_str(&format!("since opening: {}\n", device.write_amplification()));
    }
    for (name, count) in programs(device).filter(|(_, count)| *count > 0) {
        text.push_str(&format!("  {count:>9} pages programmed by {name}\n"));
    }
    text
}

/// The findings of a check of the whole device. Damage would have been an error.
pub fn verified(found: &kvssd::Verified) -> Verified {
    let json = json!({
        "clean": true, "tables": found.tables, "entries": found.entries,
        "pages": found.pages, "shared_pages": found.shared_pages,
        "records": found.records, "memtable_records": found.memtable_records,
        "tombstones": found.tombstones,
        "values": found.values, "value_pages": found.value_pages,
    });
    let text = format!(
        "{} tables, {} pages ({} shared), {} records{}{}: no damage\n",
        found.tables,
        found.pages,
        found.shared_pages,
        found.records,
        match found.memtable_records {
            0 => String::new(),
            waiting => format!(" and {waiting} in the memtable"),
        },
        match found.values {
            0 => String::new(),
            values => format!(", {values} separated values in {} pages", found.value_pages),
        }
    );
    Verified { is_clean: true, figures: Figures { text, json } }
}

/// Tables and blocks; with `has_entries` also the pages of each table.
pub fn dump(store: &KvSsdStore, has_entries: bool) -> Result<Figures> {
    let mut device = store.device();
    let nodes: Vec<_> = device.tree().nodes().cloned().collect();
    let mut tables = Vec::new();
    for node in &nodes {
        let entries = match has_entries {
            true => device.table(node.id).map_err(runstone_device::explained)?.entries,
            false => Vec::new(),
        };
        let pages: Vec<Value> = entries
            .iter()
            .map(|entry| {
                json!({
                    "page": entry.page, "pages": entry.page_count, "stratum": entry.stratum,
                    "charged": entry.is_charged, "records": entry.record_count,
                    "references": device.reference_count(entry.page),
                    "from": shown(&entry.clip.lo), "to": shown(&entry.clip.hi),
                })
            })
            .collect();
        tables.push(json!({
            "id": node.id, "level": device.tree().band(node), "tree_level": node.level,
            "meta_page": node.meta_page,
            "strata": node.counter, "charged_pages": node.charged_pages,
            "records": node.record_count, "tombstones": node.tombstones,
            "from": shown(&node.fence.lo), "to": shown(&node.fence.hi), "pages": pages,
        }));
    }
    let block_count = device.nand().geometry().block_count;
    let blocks: Vec<BlockReport> = (0..block_count).map(|block| device.block(block)).collect();
    let mut text = String::new();
    for table in &tables {
        text.push_str(&table_line(table));
        for page in table["pages"].as_array().into_iter().flatten() {
            text.push_str(&page_line(page));
        }
    }
    let rows: Vec<Vec<String>> = (0..)
        .zip(&blocks)
        .filter(|(_, block)| block.page_type.is_some() || block.is_retired)
        .map(|(at, block): (u32, &BlockReport)| block_row(at, block))
        .collect();
    let heads = ["block", "type", "live pages", "tables", "level", "erases"];
    text.push_str(&columns(&heads, &rows));
    let blocks: Vec<Value> = (0..).zip(&blocks).map(|(at, block)| block_json(at, block)).collect();
    Ok(Figures { text, json: json!({ "tables": tables, "blocks": blocks }) })
}

fn table_line(table: &Value) -> String {
    format!(
        "table {} L{} {}..{} {} pages in {} strata, {} records, metadata in page {}\n",
        table["id"],
        table["level"],
        table["from"].as_str().unwrap_or(""),
        table["to"].as_str().unwrap_or(""),
        table["charged_pages"],
        table["strata"],
        table["records"],
        table["meta_page"]
    )
}

fn page_line(page: &Value) -> String {
    let count = page["references"].as_u64().unwrap_or(1);
    let shared = if count > 1 { format!(", shared by {count}") } else { String::new() };
    format!(
        "  page {} stratum {} {}..{}{shared}\n",
        page["page"],
        page["stratum"],
        page["from"].as_str().unwrap_or(""),
        page["to"].as_str().unwrap_or("")
    )
}

fn type_name(block: &BlockReport) -> &'static str {
    match block.page_type {
        _ if block.is_retired => "bad",
        Some(page_type) => page_type.name(),
        None => "free",
    }
}

fn level_text(block: &BlockReport) -> String {
    let level = block.level.filter(|_| block.page_type == Some(PageType::Kv));
    level.map_or(String::new(), |level| format!("L{level}"))
}

fn block_row(at: u32, block: &BlockReport) -> Vec<String> {
    vec![
        at.to_string(),
        type_name(block).to_string(),
        block.live_pages.to_string(),
        block.tables.to_string(),
        level_text(block),
        block.erase_count.to_string(),
    ]
}

fn block_json(at: u32, block: &BlockReport) -> Value {
    json!({
        "block": at, "type": type_name(block), "live_pages": block.live_pages,
        "tables": block.tables, "level": block.level, "erases": block.erase_count,
    })
}
