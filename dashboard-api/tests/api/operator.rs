//! `dashboard-api set-password` and the document, as an operator runs them.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use e2e::process::binary;
use quota_client::wire::NewAccount;
use serde_json::json;

use crate::rig::Rig;

fn set_password(rig: &Rig, login: &str, input: &str) -> Output {
    let mut command = Command::new(binary("dashboard-api"));
    command.args(["set-password", login, "--quota-url", rig.quota.url()]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn an_account_gets_its_password_from_standard_input() {
    let rig = Rig::start_with(&["--signup", "off"]).await;
    let account = NewAccount { login: "ada".to_owned(), credential: None };
    rig.quota.client().create_account(&account).await.unwrap();
    let done = set_password(&rig, "ada", "given by the operator\n");
    assert!(done.status.success(), "{done:?}");
    assert!(!format!("{done:?}").contains("given by"), "it is not shown");
    let mut ada = rig.visitor();
    let entered = ada.post("/session", json!({"login": "ada", "password": "given by the operator"})).await;
    assert_eq!(entered.status, 200);
    ada.take_cookie(&entered);
    assert!(set_password(&rig, "ada", "given once more\n").status.success());
    assert_eq!(ada.get("/account").await.told(), "401 unauthenticated", "earlier sessions have ended");
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let rig = Rig::start().await;
    let unknown = set_password(&rig, "nobody", "long enough\n");
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("quota-svc account create nobody"));
    rig.sign_up("ada").await;
    let short = set_password(&rig, "ada", "short\n");
    assert!(!short.status.success());
    assert!(String::from_utf8_lossy(&short.stderr).contains("8 to 1024 characters"));
}
