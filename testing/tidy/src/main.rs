//! `runstone-tidy rooms [HOUSE] [--dot]` draws the rooms of a crate or folder, or of all;
//! `runstone-tidy unsafe` counts unsafe code.

use std::process::ExitCode;

use runstone_tidy::draw::{dot, text};
use runstone_tidy::files::{read, root};
use runstone_tidy::rooms::{Rooms, houses};
use runstone_tidy::unsafety::report;

const USAGE: &str = "usage: runstone-tidy rooms [HOUSE] [--dot] | unsafe";

/// What is counted separately.
const FOLDERS: [&str; 4] = ["crates/", "bindings/", "devices/", "lab/"];

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(drawing) => {
            print!("{drawing}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Vec<String>) -> Result<String, String> {
    let is_dot = arguments.iter().any(|argument| argument == "--dot");
    arguments.retain(|argument| argument != "--dot");
    let files =
        read(&root()).map_err(|error| format!("the repository is not readable: {error}"))?;
    let wanted = match &arguments[..] {
        [count] if count == "unsafe" => return Ok(report(&files, &FOLDERS)),
        [rooms] if rooms == "rooms" => None,
        [rooms, name] if rooms == "rooms" && !name.starts_with('-') => Some(name),
        _ => return Err(USAGE.into()),
    };
    let folders = houses(&files).into_iter();
    let last = |folder: &str| folder.rsplit('/').next().map(str::to_string);
    let folders: Vec<&str> = folders
        .filter(|folder| wanted.is_none_or(|name| last(folder).as_ref() == Some(name)))
        .collect();
    if folders.is_empty() {
        let all: Vec<String> = houses(&files).into_iter().filter_map(last).collect();
        return Err(format!(
            "no crate or folder of this name has rooms; there are {}",
            all.join(", ")
        ));
    }
    let draw = if is_dot { dot } else { text };
    Ok(folders.into_iter().map(|folder| draw(folder, &Rooms::of(&files, folder))).collect())
}
