//! Imports point in the direction that docs/architecture.md describes, and no modules import each other in a cycle.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use source::SourceFile;
use testkit::tools::project_root;

const SERVICES: [&str; 3] = ["lookup-svc", "quota-svc", "dashboard-api"];

/// A library, and the only crates of this workspace that may depend on it outside tests. `e2e` and `testkit` are tests.
const LIBRARY_USERS: [(&str, &[&str]); 6] = [
    ("redis", &["quota-svc", "bench"]),
    ("redb", &["quota-svc"]),
    ("maxminddb", &["geo"]),
    ("kube", &["edge"]),
    ("argon2", &["dashboard-api"]),
    ("testkit", &["bench"]),
];

/// A directory or file, and the crates that its code must not import.
const FORBIDDEN: [(&str, &[&str]); 6] = [
    (
        "quota-svc/src/domain",
        &["http", "hyper", "poem", "poem_openapi", "quota_client", "redis", "redb", "tokio"],
    ),
    ("quota-svc/src/api", &["redis", "redb"]),
    ("quota-svc/src/cli", &["redis", "redb"]),
    ("lookup-svc/src/api", &["maxminddb", "kube", "reqwest"]),
    ("dashboard-api/src/api", &["reqwest", "argon2"]),
    ("crates/geo/src", &["http_server", "hyper", "poem", "service_kit"]),
];

/// Modules of quota-svc that its domain must not import: everything else of the service.
const OUTSIDE_DOMAIN: [&str; 8] =
    ["api", "app", "cli", "config", "denial_cache", "metrics", "router", "store"];

/// The dependencies of each crate of this workspace, without those of tests and build scripts.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--locked", "--no-deps", "--format-version", "1"]).current_dir(project_root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
            let names = normal.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), names.collect())
        })
        .collect()
}

#[test]
fn only_standalone_and_bench_depend_on_services() {
    for (package, dependencies) in dependencies() {
        let services: Vec<_> =
            SERVICES.into_iter().filter(|service| dependencies.contains(*service)).collect();
        assert!(
            services.is_empty() || ["standalone", "bench"].contains(&package.as_str()),
            "{package} depends on {services:?}"
        );
    }
}

#[test]
fn each_library_has_only_its_users() {
    let dependencies = dependencies();
    for (library, allowed) in LIBRARY_USERS {
        let users = dependencies.iter().filter(|(_, dependencies)| dependencies.contains(library));
        let users: BTreeSet<_> = users.map(|(package, _)| package.as_str()).collect();
        let allowed: BTreeSet<_> = allowed.iter().copied().chain(["e2e", "testkit"]).collect();
        assert!(users.is_subset(&allowed), "{library} is a dependency of {users:?}, allowed: {allowed:?}");
        assert!(!users.is_empty(), "nothing depends on {library}: remove it from this test");
    }
}

#[test]
fn layers_do_not_import_what_is_forbidden() {
    let mut found = Vec::new();
    for (path, forbidden) in FORBIDDEN {
        let files = source::files_below(path);
        assert!(!files.is_empty(), "{path} is gone: adapt this test");
        for file in files {
            let crates = forbidden.iter().filter(|name| file.uses_crate(name));
            found.extend(crates.map(|name| format!("{} imports {name}", file.path)));
        }
    }
    for file in source::files_below("quota-svc/src/domain") {
        let modules = file.local_paths().into_iter().filter_map(|path| path.first().cloned());
        let outside = modules.filter(|module| OUTSIDE_DOMAIN.contains(&module.as_str()));
        found.extend(outside.map(|module| format!("{} imports crate::{module}", file.path)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The imports between the modules of one parent module: from, to, and the file that imports.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Groups the imports of a crate by parent module. A module stands for its whole subtree. An import of a parent's item by
/// its child is not an import between siblings.
fn imports_by_parent(files: &[SourceFile]) -> BTreeMap<Vec<String>, Imports> {
    let modules: BTreeSet<_> = files.iter().map(|file| file.module.clone()).collect();
    let mut parents: BTreeMap<Vec<String>, Imports> = BTreeMap::new();
    for file in files {
        for target in file.local_paths() {
            let common = file.module.iter().zip(&target).take_while(|(from, to)| from == to).count();
            let (Some(from), Some(to)) = (file.module.get(common), target.get(common)) else { continue };
            if !modules.contains(&target[..=common]) {
                continue;
            }
            let imports = parents.entry(file.module[..common].to_vec()).or_default();
            imports.entry(from.clone()).or_default().insert(to.clone(), file.path.clone());
        }
    }
    parents
}

/// The modules of a cycle, or nothing. Follows the imports from each module depth-first.
fn find_cycle(imports: &Imports) -> Option<Vec<String>> {
    fn visit(imports: &Imports, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> bool {
        let module = path.last().unwrap().clone();
        for next in imports.get(&module).into_iter().flat_map(BTreeMap::keys) {
            if let Some(start) = path.iter().position(|module| module == next) {
                path.drain(..start);
                path.push(next.clone());
                return true;
            }
            path.push(next.clone());
            if !done.contains(next) && visit(imports, path, done) {
                return true;
            }
            path.pop();
        }
        done.insert(module);
        false
    }
    let mut done = BTreeSet::new();
    imports.keys().find_map(|module| {
        let mut path = vec![module.clone()];
        (!done.contains(module) && visit(imports, &mut path, &mut done)).then_some(path)
    })
}

#[test]
fn modules_have_no_import_cycles() {
    let crates = [
        "lookup-svc",
        "quota-svc",
        "dashboard-api",
        "standalone",
        "crates/api-key",
        "crates/base",
        "crates/edge",
        "crates/geo",
        "crates/http-server",
        "crates/quota-api",
        "crates/quota-client",
        "crates/service-kit",
        "crates/testkit",
        "bench",
        "tests",
    ];
    let mut cycles = Vec::new();
    for name in crates {
        let files = source::files_below(&format!("{name}/src"));
        for (parent, imports) in imports_by_parent(&files) {
            if let Some(cycle) = find_cycle(&imports) {
                let steps = cycle
                    .windows(2)
                    .map(|pair| format!("{} in {}", pair.join(" → "), imports[&pair[0]][&pair[1]]));
                cycles.push(format!(
                    "{name} crate::{}: {}",
                    parent.join("::"),
                    steps.collect::<Vec<_>>().join(", ")
                ));
            }
        }
    }
    assert!(cycles.is_empty(), "{cycles:#?}");
}
