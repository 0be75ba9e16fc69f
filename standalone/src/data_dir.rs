//! The folder for everything that must survive a restart.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dashboard_api::session::SessionKey;

/// What is in the folder.
pub struct DataDir {
    /// Accounts, keys and counters.
    pub store_file: PathBuf,
    /// What session cookies are encrypted with.
    pub session_key: SessionKey,
}

/// Creates what is missing of the folder, readable by its owner only.
pub fn prepare(folder: &Path) -> anyhow::Result<DataDir> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| {
        let folder = folder.display();
        format!("the folder {folder} can't be created: choose one that you may write with --data-dir PATH")
    })?;
    let session_key = SessionKey::load_or_create(&folder.join("session.key"))?;
    Ok(DataDir { store_file: folder.join("store.redb"), session_key })
}
