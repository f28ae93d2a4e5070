//! What a reader may rely on in every file of the repository, as rules that a test applies. A rule
//! reads files and returns findings, one per line; no findings mean that the rule holds.
//!
//! * [`files`]: the repository as texts by path.
//! * [`assertions`]: assertions say what broke.
//! * [`style`]: first lines, columns, lengths of functions, unfinished work, documents.
//! * [`links`]: links and numbers of sections lead somewhere.
//! * [`figures`]: the figures in documents equal those in the files that they come from;
//!   [`scales`]: the list of claims whose word changes with the scale is that of the results.
//! * [`locks`]: every lock of the engine has a rank.
//! * [`options`]: every option is explained once.
//! * [`unsafety`]: where unsafe code may be, and how much there is.
//! * [`crates`]: which crate may name which, and files that nothing compiles.
//! * [`public_items`]: the list of the public items of crate `runstone`.
//! * [`code`]: Rust without comments, strings and tests.
//! * [`rooms`]: the modules of a crate as a graph without cycles.
//! * [`draw`]: that graph as text and for Graphviz.
//!
//! Not here: what the compiler and Clippy check.

#![forbid(unsafe_code)]

pub mod assertions;
pub mod code;
pub mod crates;
pub mod draw;
pub mod figures;
pub mod files;
pub mod links;
pub mod locks;
pub mod options;
pub mod public_items;
pub mod rooms;
pub mod scales;
pub mod style;
pub mod unsafety;
