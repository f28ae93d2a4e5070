//! Tests that the header matches the source.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_made_from_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("a valid file");
    let made = cbindgen::Builder::new().with_crate(here).with_config(config).generate();
    let mut text = Vec::new();
    made.expect("a header").write(&mut text);
    let place = here.join("include/runstone.h");
    if env::var_os("REWRITE").is_some() {
        fs::write(&place, &text).expect("a writable header");
    }
    let kept = fs::read(&place).unwrap_or_default();
    assert!(kept == text, "run with REWRITE=1, and look at what changes for those who call it");
}
