//! What a browser leaves behind when a test ends.

use std::path::Path;

use crate::browser::Browser;

#[tokio::test]
async fn closed_browser_leaves_no_process_and_no_files() {
    let Some(browser) = Browser::start().await else { return };
    let (dir, process) = (browser.dir().to_owned(), format!("/proc/{}", browser.pid()));
    let names: Vec<_> = dir.read_dir().unwrap().map(|file| file.unwrap().file_name()).collect();
    let is_temporary = |name: &std::ffi::OsString| name.to_string_lossy().contains("scoped_dir");
    assert!(names.iter().any(is_temporary), "temporary files are in the browser's directory: {names:?}");
    assert!(Path::new(&process).exists());
    drop(browser);
    assert!(!dir.exists());
    assert!(!Path::new(&process).exists(), "the browser is still running or was not reaped");
}
