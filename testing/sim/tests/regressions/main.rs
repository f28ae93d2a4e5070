//! Bugs that were found, each with its story, so that they stay found.

mod recovery;
