//! The bytes that each layer below a store on a block SSD wrote: the store and its files,
//! read-modify-write, collection. The factors multiply to the bytes that the flash programmed, as
//! the device asserts.

use runstone::storage::Category;
use runstone_flash::block::LayerReport;
use runstone_flash::ftl::HOST_BLOCK_BYTES;
use serde_json::{Value, json};

use crate::opened::Figures;
use crate::output::{columns, duration, size};

/// The sources of the host blocks, with their bytes.
fn sources(layers: &LayerReport) -> Vec<(&'static str, u64)> {
    let bytes = |blocks: u64| blocks * u64::from(HOST_BLOCK_BYTES);
    let files = Category::ALL.map(|c| (c.name(), bytes(layers.blocks.of(c))));
    let own = [
        ("journal", bytes(layers.blocks.journal_blocks)),
        ("directory", bytes(layers.blocks.snapshot_blocks)),
    ];
    files.into_iter().chain(own).collect()
}

/// Factors are 0 without user bytes.
pub fn figures(layers: &LayerReport, user_bytes: u64) -> Figures {
    Figures { text: to_text(layers, user_bytes), json: to_json(layers, user_bytes) }
}

fn to_json(layers: &LayerReport, user_bytes: u64) -> Value {
    let device = &layers.device;
    let sources = sources(layers).into_iter().map(|(name, bytes)| (name.to_string(), json!(bytes)));
    json!({
        "user_bytes": user_bytes,
        "host_bytes": device.host_bytes,
        "host_bytes_by_source": sources.collect::<serde_json::Map<String, Value>>(),
        "page_bytes": device.page_bytes,
        "flash_bytes": device.flash_bytes,
        "store_factor": factor(milli(device.host_bytes, user_bytes)),
        "read_modify_write_factor": factor(device.rmw_milli()),
        "collection_factor": factor(device.gc_milli()),
        "total_factor": factor(milli(device.flash_bytes, user_bytes)),
        "timing": layers.timing,
        "simulated_ns": layers.elapsed_ns,
    })
}

fn to_text(layers: &LayerReport, user_bytes: u64) -> String {
    let device = &layers.device;
    let steps = [
        ("users", 0, user_bytes),
        ("store and files", user_bytes, device.host_bytes),
        ("read-modify-write", device.host_bytes, device.page_bytes),
        ("collection", device.page_bytes, device.flash_bytes),
        ("all", user_bytes, device.flash_bytes),
    ];
    let row = |(name, before, after): (&str, u64, u64)| {
        let factor = if before == 0 { String::new() } else { decimal(milli(after, before)) };
        vec![name.to_string(), factor, size(after)]
    };
    let mut text = columns(&["flash, since opened", "times", "bytes"], &steps.map(row));
    let sources = sources(layers).into_iter().filter(|(_, bytes)| *bytes > 0);
    let sources: Vec<String> = sources.map(|(name, n)| format!("{name} {}", size(n))).collect();
    let took = duration(std::time::Duration::from_nanos(layers.elapsed_ns));
    text.push_str(&format!(
        "store and files: {}\nsimulated time {took}, preset {}\n",
        sources.join(", "),
        layers.timing
    ));
    text
}

/// A factor in thousandths, as a number.
pub fn factor(milli: u64) -> f64 {
    milli as f64 / 1000.0
}

/// A ratio in thousandths, rounded; 0 without a denominator.
fn milli(numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(numerator) * 1000 + u128::from(denominator) / 2;
    scaled.checked_div(u128::from(denominator)).unwrap_or(0) as u64
}

fn decimal(milli: u64) -> String {
    format!("{}.{:03}", milli / 1000, milli % 1000)
}
