//! Checks the documents: the README's commands run and print the output that it shows; links, paths and flags exist;
//! the documented Redis user has the required permissions.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use e2e::documents::{blocks, blocks_of, read};
use quota_client::wire::{Outcome, StateChange};
use testkit::ports::ReservedPort;
use testkit::process::{Service, binary};
use testkit::quota::{Quota, StoreChoice};
use testkit::redis::Redis;
use testkit::tools::{self, project_root};
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Flags of cargo, nextest, helm, docker, curl, git, systemd, Prometheus, cosign and `./test`, and of our benchmarks and
/// scripts.
const OTHER_FLAGS: &str = "--release --config --profile --bin --bins --lib --test --workspace --keys --minutes \
    --set --namespace --create-namespace --target --wait --help \
    --all --rootless --ignore-default-filter --manifest-path --target-dir --write \
    --tag --detach --name --volume --volumes-from --publish --force --rm --network --build --pull --no-build --cacert \
    --haproxy-protocol --insecure --fail --silent --show-error --max-time --dry-run --now --unit --follow \
    --build-arg --to --sign --check --ignore-missing --repo --bundle --new-bundle-format --certificate-identity \
    --certificate-oidc-issuer --retry --retry-all-errors --version --tags --compare --from --all-containers";

/// Every document in the top directory, in `docs` and its directories, and the README of the tests.
fn documents() -> Vec<String> {
    let mut documents = vec!["tests/README.md".to_owned()];
    let mut directories = vec![String::new(), "docs/".to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(project_root().join(&directory)).unwrap().map(Result::unwrap) {
            let path = format!("{directory}{}", entry.file_name().to_str().unwrap());
            match entry.file_type().unwrap().is_dir() {
                true if path.starts_with("docs/") => directories.push(path + "/"),
                false if path.ends_with(".md") => documents.push(path),
                _ => {}
            }
        }
    }
    assert!(documents.len() > 20, "only {documents:?} found");
    documents
}

/// The environment in which the README's blocks run: an empty directory, free ports instead of the default ones, and a
/// local geo data provider.
///
/// Where a block says `cargo run --release`, the test starts the debug binary instead, because a release build would take
/// minutes.
struct QuickStart {
    dir: tempfile::TempDir,
    /// Environment variable, free port, and the default port that it replaces.
    ports: [(&'static str, ReservedPort, u16); 4],
    server: Option<Service>,
    geo_url: String,
    /// The API key that the first start prints.
    key: String,
}

impl QuickStart {
    fn new(geo_url: String) -> Self {
        let port = |name, number| (name, ReservedPort::new(), number);
        let (api, dashboard) = (port("IP_LOOKUP_LISTEN", 8080), port("IP_LOOKUP_DASHBOARD_LISTEN", 8081));
        let ports =
            [api, dashboard, port("IP_LOOKUP_QUOTA_LISTEN", 8082), port("IP_LOOKUP_ADMIN_LISTEN", 9080)];
        Self { dir: tempfile::tempdir().unwrap(), ports, server: None, geo_url, key: String::new() }
    }

    /// Runs a block and returns its output.
    async fn run(&mut self, block: &str) -> String {
        match block.trim() {
            "cargo run --release" => self.start().await,
            "./test" => check_test_script(),
            _ => self.shell(block),
        }
    }

    /// Starts the server and checks its banner.
    async fn start(&mut self) -> String {
        let dir = self.dir.path().to_str().unwrap();
        let addresses: Vec<_> =
            self.ports.iter().map(|(name, port, _)| (*name, port.addr().to_string())).collect();
        let env: Vec<_> = addresses.iter().map(|(name, addr)| (*name, addr.as_str())).collect();
        let server = self.server.insert(Service::spawn_under(&["env", "-C", dir], "ip-lookup", &[], &env));
        let banner = async || match server.stdout() {
            printed if printed.contains("Press Ctrl-C to stop.") => Ok(printed),
            _ => Err(server.logs()),
        };
        let printed = eventually_ok(WAIT_TIMEOUT, "the banner", banner).await;
        let after =
            |title: &str| printed.split_once(title).and_then(|(_, rest)| rest.split_whitespace().next());
        let (key, password) = after("API key").zip(after("Password")).unwrap();
        key.clone_into(&mut self.key);
        // As the README shows it: placeholders for the secrets, and the default ports.
        let documented = printed.replace(key, "ipl_…").replace(password, "…");
        let documented = self.ports.iter().fold(documented, |text, (_, port, default)| {
            text.replace(&format!(":{}", port.number()), &format!(":{default}"))
        });
        check_banner(self, &documented);
        documented
    }

    /// Runs a block with the binaries of the tests and the local geo data provider. Every curl must succeed.
    fn shell(&self, block: &str) -> String {
        let bin_dir = binary("ip-lookup").parent().unwrap().display().to_string();
        let block = self.ports.iter().fold(block.to_owned(), |text, (_, port, default)| {
            text.replace(&format!("localhost:{default}"), &port.addr().to_string())
        });
        let block = block.replace("cargo run --release --", &format!("{bin_dir}/ip-lookup"));
        let block = block.replace(
            "geo-update dbip-lite",
            &format!("geo-update dbip-lite --provider-url {}", self.geo_url),
        );
        let script =
            format!("set -euo pipefail\ncurl() {{ command curl --fail-with-body -sS \"$@\"; }}\n{block}");
        bash(&script, self.dir.path(), &[("API_KEY", &self.key)])
    }
}

/// Installs the chart from the checkout and uninstalls it. Without a cluster, only renders it, which checks the values
/// against the schema.
fn run_cluster_block(block: &str) {
    let setup = "set -euo pipefail\nPATH=\"$PWD/.venv/bin:$PATH\"\n";
    if std::env::var_os("KUBECONFIG").is_some() {
        // The cluster of the tests has no ingress controller.
        let block = block.replace("edge.profile=haproxy,ingress.enabled=true", "edge.profile=none");
        let cleanup = "trap 'helm uninstall ip-lookup --namespace ip-lookup' EXIT";
        bash(&format!("{setup}{cleanup}\n{block}"), &project_root(), &[]);
    } else if project_root().join(".venv/bin/helm").exists() {
        let template = block.replace("helm install", "helm template").replace("helm test", ": helm test");
        let rendered =
            bash(&format!("{setup}{template}"), &project_root(), &[("REGISTRY", "registry.example")]);
        assert!(rendered.contains("registry.example/ip-lookup/lookup-svc"), "{rendered}");
        tools::announce_skip(
            "KUBECONFIG is not set, so the README's cluster block was rendered, not installed",
        );
    } else {
        assert!(std::env::var_os(tools::STRICT).is_none(), "helm is missing, but ./test requires it");
    }
}

fn bash(script: &str, dir: &Path, env: &[(&str, &str)]) -> String {
    let mut bash = Command::new("bash");
    let output = bash.args(["-c", script]).current_dir(dir).envs(env.iter().copied()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}\n{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    printed
}

/// Only checks that `./test` is executable: it runs this test, so running it here would never end.
fn check_test_script() -> String {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(project_root().join("test")).unwrap().permissions().mode();
    assert_ne!(mode & 0o111, 0, "./test is executable");
    String::new()
}

/// Checks that the banner has the lines that the README shows of it, in this order, and that its curl lines work as
/// printed. In the README, a line with only `…` stands for lines that it leaves out.
fn check_banner(quick_start: &QuickStart, printed: &str) {
    let mut lines = printed.lines();
    for shown in blocks_of("README.md", "text")[0].lines().filter(|line| line.trim() != "…") {
        assert!(lines.any(|line| line == shown), "the banner has no line {shown:?} here:\n{printed}");
    }
    let curls: Vec<&str> = printed.lines().filter(|line| line.trim().starts_with("curl ")).collect();
    assert!(quick_start.shell(&curls.join("\n").replace("ipl_…", "$API_KEY")).contains("United States"));
}

/// A JSON text of the README as the service sends it: without line breaks and without spaces outside strings.
fn without_line_breaks(json: &str) -> String {
    let mut in_string = false;
    let is_kept = |c: &char| {
        in_string ^= *c == '"';
        in_string || !c.is_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn readme_commands_run_and_print_the_shown_output() {
    if !tools::require_tool("curl") {
        return;
    }
    let mut quick_start = QuickStart::new(testkit::http::serve(testkit::mmdb::sample::build()).await);
    let mut printed = String::new();
    let (mut ran, mut compared) = (0, 0);
    for (info, body) in blocks(&read("README.md")) {
        match info.as_str() {
            "sh" => {
                printed = quick_start.run(&body).await;
                ran += 1;
            }
            "sh cluster" => run_cluster_block(&body),
            "sh docker" | "sh compose" => assert!(
                blocks(&read("docs/docker.md")).contains(&(info.clone(), body.clone())),
                "docs/docker.md, whose blocks tests/tests/containers/images.rs runs, has another block: {body}"
            ),
            "json" => {
                assert_eq!(without_line_breaks(&body), printed.trim(), "the README shows another response");
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(ran >= 5 && compared >= 1, "too few blocks found: {ran} run, {compared} compared");
}

/// The anchor that GitHub generates for a heading.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let allowed = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    allowed.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn document_links_resolve() {
    let mut links = 0;
    for document in documents() {
        let text = read(&document);
        let found = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let images = text.split("<img src=\"").skip(1).filter_map(|rest| rest.split('"').next());
        for link in found.chain(images).filter(|link| !link.starts_with("https://")) {
            links += 1;
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let here = project_root().join(&document);
            let target = if file.is_empty() { here } else { here.parent().unwrap().join(file) };
            assert!(target.exists(), "{document} links to {link}, but the file does not exist");
            let text = fs::read_to_string(&target).unwrap_or_default();
            let mut headings = text.lines().filter_map(|line| line.strip_prefix('#')).map(anchor);
            assert!(
                section.is_empty() || headings.any(|a| a == section),
                "{document} links to {link}, but the section does not exist"
            );
        }
    }
    assert!(links > 20, "only {links} links found");
}

#[test]
fn paths_in_documents_exist() {
    let directories = "lookup-svc quota-svc dashboard-api standalone crates openapi tests bench fuzz helm";
    let is_path = |code: &str| directories.split(' ').any(|name| code.starts_with(&format!("{name}/")));
    let mut paths = BTreeSet::new();
    for document in documents() {
        let text = read(&document);
        let code =
            text.split('`').skip(1).step_by(2).filter(|code| is_path(code) && !code.contains(['*', ' ']));
        paths.extend(code.map(str::to_owned));
    }
    assert!(paths.len() > 30, "only {} paths found", paths.len());
    let missing: Vec<_> = paths.iter().filter(|path| !project_root().join(path).exists()).collect();
    assert!(missing.is_empty(), "the documents name paths that do not exist: {missing:?}");
}

#[test]
fn flags_in_documents_exist() {
    let commands = "ip-lookup|lookup-svc|quota-svc|dashboard-api|lookup-svc geo-update|lookup-svc selftest|lookup-svc explain|\
        quota-svc export|quota-svc key create|quota-svc key set-limit|quota-svc key set-expiry|quota-svc key set-origins|\
        quota-svc key rotate|quota-svc account suspend|quota-svc account delete|ip-lookup man|\
        ip-lookup geo-update|ip-lookup explain|ip-lookup account delete|ip-lookup key list|ip-lookup reset-password";
    let known: String = commands.split('|').map(help_of).chain([OTHER_FLAGS.to_owned()]).collect();
    let is_flag_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let known: BTreeSet<&str> =
        known.split(|c| !is_flag_char(c)).filter(|word| word.starts_with("--")).collect();
    for document in documents() {
        let text = read(&document);
        let flags = text
            .split(|c| !is_flag_char(c))
            .filter(|word| word.starts_with("--") && word.len() > 3 && !word.starts_with("---"));
        let unknown: BTreeSet<_> = flags.filter(|flag| !known.contains(flag)).collect();
        assert!(unknown.is_empty(), "{document} names flags that do not exist: {unknown:?}");
    }
}

fn help_of(command: &str) -> String {
    let mut words = command.split_whitespace();
    let program = binary(words.next().unwrap());
    let output = Command::new(program).args(words).arg("--help").output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn documented_redis_user_has_enough_permissions() {
    let guide = read("docs/redis.md");
    let (_, rules) = guide.split_once("user ipl on >PASSWORD ").unwrap();
    let rules = rules.split_once("\n\n").unwrap().0.split_whitespace().collect::<Vec<_>>().join(" ");
    let redis = Redis::options().appendonly().user("ipl", "secret", &rules).start().await;
    let url = redis.url().replace("redis://", "redis://ipl:secret@");
    let quota = Quota::start_with(StoreChoice::Redis { url, prefix: "ipl:".to_owned() }, &[]).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    assert_eq!(key.charge(&client, 200).await, [Outcome::Allowed; 200]);
    assert_eq!(key.charge(&client, 101).await.pop(), Some(Outcome::BurstExceeded));
    client.change_state(&key.key.id, None, StateChange::Resume).await.unwrap();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    assert!(client.events(&key.key.id, None).await.unwrap().events.len() >= 3);
    client.delete_key(&key.key.id, None).await.unwrap();
    assert_eq!(client.list_accounts(None, 10).await.unwrap().accounts.len(), 1);
    client.delete_account(&key.account, None).await.unwrap();
    assert!(!quota.service.logs().contains("NOPERM"), "{}", quota.service.logs());
}
