//! The directory for persistent data.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use dashboard_api::session::SessionKey;

/// The directory of the geo databases, used if no `--geo-db` is given.
pub fn geo_dir(dir: &Path) -> PathBuf {
    dir.join("geo")
}

/// The path of the embedded store: accounts, keys and counters.
pub fn store_file(dir: &Path) -> PathBuf {
    dir.join("store.redb")
}

/// The path of the token that quota-svc requires from the other services and from commands.
pub fn quota_token_file(dir: &Path) -> PathBuf {
    dir.join("quota-token")
}

/// The path of the socket for commands.
pub fn command_socket(dir: &Path) -> PathBuf {
    dir.join("commands.sock")
}

/// Creates the directory, the session key and the token if they are missing, readable only by the user who runs
/// ip-lookup. Returns the session key.
pub fn prepare(dir: &Path) -> anyhow::Result<SessionKey> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(|| {
        let dir = dir.display();
        format!("can't create the data directory {dir}: choose a writable one with --data-dir PATH")
    })?;
    let session_key = SessionKey::load_or_create(&dir.join("session.key"))?;
    let quota_token_file = quota_token_file(dir);
    if !quota_token_file.exists() {
        create_token(&quota_token_file)
            .with_context(|| format!("can't write the quota token {}", quota_token_file.display()))?;
    }
    Ok(session_key)
}

fn create_token(path: &Path) -> anyhow::Result<()> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("can't get random bytes from the operating system")?;
    let line = data_encoding::HEXLOWER.encode(&bytes) + "\n";
    Ok(base::atomic_file::create(path, line.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_created_once_with_mode_600() {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path()).unwrap();
        let file = quota_token_file(dir.path());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let token = fs::read_to_string(&file).unwrap();
        assert!(quota_client::QuotaToken::load(&file).is_ok());
        prepare(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(file).unwrap(), token);
    }
}
