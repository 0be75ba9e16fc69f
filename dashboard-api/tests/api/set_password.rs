//! The commands `dashboard-api set-password` and `reset-password`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use quota_client::wire::NewAccount;
use serde_json::json;
use testkit::process::token_file;
use testkit::process::{TOKEN_FILE, binary};

use crate::harness::Harness;

fn set_password(harness: &Harness, login: &str, input: &str) -> Output {
    run(harness, &["set-password", login], input)
}

/// Runs a command of dashboard-api.
pub fn run(harness: &Harness, args: &[&str], input: &str) -> Output {
    let mut command = Command::new(binary("dashboard-api"));
    command.args(args).args(["--quota-url", harness.quota.url()]).env(TOKEN_FILE, token_file());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Fails if the command exits without reading its input, which is fine.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn password_from_standard_input_is_set() {
    let harness = Harness::start_with(&["--signup", "off"]).await;
    let account = NewAccount { login: "ada".to_owned(), credential: None };
    harness.quota.client().create_account(&account).await.unwrap();
    let output = set_password(&harness, "ada", "set by the operator\n");
    assert!(output.status.success(), "{output:?}");
    assert!(!format!("{output:?}").contains("set by"), "the password must not be printed");
    let mut ada = harness.browser();
    let signed_in = ada.post("/session", json!({"login": "ada", "password": "set by the operator"})).await;
    assert_eq!(signed_in.status, 200);
    ada.store_cookies(&signed_in);
    assert!(set_password(&harness, "ada", "second password\n").status.success());
    assert_eq!(
        ada.get("/account").await.status_and_code(),
        "401 unauthenticated",
        "earlier sessions must be revoked"
    );
}

#[tokio::test]
async fn unknown_login_and_short_password_are_rejected() {
    let harness = Harness::start().await;
    let unknown = set_password(&harness, "unknown", "long enough\n");
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("quota-svc account create unknown"));
    harness.sign_up("ada").await;
    let short = set_password(&harness, "ada", "short\n");
    assert!(!short.status.success());
    assert!(String::from_utf8_lossy(&short.stderr).contains("8 to 1024 characters"));
}

#[tokio::test]
async fn reset_password_is_random_and_signs_in() {
    let harness = Harness::start().await;
    let ada = harness.sign_up("ada").await;
    let reset = |flags: &[&str]| {
        let output = run(&harness, &[&["reset-password", "ada"], flags].concat(), "");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let first: serde_json::Value = serde_json::from_str(&reset(&["--output", "json"])).unwrap();
    assert_eq!(ada.get("/account").await.status_and_code(), "401 unauthenticated");
    let second = reset(&[]);
    let password = second.lines().find_map(|line| line.strip_prefix("    ")).unwrap();
    assert!(password.len() == 24 && first["password"] != password, "{first} {second}");
    let sign_in = async |password: &str| {
        harness.browser().post("/session", json!({"login": "ada", "password": password})).await.status
    };
    assert_eq!(sign_in(password).await, 200);
    assert_eq!(sign_in(first["password"].as_str().unwrap()).await, 401);
}
