//! Runs the fuzz targets of `testing/fuzz/` without a fuzzer, on the committed corpora and on
//! mutations of them from a seed. `REWRITE=1` makes the seeds of the corpora again.

use std::fs;
use std::path::PathBuf;

use runstone_sim::fuzz::mutate::mutated;
use runstone_sim::fuzz::{TARGETS, Target};
use runstone_sim::random::Random;

/// The limit for all corpora together, since everyone who clones the repository downloads them.
const MOST_BYTES: u64 = 1 << 20;

fn corpora() -> PathBuf {
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("testing/sim is two below the root")
        .join("testing/fuzz/corpora")
}

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target")
}

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let directory = corpora().join(name);
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.expect("readable").path())
        .map(|path| (path.display().to_string(), fs::read(&path).expect("readable")))
        .collect();
    files.sort();
    files
}

fn run(name: &str) {
    let target = target(name);
    if std::env::var_os("REWRITE").is_some() {
        write_seeds(target);
    }
    let files = corpus(name);
    let seeds = files.iter().filter(|(place, _)| place.contains("/seed-")).count();
    assert!(seeds >= (target.seeds)().len().min(8), "{name}: {seeds} seeds; see CONTRIBUTING.md");
    for (place, input) in &files {
        judge(target, input, place);
    }
    let mut random = Random::new(0xf022);
    for i in 0..target.mutations {
        let of = |random: &mut Random| &files[random.below(files.len() as u64) as usize];
        let (place, input) = of(&mut random);
        let (_, other) = of(&mut random);
        let input = mutated(input, other, &mut random);
        judge(target, &input, &format!("mutation {i}, of {place}"));
    }
}

/// Says which input failed.
fn judge(target: &Target, input: &[u8], place: &str) {
    let outcome = std::panic::catch_unwind(|| (target.judge)(input));
    if let Err(panic) = outcome {
        let file = std::env::temp_dir().join(format!("runstone-{}-input", target.name));
        let _ = fs::write(&file, input);
        eprintln!("{}: {place}; the input is in {}", target.name, file.display());
        std::panic::resume_unwind(panic);
    }
}

fn write_seeds(target: &Target) {
    let directory = corpora().join(target.name);
    fs::create_dir_all(&directory).expect("writable");
    for (i, seed) in (target.seeds)().iter().enumerate() {
        fs::write(directory.join(format!("seed-{i:02}")), seed).expect("writable");
    }
}

#[test]
fn wal() {
    run("wal");
}

#[test]
fn table() {
    run("table");
}

#[test]
fn manifest() {
    run("manifest");
}

#[test]
fn values() {
    run("values");
}

#[test]
fn operations() {
    run("operations");
}

#[test]
fn flash() {
    run("flash");
}

#[test]
fn corpora_are_small_and_each_is_replayed() {
    let mut bytes = 0;
    for entry in fs::read_dir(corpora()).expect("committed") {
        let name = entry.expect("readable").file_name().to_string_lossy().to_string();
        let target = target(&name);
        assert_eq!(target.name, name);
        bytes += corpus(&name).iter().map(|(_, input)| input.len() as u64).sum::<u64>();
    }
    assert!(bytes < MOST_BYTES, "{bytes} bytes of corpora");
}
