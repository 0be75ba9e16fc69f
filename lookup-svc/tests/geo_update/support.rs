//! Runs `geo-update` in a folder of its own and looks at what is left.

use std::io::Write;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use clap::Parser;
use data_encoding::HEXLOWER;
use flate2::{Compression, write::GzEncoder};
use lookup_svc::geo::writer::{Builder, Value};
use lookup_svc::geo::{Geo, GeoArgs};
use lookup_svc::geo_update::{GeoUpdateArgs, Outcome, Report, UpdateError, update};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::process::Command;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_lookup-svc");

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: GeoUpdateArgs,
}

/// What a run gave: the outcome, and every line it wrote.
pub struct Run {
    pub result: anyhow::Result<Vec<Outcome>>,
    pub output: String,
}

impl Run {
    pub fn error(&self) -> &UpdateError {
        let error = self.result.as_ref().expect_err("should fail");
        error.downcast_ref().unwrap_or_else(|| panic!("{error:#}"))
    }
    pub fn all_text(&self) -> String {
        let error = self.result.as_ref().err().map(|error| format!("{error:#} {error:?}"));
        format!("{} {}", self.output, error.unwrap_or_default())
    }
}

pub fn parse(source: &str, folder: &Path, more: &[&str]) -> GeoUpdateArgs {
    let to = folder.to_str().expect("UTF-8");
    let fixed = ["geo-update", source, "--to", to, "--retry-delay", "1ms", "--retries", "3"];
    Cli::parse_from(fixed.iter().chain(more)).args
}

pub async fn run(source: &str, folder: &Path, more: &[&str]) -> Run {
    drop(rustls::crypto::ring::default_provider().install_default());
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = lines.clone();
    let report = Report::to_lines(move |line| *sink.lock().expect("not poisoned") += &format!("{line}\n"));
    let result = update(&parse(source, folder, more), &report).await;
    let output = lines.lock().expect("not poisoned").clone();
    Run { result, output }
}

/// Runs `geo-update` of the real program, with more in its environment; what it wrote on both streams.
pub async fn program(environment: &[(&str, &str)], arguments: &[&str]) -> (ExitStatus, String) {
    let mut command = Command::new(PROGRAM);
    output(command.arg("geo-update").args(arguments).envs(environment.iter().copied())).await
}

pub async fn output(command: &mut Command) -> (ExitStatus, String) {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&text).into_owned())
}

pub fn database(city: &str) -> Vec<u8> {
    let record = Value::map([("city", Value::from(city)), ("country_code", Value::from("DE"))]);
    let mut builder = Builder::new("dbip-city").add("192.0.2.0/24", &record);
    for third in 0..200 {
        builder = builder.add(
            &format!("10.0.{third}.0/24"),
            &Value::map([("city", Value::from(format!("Town {third}").as_str()))]),
        );
    }
    builder.finish()
}

pub fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("in memory");
    encoder.finish().expect("in memory")
}

pub fn tar_gz(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in [("GeoLite2_20260101/LICENSE.txt", &b"text"[..]), (name, bytes)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes).expect("in memory");
    }
    gz(&archive.into_inner().expect("in memory"))
}

pub fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

pub fn city(file: &Path) -> String {
    let geo = Geo::open(&GeoArgs { geo_db: vec![file.to_owned()], ..GeoArgs::default() }).expect("usable");
    geo.lookup("192.0.2.1".parse().expect("address"), 0, |place| place.city.unwrap_or_default().to_owned())
}

/// The visible files and the leftovers (hidden files that are neither notes nor the lock).
pub fn listing(folder: &Path) -> (Vec<String>, Vec<String>) {
    let names = std::fs::read_dir(folder)
        .expect("folder")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8"));
    let (hidden, mut visible): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with('.'));
    visible.sort();
    let leftovers = hidden.into_iter().filter(|name| !name.ends_with(".json") && name != ".geo-update.lock");
    (visible, leftovers.collect())
}

pub fn assert_untouched(folder: &Path) {
    assert_eq!(listing(folder), (vec!["city.mmdb".to_owned()], vec![]));
    assert_eq!(city(&folder.join("city.mmdb")), "Old");
}

/// A folder that holds an older `city.mmdb`.
pub fn folder_with_old() -> TempDir {
    let folder = TempDir::new().expect("folder");
    std::fs::write(folder.path().join("city.mmdb"), database("Old")).expect("writes");
    folder
}
