//! Contract fuzzing: schemathesis sends valid and invalid requests generated from the OpenAPI document.

use std::process::Stdio;

use quota_client::wire::Scope;
use testkit::lookup::Stack;
use testkit::tools::require_installed;
use tokio::process::Command;

/// Limits that one run never reaches, so that no response is a 429.
const HIGH_LIMITS: [&str; 6] =
    ["--burst-limit", "60000", "--daily-limit", "1000000", "--demo-limit", "1000000"];

#[tokio::test]
async fn schemathesis_finds_no_violation() {
    let Some(program) = require_installed(".venv/bin/schemathesis") else { return };
    let stack = Stack::start(&HIGH_LIMITS, &[]).await;
    let key = stack.key_with_scope(Scope::Full).await;
    // Runs in a temporary directory, because it writes reports into the current directory.
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg("run").arg(stack.lookup.url() + "/openapi.json").args(["--url", &stack.lookup.url()]);
    command.args(["--header", &format!("Authorization: Bearer {}", key.secret)]);
    command.args(["--checks", "all", "--max-examples", "50", "--seed", "20261115", "--no-color"]);
    command.current_dir(dir.path()).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let report =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    assert!(
        report.contains("Selected: 4/4") && report.contains("Tested: 4"),
        "not all operations were tested:\n{report}"
    );
    let allowed = key.fetch(&stack.quota.client()).await.used_today;
    assert!(allowed >= 10, "only {allowed} requests were allowed:\n{report}");
}
