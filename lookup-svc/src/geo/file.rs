//! Reads a file that somebody may be replacing, and tells whether it changed.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::GeoError;

/// What `stat` says; a change of any part means: read it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(path: &Path) -> Result<Self, GeoError> {
        Ok(Stamp::from(&std::fs::metadata(path)?))
    }

    /// Whether nobody wrote between the two looks at an open file. Its change time does not matter: it moves also when
    /// the name is given to another file, which is how a database is replaced, and then these bytes are still whole.
    fn same_bytes(&self, later: &Self) -> bool {
        (self.size, self.modified) == (later.size, later.modified)
    }

    /// Whether the file was touched so recently that another write could leave the same stamp
    /// (file times move in steps of some milliseconds). Such a file is read once more later.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        let seconds = u64::try_from(self.changed.0.max(self.modified.0)).unwrap_or(0);
        let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        now.duration_since(touched).is_ok_and(|age| age < Duration::from_secs(2))
    }
}

impl From<&Metadata> for Stamp {
    fn from(meta: &Metadata) -> Self {
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// The whole file, if it is a regular one, not larger than `limit`, and held still while we read.
/// A copy in memory, never a map of the file: one truncated under a map kills the process.
pub(super) fn read(path: &Path, limit: u64) -> Result<(Vec<u8>, Stamp), GeoError> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(GeoError::NotAFile);
    }
    let mut file = File::open(path)?;
    let before = file.metadata()?;
    if before.len() > limit {
        return Err(GeoError::TooLarge { limit });
    }
    let mut bytes = Vec::with_capacity(usize::try_from(before.len()).unwrap_or(0));
    (&mut file).take(limit + 1).read_to_end(&mut bytes)?;
    let after = Stamp::from(&file.metadata()?);
    if !Stamp::from(&before).same_bytes(&after) || bytes.len() as u64 != before.len() {
        return Err(GeoError::Changing);
    }
    Ok((bytes, after))
}

/// The database files that a `--geo-db` path means: itself, or a folder's `*.mmdb` by name.
/// Hidden files are left out: they are downloads in progress.
pub(super) fn databases_at(path: &Path) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| is_database(file) && file.is_file())
        .collect();
    files.sort();
    files
}

fn is_database(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mmdb"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_whose_name_goes_to_another_one_is_still_whole_and_one_that_is_written_to_is_not() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (path, newer) = (dir.path().join("a.mmdb"), dir.path().join(".newer"));
        std::fs::write(&path, b"old").expect("written");
        std::fs::write(&newer, b"new").expect("written");
        let mut open = File::options().read(true).append(true).open(&path).expect("it is there");
        let look = |file: &File| Stamp::from(&file.metadata().expect("it is open"));
        let before = look(&open);
        std::fs::rename(&newer, &path).expect("renamed");
        assert!(before.same_bytes(&look(&open)));
        open.write_all(b"er").expect("written");
        assert!(!before.same_bytes(&look(&open)));
    }
}
