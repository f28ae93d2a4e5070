//! No code: the manifest of this crate depends on the `runstone` command with the feature `lab`. So
//! a build of the workspace, or of its default members, has the commands `bench` and `paper`.
