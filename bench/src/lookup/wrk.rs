//! wrk: one run, its numbers, and what the measured processes used meanwhile.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use api_key::ApiKey;
use serde::Deserialize;
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::Variant;
use super::report::Round;
use crate::usage;

const SCRIPT: &str = include_str!("rotate.lua");
const RESULT: &str = "RESULT ";
/// The part of the answers that may be failures (deadlines that a busy machine misses).
const FAILED: f64 = 0.01;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The keys as wrk's script reads them, and the script.
pub struct Keys {
    file: NamedTempFile,
    script: NamedTempFile,
}

/// The callers' addresses as wrk's script reads them.
pub struct Addresses(NamedTempFile);

impl Addresses {
    /// Writes them to a temporary file.
    pub fn write(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> anyhow::Result<Self> {
        let lines = addresses.into_iter().fold(String::new(), |lines, ip| lines + ip.as_ref() + "\n");
        temporary(&lines).map(Self)
    }
}

impl Keys {
    /// Writes both to temporary files, the keys again and again until there are so many lines.
    pub fn write(keys: &[ApiKey], lines: usize) -> anyhow::Result<Self> {
        let lines: String = keys.iter().cycle().take(lines).flat_map(|key| [key.expose(), "\n"]).collect();
        Ok(Self { file: temporary(&lines)?, script: temporary(SCRIPT)? })
    }
}

fn temporary(text: &str) -> anyhow::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// How a variant is loaded.
pub struct Wrk {
    pub connections: usize,
    pub seconds: u64,
}

#[derive(Deserialize)]
struct Numbers {
    requests: f64,
    micros: f64,
    p50: f64,
    p99: f64,
    broken: f64,
    refused: f64,
}

impl Wrk {
    /// Loads the variant and measures.
    pub async fn run(&self, variant: &Variant<'_>) -> anyhow::Result<Round> {
        let before = used(variant)?;
        let numbers = self.load(variant).await?;
        let cpu =
            used(variant)?.into_iter().zip(before).map(|(now, before)| (now - before) / numbers.requests);
        Ok(Round {
            name: variant.name,
            connections: self.connections,
            rps: numbers.requests * 1e6 / numbers.micros,
            p50: numbers.p50,
            p99: numbers.p99,
            cpu: cpu.collect(),
        })
    }

    async fn load(&self, variant: &Variant<'_>) -> anyhow::Result<Numbers> {
        let mut command = Command::new("wrk");
        command.arg("-t1").args(["-c", &self.connections.to_string(), "-d", &self.seconds.to_string()]);
        command.arg("-s").arg(variant.keys.script.path()).arg(&variant.url);
        command.arg("--").arg(variant.keys.file.path()).arg(variant.addresses.0.path());
        let output =
            command.stdin(Stdio::null()).kill_on_drop(true).output().await.context("wrk can't be run")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let result = text.lines().find_map(|line| line.strip_prefix(RESULT));
        let result =
            result.with_context(|| format!("wrk said: {text}{}", String::from_utf8_lossy(&output.stderr)))?;
        let numbers: Numbers = serde_json::from_str(result)?;
        let failed = numbers.broken + numbers.refused;
        if failed > 0.0 {
            let Numbers { broken, refused, .. } = numbers;
            eprintln!("{}: {refused} answers were not 200, {broken} did not come", variant.name);
        }
        ensure!(failed <= numbers.requests * FAILED, "so many failures are no measurement");
        Ok(numbers)
    }
}

/// The most memory (MiB) that each process of the variant has while `connections` are open and busy.
pub async fn memory_under_load(
    variant: &Variant<'_>,
    connections: usize,
    seconds: u64,
) -> anyhow::Result<Vec<f64>> {
    let mut most = vec![0.0_f64; variant.pids.len()];
    let wrk = Wrk { connections, seconds };
    let mut load = std::pin::pin!(wrk.load(variant));
    let mut tick = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            done = &mut load => return done.map(|_| most),
            _ = tick.tick() => {
                for (most, pid) in most.iter_mut().zip(&variant.pids) {
                    *most = most.max(usage::rss_mib(*pid)?);
                }
            }
        }
    }
}

fn used(variant: &Variant<'_>) -> anyhow::Result<Vec<f64>> {
    variant.pids.iter().map(|pid| usage::cpu_micros(*pid)).collect()
}
