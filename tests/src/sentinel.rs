//! A real Sentinel set: one master, one replica, three Sentinels that fail over within a second or two.

use std::time::Duration;

use crate::redis::{Redis, RedisOptions};
use crate::wait::eventually_ok;

const FORMED_WITHIN: Duration = Duration::from_secs(30);

/// The name under which the Sentinels know the master.
pub const MASTER_NAME: &str = "quota";

/// A running Sentinel set.
#[derive(Debug)]
pub struct Sentinel {
    /// The data servers; the first one starts as the master.
    pub servers: [Redis; 2],
    /// The Sentinels; any two of them can decide a failover.
    pub sentinels: [Redis; 3],
}

impl Sentinel {
    /// Starts all five and waits until every Sentinel knows every other process.
    ///
    /// # Panics
    /// When the set does not form.
    pub async fn start() -> Self {
        let master = Redis::options().appendonly().start().await;
        let replica_of = format!("replicaof 127.0.0.1 {}", master.port());
        let replica = Redis::options().appendonly().directive(&replica_of).start().await;
        wait_in_step(&replica).await;
        let watch = || watching(master.port()).start();
        let sentinels = [watch().await, watch().await, watch().await];
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

    /// The index in `servers` of the master that all Sentinels agree on.
    ///
    /// # Panics
    /// When they do not agree in time.
    pub async fn master(&self) -> usize {
        eventually_ok(FORMED_WITHIN, "the Sentinels agree on a master", async || self.agreed_master().await)
            .await
    }

    /// Waits until all Sentinels name `servers[index]` and it calls itself master.
    ///
    /// # Panics
    /// When that takes too long.
    pub async fn wait_master(&self, index: usize) {
        eventually_ok(FORMED_WITHIN, format!("server {index} is the master"), async || {
            let (agreed, role) = (self.agreed_master().await?, self.servers[index].info("role").await?);
            let there = agreed == index && role == "master";
            if there { Ok(()) } else { Err(format!("the Sentinels name {agreed}, server {index} is {role}")) }
        })
        .await;
    }

    async fn agreed_master(&self) -> Result<usize, String> {
        let mut named = Vec::new();
        for sentinel in &self.sentinels {
            let answer = sentinel.try_cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]).await?;
            named.push(answer.lines().nth(1).unwrap_or_default().to_owned());
        }
        let position =
            self.servers.iter().position(|server| named.iter().all(|n| *n == server.port().to_string()));
        position.ok_or_else(|| format!("they name {named:?}"))
    }

    async fn wait_formed(&self) {
        for sentinel in &self.sentinels {
            eventually_ok(FORMED_WITHIN, "a Sentinel knows the others", async || {
                let masters = sentinel.info("master0").await?;
                let formed = masters.contains("status=ok,") && masters.ends_with("slaves=1,sentinels=3");
                if formed { Ok(()) } else { Err(masters) }
            })
            .await;
        }
    }
}

fn watching(master_port: u16) -> RedisOptions {
    Redis::options()
        .sentinel()
        .directive(&format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {master_port} 2"))
        .directive(&format!("sentinel down-after-milliseconds {MASTER_NAME} 500"))
        .directive(&format!("sentinel failover-timeout {MASTER_NAME} 3000"))
}

async fn wait_in_step(replica: &Redis) {
    eventually_ok(FORMED_WITHIN, "the replica is in step", async || {
        let link = replica.info("master_link_status").await?;
        if link == "up" { Ok(()) } else { Err(link) }
    })
    .await;
}
