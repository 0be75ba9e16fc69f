//! Writes a file atomically: to a temporary file that replaces the target when it is complete.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

pub(super) struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    out: BufWriter<File>,
}

impl AtomicFile {
    /// Opens a temporary file next to `target`, which is not changed before [`AtomicFile::commit`].
    pub fn create(target: &Path) -> anyhow::Result<Self> {
        let Some(name) = target.file_name() else { bail!("--to {} is not a file name", target.display()) };
        if fs::metadata(target).is_ok_and(|metadata| !metadata.is_file()) {
            bail!(
                "--to {} exists and is not a regular file; omit --to to write to standard output",
                target.display()
            );
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(hidden);
        // Readable by the owner only: the export contains password hashes.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let file = file.with_context(|| format!("can't create a file next to --to {}", target.display()))?;
        Ok(Self { target: target.to_owned(), temporary, out: BufWriter::new(file) })
    }

    /// Syncs the file and renames it to the target.
    pub fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for AtomicFile {
    /// Removes an incomplete file; does nothing after a commit.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn target_is_replaced_only_on_commit() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("backup.jsonl");
        fs::write(&target, "old").unwrap();
        let mut abandoned = AtomicFile::create(&target).unwrap();
        abandoned.write_all(b"half").unwrap();
        drop(abandoned);
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        let mut committed = AtomicFile::create(&target).unwrap();
        committed.write_all(b"new").unwrap();
        committed.commit().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "temporary file was not removed");
    }

    #[test]
    fn target_that_is_not_a_file_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        assert!(AtomicFile::create(dir.path()).err().unwrap().to_string().contains("not a regular file"));
        assert!(AtomicFile::create(Path::new("/")).is_err());
    }
}
