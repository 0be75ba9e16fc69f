//! Baselines for the lookup benchmark: nginx with geoip2, and the same with keys and limits in Lua and Redis.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use tempfile::TempDir;
use testkit::ports::ReservedPort;
use testkit::redis::Redis;
use testkit::spawner::ChildGuard;
use testkit::wait::{eventually, eventually_ok};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const CONFIG: &str = include_str!("nginx.conf");
const LUA: &str = include_str!("nginx.lua");
const START_TIMEOUT: Duration = Duration::from_secs(20);
const MODULES: &str = "/usr/lib/nginx/modules";

/// The geo databases that nginx reads.
pub struct Databases<'a> {
    pub city: &'a Path,
    pub asn: &'a Path,
}

/// A running nginx with as many workers as CPUs.
pub struct Nginx {
    process: ChildGuard,
    port: ReservedPort,
    workers: Vec<u32>,
    /// Has the keys, if nginx checks them.
    redis: Option<Redis>,
    _dir: TempDir,
}

impl Nginx {
    /// Looks up the client's address, without keys and limits.
    pub async fn geo_only(databases: &Databases<'_>) -> anyhow::Result<Self> {
        Self::start(databases, "return 200 $lookup_json;", None).await
    }

    /// Also checks the key and counts requests per day and per minute in Redis, with one pipeline per request. The
    /// windows are fixed, so that up to twice the limit can pass around their ends, and nothing is paused.
    pub async fn with_keys(databases: &Databases<'_>, keys: &[String]) -> anyhow::Result<Self> {
        let redis = Redis::start().await;
        store_keys(&redis, keys).await?;
        Self::start(databases, "content_by_lua_file lookup.lua;", Some(redis)).await
    }

    async fn start(databases: &Databases<'_>, handler: &str, redis: Option<Redis>) -> anyhow::Result<Self> {
        for module in ["ngx_http_geoip2_module.so", "ngx_http_lua_module.so"] {
            ensure!(
                Path::new(MODULES).join(module).exists(),
                "nginx's modules are missing; install the Debian packages nginx, libnginx-mod-http-geoip2 and \
                 libnginx-mod-http-lua"
            );
        }
        let cpus = service_kit::runtime::available_cpus();
        let dir = tempfile::tempdir()?;
        let port = ReservedPort::new();
        let redis_port = redis.as_ref().map_or(0, |redis| redis.addr().port());
        let config = CONFIG
            .replace("@MODULES@", MODULES)
            .replace("@WORKERS@", &cpus.to_string())
            .replace("@CITY@", &databases.city.to_string_lossy())
            .replace("@ASN@", &databases.asn.to_string_lossy())
            .replace("@LISTEN@", &port.addr().to_string())
            .replace("@HANDLER@", handler);
        std::fs::write(dir.path().join("nginx.conf"), config)?;
        std::fs::write(dir.path().join("lookup.lua"), LUA.replace("@REDIS_PORT@", &redis_port.to_string()))?;
        let process = ChildGuard::spawn("nginx", |command| {
            command.arg("-p").arg(dir.path()).args(["-c", "nginx.conf", "-e", "error.log"]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
        });
        let client = testkit::http::client();
        let url = format!("http://{}/", port.addr());
        let responds = async || client.get(&url).send().await.map(drop);
        eventually_ok(START_TIMEOUT, "nginx responds", responds).await;
        let workers = eventually(START_TIMEOUT, "nginx has workers", async || {
            Some(children(process.pid())).filter(|workers| workers.len() == cpus)
        })
        .await;
        Ok(Self { process, port, workers, redis, _dir: dir })
    }

    pub fn url(&self) -> String {
        format!("http://{}/api/v1/ip", self.port.addr())
    }

    /// The workers, then Redis.
    pub fn pids(&self) -> Vec<u32> {
        self.workers.iter().copied().chain(self.redis.as_ref().map(Redis::pid)).collect()
    }
}

/// A killed nginx would leave its workers running.
impl Drop for Nginx {
    fn drop(&mut self) {
        self.process.signal(Signal::TERM);
        // An error means that it has already exited.
        self.process.child().wait().ok();
    }
}

fn children(pid: u32) -> Vec<u32> {
    let path = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let list = std::fs::read_to_string(path).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Writes `HSET key:KEY scope full` for each key.
async fn store_keys(redis: &Redis, keys: &[String]) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(redis.addr()).await.context("can't connect to Redis")?;
    for keys in keys.chunks(1000) {
        let commands: String = keys.iter().map(|key| format!("HSET key:{key} scope full\r\n")).collect();
        stream.write_all(commands.as_bytes()).await?;
        let mut replies = vec![0; ":1\r\n".len() * keys.len()];
        timeout(START_TIMEOUT, stream.read_exact(&mut replies)).await.context("Redis does not reply")??;
        ensure!(replies.chunks(4).all(|reply| reply == b":1\r\n"), "Redis did not store the keys");
    }
    Ok(())
}
