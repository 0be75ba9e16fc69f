//! Contract fuzzing: schemathesis asks the running service all that its own document allows, and more.

use std::process::Stdio;

use e2e::lookup::Stack;
use e2e::tools::require_installed;
use quota_client::wire::Scope;
use tokio::process::Command;

/// No request may be drowned in 429s: limits far beyond what one run asks.
const GENEROUS: [&str; 6] = ["--burst-limit", "60000", "--daily-limit", "1000000", "--demo-limit", "1000000"];

#[tokio::test]
async fn schemathesis_finds_nothing() {
    let Some(program) = require_installed(".venv/bin/schemathesis") else { return };
    let stack = Stack::start(&GENEROUS, &[]).await;
    let key = stack.key(Scope::Full).await;
    // In a folder of its own: it writes its reports and examples where it runs.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    command.arg("run").arg(stack.lookup.url() + "/openapi.json").args(["--url", &stack.lookup.url()]);
    command.args(["--header", &format!("Authorization: Bearer {}", key.secret)]);
    command.args(["--checks", "all", "--max-examples", "50", "--seed", "20261115", "--no-color"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let report =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}");
    assert!(
        report.contains("Selected: 4/4") && report.contains("Tested: 4"),
        "it reached all operations:\n{report}"
    );
    let allowed = key.now(&stack.quota.client()).await.used_today;
    assert!(allowed >= 10, "it got past the key, {allowed} times:\n{report}");
}
