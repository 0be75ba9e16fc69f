//! The directory for persistent data.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
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

/// Marks a directory whose accounts and keys are in Redis. If it is marked and Redis is not used, warns that its accounts and
/// keys are not those in Redis.
pub fn note_store(dir: &Path, is_redis: bool) {
    let marker = dir.join("uses-redis");
    if is_redis {
        if let Err(error) = fs::write(marker, "ip-lookup has used --redis-url with this directory.\n") {
            tracing::warn!(%error, "can't note in the data directory that Redis is used");
        }
    } else if marker.exists() {
        tracing::warn!(
            store = %store_file(dir).display(),
            "an earlier start used --redis-url; this one uses the accounts and keys in the data directory. Set --redis-url \
             again, or delete {} if you no longer use Redis",
            marker.display()
        );
    }
}

/// Adds a hint at --data-dir to an error that permissions or a read-only file system have caused.
pub fn suggest_data_dir(dir: &Path, error: anyhow::Error) -> anyhow::Error {
    let mut kinds = error.chain().filter_map(|cause| Some(cause.downcast_ref::<io::Error>()?.kind()));
    let is_denied =
        kinds.any(|kind| matches!(kind, ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem));
    match is_denied {
        true => error.context(format!(
            "can't use the data directory {}: choose one that you can read and write with --data-dir PATH",
            dir.display()
        )),
        false => error,
    }
}

/// Creates the directory, the session key and the token if they are missing, readable only by the user who runs
/// ip-lookup. Returns the session key.
pub fn prepare(dir: &Path) -> anyhow::Result<SessionKey> {
    create_files(dir).map_err(|error| suggest_data_dir(dir, error))
}

fn create_files(dir: &Path) -> anyhow::Result<SessionKey> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created.with_context(|| format!("can't create the data directory {} (--data-dir)", dir.display()))?;
    let session_key = SessionKey::load_or_create(&dir.join("session.key"))?;
    let token_file = quota_token_file(dir);
    if !token_file.exists() {
        let mut token = [0; 32];
        getrandom::fill(&mut token).context("can't get random bytes from the operating system")?;
        let line = data_encoding::HEXLOWER.encode(&token) + "\n";
        base::atomic_file::create(&token_file, line.as_bytes())
            .with_context(|| format!("can't write the quota token {}", token_file.display()))?;
    }
    Ok(session_key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn unwritable_directory_error_names_the_flag() {
        // Not even root can create files in /sys.
        let error = format!("{:#}", prepare(Path::new("/sys")).err().unwrap());
        assert!(
            error.starts_with("can't use the data directory /sys: ") && error.contains("--data-dir"),
            "{error}"
        );
    }

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
