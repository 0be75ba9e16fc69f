//! Shared utilities without HTTP: flags, atomic and watched files, buffers in huge pages, log throttling, and the progress
//! of a command. Depends on no other crate of the workspace.

#![warn(missing_docs)]

pub mod atomic_file;
pub mod flags;
pub mod huge_pages;
pub mod log_throttle;
pub mod progress;
pub mod watched_files;
