//! Times of what the pages of admins load, in a large store: each operation of dashboard-api, several times.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use quota_client::QuotaClient;
use quota_client::wire::{AccountAction, AccountChange, Limits};
use quota_svc::accounts::Accounts;
use reqwest::header::{COOKIE, ORIGIN, SET_COOKIE};
use serde_json::{Value, json};
use testkit::process::token_file;
use testkit::redis::Redis;

use crate::gate::Gate;
use crate::lookup::servers::Server;
use crate::lookup::{connect_store, open_file, programs};
use crate::seed;
use crate::stats::{median, percentile};
use crate::table::table;

/// The bound on the median of each operation, in milliseconds.
const BOUND_MS: f64 = 200.0;

#[derive(clap::Parser, Debug)]
#[command(about = "Measures the operations of the admin pages in a large store")]
pub struct Options {
    /// Accounts in the store, with three keys each
    #[arg(long, default_value_t = 100_000)]
    pub accounts: usize,
    /// Calls of each operation
    #[arg(long, default_value_t = 50)]
    pub calls: usize,
    /// Directory of the programs, as an absolute path [default: that of this program]
    #[arg(long, value_name = "DIR", value_parser = programs::absolute_dir)]
    pub programs: Option<PathBuf>,
    /// Exit with an error if a bound is missed
    #[arg(long)]
    pub gate: bool,
}

pub async fn run(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let mut rows = table(&["store, operation", "median ms", "p99 ms"]);
    let mut gates = Vec::new();
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("store.redb");
    {
        let store = open_file(&file)?;
        fill(&store, options.accounts).await?;
        store.close().await;
    }
    let redis = Redis::start().await;
    fill(&connect_store(&redis.url()).await?, options.accounts).await?;
    let (file, url) = (file.to_string_lossy().into_owned(), redis.url());
    for (store, flags) in [("file", ["--store-file", &file]), ("Redis", ["--redis-url", &url])] {
        for (name, mut times) in measure(options, &flags).await? {
            times.sort_by(f64::total_cmp);
            let (middle, high) = (median(times.clone()), percentile(&times, 99.0));
            rows.add_row([format!("{store}, {name}"), format!("{middle:.1}"), format!("{high:.1}")]);
            gates.push(Gate::at_most(&format!("{store}, {name}, ms"), middle, BOUND_MS));
        }
    }
    println!("{rows}");
    Ok(gates)
}

async fn fill(store: &Accounts, accounts: usize) -> anyhow::Result<()> {
    println!("creating {accounts} accounts with three keys each");
    seed::keys(store, 3 * accounts, 3, &Limits::default(), |_| Ok(())).await
}

/// Signs in as an admin and times each operation, in milliseconds.
async fn measure(options: &Options, store: &[&str]) -> anyhow::Result<Vec<(&'static str, Vec<f64>)>> {
    let program = |name: &str| match &options.programs {
        Some(dir) => dir.join(name).to_string_lossy().into_owned(),
        None => name.to_owned(),
    };
    let quota = Server::service(&program("quota-svc"), 1, store).await?;
    let (dir, quota_url) = (tempfile::tempdir()?, quota.url(""));
    let key = dir.path().join("session.key");
    std::fs::write(&key, [7; 32])?;
    let flags = [
        "--quota-url",
        &quota_url,
        "--insecure-cookies",
        "--max-accounts",
        "10000000",
        "--session-key-file",
        &key.to_string_lossy(),
    ];
    let dashboard = Server::service(&program("dashboard-api"), 1, &flags).await?;
    let http = testkit::http::client();
    let body = json!({"login": "admin@example.org", "password": "correct horse battery"});
    let sign_up = http.post(dashboard.url("/api/v1/account")).json(&body).header("X-CSRF-Token", "1");
    let signed_up = sign_up.header(ORIGIN, dashboard.url("")).send().await?.error_for_status()?;
    let cookies = signed_up.headers().get_all(SET_COOKIE).iter().filter_map(|cookie| cookie.to_str().ok());
    let cookies: Vec<_> = cookies.filter_map(|cookie| cookie.split(';').next()).collect();
    let cookies = cookies.join("; ");
    let client = QuotaClient::new(&quota_url, std::time::Duration::from_secs(30))?;
    let client = client.with_token(&quota_client::QuotaToken::load(token_file())?);
    let admin = client.find_account("admin@example.org").await?.context("the account was created")?;
    client.change_account(&admin.id, &AccountChange::new(AccountAction::MakeAdmin)).await?;

    let get = async |path: &str| -> anyhow::Result<Value> {
        let request = http.get(dashboard.url(&format!("/api/v1/admin/{path}"))).header(COOKIE, &cookies);
        Ok(request.send().await?.error_for_status()?.json().await?)
    };
    let first = get("accounts").await?;
    let next = first["next"].as_str().context("there is a second page")?.to_owned();
    let id = first["accounts"][0]["id"].as_str().context("there is an account")?.to_owned();
    let details = get(&format!("accounts/{id}")).await?;
    let key = details["keys"]["keys"][0]["id"].as_str().unwrap_or(&id).to_owned();
    ensure!(first["total"].as_u64() > Some(options.accounts as u64 / 2), "{first}");
    let operations = [
        ("overview", "overview".to_owned()),
        ("counts of 100 accounts", "counts".to_owned()),
        ("first page of accounts", "accounts".to_owned()),
        ("next page of accounts", format!("accounts?cursor={next}")),
        ("find by login", "accounts?login=bench-7".to_owned()),
        ("find by key", format!("accounts?key={key}")),
        ("account", format!("accounts/{id}")),
        ("key", format!("keys/{key}")),
    ];
    let mut measured = Vec::new();
    for (name, path) in operations {
        let mut times = Vec::new();
        for _ in 0..options.calls {
            let start = Instant::now();
            get(&path).await?;
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        measured.push((name, times));
    }
    Ok(measured)
}
