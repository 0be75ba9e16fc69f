//! Runs wrk and measures the CPU time and memory of the servers during the run.

use std::fs;
use std::io::{BufWriter, Write};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use api_key::ApiKey;
use futures_util::future::try_join_all;
use quota_client::wire::{KEYS_PER_ACCOUNT, Limits};
use quota_svc::accounts::Accounts;
use serde::Deserialize;
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::Variant;
use super::report::Measurement;
use crate::seed;
use crate::usage::{self, MachineTime};

const SCRIPT: &str = include_str!("rotate.lua");
/// The script prints its results as JSON after this prefix.
const RESULT_PREFIX: &str = "RESULT ";
/// Maximum share of failed requests. A few fail on a busy machine, because deadlines pass.
const MAX_FAILED_SHARE: f64 = 0.01;
const MEMORY_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// The list of keys that wrk's script reads, and the script itself.
pub struct KeyFile {
    list: NamedTempFile,
    script: NamedTempFile,
}

/// The list of client addresses that wrk's script reads.
pub struct AddressFile(NamedTempFile);

impl AddressFile {
    /// Writes the addresses to a temporary file.
    pub fn write(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> anyhow::Result<Self> {
        let lines = addresses.into_iter().fold(String::new(), |lines, ip| lines + ip.as_ref() + "\n");
        temp_file(&lines).map(Self)
    }
}

impl KeyFile {
    /// Creates `count` keys in the store and writes them to the list. If `lines` is larger, the list repeats the keys up
    /// to about that many lines.
    pub async fn create(
        store: &Accounts,
        count: usize,
        lines: usize,
        limits: &Limits,
    ) -> anyhow::Result<Self> {
        let mut list = BufWriter::new(NamedTempFile::new()?);
        let add = |key: &ApiKey| writeln!(list, "{}", key.expose());
        seed::keys(store, count, KEYS_PER_ACCOUNT, limits, add).await?;
        let mut list = list.into_inner()?;
        let keys = if lines > count { fs::read(list.path())? } else { Vec::new() };
        for _ in 1..lines / count {
            list.write_all(&keys)?;
        }
        Ok(Self { list, script: temp_file(SCRIPT)? })
    }

    /// The keys, for clients other than wrk.
    pub fn read(&self) -> anyhow::Result<Vec<String>> {
        Ok(fs::read_to_string(self.list.path())?.lines().map(str::to_owned).collect())
    }
}

fn temp_file(text: &str) -> anyhow::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// One run of wrk, or of several at the same time: one for each URL of the variant.
pub struct Wrk {
    /// Of all together.
    pub connections: usize,
    pub seconds: u64,
}

#[derive(Deserialize)]
struct WrkResult {
    requests: f64,
    /// Duration of the run.
    micros: f64,
    p50: f64,
    p99: f64,
    /// Requests without a response.
    no_response: f64,
    /// Responses with a status of 400 or more.
    error_responses: f64,
}

impl Wrk {
    /// Sends requests to the variant and measures.
    pub async fn run(&self, variant: &Variant<'_>) -> anyhow::Result<Measurement> {
        let (before, machine_before) = (cpu_micros(variant)?, MachineTime::now()?);
        let results = try_join_all((0..variant.urls.len()).map(|index| self.load(variant, index))).await?;
        let (after, machine_after) = (cpu_micros(variant)?, MachineTime::now()?);
        let requests: f64 = results.iter().map(|result| result.requests).sum();
        let cpu = after.into_iter().zip(before).map(|(after, before)| (after - before) / requests);
        Ok(Measurement {
            variant: variant.name,
            connections: self.connections,
            rps: results.iter().map(|result| result.requests * 1e6 / result.micros).sum(),
            p50: results.iter().map(|result| result.p50 * result.requests / requests).sum(),
            p99: results.iter().map(|result| result.p99).fold(0.0, f64::max),
            cpu: cpu.collect(),
            steal: machine_after.steal_since(machine_before),
        })
    }

    /// Sends requests to one URL of the variant. With several, each wrk starts at another key and address.
    async fn load(&self, variant: &Variant<'_>, index: usize) -> anyhow::Result<WrkResult> {
        let urls = variant.urls.len();
        let mut command = Command::new("wrk");
        command.args(["-t1", "-c", &(self.connections / urls).to_string()]);
        command.args(["-d", &self.seconds.to_string()]);
        command.arg("-s").arg(variant.keys.script.path()).arg(&variant.urls[index]);
        command.arg("--").arg(variant.keys.list.path()).arg(variant.addresses.0.path());
        command.arg((index as f64 / urls as f64).to_string());
        let output =
            command.stdin(Stdio::null()).kill_on_drop(true).output().await.context("can't run wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let json = text.lines().find_map(|line| line.strip_prefix(RESULT_PREFIX)).with_context(|| {
            format!("wrk printed no result: {text}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        let result: WrkResult = serde_json::from_str(json)?;
        let failed = result.no_response + result.error_responses;
        if failed > 0.0 {
            let WrkResult { no_response, error_responses, .. } = result;
            eprintln!(
                "{}: {error_responses} error responses, {no_response} requests without a response",
                variant.name
            );
        }
        ensure!(
            failed <= result.requests * MAX_FAILED_SHARE,
            "too many requests failed: {failed} of {}",
            result.requests
        );
        Ok(result)
    }
}

/// Peak resident memory of each process of the variant, in MiB, while wrk keeps `connections` busy.
pub async fn memory_under_load(
    variant: &Variant<'_>,
    connections: usize,
    seconds: u64,
) -> anyhow::Result<Vec<f64>> {
    let mut peaks = vec![0.0_f64; variant.pids.len()];
    let wrk = Wrk { connections, seconds };
    let mut load = std::pin::pin!(wrk.load(variant, 0));
    let mut tick = tokio::time::interval(MEMORY_SAMPLE_INTERVAL);
    loop {
        tokio::select! {
            result = &mut load => return result.map(|_| peaks),
            _ = tick.tick() => {
                for (peak, pid) in peaks.iter_mut().zip(&variant.pids) {
                    *peak = peak.max(usage::rss_mib(*pid)?);
                }
            }
        }
    }
}

/// CPU time of each process of the variant so far.
fn cpu_micros(variant: &Variant<'_>) -> anyhow::Result<Vec<f64>> {
    variant.pids.iter().map(|pid| usage::cpu_micros(*pid)).collect()
}
