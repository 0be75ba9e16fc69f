//! Helpers to run `geo-update` and to inspect its target directory.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use data_encoding::HEXLOWER;
use flate2::{Compression, write::GzEncoder};
use geo::update::{GeoUpdateArgs, Report, UpdateError, UpdateResult, update};
use geo::{Geo, GeoArgs};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use testkit::mmdb::{Builder, Value};
use testkit::process::binary;
use testkit::tools::require_tool;
use tokio::process::Command;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: GeoUpdateArgs,
}

/// The result of a run and all its output.
pub struct Run {
    pub result: anyhow::Result<Vec<UpdateResult>>,
    pub output: String,
}

impl Run {
    pub fn error(&self) -> &UpdateError {
        let error = self.result.as_ref().expect_err("update fails");
        error.downcast_ref().unwrap_or_else(|| panic!("{error:#}"))
    }
    pub fn all_text(&self) -> String {
        let error = self.result.as_ref().err().map(|error| format!("{error:#} {error:?}"));
        format!("{} {}", self.output, error.unwrap_or_default())
    }
}

pub fn parse(source: &str, dir: &Path, extra: &[&str]) -> GeoUpdateArgs {
    let to = dir.to_str().expect("UTF-8");
    let fixed = ["geo-update", source, "--to", to, "--retries", "3"];
    let args = Cli::parse_from(fixed.iter().chain(extra)).args;
    GeoUpdateArgs { retry_delay: Duration::from_millis(1), ..args }
}

pub async fn run(source: &str, dir: &Path, extra: &[&str]) -> Run {
    run_args(parse(source, dir, extra)).await
}

pub async fn run_args(args: GeoUpdateArgs) -> Run {
    drop(rustls::crypto::ring::default_provider().install_default());
    let lines = Arc::new(Mutex::new(String::new()));
    let sink = lines.clone();
    let report = Report::to_lines(move |line| *sink.lock().expect("not poisoned") += &format!("{line}\n"));
    let result = update(&args, &report).await;
    let output = lines.lock().expect("not poisoned").clone();
    Run { result, output }
}

/// Runs the `geo-update` command of the binary with extra environment variables. Returns stdout and stderr together.
pub async fn program(environment: &[(&str, &str)], arguments: &[&str]) -> (ExitStatus, String) {
    let mut command = Command::new(binary("lookup-svc"));
    output(command.arg("geo-update").args(arguments).envs(environment.iter().copied())).await
}

pub async fn output(command: &mut Command) -> (ExitStatus, String) {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("start process");
    let text = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&text).into_owned())
}

pub fn database(city: &str) -> Vec<u8> {
    let record = Value::map([("city", Value::from(city)), ("country_code", Value::from("DE"))]);
    let mut builder = Builder::new("dbip-city").add("81.2.69.0/24", &record);
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
    encoder.write_all(bytes).expect("write to memory");
    encoder.finish().expect("write to memory")
}

pub fn tar_gz(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in [("GeoLite2_20260101/LICENSE.txt", &b"text"[..]), (name, bytes)] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, bytes).expect("write to memory");
    }
    gz(&archive.into_inner().expect("write to memory"))
}

/// A tar.gz whose first entry is an extension header of this type with `size` bytes. Zeros compress to a thousandth.
pub fn tar_gz_with_extension(kind: tar::EntryType, size: u64) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_path("extension").expect("short name");
    header.set_cksum();
    archive.append(&header, std::io::repeat(0).take(size)).expect("write to memory");
    archive.into_inner().and_then(GzEncoder::finish).expect("write to memory")
}

/// Runs the `geo-update` command of the binary. Returns its output, and its peak memory in bytes. `None` if python3,
/// which measures the memory, is missing: the test is then skipped.
pub async fn program_with_peak_memory(arguments: &[&str]) -> Option<(String, u64)> {
    const SCRIPT: &str = "import resource, subprocess, sys\n\
        subprocess.call(sys.argv[1:])\n\
        print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)";
    if !require_tool("python3") {
        return None;
    }
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).arg(binary("lookup-svc")).arg("geo-update").args(arguments);
    let (_, text) = output(&mut command).await;
    let kib = text.lines().find_map(|line| line.strip_prefix("peak ")?.parse::<u64>().ok());
    Some((text.clone(), kib.unwrap_or_else(|| panic!("{text}")) * 1024))
}

pub fn sha256(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

pub fn city(file: &Path) -> String {
    let geo =
        Geo::open(&GeoArgs { geo_db: vec![file.to_owned()], ..GeoArgs::default() }).expect("load geo data");
    geo.lookup("81.2.69.1".parse().expect("IP address"), 0, |location| {
        location.city.unwrap_or_default().to_owned()
    })
}

/// The visible files, and the stale files: all hidden files except the info files (`.json`) and the lock.
pub fn listing(dir: &Path) -> (Vec<String>, Vec<String>) {
    let names = std::fs::read_dir(dir)
        .expect("read directory")
        .map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8"));
    let (hidden, mut visible): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with('.'));
    visible.sort();
    let stale = hidden.into_iter().filter(|name| !name.ends_with(".json") && name != ".geo-update.lock");
    (visible, stale.collect())
}

/// Asserts that the directory is as `dir_with_old_file` created it.
pub fn assert_unchanged(dir: &Path) {
    assert_eq!(listing(dir), (vec!["city.mmdb".to_owned()], vec![]));
    assert_eq!(city(&dir.join("city.mmdb")), "Old");
}

/// A directory with an old `city.mmdb`.
pub fn dir_with_old_file() -> TempDir {
    let dir = TempDir::new().expect("temp dir");
    std::fs::write(dir.path().join("city.mmdb"), database("Old")).expect("write");
    dir
}
