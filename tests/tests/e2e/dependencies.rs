//! The dependencies fulfill the policy in deny.toml: licenses, sources, banned crates and duplicate versions.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod license;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;
use testkit::tools::project_root;

static POLICY: LazyLock<String> =
    LazyLock::new(|| fs::read_to_string(project_root().join("deny.toml")).unwrap());

/// An entry of a list in deny.toml: `"MIT",` or `{ crate = "openssl", reason = "…" },`.
#[derive(Debug)]
struct PolicyEntry<'a> {
    value: &'a str,
    reason: &'a str,
}

/// The entries of the list `key` in a section of deny.toml.
fn policy(section: &str, key: &str) -> Vec<PolicyEntry<'static>> {
    let (_, rest) = POLICY.split_once(&format!("\n[{section}]\n")).unwrap();
    let (_, list) = rest.split_once(&format!("\n{key} = [\n")).unwrap();
    let (list, _) = list.split_once("\n]").unwrap();
    let strings = |line: &'static str| line.split('"').skip(1).step_by(2);
    list.lines()
        .map(|line| {
            let mut strings = strings(line);
            PolicyEntry { value: strings.next().unwrap(), reason: strings.next().unwrap_or_default() }
        })
        .collect()
}

/// A dependency from crates.io, as `cargo metadata` describes it.
struct Package {
    name: String,
    version: String,
    license: String,
    /// Names of the packages that depend on it.
    dependents: BTreeSet<String>,
}

/// All packages that a build of this workspace for Linux uses, including those of tests and build scripts. The crates
/// of this workspace have no source.
fn packages() -> Vec<Package> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--locked", "--format-version", "1"]);
    command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(project_root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = metadata["packages"].as_array().unwrap();
    let names: BTreeMap<_, _> =
        all.iter().map(|package| (text(&package["id"]), text(&package["name"]))).collect();
    let mut dependents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        for dependency in node["dependencies"].as_array().unwrap() {
            dependents.entry(text(dependency)).or_default().insert(names[&text(&node["id"])].clone());
        }
    }
    let external = all.iter().filter(|package| !package["source"].is_null());
    let packages: Vec<_> = external
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            license: text(&package["license"]),
            dependents: dependents.remove(&text(&package["id"])).unwrap_or_default(),
        })
        .collect();
    assert!(packages.len() > 200, "only {} packages found", packages.len());
    packages
}

/// The values of a field in Cargo.lock, which covers all platforms.
fn locked(field: &str) -> BTreeSet<String> {
    let lock = fs::read_to_string(project_root().join("Cargo.lock")).unwrap();
    let prefix = format!("{field} = \"");
    lock.lines()
        .filter_map(|line| Some(line.strip_prefix(&prefix)?.trim_end_matches('"').to_owned()))
        .collect()
}

#[test]
fn every_dependency_has_an_allowed_license() {
    let allowed: BTreeSet<_> = policy("licenses", "allow").into_iter().map(|entry| entry.value).collect();
    let exceptions = policy("licenses", "exceptions");
    let packages = packages();
    let rejected = packages.iter().filter(|package| {
        // The second string of an exception is the license.
        let of_package = exceptions.iter().filter(|entry| entry.value == package.name);
        let allowed = allowed.iter().copied().chain(of_package.map(|entry| entry.reason)).collect();
        !license::is_allowed(&package.license, &allowed)
    });
    let rejected: Vec<_> = rejected
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.license))
        .collect();
    assert!(rejected.is_empty(), "deny.toml allows none of the licenses of {rejected:#?}");
}

#[test]
fn every_dependency_comes_from_crates_io() {
    let allowed =
        policy("sources", "allow-registry").into_iter().map(|entry| format!("registry+{}", entry.value));
    assert_eq!(locked("source"), allowed.collect(), "sources in Cargo.lock (left) and deny.toml (right)");
}

#[test]
fn banned_crates_are_not_used() {
    let names = locked("name");
    let banned = policy("bans", "deny");
    assert!(banned.len() > 5 && banned.iter().all(|entry| !entry.reason.is_empty()), "each ban has a reason");
    let used: Vec<_> = banned.iter().filter(|entry| names.contains(entry.value)).collect();
    assert!(used.is_empty(), "Cargo.lock contains banned crates: {used:#?}");
}

#[test]
fn duplicate_versions_are_recorded_with_reasons() {
    let packages = packages();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let skipped = policy("bans", "skip");
    assert!(skipped.iter().all(|entry| !entry.reason.is_empty()), "each exception has a reason");
    // `syn@2` covers 2.0.119, but not 20.0.0.
    let covers = |entry: &PolicyEntry<'_>, name: &str, version: &str| {
        let (skipped_name, skipped_version) = entry.value.split_once('@').unwrap();
        skipped_name == name && format!("{version}.").starts_with(&format!("{skipped_version}."))
    };
    versions.retain(|_, versions| versions.len() > 1);
    for (name, versions) in &versions {
        let recorded =
            versions.iter().filter(|version| skipped.iter().any(|entry| covers(entry, name, version)));
        assert_eq!(
            recorded.count(),
            versions.len() - 1,
            "deny.toml must list all versions of {name} except the newest: {versions:?}"
        );
    }
    let is_needed = |entry: &&PolicyEntry<'_>| {
        versions.iter().any(|(name, versions)| versions.iter().any(|version| covers(entry, name, version)))
    };
    let outdated: Vec<_> = skipped.iter().filter(|entry| !is_needed(entry)).collect();
    assert!(outdated.is_empty(), "deny.toml lists versions that are no longer duplicates: {outdated:#?}");
}

/// The reason of the exceptions for quick-xml: poem parses XML only for its `Xml` types.
#[test]
fn ignored_quick_xml_advisories_are_unreachable() {
    let ignored = policy("advisories", "ignore");
    assert!(
        ignored.iter().all(|entry| entry.reason.contains("quick-xml")),
        "each exception needs its own test"
    );
    let packages = packages();
    let xml: Vec<_> = packages.iter().filter(|package| package.name == "quick-xml").collect();
    assert!(!xml.is_empty(), "quick-xml is no longer used: remove its exceptions from deny.toml");
    for package in xml {
        assert!(package.version.starts_with("0.36."), "quick-xml {}: check the exceptions", package.version);
        assert_eq!(package.dependents, BTreeSet::from(["poem", "poem-openapi"].map(str::to_owned)));
    }
    let mut uses = Vec::new();
    for dir in ["lookup-svc/src", "quota-svc/src", "dashboard-api/src", "standalone/src", "crates"] {
        find_word(&project_root().join(dir), "Xml", &mut uses);
    }
    assert!(uses.is_empty(), "these files name poem's Xml types: {uses:?}");
}

/// Adds the Rust files below `dir` that contain `word` as a whole word.
fn find_word(dir: &Path, word: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            find_word(&path, word, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            if text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word) {
                found.push(path.display().to_string());
            }
        }
    }
}
