//! The users of the bundled Valkey, in the chart and in docker-compose.yaml: their permissions are the documented ones, and
//! the user of lookup pods can only charge.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::process::Command;

use e2e::chart::release::{render, start_store};
use e2e::chart::{Chart, project_root, text, venv_tool};
use quota_client::wire::{
    Charge, ClaimedNotice, Contact, Delivery, Mail, NoticeResult, Outcome, SettingsChange,
};
use testkit::lookup::WAIT_TIMEOUT;
use testkit::quota::{Quota, StoreChoice};
use testkit::tools::{require_tool, require_valkey};
use testkit::wait::eventually;

/// The permissions that redis.md lists for a user, sorted.
fn documented(user: &str) -> Vec<String> {
    let guide = fs::read_to_string(project_root().join("docs/redis.md")).unwrap();
    let (_, rules) = guide.split_once(&format!("user {user} on >PASSWORD ")).unwrap();
    sorted(rules.split_once("\n\n").unwrap().0)
}

/// The permissions of a user in a start script, sorted; without `+waitaof`, which redis.md mentions separately.
fn configured(script: &str, user: &str) -> Vec<String> {
    let mut lines = script.lines().map(str::trim);
    let rules = lines.find_map(|line| line.strip_prefix(&format!("user {user} reset on #$"))).unwrap();
    sorted(&rules.split_once(' ').unwrap().1.replace(" +waitaof", ""))
}

fn sorted(rules: &str) -> Vec<String> {
    let mut rules: Vec<_> = rules.split_whitespace().map(str::to_owned).collect();
    rules.sort_unstable();
    rules
}

#[test]
fn bundled_valkey_has_the_documented_permissions() {
    if venv_tool("helm").is_none() {
        return;
    }
    let chart = Chart::render(&[]).unwrap();
    let chart = text(&chart.object("ConfigMap", "-valkey")["data"]["start.sh"]);
    let compose = fs::read_to_string(project_root().join("deploy/compose/valkey.sh")).unwrap();
    for (script, place) in
        [(chart, "helm/ip-lookup/templates/_valkey.tpl"), (&compose, "deploy/compose/valkey.sh")]
    {
        assert_eq!(configured(script, "default"), documented("ipl"), "docs/redis.md and {place} differ");
        assert_eq!(
            configured(script, "lookup"),
            documented("ipl-lookup"),
            "docs/redis.md and {place} differ"
        );
    }
}

#[test]
fn key_prefix_is_part_of_the_permissions() {
    if venv_tool("helm").is_none() {
        return;
    }
    let chart = Chart::render(&["--set", "quota.keyPrefix=mine:"]).unwrap();
    let script = text(&chart.object("ConfigMap", "-valkey")["data"]["start.sh"]);
    assert!(configured(script, "default").contains(&"~mine:2:*".to_owned()), "{script}");
    assert!(configured(script, "lookup").contains(&"~mine:2:*:k".to_owned()), "{script}");
    assert!(!script.contains("~ipl:"), "{script}");
}

/// Charges with both users of the release's store, then tries to read and change what only the dashboard may.
#[tokio::test]
async fn lookup_user_can_charge_and_nothing_else() {
    if !require_tool("redis-cli") || require_valkey().is_none() || venv_tool("helm").is_none() {
        return;
    }
    let chart = render(&[]);
    let (valkey, _) = start_store(&chart).await;
    let password = |name: &str| fs::read_to_string(valkey.path("/run/secrets/store").join(name)).unwrap();
    let (full, lookup) = (password("password"), password("lookup-password"));
    let store = |user: &str, password: &str| StoreChoice::Redis {
        url: format!("redis://{user}:{password}@{}", valkey.addr(6379)),
        prefix: "ipl:".to_owned(),
    };
    let dashboard = Quota::start_with(store("", &full), &[]).await;
    let sidecar = Quota::start_with(store("lookup", &lookup), &["--serve", "charges"]).await;
    dashboard.wait_ready(WAIT_TIMEOUT).await;
    sidecar.wait_ready(WAIT_TIMEOUT).await;

    let key = dashboard.new_key().await;
    let mail =
        Mail { address: "ada@example.org".to_owned(), verified: true, notices: true, muted: [].into() };
    let contact = Contact { webhook: None, mail: Some(mail) };
    dashboard.client().set_contact(&key.account, Contact::default(), contact.clone()).await.unwrap();
    assert_eq!(key.charge(&sidecar.client(), 200).await, [Outcome::Allowed; 200]);
    assert_eq!(key.charge(&sidecar.client(), 101).await.pop(), Some(Outcome::BurstExceeded));
    assert_eq!(dashboard.client().events(&key.key.id, None).await.unwrap().events.len(), 2);
    let restricted =
        SettingsChange { allowed_origins: Some(vec!["https://a.example".to_owned()]), ..Default::default() };
    let for_pages = dashboard.new_key().await;
    dashboard.client().change_key(&for_pages.key.id, None, &restricted).await.unwrap();
    assert_eq!(for_pages.charge(&sidecar.client(), 1).await, [Outcome::WrongOrigin]);
    let verdicts = sidecar.client().charge(&[Charge::Demo]).await.unwrap();
    assert_eq!(verdicts[0].outcome(), Outcome::Allowed);
    let claimed = eventually(WAIT_TIMEOUT, "the pause is announced", async || {
        dashboard.client().claim_notices(1).await.unwrap().pop()
    })
    .await;
    let delivery = Some(Delivery { at: 1, error: None });
    let ClaimedNotice { account, channel, claim, .. } = claimed;
    let result = NoticeResult { account, channel, claim, retry_seconds: None, delivery };
    dashboard.client().report_notice(&result).await.unwrap();
    let status = dashboard.client().contact(&key.account).await.unwrap();
    assert!(status.contact == contact && status.last_deliveries.contains_key("mail"), "{status:?}");
    assert!(!sidecar.service.logs().contains("NOPERM"), "{}", sidecar.service.logs());

    let cli = |user: &str, password: &str, arguments: &str| {
        let port = valkey.addr(6379).rsplit(':').next().unwrap().to_owned();
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port, "--no-auth-warning", "--user", user, "-a", password]);
        String::from_utf8(command.args(arguments.split(' ')).output().unwrap().stdout).unwrap()
    };
    let (id, account) = (&key.key.id, &key.account);
    for command in [
        format!("HGETALL ipl:2:{{00}}:{account}:a"),
        format!("GET ipl:2:{{00}}:{account}:a"),
        format!("GET ipl:2:{{00}}:{id}:e"),
        format!("SET ipl:2:{{00}}:{id}:e x"),
        format!("DEL ipl:2:{{00}}:{id}:k"),
        format!("ZADD ipl:2:{{00}}:q 1 {account}"),
        "SSCAN ipl:2:{00}:i 0".to_owned(),
        "GET other".to_owned(),
    ] {
        assert!(cli("lookup", &lookup, &command).contains("NOPERM"), "{command}");
    }
    for command in ["CONFIG GET requirepass", "KEYS *", "ACL LIST", "SHUTDOWN", "GET other", "SCRIPT FLUSH"] {
        assert!(cli("default", &full, command).contains("NOPERM"), "{command}");
        assert!(cli("lookup", &lookup, command).contains("NOPERM"), "{command}");
    }
}

/// The exporter runs a third-party image, so its user must not see data.
#[tokio::test]
async fn exporter_user_reads_statistics_and_no_data() {
    if !require_tool("redis-cli") || require_valkey().is_none() || venv_tool("helm").is_none() {
        return;
    }
    let chart = render(&["--set", "valkey.exporter.enabled=true,valkey.extraConfig=slowlog-max-len 17"]);
    let (valkey, _) = start_store(&chart).await;
    let password = fs::read_to_string(valkey.path("/run/secrets/exporter/password")).unwrap();
    let run = |arguments: &[&str]| {
        let port = valkey.addr(6379).rsplit(':').next().unwrap().to_owned();
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port, "--no-auth-warning", "--user", "exporter", "-a", &password]);
        String::from_utf8(command.args(arguments).output().unwrap().stdout).unwrap()
    };
    assert!(run(&["INFO"]).contains("connected_clients:"));
    assert_eq!(run(&["SLOWLOG", "LEN"]).trim(), "0");
    for command in [
        &["GET", "ipl:2:x:k"][..],
        &["KEYS", "*"],
        &["SLOWLOG", "GET"],
        &["CONFIG", "GET", "*"],
        &["SET", "a", "b"],
    ] {
        assert!(run(command).contains("NOPERM"), "{command:?}");
    }
    // The exporter finds its password by the server's URL.
    let deployment = chart.object("Deployment", "-valkey-exporter").to_string();
    assert!(deployment.contains("redis://ipl-ip-lookup-valkey:6379"), "{deployment}");
    let secret: k8s_openapi::api::core::v1::Secret =
        serde_json::from_value(chart.object("Secret", "-exporter").clone()).unwrap();
    let passwords: std::collections::BTreeMap<String, String> =
        serde_json::from_slice(&secret.data.unwrap()["passwords.json"].0).unwrap();
    for url in ["redis://exporter@ipl-ip-lookup-valkey:6379", "redis://ipl-ip-lookup-valkey:6379"] {
        assert_eq!(passwords[url], password, "some versions look for the URL with the user");
    }
}

/// Lookup pods connect like this if an existing Secret has only one password.
#[tokio::test]
async fn charges_work_without_a_user_name() {
    if !require_tool("redis-cli") || require_valkey().is_none() || venv_tool("helm").is_none() {
        return;
    }
    let (valkey, _) = start_store(&render(&[])).await;
    let file = valkey.path("/run/secrets/store/password");
    let store =
        StoreChoice::Redis { url: format!("redis://{}", valkey.addr(6379)), prefix: "ipl:".to_owned() };
    let flags = ["--serve", "charges", "--redis-password-file", file.to_str().unwrap()];
    let quota = Quota::start_with(store, &flags).await;
    quota.wait_ready(WAIT_TIMEOUT).await;
    assert_eq!(quota.client().charge(&[Charge::Demo]).await.unwrap()[0].outcome(), Outcome::Allowed);
}
