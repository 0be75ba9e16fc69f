//! `tsc` checks the API calls of the dashboard's JavaScript against types generated from the OpenAPI document.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::tools::{project_root, require_installed, require_tool};

/// Calls that violate the document, one per line, starting at line 2. `tsc` must report each.
const INVALID: &str = r#"import { call } from "./api.js";
export const misspelled = (await call("post", "/api/v1/keys/{id}/resume", { id: "x" })).stat;
await call("post", "/api/v1/keys", { body: { name: "x", scope: "everything" } });
await call("delete", "/api/v1/keys", {});
await call("get", "/api/v1/keys/{id}", {});
"#;

/// A copy of the dashboard's JavaScript files with the generated types next to it.
fn page_with_types(generate: &Path) -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    for file in std::fs::read_dir(project_root().join("dashboard-api/page"))
        .expect("the page's directory is readable")
    {
        let file = file.expect("the directory is readable").path();
        if file.extension().is_some_and(|kind| kind == "js") {
            std::fs::copy(&file, dir.path().join(file.file_name().expect("a file has a name")))
                .expect("the file is copied");
        }
    }
    let mut command = Command::new(generate);
    command
        .arg(project_root().join("openapi/dashboard-api.json"))
        .arg("-o")
        .arg(dir.path().join("dashboard-api.d.ts"));
    let output = command.output().expect("openapi-typescript runs");
    assert!(output.status.success(), "{}", printed(&output));
    dir
}

fn check(tsc: &Path, dir: &Path) -> Output {
    let files = std::fs::read_dir(dir).expect("the directory is readable");
    let files = files.map(|file| file.expect("the directory is readable").path());
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

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn page_api_calls_match_openapi_document() {
    let (generate, tsc) = ("node_modules/.bin/openapi-typescript", "node_modules/.bin/tsc");
    let npm_tool = |path: &str| require_installed(&format!("tests/node/{path}"));
    let (true, Some(generate), Some(tsc)) = (require_tool("node"), npm_tool(generate), npm_tool(tsc)) else {
        return;
    };
    let dir = page_with_types(&generate);
    std::fs::write(dir.path().join("invalid.js"), INVALID).expect("the file is written");
    let reported = printed(&check(&tsc, dir.path()));
    let in_the_page = |line: &&str| line.contains(": error ") && !line.contains("invalid.js(");
    assert_eq!(reported.lines().find(in_the_page), None, "{reported}");
    for line in 2..=INVALID.lines().count() {
        assert!(
            reported.contains(&format!("invalid.js({line},")),
            "the error in line {line} was not reported:\n{reported}"
        );
    }
}
