//! Checks the Dockerfile and docker-compose.yaml without a container engine: lints the Dockerfile and compares both with
//! the chart. `containers.rs` builds and starts the images.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::process::Command;

use e2e::chart::{Chart, list, project_root, text, venv_tool, yaml_to_json};
use e2e::engine::images::{BUILD_IMAGE, HAPROXY_IMAGE, VALKEY_IMAGE};
use serde_json::Value;

const SERVICES: [&str; 3] = ["quota-svc", "lookup-svc", "dashboard-api"];

fn dockerfile() -> String {
    fs::read_to_string(project_root().join("Dockerfile")).unwrap()
}

fn compose() -> Value {
    let yaml = fs::read_to_string(project_root().join("docker-compose.yaml")).unwrap();
    serde_json::from_str::<Value>(&yaml_to_json(&yaml)).unwrap()[0].clone()
}

#[test]
fn hadolint_reports_no_problems() {
    let Some(hadolint) = venv_tool("hadolint") else { return };
    let output = Command::new(hadolint).arg(project_root().join("Dockerfile")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn dockerfile_chart_and_compose_agree_on_images_and_user() {
    if venv_tool("helm").is_none() {
        return;
    }
    let (dockerfile, compose) = (dockerfile(), compose());
    assert!(dockerfile.contains("\nUSER 65532:65532\n"));
    let chart = Chart::render(&[]).unwrap();
    for service in SERVICES {
        assert!(dockerfile.contains(&format!("\nFROM base AS {service}\n")), "{service}");
        assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/usr/local/bin/{service}\"]")), "{service}");
        assert_eq!(compose["services"][service]["build"]["target"], service);
        assert_eq!(compose["services"][service]["user"], "65532:65532");
        assert_eq!(compose["services"][service]["read_only"], true);
        let image = format!("ip-lookup/{service}:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(compose["services"][service]["image"], image.as_str());
        assert!(
            chart.objects.iter().any(|object| object.to_string().contains(&format!("\"{image}\""))),
            "{image}"
        );
    }
    let valkey = &chart.object("StatefulSet", "-valkey")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&valkey["image"], &compose["services"]["valkey"]["image"]),
        (&VALKEY_IMAGE.into(), &VALKEY_IMAGE.into())
    );
    for deployment in chart.of_kind("Deployment") {
        let security = &deployment["spec"]["template"]["spec"]["securityContext"];
        assert_eq!((&security["runAsUser"], &security["runAsNonRoot"]), (&65532.into(), &true.into()));
    }
}

/// `containers.rs` loads stand-ins under these names.
#[test]
fn base_images_are_those_of_the_container_tests() {
    if venv_tool("python").is_none() {
        return;
    }
    let (dockerfile, compose) = (dockerfile(), compose());
    let version = dockerfile.split("ARG RUST_VERSION=").nth(1).unwrap().lines().next().unwrap();
    assert_eq!(BUILD_IMAGE, format!("rust:{version}-slim"));
    assert_eq!(
        version,
        env!("CARGO_PKG_RUST_VERSION"),
        "the Dockerfile builds with the oldest supported Rust"
    );
    assert_eq!(compose["services"]["haproxy"]["image"], HAPROXY_IMAGE);
    assert!(!dockerfile.contains("syntax="), "BuildKit would download the parser that such a line names");
}

/// The Dockerfile builds the dependencies from manifests and empty sources. Cargo must accept these as a workspace.
#[test]
fn dockerfile_manifests_stage_is_a_valid_workspace() {
    let dockerfile = dockerfile();
    let stage = dockerfile.split("AS manifests\n").nth(1).unwrap();
    let script = stage.split("RUN ").nth(1).unwrap().split("\n\n").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ignore = fs::read_to_string(project_root().join(".dockerignore")).unwrap();
    // Copies the files that `COPY . .` would copy. In .dockerignore, a line with `!` includes a name; the other lines
    // exclude directories below it.
    let names = ignore.lines().filter_map(|line| line.strip_prefix('!'));
    let archive = dir.path().join("sources.tar");
    let mut tar = Command::new("tar");
    tar.args(["--exclude=node", "--exclude=artifacts", "--exclude=target", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(project_root());
    assert!(tar.args(names).status().unwrap().success());
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(dir.path()).status().unwrap();
    assert!(unpacked.success());
    let prepared = Command::new("sh").args(["-ec", script]).current_dir(dir.path()).output().unwrap();
    assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
    let metadata = ["metadata", "--locked", "--offline", "--no-deps", "--format-version=1"];
    let output = Command::new(env!("CARGO")).args(metadata).current_dir(dir.path()).output().unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let packages: Vec<_> = list(&metadata["packages"]).map(|package| text(&package["name"])).collect();
    assert!(SERVICES.iter().all(|service| packages.contains(service)), "{packages:?}");
    assert!(
        !dir.path().join("crates/geo/data").exists(),
        "only manifests and empty sources are left, so that changes to other files do not invalidate the cached layer"
    );
}
