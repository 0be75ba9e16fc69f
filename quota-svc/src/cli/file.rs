//! A file that appears under its name only when it is whole.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file being written beside the place it is meant for.
pub(super) struct NewFile {
    target: PathBuf,
    temporary: PathBuf,
    out: BufWriter<File>,
}

impl NewFile {
    /// Opens it; what is at `target` stays until [`NewFile::commit`].
    pub fn create(target: &Path) -> anyhow::Result<Self> {
        let Some(name) = target.file_name() else { bail!("--to {} is no file name", target.display()) };
        if fs::metadata(target).is_ok_and(|found| !found.is_file()) {
            bail!(
                "--to {} is there and no regular file; without --to the export goes to standard output",
                target.display()
            );
        }
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let temporary = target.with_file_name(hidden);
        // Password hashes are in it: for its owner only.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary);
        let file = file.with_context(|| format!("--to {} can't be written", target.display()))?;
        Ok(Self { target: target.to_owned(), temporary, out: BufWriter::new(file) })
    }

    /// Puts the whole file in its place.
    pub fn commit(mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.temporary, &self.target)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for NewFile {
    /// Half a file is worse than none. After a commit there is nothing left under the temporary name.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("backup.jsonl");
        fs::write(&target, "old").unwrap();
        let mut abandoned = NewFile::create(&target).unwrap();
        abandoned.write_all(b"half").unwrap();
        drop(abandoned);
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        let mut whole = NewFile::create(&target).unwrap();
        whole.write_all(b"new").unwrap();
        whole.commit().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(NewFile::create(folder.path()).err().unwrap().to_string().contains("no regular file"));
        assert!(NewFile::create(Path::new("/")).is_err());
    }
}
