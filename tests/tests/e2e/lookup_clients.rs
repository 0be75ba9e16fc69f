//! Clients generated from the committed OpenAPI document work against the running service.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Stdio;

use quota_client::wire::{NewKey, Scope, StateChange};
use serde_json::{Value, json};
use testkit::lookup::{JsonResponse, Stack, unknown_key};
use testkit::quota::TestKey;
use testkit::tools::{project_root, require_installed, require_tool};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a program to completion and returns its standard output.
async fn run(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    // A program that ignores its input may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes()).await;
    let output = child.wait_with_output().await.unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// Generates a client with openapi-generator, a Java program in a Python package. Needs no network. `None`
/// means that the test must be skipped.
async fn generate(language: &str, properties: &str, to: &Path) -> Option<()> {
    let python = require_installed(".venv/bin/python")?;
    if !require_tool("java") {
        return None;
    }
    let find = "import openapi_generator_cli as g, os; print(os.path.dirname(g.__file__))";
    let package = run(Command::new(python).args(["-c", find]), "").await;
    let jar = Path::new(package.trim()).join("openapi-generator.jar");
    let mut java = Command::new("java");
    java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar"])
        .arg(jar)
        .args(["generate", "-g", language]);
    java.arg("-i").arg(project_root().join("openapi/lookup-svc.json")).arg("-o").arg(to);
    java.args(["--additional-properties", properties]);
    java.args(["--global-property", "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"]);
    run(&mut java, "").await;
    Some(())
}

/// Starts the service and creates one key per expected response. The JSON is the input of the programs in
/// `tests/clients/`.
async fn start_with_keys() -> (Stack, Value) {
    let stack = Stack::start(&["--demo-limit", "1", "--burst-limit", "20"], &[]).await;
    let (client, unknown) = (stack.quota.client(), unknown_key());
    let mut input = json!({ "url": stack.lookup.url(), "unknown": unknown });
    for (name, scope) in [("ip", Scope::Ip), ("geo", Scope::Geo), ("full", Scope::Full)] {
        input[name] = stack.key_with_scope(scope).await.secret.into();
    }
    let inactive = stack.key_with_scope(Scope::Full).await;
    client.change_state(&inactive.key.id, None, StateChange::Deactivate).await.unwrap();
    input["inactive"] = inactive.secret.into();
    let paused = stack.key_with_scope(Scope::Full).await;
    paused.charge(&client, 21).await;
    input["paused"] = paused.secret.into();
    let small = NewKey { daily_limit: Some(1), ..NewKey::new("small", Scope::Full) };
    let exhausted = TestKey::create(&client, &small).await;
    assert_eq!(JsonResponse::fetch(stack.lookup.get_ip(&exhausted.secret)).await.status, 200);
    input["exhausted"] = exhausted.secret.into();
    (stack, input)
}

/// Checks the results that a client of any language must report.
fn check(results: &Value) {
    let count = |name: &str| results[name]["fields"].as_array().map_or(0, Vec::len);
    for (name, fields) in
        [("ip", 3), ("geo", 19), ("full", 26), ("narrowed", 19), ("query", 19), ("demo", 23)]
    {
        assert_eq!(count(name), fields, "{name}: {results:#}");
    }
    assert_eq!(results["ip"]["fields"], json!(["ip", "ipv6", "status"]));
    for name in ["ip", "geo", "full"] {
        assert_eq!(
            (&results[name]["status"], &results[name]["limit"]),
            (&json!(200), &json!("10000")),
            "{name}"
        );
    }
    let errors = [
        ("missing", 401, "missing_api_key"),
        ("unknown", 401, "invalid_api_key"),
        ("inactive", 403, "inactive_api_key"),
        ("daily", 429, "rate_limit_exceeded"),
        ("paused", 429, "rate_limit_exceeded"),
        ("demo_limited", 429, "rate_limit_exceeded"),
    ];
    for (name, status, code) in errors {
        let error = &results[name];
        assert_eq!(
            (&error["status"], &error["error"]),
            (&json!(status), &json!(code)),
            "{name}: {results:#}"
        );
        assert_eq!(error["enterprise"].is_string(), name == "daily", "{name}: {error}");
        assert_eq!(error["signup"].is_string(), name == "demo_limited", "{name}: {error}");
        assert_eq!(error["retry_after"].is_string(), status == 429, "{name}: {error}");
    }
    assert_eq!(results["paused"]["retry_after"], "60");
}

#[tokio::test]
async fn slow_generated_python_client_works() {
    let dir = tempfile::tempdir().unwrap();
    let properties = "packageName=ip_lookup_client";
    let Some(()) = generate("python", properties, dir.path()).await else { return };
    let (_stack, input) = start_with_keys().await;
    let mut python = Command::new(project_root().join(".venv/bin/python"));
    python.arg("-B").arg(project_root().join("tests/clients/use_client.py")).env("PYTHONPATH", dir.path());
    check(&serde_json::from_str(&run(&mut python, &input.to_string()).await).unwrap());
}

#[tokio::test]
async fn slow_generated_typescript_client_compiles_and_works() {
    let (Some(tsc), true) =
        (require_installed("tests/node/node_modules/typescript/bin/tsc"), require_tool("node"))
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let generated = dir.path().join("client");
    let Some(()) = generate("typescript-fetch", "importFileExtension=.js", &generated).await else { return };
    std::fs::copy(project_root().join("tests/clients/use-client.ts"), dir.path().join("use-client.ts"))
        .unwrap();
    std::fs::write(dir.path().join("package.json"), r#"{ "type": "module" }"#).unwrap();
    let mut compile = Command::new("node");
    compile.arg(tsc).args(["--strict", "--target", "es2022", "--module", "nodenext", "use-client.ts"]);
    run(compile.current_dir(dir.path()), "").await;
    let (_stack, input) = start_with_keys().await;
    let mut node = Command::new("node");
    node.arg("use-client.js").arg(input.to_string()).current_dir(dir.path());
    check(&serde_json::from_str(&run(&mut node, "").await).unwrap());
}
