//! The documents tell the truth: the README's shell blocks run, what it shows is what is printed, and links, files,
//! flags and the Redis user that the documents name are really there.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use e2e::ports::ReservedPort;
use e2e::process::{Service, binary};
use e2e::quota::{Quota, StoreChoice};
use e2e::redis::Redis;
use e2e::tools;
use e2e::wait::eventually_ok;
use quota_client::wire::Outcome;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SOON: Duration = Duration::from_secs(20);
const DOCUMENTS: &str = "README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md \
    docs/architecture.md docs/decisions.md docs/operations.md docs/security.md";

/// Flags of cargo, helm and docker, and of our benchmarks.
const OTHERS_FLAGS: &str =
    "--release --profile --bin --keys --minutes --set --namespace --create-namespace --target --wait --help";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// The fenced blocks of a document: what stands behind the opening fence, and the text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let parts: Vec<&str> = text.split("\n```").collect();
    let fenced = parts.iter().skip(1).step_by(2).map(|block| block.split_once('\n').unwrap());
    fenced.map(|(mark, body)| (mark.to_owned(), body.to_owned())).collect()
}

/// What `cargo run --release` starts, with the ports of a newcomer replaced by free ones.
///
/// A release build of the whole workspace would take minutes and is compiled from the same sources, so the binary
/// that the tests have built already stands in for it.
struct Newcomer {
    folder: tempfile::TempDir,
    ports: [(&'static str, ReservedPort, u16); 4],
    server: Option<Service>,
    provider: String,
    /// Shown at the first start only.
    key: String,
}

impl Newcomer {
    fn new(provider: String) -> Self {
        let port = |name, number| (name, ReservedPort::new(), number);
        let (api, dashboard) = (port("LISTEN", 8080), port("DASHBOARD_LISTEN", 8081));
        let ports = [api, dashboard, port("QUOTA_LISTEN", 8082), port("ADMIN_LISTEN", 9080)];
        Self { folder: tempfile::tempdir().unwrap(), ports, server: None, provider, key: String::new() }
    }

    /// Runs a block; what it printed.
    async fn run(&mut self, block: &str) -> String {
        match block.trim().strip_prefix("cargo run --release") {
            Some(flags) if !flags.starts_with(" -p") => self.start(flags).await,
            _ if block.trim() == "./test" => check_test_script(),
            _ => self.shell(block),
        }
    }

    async fn start(&mut self, flags: &str) -> String {
        if let Some(mut before) = self.server.take() {
            before.term();
            assert!(before.wait_exit(SOON).await.success(), "Ctrl-C stops cleanly: {}", before.logs());
        }
        let folder = self.folder.path().to_str().unwrap();
        let flags: Vec<&str> = flags.split_whitespace().filter(|flag| *flag != "--").collect();
        let addresses: Vec<_> =
            self.ports.iter().map(|(name, port, _)| (*name, port.addr().to_string())).collect();
        let env: Vec<_> = addresses.iter().map(|(name, addr)| (*name, addr.as_str())).collect();
        let server =
            self.server.insert(Service::spawn_under(&["env", "-C", folder], "ip-lookup", &flags, &env));
        let greeted = async || match server.stdout() {
            printed if printed.contains("Stop with Ctrl-C.") => Ok(printed),
            _ => Err(server.logs()),
        };
        let printed = eventually_ok(SOON, "it greets", greeted).await;
        let after =
            |title: &str| printed.split_once(title).and_then(|(_, rest)| rest.split_whitespace().next());
        let Some((key, password)) = after("API key").zip(after("Password")) else { return printed };
        key.clone_into(&mut self.key);
        // The ports as the README writes them.
        let documented = printed.replace(key, "ipl_…").replace(password, "…");
        self.ports.iter().fold(documented, |text, (_, port, usual)| {
            text.replace(&format!(":{}", port.number()), &format!(":{usual}"))
        })
    }

    /// Each curl must succeed; our programs are those that are built already; the geo provider is a local one.
    fn shell(&self, block: &str) -> String {
        let folder = binary("ip-lookup").parent().unwrap().display().to_string();
        let block = self.ports.iter().fold(block.to_owned(), |text, (_, port, usual)| {
            text.replace(&format!("localhost:{usual}"), &port.addr().to_string())
        });
        let block = block.replace("cargo run --release -p quota-svc --", &format!("{folder}/quota-svc"));
        let block = block.replace("cargo run --release -p lookup-svc --", &format!("{folder}/lookup-svc"));
        let block = block.replace(
            "geo-update dbip-lite",
            &format!("geo-update dbip-lite --provider-url {}", self.provider),
        );
        let script =
            format!("set -euo pipefail\ncurl() {{ command curl --fail-with-body -sS \"$@\"; }}\n{block}");
        let quota = format!("http://{}", self.ports[2].1.addr());
        bash(&script, self.folder.path(), &[("KEY", &self.key), ("QUOTA_URL", &quota)])
    }
}

/// From the checkout, as it is written; what it installed is taken away again. Without a cluster the chart is rendered
/// with the same values, which its schema checks.
fn cluster(block: &str) {
    let helm = "set -euo pipefail\nPATH=\"$PWD/.venv/bin:$PATH\"\n";
    if std::env::var_os("KUBECONFIG").is_some() {
        let tidy = "trap 'helm uninstall ip-lookup --namespace ip-lookup' EXIT";
        bash(&format!("{helm}{tidy}\n{block}"), &root(), &[]);
    } else if root().join(".venv/bin/helm").exists() {
        let rendering = block.replace("helm install", "helm template").replace("helm test", ": helm test");
        let rendered = bash(&format!("{helm}{rendering}"), &root(), &[("REGISTRY", "registry.example")]);
        assert!(rendered.contains("registry.example/ip-lookup/lookup-svc"), "{rendered}");
        tools::announce_skip("KUBECONFIG is not set: the README's cluster block was rendered, not installed");
    } else {
        assert!(
            std::env::var_os(tools::STRICT).is_none(),
            "helm is missing, and under ./test nothing may be"
        );
    }
}

fn bash(script: &str, folder: &Path, env: &[(&str, &str)]) -> String {
    let mut bash = Command::new("bash");
    let done = bash.args(["-c", script]).current_dir(folder).envs(env.iter().copied()).output().unwrap();
    let printed = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{script}\n{printed}\n{}", String::from_utf8_lossy(&done.stderr));
    printed
}

/// `./test` runs this very test: running it here would never end.
fn check_test_script() -> String {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(root().join("test")).unwrap().permissions().mode();
    assert_ne!(mode & 0o111, 0, "./test can be run");
    String::new()
}

/// Answers every request with the sample database, as a provider of geo data would with its own.
async fn geo_provider() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let database = fs::read(root().join("lookup-svc/data/sample.mmdb")).unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read(&mut [0; 4096]).await;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", database.len());
            let _ = client.write_all(head.as_bytes()).await;
            let _ = client.write_all(&database).await;
        }
    });
    address
}

/// The README shows it, and its curl lines work as printed.
fn check_greeting(newcomer: &Newcomer, printed: &str) {
    assert!(
        read("README.md").contains(printed.trim()),
        "the README does not show what is printed:\n{printed}"
    );
    let curls: Vec<&str> = printed.lines().filter(|line| line.trim().starts_with("curl ")).collect();
    assert!(newcomer.shell(&curls.join("\n").replace("ipl_…", "$KEY")).contains("Tokyo"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_commands_work_and_print_what_it_shows() {
    if !tools::require_tool("curl") {
        return;
    }
    let mut newcomer = Newcomer::new(geo_provider().await);
    let mut printed = String::new();
    let (mut ran, mut compared) = (0, 0);
    for (mark, body) in blocks(&read("README.md")) {
        match mark.as_str() {
            "sh" => {
                printed = newcomer.run(&body).await;
                ran += 1;
                if body.trim() == "cargo run --release" {
                    check_greeting(&newcomer, &printed);
                }
            }
            "sh cluster" => cluster(&body),
            "json" => {
                let shown: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), shown);
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(ran >= 6 && compared >= 1, "{ran} blocks run, {compared} answers compared: were they found?");
}

/// A heading's anchor as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_of_the_documents_leads_somewhere() {
    let mut links = 0;
    for document in DOCUMENTS.split_whitespace() {
        let text = read(document);
        let found = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in found.filter(|link| !link.starts_with("https://")) {
            links += 1;
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let here = root().join(document);
            let target = if file.is_empty() { here } else { here.parent().unwrap().join(file) };
            assert!(target.exists(), "{document} links to {link}");
            let text = fs::read_to_string(&target).unwrap_or_default();
            let mut headings = text.lines().filter_map(|line| line.strip_prefix('#')).map(anchor);
            assert!(section.is_empty() || headings.any(|a| a == section), "{document} links to {link}");
        }
    }
    assert!(links > 20, "{links} links: were they found?");
}

#[test]
fn every_file_that_the_documents_name_is_there() {
    let folders = "lookup-svc quota-svc dashboard-api standalone crates openapi tests bench helm";
    let is_ours = |code: &str| folders.split(' ').any(|folder| code.starts_with(&format!("{folder}/")));
    let mut named = BTreeSet::new();
    for document in DOCUMENTS.split_whitespace() {
        let text = read(document);
        let code =
            text.split('`').skip(1).step_by(2).filter(|code| is_ours(code) && !code.contains(['*', ' ']));
        named.extend(code.map(str::to_owned));
    }
    assert!(named.len() > 30, "{} names: were they found?", named.len());
    let missing: Vec<_> = named.iter().filter(|name| !root().join(name).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_flag_that_the_documents_name_exists() {
    let commands = "ip-lookup|lookup-svc|quota-svc|dashboard-api|lookup-svc geo-update|lookup-svc selftest|\
        quota-svc export|quota-svc key create|quota-svc key set-limit|quota-svc account delete";
    let known: String = commands.split('|').map(help_of).chain([OTHERS_FLAGS.to_owned()]).collect();
    let is_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let known: BTreeSet<&str> = known.split(|c| !is_flag(c)).filter(|word| word.starts_with("--")).collect();
    for document in DOCUMENTS.split_whitespace() {
        let text = read(document);
        let flags = text
            .split(|c| !is_flag(c))
            .filter(|word| word.starts_with("--") && word.len() > 3 && !word.starts_with("---"));
        let unknown: BTreeSet<_> = flags.filter(|flag| !known.contains(flag)).collect();
        assert!(unknown.is_empty(), "{document} names {unknown:?}");
    }
}

fn help_of(command: &str) -> String {
    let mut words = command.split_whitespace();
    let program = binary(words.next().unwrap());
    let shown = Command::new(program).args(words).arg("--help").output().unwrap();
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

#[tokio::test]
async fn the_redis_user_of_the_operations_guide_is_enough() {
    let guide = read("docs/operations.md");
    let (_, rules) = guide.split_once("user ipl on >PASSWORD ").unwrap();
    let rules = rules.split_once("\n\n").unwrap().0.split_whitespace().collect::<Vec<_>>().join(" ");
    let redis = Redis::options().appendonly().user("ipl", "secret", &rules).start().await;
    let store = StoreChoice::Redis { url: redis.url(), prefix: "ipl:".to_owned() };
    let quota = Quota::start_with(store, &["--redis-username", "ipl", "--redis-password", "secret"]).await;
    quota.wait_ready(SOON).await;
    let (client, key) = (quota.client(), quota.new_key().await);
    assert_eq!(key.charge(&client, 200).await, [Outcome::Allowed; 200]);
    assert_eq!(key.charge(&client, 101).await.pop(), Some(Outcome::BurstExceeded));
    client.resume_key(&key.key.id, None).await.unwrap();
    assert_eq!(key.charge(&client, 1).await, [Outcome::Allowed]);
    assert!(client.events(&key.key.id, None).await.unwrap().events.len() >= 3);
    client.delete_key(&key.key.id, None).await.unwrap();
    assert_eq!(client.list_accounts(None, 10).await.unwrap().accounts.len(), 1);
    client.delete_account(&key.key.account).await.unwrap();
    assert!(!quota.service.logs().contains("NOPERM"), "{}", quota.service.logs());
}
