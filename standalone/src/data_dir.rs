//! The directory for persistent data.

use std::path::{Path, PathBuf};

use anyhow::Context;
use dashboard_api::session::SessionKey;

/// Contents of the data directory.
pub struct DataDir {
    /// Path of the embedded store: accounts, keys and counters.
    pub store_file: PathBuf,
    /// Encrypts the dashboard's session cookies.
    pub session_key: SessionKey,
}

/// Creates the directory and the session key if they are missing, readable only by the user who runs ip-lookup.
pub fn prepare(dir: &Path) -> anyhow::Result<DataDir> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
        let dir = dir.display();
        format!("can't create the data directory {dir}: choose a writable one with --data-dir PATH")
    })?;
    let session_key = SessionKey::load_or_create(&dir.join("session.key"))?;
    Ok(DataDir { store_file: dir.join("store.redb"), session_key })
}
