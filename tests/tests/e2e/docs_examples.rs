//! The example programs of /docs run as they are shown, for those languages that the tests have an interpreter for.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, Output};

use quota_client::wire::Scope;
use testkit::lookup::{Stack, unknown_key};
use testkit::tools::{require_installed, require_tool};

/// The code of one example, with the address of this service.
async fn example(stack: &Stack, language: &str) -> String {
    let page = stack.lookup.get("/docs").send().await.unwrap().text().await.unwrap();
    let (_, block) = page.split_once(&format!("id=\"example-{language}\"")).unwrap();
    let (_, code) = block.split_once("<code>").unwrap();
    let (code, _) = code.split_once("</code>").unwrap();
    let code = code.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    assert!(code.contains("http://localhost:8080/api/v1/ip"), "{code}");
    code.replace("http://localhost:8080", &stack.lookup.url())
}

fn run(mut command: Command, key: &str) -> Output {
    command.env("API_KEY", key).output().unwrap()
}

/// Checks that the program prints the address with a valid key, and the error's message with another.
async fn check(stack: &Stack, prints_quota: bool, command: impl Fn() -> Command) {
    let key = stack.key_with_scope(Scope::Full).await;
    let output = run(command(), &key.secret);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && printed.contains("127.0.0.1"), "{output:?}");
    assert_eq!(printed.contains("9999 requests left today"), prints_quota, "{printed}");
    let output = run(command(), &unknown_key());
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("invalid_api_key"), "{printed}");
    assert!(printed.contains("This API key does not exist."), "{printed}");
}

#[tokio::test]
async fn curl_example_prints_the_response() {
    if !require_tool("curl") {
        return;
    }
    let stack = Stack::start(&[], &[]).await;
    let code = example(&stack, "curl").await;
    check(&stack, false, || {
        let mut shell = Command::new("bash");
        shell.args(["-c", &code]);
        shell
    })
    .await;
}

#[tokio::test]
async fn python_example_prints_address_and_quota() {
    let Some(python) = require_installed(".venv/bin/python") else { return };
    let stack = Stack::start(&[], &[]).await;
    let code = example(&stack, "python").await;
    check(&stack, true, || {
        let mut interpreter = Command::new(&python);
        interpreter.args(["-c", &code]);
        interpreter
    })
    .await;
}

#[tokio::test]
async fn javascript_example_prints_address_and_quota() {
    if !require_tool("node") {
        return;
    }
    let stack = Stack::start(&[], &[]).await;
    let code = example(&stack, "javascript").await;
    check(&stack, true, || {
        let mut node = Command::new("node");
        node.args(["--input-type=module", "-e", &code]);
        node
    })
    .await;
}
