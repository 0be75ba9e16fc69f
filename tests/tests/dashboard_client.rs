//! A Python client that openapi-generator makes of the document signs in, lists the keys and resumes one.
#![expect(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use e2e::process::Service;
use e2e::quota::{Quota, StoreChoice};
use e2e::tools::{STRICT, announce_skip, require_tool};
use quota_client::wire::{Charge, ChargeRequest, KeyState, NewKey, Scope};

const PROGRAM: &str = r#"
import sys
import dashboard_client as d

url, login, password = sys.argv[1:]
configuration = d.Configuration(host=url)
with d.ApiClient(configuration) as client:
    client.set_default_header("Origin", url)
    account, keys = d.AccountApi(client), d.KeysApi(client)
    try:
        keys.list_keys()
        raise SystemExit("a list without a session")
    except d.exceptions.UnauthorizedException as refused:
        assert d.ErrorResponse.from_json(refused.body).error == "unauthenticated", refused.body
    csrf = d.CsrfToken("1")
    entered = account.sign_in_with_http_info(csrf, d.Credentials(login=login, password=password))
    assert entered.data.login == login, entered.data
    headers = {name.lower(): value for name, value in entered.headers.items()}
    configuration.api_key["session"] = headers["set-cookie"].split(";")[0].split("=", 1)[1]
    for key in keys.list_keys().keys:
        print("listed", key.id, key.state.value, key.pause.reason if key.pause else "-")
        if key.state == d.KeyState.PAUSED:
            print("resumed", keys.resume_key(key.id, csrf).state.value)
    account.sign_out(csrf)
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A tool of the Python environment; `None` where the test is skipped.
fn python_tool(name: &str) -> Option<PathBuf> {
    let tool = root().join(".venv/bin").join(name);
    if require_tool("java") && tool.exists() {
        return Some(tool);
    }
    assert!(std::env::var_os(STRICT).is_none(), "{name} is missing, and under ./test nothing may be");
    announce_skip(&format!("{name} is missing (./test installs it)"));
    None
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    output
}

#[tokio::test]
async fn a_generated_client_lists_and_resumes_keys() {
    let (Some(generate), Some(python)) = (python_tool("openapi-generator-cli"), python_tool("python")) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let client = folder.path().join("client");
    let document = root().join("openapi/dashboard-api.json");
    run(Command::new(generate)
        .args(["generate", "-g", "python", "--package-name", "dashboard_client", "-i"])
        .arg(document)
        .arg("-o")
        .arg(&client));

    let quota = Quota::start(StoreChoice::File(folder.path().join("store"))).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let (_dashboard, url) = dashboard(&quota, folder.path()).await;
    let paused = paused_key(&quota, &url).await;

    let mut program = Command::new(python);
    program.env("PYTHONPATH", &client).env("NO_PROXY", "*").args([
        "-c",
        PROGRAM,
        &url,
        "ada",
        "correct horse",
    ]);
    let told = String::from_utf8_lossy(&run(&mut program).stdout).into_owned();
    let expected =
        format!("listed {paused} paused more than 300 requests within 60 seconds\nresumed active\n");
    assert_eq!(told, expected);
    assert_eq!(quota.client().key(&paused, None).await.unwrap().state, KeyState::Active);
}

async fn dashboard(quota: &Quota, folder: &Path) -> (Service, String) {
    let key = folder.join("session.key");
    std::fs::write(&key, [7; 32]).expect("the key can be written");
    let key = key.to_str().expect("a plain path");
    let args = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--session-key-file", key];
    let mut service =
        Service::spawn("dashboard-api", &[args.as_slice(), &["--quota-url", quota.url()]].concat(), &[]);
    let url = format!("http://{}", service.listening("dashboard").await);
    (service, url)
}

/// The id of a key of ada's that made 301 requests at once.
async fn paused_key(quota: &Quota, url: &str) -> String {
    let sign_up = e2e::http::client()
        .post(format!("{url}/api/v1/account"))
        .header("Origin", url)
        .header("X-CSRF-Token", "1");
    let body = serde_json::json!({"login": "ada", "password": "correct horse"});
    assert_eq!(sign_up.json(&body).send().await.unwrap().status(), 201);
    let client = quota.client();
    let account = client.find_account("ada").await.unwrap().expect("she has signed up");
    let key = NewKey { name: "busy".to_owned(), scope: Scope::Full, daily_limit: None };
    let created = client.create_key(&account.id, &key).await.unwrap();
    let key_sha256 = Some(api_key::ApiKey::parse(&created.secret).unwrap().digest().to_hex());
    let charges = vec![Charge { key_sha256, demo: None }; 301];
    for batch in charges.chunks(256) {
        client.charge(&ChargeRequest { charges: batch.to_vec() }).await.unwrap();
    }
    created.key.id
}
