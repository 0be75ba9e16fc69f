//! Clients that generators make of the committed document, used against the running service.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Stdio;

use e2e::lookup::{Answer, Stack, unknown_key};
use e2e::quota::TestKey;
use e2e::tools::{project, require_installed, require_tool};
use quota_client::wire::{NewKey, Scope};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a program to its end and gives what it printed.
async fn run(command: &mut Command, input: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    // Who does not read its input may have closed it already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes()).await;
    let output = child.wait_with_output().await.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{printed}\n{complaint}");
    printed
}

/// Has openapi-generator write a client; it is Java in a Python package and fetches nothing.
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
    java.arg("-i").arg(project().join("openapi/lookup-svc.json")).arg("-o").arg(to);
    java.args(["--additional-properties", properties]);
    java.args(["--global-property", "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"]);
    run(&mut java, "").await;
    Some(())
}

/// A service with a key for each answer, as the programs in `tests/clients/` want to know it.
async fn world() -> (Stack, Value) {
    let stack = Stack::start(&["--demo-limit", "1", "--burst-limit", "20"], &[]).await;
    let (client, unknown) = (stack.quota.client(), unknown_key());
    let mut world = json!({ "url": stack.lookup.url(), "unknown": unknown });
    for (name, scope) in [("ip", Scope::Ip), ("geo", Scope::Geo), ("full", Scope::Full)] {
        world[name] = stack.key(scope).await.secret.into();
    }
    let inactive = stack.key(Scope::Full).await;
    client.deactivate_key(&inactive.key.id, None).await.unwrap();
    world["inactive"] = inactive.secret.into();
    let paused = stack.key(Scope::Full).await;
    paused.charge(&client, 21).await;
    world["paused"] = paused.secret.into();
    let small = NewKey { name: "small".to_owned(), scope: Scope::Full, daily_limit: Some(1) };
    let exhausted = TestKey::create(&client, &small).await;
    assert_eq!(Answer::of(stack.lookup.ask(&exhausted.secret)).await.status, 200);
    world["exhausted"] = exhausted.secret.into();
    (stack, world)
}

/// What a client of any language must have seen.
fn check(seen: &Value) {
    let count = |name: &str| seen[name]["fields"].as_array().map_or(0, Vec::len);
    for (name, fields) in
        [("ip", 3), ("geo", 19), ("full", 26), ("narrowed", 19), ("query", 19), ("demo", 23)]
    {
        assert_eq!(count(name), fields, "{name}: {seen:#}");
    }
    assert_eq!(seen["ip"]["fields"], json!(["ip", "ipv6", "status"]));
    for name in ["ip", "geo", "full"] {
        assert_eq!((&seen[name]["status"], &seen[name]["limit"]), (&json!(200), &json!("10000")), "{name}");
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
        let error = &seen[name];
        assert_eq!((&error["status"], &error["error"]), (&json!(status), &json!(code)), "{name}: {seen:#}");
        assert_eq!(error["enterprise"].is_string(), name == "daily", "{name}: {error}");
        assert_eq!(error["signup"].is_string(), name == "demo_limited", "{name}: {error}");
        assert_eq!(error["retry_after"].is_string(), status == 429, "{name}: {error}");
    }
    assert_eq!(seen["paused"]["retry_after"], "60");
}

#[tokio::test]
async fn a_generated_python_client_works() {
    let folder = tempfile::tempdir().unwrap();
    let properties = "packageName=ip_lookup_client";
    let Some(()) = generate("python", properties, folder.path()).await else { return };
    let (_stack, world) = world().await;
    let mut python = Command::new(project().join(".venv/bin/python"));
    python.arg("-B").arg(project().join("tests/clients/use_client.py")).env("PYTHONPATH", folder.path());
    check(&serde_json::from_str(&run(&mut python, &world.to_string()).await).unwrap());
}

#[tokio::test]
async fn a_generated_typescript_client_compiles_and_works() {
    let (Some(tsc), true) =
        (require_installed("tests/node/node_modules/typescript/bin/tsc"), require_tool("node"))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let generated = folder.path().join("client");
    let Some(()) = generate("typescript-fetch", "importFileExtension=.js", &generated).await else { return };
    std::fs::copy(project().join("tests/clients/use-client.ts"), folder.path().join("use-client.ts"))
        .unwrap();
    std::fs::write(folder.path().join("package.json"), r#"{ "type": "module" }"#).unwrap();
    let mut compile = Command::new("node");
    compile.arg(tsc).args(["--strict", "--target", "es2022", "--module", "nodenext", "use-client.ts"]);
    run(compile.current_dir(folder.path()), "").await;
    let (_stack, world) = world().await;
    let mut node = Command::new("node");
    node.arg("use-client.js").arg(world.to_string()).current_dir(folder.path());
    check(&serde_json::from_str(&run(&mut node, "").await).unwrap());
}
