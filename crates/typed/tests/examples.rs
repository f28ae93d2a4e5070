//! Runs the programs of `examples/`; the engine's test of the same name explains how and why.

#[path = "../examples/typed_records.rs"]
mod typed_records;

#[test]
fn typed_records_runs() {
    typed_records::main().expect("the example runs");
}

#[test]
fn every_example_is_run() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(directory).expect("the examples");
    let names: Vec<_> = files.map(|file| file.expect("an entry").file_name()).collect();
    assert_eq!(names, ["typed_records.rs"], "run each example in tests/examples.rs");
}
