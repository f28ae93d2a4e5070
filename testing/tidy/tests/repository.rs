//! The rules hold in this repository. The tests beside each rule show that it notices a violation.

use std::collections::BTreeSet;

use runstone_tidy::files::{Files, places, read, root};
use runstone_tidy::{
    assertions, crates, figures, links, locks, options, public_items, rooms, scales, style,
    unsafety,
};

fn files() -> Files {
    let files = read(&root()).expect("the repository is readable");
    let rust = files.keys().filter(|place| place.ends_with(".rs")).count();
    assert!(rust > 60, "{rust} Rust files");
    files
}

fn none(found: Vec<String>) {
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is() {
    none(style::first_lines(&files()));
}

#[test]
fn lines_fit() {
    none(style::columns(&files()));
}

#[test]
fn links_lead_somewhere() {
    let places = places(&root()).expect("the repository is readable");
    none(links::dead(&files(), &places));
}

#[test]
fn locks_have_ranks() {
    none(locks::without_rank(&files()));
    none(locks::order_elsewhere(&files()));
}

#[test]
fn figures_are_those_of_their_files() {
    none(figures::differing(&files()));
    none(scales::differing(&files()));
}

#[test]
fn assertions_say_what_broke() {
    none(assertions::without_message(&files()));
}

#[test]
fn options_are_explained_once() {
    let files = files();
    assert!(options::names(&files).len() > 50, "{:?}", options::names(&files));
    none(options::explained_again(&files));
}

#[test]
fn files_are_short() {
    none(style::file_lengths(&files()));
}

#[test]
fn functions_are_short() {
    none(style::function_lengths(&files()));
}

#[test]
fn unsafe_code_is_where_it_is_listed() {
    none(unsafety::unsafe_code(&files(), &unsafety::MODULES));
}

#[test]
fn unsafe_code_is_counted() {
    none(unsafety::miscounted(&files()));
}

#[test]
fn dependencies_run_one_way() {
    none(crates::dependencies(&files(), &crates::EDGES));
}

#[test]
fn a_program_that_embeds_the_store_compiles_the_store() {
    let brought = crates::brought_along(&files(), "crates/engine");
    assert_eq!(brought, crates::OF_STORE, "`cargo tree -p runstone -e normal` shows why");
}

/// Whoever changes the API sees what he changes, and so does the reader of his change.
#[test]
fn public_items_are_listed() {
    let (listed, place) = (public_items::items(&files()), root().join(public_items::LIST));
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&place, &listed).expect("the list is written");
    }
    let kept = std::fs::read_to_string(&place).unwrap_or_default();
    let lines = |text: &str| text.lines().map(str::to_string).collect::<BTreeSet<_>>();
    let (listed, kept) = (lines(&listed), lines(&kept));
    let new = listed.difference(&kept).map(|line| format!("+ {line}"));
    let gone = kept.difference(&listed).map(|line| format!("- {line}"));
    let changed: Vec<_> = new.chain(gone).collect();
    assert!(
        changed.is_empty(),
        "{} differs from the sources; if the API is to change, run\n    \
         REWRITE=1 cargo test -p runstone-tidy public_items\n{}",
        public_items::LIST,
        changed.join("\n")
    );
}

#[test]
fn no_file_is_dead() {
    none(crates::dead_files(&files()));
}

#[test]
fn nothing_is_left_unfinished() {
    none(style::unfinished(&files()));
}

#[test]
fn documents_exist_and_their_lines_fit() {
    none(style::documents(&files(), &style::DOCUMENTS));
    none(style::tables(&files()));
    none(style::document_lengths(&files(), &style::SHORT));
}

#[test]
fn rooms_form_no_cycle() {
    none(rooms::cycles(&files()));
}
