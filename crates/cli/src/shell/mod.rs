//! The interactive shell's parts: words of a line, commands, the editor.

pub mod editor;
pub mod session;
pub mod words;
