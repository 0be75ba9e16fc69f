//! A Python client that openapi-generator creates from the OpenAPI document signs in, lists keys and resumes one.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

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
        raise SystemExit("keys were listed without a session")
    except d.exceptions.UnauthorizedException as error:
        assert d.ErrorResponse.from_json(error.body).error == "unauthenticated", error.body
    csrf = d.CsrfToken("1")
    response = account.sign_in_with_http_info(csrf, d.Credentials(login=login, password=password))
    assert response.data.login == login, response.data
    headers = {name.lower(): value for name, value in response.headers.items()}
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

/// A tool in the Python environment. `None` means skipped.
fn python_tool(name: &str) -> Option<PathBuf> {
    let tool = root().join(".venv/bin").join(name);
    if require_tool("java") && tool.exists() {
        return Some(tool);
    }
    assert!(std::env::var_os(STRICT).is_none(), "{name} is missing, but ./test requires it");
    announce_skip(&format!("{name} is missing (./test installs it)"));
    None
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    output
}

#[tokio::test]
async fn generated_python_client_lists_and_resumes_keys() {
    let (Some(generate), Some(python)) = (python_tool("openapi-generator-cli"), python_tool("python")) else {
        return;
    };
    let dir = tempfile::tempdir().expect("temporary directory");
    let client = dir.path().join("client");
    let document = root().join("openapi/dashboard-api.json");
    run(Command::new(generate)
        .args(["generate", "-g", "python", "--package-name", "dashboard_client", "-i"])
        .arg(document)
        .arg("-o")
        .arg(&client));

    let quota = Quota::start(StoreChoice::File(dir.path().join("store"))).await;
    quota.wait_ready(Duration::from_secs(20)).await;
    let (_dashboard, url) = start_dashboard(&quota, dir.path()).await;
    let paused = paused_key(&quota, &url).await;

    let mut program = Command::new(python);
    program.env("PYTHONPATH", &client).env("NO_PROXY", "*").args([
        "-c",
        PROGRAM,
        &url,
        "ada",
        "correct horse",
    ]);
    let printed = String::from_utf8_lossy(&run(&mut program).stdout).into_owned();
    let expected =
        format!("listed {paused} paused more than 300 requests within 60 seconds\nresumed active\n");
    assert_eq!(printed, expected);
    assert_eq!(quota.client().key(&paused, None).await.unwrap().state, KeyState::Active);
}

async fn start_dashboard(quota: &Quota, dir: &Path) -> (Service, String) {
    let key = dir.join("session.key");
    std::fs::write(&key, [7; 32]).expect("the session key is written");
    let key = key.to_str().expect("the path is UTF-8");
    let args = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--session-key-file", key];
    let mut service =
        Service::spawn("dashboard-api", &[args.as_slice(), &["--quota-url", quota.url()]].concat(), &[]);
    let url = format!("http://{}", service.listen_addr("dashboard").await);
    (service, url)
}

/// The ID of a key that 301 charges have paused, in a new account `ada`.
async fn paused_key(quota: &Quota, url: &str) -> String {
    let sign_up = e2e::http::client()
        .post(format!("{url}/api/v1/account"))
        .header("Origin", url)
        .header("X-CSRF-Token", "1");
    let body = serde_json::json!({"login": "ada", "password": "correct horse"});
    assert_eq!(sign_up.json(&body).send().await.unwrap().status(), 201);
    let client = quota.client();
    let account = client.find_account("ada").await.unwrap().expect("the account exists");
    let key = NewKey { name: "busy".to_owned(), scope: Scope::Full, daily_limit: None };
    let created = client.create_key(&account.id, &key).await.unwrap();
    let key_sha256 = Some(api_key::ApiKey::parse(&created.secret).unwrap().digest().to_hex());
    let charges = vec![Charge { key_sha256, demo: None }; 301];
    for batch in charges.chunks(256) {
        client.charge(&ChargeRequest { charges: batch.to_vec() }).await.unwrap();
    }
    created.key.id
}
