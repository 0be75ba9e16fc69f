//! ip-lookup: all services in one process, with its own keys in the embedded store or in Redis.

use quota_client::wire::Limits;
use tempfile::TempDir;
use testkit::redis::Redis;

use super::chain::{LOOKUP, Programs, connect_store, open_file};
use super::servers::Server;
use super::wrk::{AddressFile, KeyFile};
use super::{KEYS, Variant};

pub struct IpLookup {
    server: Server,
    redis: Option<Redis>,
    keys: KeyFile,
    _data_dir: TempDir,
}

impl IpLookup {
    /// Creates the keys and starts the program, with the embedded store unless `redis` is given.
    pub async fn start(programs: &Programs, redis: Option<Redis>, flags: &[&str]) -> anyhow::Result<Self> {
        let (data_dir, limits, url) =
            (tempfile::tempdir()?, Limits::default(), redis.as_ref().map(Redis::url));
        let store = match &url {
            Some(url) => connect_store(url).await?,
            None => open_file(&data_dir.path().join("store.redb"))?,
        };
        let keys = KeyFile::create(&store, KEYS, KEYS, &limits).await?;
        store.close().await;
        // Unlocks the file.
        drop(store);
        let dir = data_dir.path().to_string_lossy();
        let own = ["--data-dir", &dir, "--dashboard-listen", "127.0.0.1:0", "--quota-listen", "127.0.0.1:0"];
        let redis_flags = url.as_ref().map(|url| ["--redis-url", url]);
        let flags = [&own[..], redis_flags.as_ref().map_or(&[], |flags| &flags[..]), flags].concat();
        // wrk is a trusted proxy, as all of loopback is by default.
        let server = Programs { workers: 0, ..programs.clone() }.start("ip-lookup", &flags).await?;
        Ok(Self { server, redis, keys, _data_dir: data_dir })
    }

    pub fn variant<'a>(&'a self, name: &'static str, addresses: &'a AddressFile) -> Variant<'a> {
        let pids = [self.server.pid()].into_iter().chain(self.redis.as_ref().map(Redis::pid)).collect();
        Variant { name, urls: vec![self.server.url(LOOKUP)], pids, keys: &self.keys, addresses }
    }
}
