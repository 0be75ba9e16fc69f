//! Test names have meanings: `slow_` tests run in `./test --all` only, `./test --rootless` leaves out `as_root_` tests, and
//! documents name the tests that prove a claim.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::tools::project_root;

/// Directories that contain no code of this workspace.
const SKIPPED: [&str; 5] = ["target", "node_modules", "corpus", "artifacts", "fuzz"];

/// The names of the tests in a source file: functions with a test attribute, and those in `contract!` and
/// `share_browser!` lists.
fn tests_in(source: &str) -> BTreeSet<&str> {
    let (mut names, mut after_attribute) = (BTreeSet::new(), false);
    let (mut in_contract, mut in_shared) = (false, false);
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            after_attribute = true;
        } else if let Some((_, signature)) = line.split_once("fn ").filter(|_| after_attribute) {
            names.extend(signature.split('(').next().filter(|name| !name.starts_with('$')));
            after_attribute = false;
        } else if line.starts_with("share_browser!(") {
            in_shared = true;
        } else if in_shared && line == ");" {
            in_shared = false;
        } else if in_shared {
            names.extend(
                line.split(|c: char| c != '_' && !c.is_alphanumeric()).filter(|word| word.contains('_')),
            );
        } else if line.starts_with("contract! {") {
            in_contract = true;
        } else if in_contract && line == "}" {
            in_contract = false;
        } else if let Some((_, name)) = line.split_once("::").filter(|_| in_contract) {
            names.insert(name.trim_end_matches(','));
        }
    }
    names
}

/// All Rust files of the workspace, relative to the root.
fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(project_root().join(dir)).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let path = dir.join(&name);
        if entry.file_type().unwrap().is_dir() {
            if !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
                rust_files(&path, found);
            }
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(project_root().join(path))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words in backquotes of a Markdown text.
fn code_words(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A section of a document: from its heading to the next heading of any level.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document.split_once(&format!("\n{heading}\n")).unwrap();
    rest.split("\n#").next().unwrap()
}

#[test]
fn tests_left_out_of_the_default_run_are_listed() {
    let readme = read(Path::new("tests/README.md"));
    let listed: BTreeSet<(&str, &str)> = section(&readme, "## Slow tests")
        .lines()
        .filter(|line| line.starts_with("- "))
        .map(|line| {
            let mut words = code_words(line);
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    let mut files = Vec::new();
    rust_files(Path::new(""), &mut files);
    let sources: Vec<_> = files.iter().map(|file| (file.to_str().unwrap(), read(file))).collect();
    let names =
        sources.iter().flat_map(|(file, source)| tests_in(source).into_iter().map(|name| (*file, name)));
    let (slow, other): (BTreeSet<_>, BTreeSet<_>) = names.partition(|(_, name)| name.contains("slow_"));
    assert!(other.len() > 500, "only {} other tests found", other.len());
    assert_eq!(
        slow, listed,
        "left: tests that `./test` leaves out because of their names; right: the list in tests/README.md"
    );
    assert!(
        slow.iter().all(|(_, name)| name.starts_with("slow_")),
        "slow_ must be the start of a name: {slow:?}"
    );
    let as_root = slow.union(&other).filter(|(_, name)| name.contains("as_root_"));
    let misnamed: Vec<_> =
        as_root.filter(|(_, name)| !name.trim_start_matches("slow_").starts_with("as_root_")).collect();
    assert!(misnamed.is_empty(), "as_root_ must be at the start of a name, or after slow_: {misnamed:?}");
}

#[test]
fn every_threat_names_tests_that_exist() {
    let document = read(Path::new("docs/security.md"));
    let rows =
        section(&document, "## Threats and mitigations").lines().filter(|line| line.starts_with("| **"));
    let rows: Vec<_> = rows.map(|row| row.trim_end_matches(" |").rsplit_once(" | ").unwrap()).collect();
    assert!(rows.len() > 15, "only {} threats found", rows.len());
    for (threat, tests) in rows {
        let (mut file, mut source, mut named) = ("", String::new(), 0);
        for word in code_words(tests) {
            if word.ends_with(".rs") {
                (file, source) = (word, read(Path::new(word)));
            } else {
                assert!(tests_in(&source).contains(word), "{threat}: {file} has no test {word}");
                named += 1;
            }
        }
        assert!(named > 0, "{threat}: no test is named");
    }
}
