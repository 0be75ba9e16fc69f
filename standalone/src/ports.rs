//! The ports of the process.

use std::net::SocketAddr;

use anyhow::Context;
use service_kit::{AdminServer, Kit, RedirectServer, Server};

use crate::config::Config;

/// Every port of the process, bound but not served yet.
pub struct Ports {
    pub quota: Server,
    pub public: PublicPorts,
}

/// The ports other than that of quota-svc.
pub struct PublicPorts {
    pub api: Server,
    pub dashboard: Server,
    pub redirect: Option<Server>,
    pub admin: AdminServer,
}

impl Ports {
    /// Binds all ports. Must be called before anything is created: after a failure, a first start would leave an account
    /// whose password nobody has seen.
    pub async fn bind(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        let api = bind(kit, "--listen", "lookup", config.listen).await?;
        let dashboard = bind(kit, "--dashboard-listen", "dashboard", config.dashboard_listen).await?;
        let quota = bind(kit, "--quota-listen", "quota", config.quota_listen).await?;
        let redirect = match config.redirect_listen {
            Some(addr) => {
                Some(RedirectServer::bind_port(addr, &kit.serve).await.context("--redirect-listen")?)
            }
            None => None,
        };
        let admin = kit.bind_admin(config.admin_listen).await.context("--admin-listen")?;
        Ok(Self { quota, public: PublicPorts { api, dashboard, redirect, admin } })
    }
}

async fn bind(kit: &Kit, flag: &'static str, name: &'static str, addr: SocketAddr) -> anyhow::Result<Server> {
    Server::bind(name, addr, &kit.serve).await.context(flag)
}
