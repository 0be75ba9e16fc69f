//! A real Sentinel set: one master, one replica, three Sentinels that fail over within 1 to 2 s.

use std::time::Duration;

use crate::redis::{Redis, RedisOptions};
use crate::wait::eventually_ok;

const FORMATION_TIMEOUT: Duration = Duration::from_secs(30);

/// Name of the master in the Sentinels' configuration.
pub const MASTER_NAME: &str = "quota";

/// A running Sentinel set.
#[derive(Debug)]
pub struct SentinelSet {
    /// The data servers. The first one starts as master.
    pub servers: [Redis; 2],
    /// The Sentinels. Two of them are enough to start a failover.
    pub sentinels: [Redis; 3],
}

impl SentinelSet {
    /// Starts all five processes and waits until every Sentinel has found the others.
    pub async fn start() -> Self {
        Self::start_with(|sentinel| sentinel).await
    }

    /// Like [`SentinelSet::start`], with Sentinels that require this password. The data servers have none.
    pub async fn start_with_password(password: &str) -> Self {
        let sentinel_pass = format!("sentinel sentinel-pass {password}");
        Self::start_with(|sentinel| sentinel.password(password).directive(&sentinel_pass)).await
    }

    async fn start_with(customize: impl Fn(RedisOptions) -> RedisOptions) -> Self {
        let master = Redis::options().appendonly().start().await;
        let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
        let replica = Redis::options().appendonly().directive(&replica_of).start().await;
        wait_in_sync(&replica).await;
        let start = || customize(sentinel_options(master.port())).start();
        let sentinels = [start().await, start().await, start().await];
        let set = Self { servers: [master, replica], sentinels };
        set.wait_formed().await;
        set
    }

    /// `redis+sentinel://h1,h2,h3/NAME`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.sentinels.iter().map(|sentinel| sentinel.addr().to_string()).collect();
        format!("redis+sentinel://{}/{MASTER_NAME}", hosts.join(","))
    }

    /// Waits until all Sentinels agree on a master, and returns its index in `servers`.
    pub async fn master(&self) -> usize {
        eventually_ok(FORMATION_TIMEOUT, "Sentinels agree on a master", async || self.agreed_master().await)
            .await
    }

    /// Waits until all Sentinels report `servers[index]` as master and its role is master.
    pub async fn wait_for_master(&self, index: usize) {
        eventually_ok(FORMATION_TIMEOUT, format!("server {index} is the master"), async || {
            let (agreed, role) = (self.agreed_master().await?, self.servers[index].info("role").await?);
            let is_master = agreed == index && role == "master";
            if is_master {
                Ok(())
            } else {
                Err(format!("Sentinels report server {agreed}; the role of server {index} is {role}"))
            }
        })
        .await;
    }

    async fn agreed_master(&self) -> Result<usize, String> {
        let mut ports = Vec::new();
        for sentinel in &self.sentinels {
            let reply = sentinel.try_cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).await?;
            ports.push(reply.lines().nth(1).unwrap_or_default().to_owned());
        }
        let position =
            self.servers.iter().position(|server| ports.iter().all(|p| *p == server.port().to_string()));
        position.ok_or_else(|| format!("Sentinels report {ports:?}"))
    }

    async fn wait_formed(&self) {
        for sentinel in &self.sentinels {
            eventually_ok(FORMATION_TIMEOUT, "Sentinel has found the others", async || {
                let master = sentinel.info("master0").await?;
                let formed = master.contains("status=ok,") && master.ends_with("slaves=1,sentinels=3");
                if formed { Ok(()) } else { Err(master) }
            })
            .await;
        }
    }
}

fn sentinel_options(master_port: u16) -> RedisOptions {
    Redis::options()
        .sentinel()
        .directive(&format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {master_port} 2"))
        .directive(&format!("sentinel down-after-milliseconds {MASTER_NAME} 500"))
        .directive(&format!("sentinel failover-timeout {MASTER_NAME} 3000"))
}

async fn wait_in_sync(replica: &Redis) {
    eventually_ok(FORMATION_TIMEOUT, "replica is in sync", async || {
        let link = replica.info("master_link_status").await?;
        if link == "up" { Ok(()) } else { Err(link) }
    })
    .await;
}
