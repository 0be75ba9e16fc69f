//! The ports of the process.

use anyhow::Context;
use http_server::{Server, Tls};
use service_kit::{AdminServer, Kit, PortArgs, PublicPort};

use crate::config::Config;
use crate::service_urls::ServiceUrls;

/// Every port of the process, bound but not served yet.
pub struct Ports {
    pub quota: Server,
    pub public: PublicPorts,
}

/// The ports other than that of quota-svc.
pub struct PublicPorts {
    /// With the port that redirects to it.
    pub api: PublicPort,
    /// `None` if the dashboard shares the API's port.
    pub dashboard: Option<PublicPort>,
    pub admin: AdminServer,
}

impl Ports {
    /// Binds all ports, with these certificates for those of the public services.
    ///
    /// Must be called before anything is created: after a failure, a first start would leave an account whose password
    /// was never shown.
    pub async fn bind(config: &Config, kit: &Kit, tls: Option<&Tls>) -> anyhow::Result<Self> {
        let api = PortArgs {
            name: "lookup",
            flag: "--listen",
            listen: config.listen,
            redirect_listen: config.redirect_addr(),
            tls: tls.cloned(),
            certificates: Some("tls"),
            listener: &config.listener,
        };
        let dashboard = config.dashboard_listen.map(|listen| PortArgs {
            name: "dashboard",
            flag: "--dashboard-listen",
            listen,
            redirect_listen: None,
            tls: tls.filter(|_| config.dashboard_scheme() == "https").cloned(),
            certificates: None,
            listener: &config.listener,
        });
        let api = PublicPort::bind(kit, api).await?;
        let dashboard = match dashboard {
            Some(args) => Some(PublicPort::bind(kit, args).await?),
            None => None,
        };
        let quota = Server::bind("quota", config.quota_listen, &kit.serve).await.context("--quota-listen")?;
        let admin = kit.bind_admin(config.admin_listen).await.context("--admin-listen")?;
        Ok(Self { quota, public: PublicPorts { api, dashboard, admin } })
    }
}

impl PublicPorts {
    /// The public URLs, with the actual ports.
    pub fn urls(&self, config: &Config) -> ServiceUrls {
        let api = self.api.local_addr();
        ServiceUrls::at(config, api, self.dashboard.as_ref().map_or(api, PublicPort::local_addr))
    }
}
