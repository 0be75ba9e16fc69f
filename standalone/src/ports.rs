//! The ports of the process.

use std::net::SocketAddr;

use anyhow::Context;
use service_kit::{AdminServer, Kit, RedirectServer, Server, Tls};

use crate::config::Config;
use crate::public_urls::PublicUrls;

/// Every port of the process, bound but not served yet.
pub struct Ports {
    pub quota: Server,
    pub public: PublicPorts,
}

/// The ports other than that of quota-svc.
pub struct PublicPorts {
    pub api: Server,
    /// `None` if the dashboard shares the API's port.
    pub dashboard: Option<Server>,
    pub redirect: Option<Server>,
    pub admin: AdminServer,
}

impl Ports {
    /// Binds all ports, with these certificates for those of the public services.
    ///
    /// Must be called before anything is created: after a failure, a first start would leave an account whose password
    /// was never shown.
    pub async fn bind(config: &Config, kit: &Kit, tls: Option<&Tls>) -> anyhow::Result<Self> {
        let api = bind(kit, "--listen", "lookup", config.listen).await?.tls(tls.cloned());
        let dashboard_tls = tls.filter(|_| config.dashboard_scheme() == "https").cloned();
        let dashboard = match config.dashboard_listen {
            Some(addr) => Some(bind(kit, "--dashboard-listen", "dashboard", addr).await?.tls(dashboard_tls)),
            None => None,
        };
        let quota = bind(kit, "--quota-listen", "quota", config.quota_listen).await?;
        let redirect = match config.redirect_addr() {
            Some(addr) => {
                Some(RedirectServer::bind_port(addr, &kit.serve).await.context("--redirect-listen")?)
            }
            None => None,
        };
        let admin = kit.bind_admin(config.admin_listen).await.context("--admin-listen")?;
        Ok(Self { quota, public: PublicPorts { api, dashboard, redirect, admin } })
    }
}

impl PublicPorts {
    /// The public URLs, with the actual ports.
    pub fn urls(&self, config: &Config) -> PublicUrls {
        let api = self.api.local_addr();
        PublicUrls::at(config, api, self.dashboard.as_ref().map_or(api, Server::local_addr))
    }
}

async fn bind(kit: &Kit, flag: &'static str, name: &'static str, addr: SocketAddr) -> anyhow::Result<Server> {
    Server::bind(name, addr, &kit.serve).await.context(flag)
}
