//! Code that the crates share and that is not about HTTP: flags, files that are replaced atomically or watched, huge pages,
//! rate-limited log lines, and the progress of a command. Depends on no other crate of the workspace.

#![warn(missing_docs)]

pub mod atomic_file;
pub mod flags;
pub mod huge_pages;
pub mod log_throttle;
pub mod progress;
pub mod watched_files;
