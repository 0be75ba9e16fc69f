//! Files that are never incomplete: written under a temporary name and renamed, so that readers, and a start after a
//! crash, see all of the new content or none of it.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use tempfile::NamedTempFile;

/// Creates a temporary file in the directory of `target`, readable by the owner only. It is deleted on drop unless
/// [`commit`] renames it.
pub fn temporary(target: &Path) -> io::Result<NamedTempFile> {
    NamedTempFile::new_in(directory(target))
}

/// Syncs a temporary file in the directory of `target` and renames it to `target`, which it replaces.
pub fn commit(file: NamedTempFile, target: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(target)?;
    sync_directory(target)
}

/// Writes a file that only the owner can read. Replaces an existing one.
pub fn replace(target: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = temporary(target)?;
    file.write_all(content)?;
    commit(file, target)
}

/// Creates a file that only the owner can read. Fails with `AlreadyExists` if there is one.
pub fn create(target: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = temporary(target)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(target)?;
    sync_directory(target)
}

/// Makes a rename durable.
fn sync_directory(target: &Path) -> io::Result<()> {
    File::open(directory(target))?.sync_all()
}

fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn target_is_replaced_only_on_commit() {
        let dir = tempfile::tempdir().expect("directory");
        let target = dir.path().join("backup.jsonl");
        fs::write(&target, "old").expect("write");
        let mut abandoned = temporary(&target).expect("create");
        abandoned.write_all(b"half").expect("write");
        drop(abandoned);
        assert_eq!(fs::read_to_string(&target).expect("read"), "old");
        replace(&target, b"new").expect("replace");
        assert_eq!(fs::read_to_string(&target).expect("read"), "new");
        assert_eq!(fs::metadata(&target).expect("metadata").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("list").count(), 1, "temporary file was not removed");
    }

    #[test]
    fn create_does_not_replace_a_file() {
        let dir = tempfile::tempdir().expect("directory");
        let target = dir.path().join("key");
        create(&target, b"first").expect("create");
        let error = create(&target, b"second").expect_err("exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&target).expect("read"), "first");
        assert_eq!(fs::metadata(&target).expect("metadata").permissions().mode() & 0o777, 0o600);
    }
}
