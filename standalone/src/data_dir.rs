//! The folder for everything that must survive a restart.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Creates the folder, readable by its owner only, and names the store's file in it.
pub fn prepare(folder: &Path) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
        let folder = folder.display();
        format!("the folder {folder} can't be created: choose one that you may write with --data-dir PATH")
    })?;
    Ok(folder.join("store.redb"))
}
