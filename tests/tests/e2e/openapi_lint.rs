//! The OpenAPI documents follow redocly's recommended rules, without a warning.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::tools::{project_root, require_installed, require_tool};

const DOCUMENTS: [&str; 2] = ["openapi/lookup-svc.json", "openapi/dashboard-api.json"];

/// The rules that redocly found violated in each document, with their positions; warnings count, too.
fn redocly(script: &Path, documents: &[PathBuf]) -> Vec<Vec<String>> {
    let mut command = Command::new("node");
    command.arg(script).args(["lint", "--config", "redocly.yaml", "--format", "json"]).args(documents);
    // Both would call a server of the vendor.
    command.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    let output = command.current_dir(project_root().join("tests/node")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let reports = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let reports: Vec<_> = reports.collect::<Result<_, _>>().unwrap_or_default();
    assert_eq!(reports.len(), documents.len(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let problems = |report: &Value| {
        let problems = report["problems"].as_array().unwrap().iter();
        let problems = problems.filter(|problem| problem["ignored"] != true);
        problems
            .map(|problem| format!("{}: {} {}", problem["ruleId"], problem["message"], problem["location"]))
            .collect()
    };
    reports.iter().map(problems).collect()
}

#[test]
fn redocly_finds_no_problem_in_the_documents() {
    let script = require_installed("tests/node/node_modules/@redocly/cli/bin/cli.js");
    let (Some(script), true) = (script, require_tool("node")) else { return };
    let mut documents = DOCUMENTS.map(|document| project_root().join(document)).to_vec();
    // A document with mistakes, so that a silent redocly is noticed.
    let mut broken: Value = serde_json::from_str(&std::fs::read_to_string(&documents[0]).unwrap()).unwrap();
    broken["paths"]["/api/v1/ip/demo"]["get"].as_object_mut().unwrap().remove("security");
    broken["components"]["examples"]["demo"]["value"]["latitude"] = json!("north");
    let dir = tempfile::tempdir().unwrap();
    documents.push(dir.path().join("broken.json"));
    std::fs::write(&documents[2], broken.to_string()).unwrap();
    let found = redocly(&script, &documents);
    assert_eq!(found[..2].concat(), Vec::<String>::new());
    for rule in ["security-defined", "no-invalid-media-type-examples"] {
        assert!(found[2].iter().any(|problem| problem.contains(rule)), "{:#?}", found[2]);
    }
}
