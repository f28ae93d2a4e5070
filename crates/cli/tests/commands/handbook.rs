//! Runs every line of `docs/how-to/operate.md` in order. An application has the store open first.
//! The test closes it where the handbook says "with the application stopped".

use std::path::Path;
use std::process::Command;

use runstone::{Options, Store};

use crate::Place;

/// The blocks of commands of a document.
fn blocks(text: &str) -> Vec<&str> {
    let fenced = text.split("```sh\n").skip(1);
    fenced.map(|rest| rest.split("```").next().expect("a fence ends")).collect()
}

#[test]
fn the_handbook_does_what_it_says() {
    let text = include_str!("../../../../docs/how-to/operate.md");
    let (running, stopped) = text.split_once("With the application stopped").expect("a section");
    let place = Place::new();
    let store = Store::open(place.path("store"), Options::default()).expect("a store");
    for number in 0..2_000 {
        store.put(format!("key{number:05}"), vec![b'v'; 100]).expect("a put");
    }
    let built = Path::new(env!("CARGO_BIN_EXE_runstone")).parent().expect("a directory");
    let path = std::env::var("PATH").expect("set");
    let run = |block: &str| {
        let shell = Command::new("sh")
            .args(["-e", "-c", block])
            .env("PATH", format!("{}:{path}", built.display()))
            .current_dir(place.path("."))
            .output()
            .expect("a shell");
        let told = String::from_utf8_lossy(&shell.stderr);
        assert!(shell.status.success(), "{block}{told}");
    };
    assert!(blocks(running).len() > 5 && blocks(stopped).len() > 1);
    for block in blocks(running) {
        run(block);
        store.put("later", "and the application goes on").expect("a put");
    }
    store.close().expect("it closes");
    blocks(stopped).into_iter().for_each(run);
    // A hundred were deleted, and `later` and `session` came.
    assert_eq!(place.ok(&["count", "store"]), "1902\n");
}
