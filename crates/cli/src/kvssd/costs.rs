//! What a demonstration cost a KVSSD.

use runstone_device::KvSsdStore;
use serde_json::{Value, json};

use super::{map, report};
use crate::demo::costs::{Costs, live_bytes};
use crate::demo::phases::Phase;
use crate::output::{ratio, rounded, size};

/// See the module docs.
pub struct DeviceCosts {
    picture: String,
    lines: String,
    json: Value,
}

impl DeviceCosts {
    /// Of a device that was opened for the demonstration.
    pub fn of(device: &KvSsdStore, phases: &[Phase]) -> DeviceCosts {
        let live_user = live_bytes(phases);
        let picture = map::text(device);
        let device = device.device();
        let (layers, counters) = (device.write_amplification(), device.counters());
        let page_bytes = u64::from(device.nand().geometry().page_bytes);
        let pages_per_get = ratio(counters.get_pages, counters.gets);
        let used_bytes = device.live_pages() * page_bytes;
        let mut json = report::to_json(&device);
        json["write_amplification"] = json!(rounded(layers.total_milli() as f64 / 1000.0));
        json["space_amplification"] = json!(rounded(ratio(used_bytes, live_user)));
        json["pages_per_get"] = json!(rounded(pages_per_get));
        let lines = format!(
            "{}per get: {pages_per_get:.2} pages read, metadata included; \
             pages in use {} for {} live\n",
            report::to_text(&device),
            size(used_bytes),
            size(live_user)
        );
        DeviceCosts { picture, lines, json }
    }
}

impl Costs for DeviceCosts {
    fn picture(&self, _terminal_columns: usize) -> String {
        self.picture.clone()
    }

    fn lines(&self) -> String {
        self.lines.clone()
    }

    fn json(&self) -> Value {
        json!({ "device": self.json })
    }
}
