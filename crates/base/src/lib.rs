//! What crates of this workspace share that does not serve HTTP: flags, files, large buffers, and the progress of a
//! command. Depends on no other crate of the workspace.

#![warn(missing_docs)]

pub mod atomic_file;
pub mod flags;
pub mod huge_pages;
pub mod progress;
