//! The page calls the API as its document says: `tsc` checks its JavaScript against types generated from it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::tools::{STRICT, announce_skip, require_tool};
use tempfile::TempDir;

/// Calls that the document does not allow, one a line: each must be found.
const WRONG: &str = r#"import { call } from "./api.js";
export const misspelt = (await call("post", "/api/v1/keys/{id}/resume", { id: "x" })).stat;
await call("post", "/api/v1/keys", { body: { name: "x", scope: "everything" } });
await call("delete", "/api/v1/keys", {});
await call("get", "/api/v1/keys/{id}", {});
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A tool that npm has installed; `None` where the test is skipped.
fn npm_tool(name: &str) -> Option<PathBuf> {
    let tool = root().join("tests/node/node_modules/.bin").join(name);
    if require_tool("node") && tool.exists() {
        return Some(tool);
    }
    assert!(std::env::var_os(STRICT).is_none(), "{name} is missing, and under ./test nothing may be");
    announce_skip(&format!("{name} is missing (./test installs it)"));
    None
}

/// The page's code with the generated types beside it.
fn page_with_types(generate: &Path) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in std::fs::read_dir(root().join("dashboard-api/page")).expect("the page's folder") {
        let file = file.expect("a file").path();
        if file.extension().is_some_and(|kind| kind == "js") {
            std::fs::copy(&file, folder.path().join(file.file_name().expect("a name"))).expect("a copy");
        }
    }
    let mut command = Command::new(generate);
    command
        .arg(root().join("openapi/dashboard-api.json"))
        .arg("-o")
        .arg(folder.path().join("dashboard-api.d.ts"));
    let done = command.output().expect("openapi-typescript runs");
    assert!(done.status.success(), "{}", told(&done));
    folder
}

fn check(tsc: &Path, folder: &Path) -> Output {
    let files = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path());
    let mut command = Command::new(tsc);
    command.args([
        "--allowJs",
        "--checkJs",
        "--noEmit",
        "--strict",
        "--noUnusedLocals",
        "--target",
        "es2022",
    ]);
    command.args(["--module", "esnext", "--moduleResolution", "bundler", "--lib", "es2022,dom,dom.iterable"]);
    command.args(files.filter(|file| file.extension().is_some_and(|kind| kind == "js")));
    command.output().expect("tsc runs")
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn the_pages_calls_fit_the_document() {
    let (Some(generate), Some(tsc)) = (npm_tool("openapi-typescript"), npm_tool("tsc")) else { return };
    let folder = page_with_types(&generate);
    let checked = check(&tsc, folder.path());
    assert!(checked.status.success(), "{}", told(&checked));

    std::fs::write(folder.path().join("wrong.js"), WRONG).expect("the folder can be written");
    let checked = told(&check(&tsc, folder.path()));
    for line in 2..=WRONG.lines().count() {
        assert!(
            checked.contains(&format!("wrong.js({line},")),
            "line {line} is wrong and was not found:\n{checked}"
        );
    }
}
