//! No code: the manifest of this crate asks for the `runstone` command with the feature `lab`. A
//! build of the workspace, or of its default members, thus has the commands `bench` and `paper`.
