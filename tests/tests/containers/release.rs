//! The release scripts: what the packages contain, that the same programs give the same bytes, and what is rejected.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use testkit::process::binary;
use testkit::tools::{STRICT, announce_skip, project_root, require_installed, require_tool};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const PROGRAMS: [&str; 4] = ["ip-lookup", "lookup-svc", "quota-svc", "dashboard-api"];
/// 2024-02-29 00:00:00 UTC.
const LEAP_DAY: &str = "1709164800";

/// Checks a document against the schema of CycloneDX, and its licenses against the expressions of SPDX.
const VALIDATE: &str = r#"
import json, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing
text = open(sys.argv[1]).read()
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
if error:
    sys.exit(repr(error))
for component in json.loads(text)["components"]:
    problems = get_spdx_licensing().validate(component["licenses"][0]["expression"]).errors
    if problems:
        sys.exit(f"{component['name']}: {problems}")
"#;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn package(to: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("python3");
    command.arg(project_root().join("release/package.py")).arg("--to").arg(to).args(arguments);
    // The fastest: debug builds are large.
    command.args(["--compression", "1"]);
    command.env("SOURCE_DATE_EPOCH", LEAP_DAY).output().unwrap()
}

/// Copies of the debug builds without symbols, which would take most of the time to compress.
fn stripped_programs() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in PROGRAMS {
        run(Command::new("strip").arg("-o").arg(dir.path().join(name)).arg(binary(name)));
    }
    dir
}

/// Unpacks the archive of this machine's architecture and returns its directory.
fn unpack(packages: &Path) -> PathBuf {
    let folder = format!("ip-lookup-{VERSION}-{ARCH}-linux");
    let archive = packages.join(format!("{folder}.tar.gz"));
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(packages));
    packages.join(folder)
}

#[test]
fn slow_packages_are_complete_valid_and_reproducible() {
    let (Some(helm), Some(python)) =
        (require_installed(".venv/bin/helm"), require_installed(".venv/bin/python"))
    else {
        return;
    };
    let (programs, out) = (stripped_programs(), tempfile::tempdir().unwrap());
    let build = format!("{ARCH}={}", programs.path().display());
    let [first, second] = ["first", "second"].map(|name| out.path().join(name));
    for to in [&first, &second] {
        let output = package(to, &["--allow-dynamic", "--registry", "registry.example/owner", &build]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let names: BTreeSet<_> =
        fs::read_dir(&first).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let chart = format!("ip-lookup-chart-{VERSION}.tgz");
    let (archive, bom) =
        (format!("ip-lookup-{VERSION}-{ARCH}-linux.tar.gz"), format!("ip-lookup-{VERSION}.cdx.json"));
    assert_eq!(names, BTreeSet::from([archive, bom.clone(), chart.clone(), "SHA256SUMS".to_owned()]));
    for name in &names {
        assert!(
            fs::read(first.join(name)).unwrap() == fs::read(second.join(name)).unwrap(),
            "{name} differs"
        );
    }
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&first));

    archive_works_in_usr_local(&unpack(&first), programs.path());
    chart_uses_the_images_of_the_registry(&helm, &first.join(chart));
    run(Command::new(python).arg("-c").arg(VALIDATE).arg(first.join(&bom)));
    bom_has_what_the_programs_contain(&serde_json::from_slice(&fs::read(first.join(bom)).unwrap()).unwrap());
}

fn archive_works_in_usr_local(dir: &Path, programs: &Path) {
    for name in PROGRAMS {
        let program = dir.join("bin").join(name);
        assert!(fs::read(&program).unwrap() == fs::read(programs.join(name)).unwrap(), "{name} differs");
        assert_eq!(run(Command::new(&program).arg("-V")).trim(), format!("{name} {VERSION}"));
        for file in [
            format!("share/bash-completion/completions/{name}"),
            format!("share/zsh/site-functions/_{name}"),
            format!("share/fish/vendor_completions.d/{name}.fish"),
            format!("share/man/man1/{name}.1"),
        ] {
            let text = fs::read_to_string(dir.join(&file)).unwrap();
            assert!(text.contains(name), "{file}: {text}");
        }
    }
    let unit = fs::read_to_string(dir.join("lib/systemd/system/ip-lookup.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/bin/ip-lookup\n"));
    for file in
        ["LICENSE", "README.md", "CHANGELOG.md", "docs/single-machine.md", "deploy/monitoring/alerts.yaml"]
    {
        assert!(fs::read(dir.join(file)).unwrap() == fs::read(project_root().join(file)).unwrap(), "{file}");
    }
    document_links_resolve(dir);
    let licenses = fs::read_to_string(dir.join("THIRD-PARTY-LICENSES.txt")).unwrap();
    assert!(licenses.contains("\ntokio ") && licenses.contains("Permission is hereby granted"));
    assert!(!licenses.contains(project_root().to_str().unwrap()));
    // The time of the entries is the given one.
    let modified = fs::metadata(dir.join("LICENSE")).unwrap().modified().unwrap();
    let seconds = modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(seconds.to_string(), LEAP_DAY);
}

fn document_links_resolve(dir: &Path) {
    let mut links = 0;
    for document in run(Command::new("find").arg(dir).args(["-name", "*.md"])).lines().map(Path::new) {
        let text = fs::read_to_string(document).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        for target in targets.filter(|target| !target.is_empty() && !target.starts_with("https://")) {
            links += 1;
            let file = document.parent().unwrap().join(target);
            assert!(file.is_file(), "{} links to {target}, which is not packaged", document.display());
        }
    }
    assert!(links > 100, "only {links} links found");
}

fn chart_uses_the_images_of_the_registry(helm: &Path, chart: &Path) {
    run(Command::new(helm).arg("lint").arg("--strict").arg(chart));
    let rendered = run(Command::new(helm)
        .args(["template", "test"])
        .arg(chart)
        .args(["--set", "hosts.api=ip.example.org,hosts.dashboard=keys.example.org"]));
    let images: BTreeSet<_> = rendered
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("image: "))
        .map(|image| image.trim_matches('"'))
        .collect();
    for name in ["lookup-svc", "quota-svc", "dashboard-api"] {
        let image = format!("registry.example/owner/ip-lookup/{name}:{VERSION}");
        assert!(images.contains(image.as_str()), "{images:?}");
    }
    assert!(images.iter().any(|image| image.starts_with("valkey/valkey:")), "{images:?}");
}

fn bom_has_what_the_programs_contain(bom: &Value) {
    let components: BTreeMap<_, _> = bom["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| (component["bom-ref"].as_str().unwrap(), component))
        .collect();
    let scope = |name: &str| {
        let mut found = components.values().filter(|component| component["name"] == name);
        found.next().map_or("none", |component| component["scope"].as_str().unwrap())
    };
    // In the programs, only run during the build, only in tests.
    assert_eq!(["tokio", "serde_derive", "proptest"].map(scope), ["required", "excluded", "none"]);
    assert_eq!(["service-kit", "testkit", "e2e"].map(scope), ["required", "none", "none"]);
    let lock = fs::read_to_string(project_root().join("Cargo.lock")).unwrap();
    for (reference, component) in &components {
        let Some(hash) = component["hashes"][0]["content"].as_str() else { continue };
        let in_lock = lock.contains(&format!("checksum = \"{hash}\""));
        assert!(in_lock || component["type"] == "data", "{reference}");
    }
    let mut edges = 0;
    for dependency in bom["dependencies"].as_array().unwrap() {
        for reference in dependency["dependsOn"].as_array().unwrap() {
            edges += 1;
            assert!(components.contains_key(reference.as_str().unwrap()), "{reference}");
        }
    }
    assert!(components.len() > 200 && edges > components.len(), "{} {edges}", components.len());
}

#[test]
fn package_rejects_missing_foreign_and_dynamic_programs() {
    let out = tempfile::tempdir().unwrap();
    let debug = binary("ip-lookup").parent().unwrap().display().to_string();
    let foreign = if ARCH == "aarch64" { "x86_64" } else { "aarch64" };
    for (build, problem) in [
        (format!("{ARCH}={}", out.path().display()), "ip-lookup is missing".to_owned()),
        (format!("{foreign}={debug}"), format!("is not for {foreign}")),
        (
            format!("{ARCH}={debug}"),
            format!("needs shared libraries; build it for {ARCH}-unknown-linux-musl"),
        ),
        (format!("mips={debug}"), "is not ARCH=DIR".to_owned()),
    ] {
        let to = out.path().join("packages");
        let output = package(&to, &[&build]);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(&problem), "{build}: {error}");
        assert!(!to.exists(), "{build}: nothing is written");
    }
}

/// A copy of the chart and of the files that the release scripts read, ready for the release of this version.
fn project() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("helm")).unwrap();
    run(Command::new("cp").arg("-R").arg(project_root().join("helm/ip-lookup")).arg(dir.path().join("helm")));
    for file in [
        "Cargo.toml",
        "Dockerfile",
        "release/check.py",
        "release/package.py",
        "release/project.py",
        "release/sbom.py",
    ] {
        let target = dir.path().join(file);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(project_root().join(file), target).unwrap();
    }
    edit(
        dir.path(),
        "Cargo.toml",
        "\nrepository = \"",
        "\nrepository = \"https://localhost/owner/name\" # \"",
    );
    let log = format!(
        "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [{VERSION}] - 2026-11-16\n\n### Added\n\n- This.\n\n\
         ## [0.0.1] - 2026-01-01\n\n- Before.\n"
    );
    fs::write(dir.path().join("CHANGELOG.md"), log).unwrap();
    dir
}

fn edit(dir: &Path, file: &str, from: &str, to: &str) {
    let text = fs::read_to_string(dir.join(file)).unwrap();
    assert!(text.contains(from), "{file}: {from}");
    fs::write(dir.join(file), text.replace(from, to)).unwrap();
}

/// The output of `release/check.py`, or its errors.
fn check(dir: &Path, tag: &str) -> Result<String, String> {
    let mut command = Command::new("python3");
    command.arg(dir.join("release/check.py")).args([tag, "--repository", "https://localhost/owner/name"]);
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn release_check_prints_the_notes_or_names_each_problem() {
    let tag = format!("v{VERSION}");
    assert_eq!(check(project().path(), &tag).unwrap(), "### Added\n\n- This.\n");
    let wrong_tag = check(project().path(), "v1.2").unwrap_err();
    assert!(wrong_tag.contains("not v and a semantic version") && wrong_tag.contains(VERSION), "{wrong_tag}");
    for (file, from, to, problem) in [
        ("helm/ip-lookup/Chart.yaml", "\nversion: ", "\nversion: 9.", "Chart.yaml has 9."),
        ("helm/ip-lookup/Chart.yaml", "appVersion: \"", "appVersion: \"9.", "Chart.yaml has 9."),
        ("Dockerfile", "image.version=\"", "image.version=\"9.", "Dockerfile has 9."),
        ("Cargo.toml", "/owner/name", "/another/name", "repository in Cargo.toml is"),
        ("CHANGELOG.md", "- 2026-11-16", "", "CHANGELOG.md has no section"),
        ("CHANGELOG.md", "### Added\n\n- This.\n", "", "CHANGELOG.md has no section"),
    ] {
        let project = project();
        edit(project.path(), file, from, to);
        let error = check(project.path(), &tag).unwrap_err();
        assert!(error.contains(problem) && error.lines().count() == 1, "{file}: {error}");
    }
}

#[test]
fn chart_of_a_release_links_to_its_runbooks() {
    let Some(helm) = require_installed(".venv/bin/helm") else { return };
    let (project, chart) = (project(), tempfile::tempdir().unwrap());
    let write = "import pathlib, sys\n\
                 sys.path.insert(0, sys.argv[1])\n\
                 import package\n\
                 for name, content in package.chart('').items():\n    \
                     file = pathlib.Path(sys.argv[2], name)\n    \
                     file.parent.mkdir(parents=True, exist_ok=True)\n    \
                     file.write_bytes(content)\n";
    let mut python = Command::new("python3");
    python.args(["-c", write]).arg(project.path().join("release")).arg(chart.path());
    run(python.env("PYTHONDONTWRITEBYTECODE", "1"));
    let about = run(Command::new(&helm).args(["show", "chart"]).arg(chart.path()));
    assert!(about.contains("home: https://localhost/owner/name\n"), "{about}");
    let values =
        "hosts.api=ip.example.org,hosts.dashboard=keys.example.org,metrics.prometheusRule.enabled=true";
    let rendered =
        run(Command::new(&helm).args(["template", "test"]).arg(chart.path()).args(["--set", values]));
    let links: Vec<_> =
        rendered.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")).collect();
    let runbooks = format!("https://localhost/owner/name/blob/v{VERSION}/docs/runbooks.md#iplookup");
    assert!(!links.is_empty() && links.iter().all(|link| link.starts_with(&runbooks)), "{links:?}");
}

/// Builds as a release does, with a training run, but without optimization, which would take most of the time.
#[test]
fn slow_static_build_is_packaged_and_runs() {
    let target = format!("{ARCH}-unknown-linux-musl");
    let sysroot = run(Command::new("rustc").arg("--print=sysroot"));
    if !require_tool("musl-gcc") || !require_tool("git") {
        return;
    }
    if !Path::new(sysroot.trim()).join("lib/rustlib").join(&target).is_dir() {
        assert!(std::env::var_os(STRICT).is_none(), "{target} is missing, but ./test --all requires it");
        return announce_skip(&format!("{target} is missing (./test --all installs it)"));
    }
    let profdata = Command::new(project_root().join("release/profdata.sh")).output().unwrap();
    if !profdata.status.success() {
        assert!(std::env::var_os(STRICT).is_none(), "{}", text(&profdata.stderr));
        return announce_skip("llvm-profdata is missing (./test --all installs it)");
    }
    let llvmlibc = Command::new(project_root().join("release/llvmlibc.sh")).output().unwrap();
    if ARCH == "x86_64" && !llvmlibc.status.success() {
        assert!(std::env::var_os(STRICT).is_none(), "{}", text(&llvmlibc.stderr));
        return announce_skip("libllvmlibc.a is missing (./test --all installs it)");
    }
    let (programs, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target_dir = binary("ip-lookup").parent().unwrap().with_file_name("tmp").join("static");
    let mut build = Command::new(project_root().join("release/build.sh"));
    build.arg(ARCH).arg(programs.path()).env("CARGO_TARGET_DIR", target_dir).env("SOAK", binary("soak"));
    build.envs([
        ("CARGO_PROFILE_DIST_LTO", "off"),
        ("CARGO_PROFILE_DIST_OPT_LEVEL", "0"),
        ("CARGO_PROFILE_DIST_CODEGEN_UNITS", "16"),
        ("CARGO_PROFILE_DIST_STRIP", "debuginfo"),
        ("CARGO_INCREMENTAL", "0"),
    ]);
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "IP_LOOKUP_COMMIT", "SOURCE_DATE_EPOCH"] {
        build.env_remove(name);
    }
    run(&mut build);
    let packages = out.path().join("packages");
    let output = package(&packages, &[&format!("{ARCH}={}", programs.path().display())]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let dir = unpack(&packages);
    let mut git = Command::new("git");
    git.args(["show", "--no-patch", "--abbrev=10", "--date=format-local:%Y-%m-%d"]);
    git.args(["--format=commit %h, %cd", "HEAD"]).env("TZ", "UTC0").current_dir(project_root());
    let details = run(&mut git);
    for name in PROGRAMS {
        let program = dir.join("bin").join(name);
        let printed = run(Command::new(&program).arg("--version").env_clear());
        assert_eq!(printed.trim(), format!("{name} {VERSION} ({})", details.trim()));
        // LLVM's functions also have a C++ name; musl's have not.
        let symbols = run(Command::new("nm").arg(&program));
        for function in ["6memcpyEPv", "7memmoveEPv", "6memsetEPv", "6memcmpEPKv", "4bcmpEPKv"] {
            assert_eq!(symbols.contains(function), ARCH == "x86_64", "{function} in {name}");
        }
    }
}
