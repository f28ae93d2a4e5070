//! The costs of a demonstration for a KVSSD.

use runstone_flash::kvssd::KvSsd;
use serde_json::json;

use super::report;
use crate::opened::Figures;
use crate::output::{ratio, rounded, size};

/// The figures of a device that was opened for the demonstration.
pub fn figures(device: &KvSsd, live_bytes: u64) -> Figures {
    let (layers, counters) = (device.write_amplification(), device.counters());
    let pages_per_get = ratio(counters.get_pages, counters.gets);
    let used_bytes = device.live_pages() * u64::from(device.nand().geometry().page_bytes);
    let Figures { mut text, mut json } = report::figures(device);
    json["write_amplification"] = json!(rounded(layers.total_milli() as f64 / 1000.0));
    json["space_amplification"] = json!(rounded(ratio(used_bytes, live_bytes)));
    json["pages_per_get"] = json!(rounded(pages_per_get));
    text.push_str(&format!(
        "per get: {pages_per_get:.2} pages read, metadata included; \
         pages in use {} for {} live\n",
        size(used_bytes),
        size(live_bytes)
    ));
    Figures { text, json: json!({ "device": json }) }
}
