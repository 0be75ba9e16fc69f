//! The three OpenAPI documents follow redocly's recommended rules and spectral's rules for OpenAPI, without a warning.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::tools::{project_root, require_installed, require_tool};

const DOCUMENTS: [&str; 3] =
    ["openapi/lookup-svc.json", "openapi/dashboard-api.json", "openapi/quota-svc.json"];

/// A linter, as a script for Node.js. `None` means that the test must be skipped.
fn installed(script: &str) -> Option<PathBuf> {
    require_installed(&format!("tests/node/node_modules/{script}")).filter(|_| require_tool("node"))
}

fn run(script: &Path, arguments: &[&str], documents: &[PathBuf]) -> Output {
    let mut command = Command::new("node");
    command.arg(script).args(arguments).args(documents).current_dir(project_root().join("tests/node"));
    // Both would call a server of the vendor.
    command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    command.output().unwrap()
}

/// The rules that redocly found violated, with their positions; warnings count, too.
fn redocly(script: &Path, documents: &[PathBuf]) -> Vec<String> {
    let output = run(script, &["lint", "--config", "redocly.yaml", "--format", "json"], documents);
    let text = String::from_utf8(output.stdout).unwrap();
    // One report per document.
    let reports = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let reports: Vec<_> = reports.collect::<Result<_, _>>().unwrap_or_default();
    assert_eq!(reports.len(), documents.len(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let problems = reports.iter().flat_map(|report| report["problems"].as_array().unwrap());
    let problems = problems.filter(|problem| problem["ignored"] != true);
    problems
        .map(|problem| format!("{}: {} {}", problem["ruleId"], problem["message"], problem["location"]))
        .collect()
}

/// What spectral printed, and whether it found nothing; warnings count, too.
fn spectral(script: &Path, documents: &[PathBuf]) -> (bool, String) {
    let output = run(script, &["lint", "--ruleset", "spectral.yaml", "--fail-severity", "warn"], documents);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.success(), printed + &String::from_utf8_lossy(&output.stderr))
}

fn documents() -> Vec<PathBuf> {
    DOCUMENTS.map(|document| project_root().join(document)).to_vec()
}

/// A copy of a document without `security` and `info.contact`.
fn broken_document(dir: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(project_root().join(DOCUMENTS[0])).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    document["paths"]["/api/v1/ip/demo"]["get"].as_object_mut().unwrap().remove("security");
    document["info"].as_object_mut().unwrap().remove("contact");
    document["components"]["examples"]["demo"]["value"]["latitude"] = json!("north");
    let file = dir.join("broken.json");
    std::fs::write(&file, document.to_string()).unwrap();
    vec![file]
}

#[test]
fn redocly_finds_no_problem_in_the_documents() {
    let Some(script) = installed("@redocly/cli/bin/cli.js") else { return };
    assert_eq!(redocly(&script, &documents()), Vec::<String>::new());
    let dir = tempfile::tempdir().unwrap();
    let found = redocly(&script, &broken_document(dir.path()));
    assert!(found.iter().any(|problem| problem.contains("security-defined")), "{found:#?}");
}

#[test]
fn spectral_finds_no_problem_in_the_documents() {
    let Some(script) = installed("@stoplight/spectral-cli/dist/index.js") else { return };
    let (clean, printed) = spectral(&script, &documents());
    assert!(clean, "{printed}");
    let dir = tempfile::tempdir().unwrap();
    let (clean, printed) = spectral(&script, &broken_document(dir.path()));
    assert!(!clean && printed.contains("info-contact"), "{printed}");
    assert!(printed.contains("oas3-valid-media-example"), "{printed}");
}
