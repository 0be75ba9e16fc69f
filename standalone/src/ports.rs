//! The public ports and the admin port, and what each serves: one service, or the service of the requested host.

use anyhow::Context;
use http_server::{ErrorResponder, HostRouter, Tls};
use poem::EndpointExt;
use poem::endpoint::BoxEndpoint;
use service_kit::{AdminServer, Kit, PortArgs, PublicPort, wrong_host};

use crate::config::Config;
use crate::service_urls::ServiceUrls;

/// The ports other than that of quota-svc, bound but not served yet.
pub struct Ports {
    /// With the port that redirects to it.
    pub api: PublicPort,
    /// `None` if the dashboard shares the API's port.
    pub dashboard: Option<PublicPort>,
    pub admin: AdminServer,
}

impl Ports {
    /// Binds the ports, with these certificates for those of the public services.
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
        let admin = kit.bind_admin(config.admin_listen).await.context("--admin-listen")?;
        Ok(Self { api, dashboard, admin })
    }

    /// The public URLs, with the actual ports.
    pub fn urls(&self, config: &Config) -> ServiceUrls {
        let api = self.api.local_addr();
        ServiceUrls::at(config, api, self.dashboard.as_ref().map_or(api, PublicPort::local_addr))
    }
}

/// What the API's port and the dashboard's port serve; `None` if they share one. Without `--api-host`, a port serves its
/// service for every host. The errors of the services format the 421 for other hosts.
pub fn endpoints(
    config: &Config,
    kit: &Kit,
    (api_errors, dashboard_errors): (ErrorResponder, ErrorResponder),
    api: BoxEndpoint<'static>,
    dashboard: BoxEndpoint<'static>,
) -> (BoxEndpoint<'static>, Option<BoxEndpoint<'static>>) {
    let Some(api_host) = &config.api_host else { return (api, Some(dashboard)) };
    let router = |errors| HostRouter::new(wrong_host(kit, "ip-lookup", errors));
    let api_hosts: Vec<_> = config.family_hosts().chain([api_host]).collect();
    let api = router(api_errors).hosts(api_hosts.clone(), api);
    match &config.dashboard_host {
        None => (api.boxed(), Some(dashboard)),
        Some(host) if config.dashboard_listen.is_none() => (api.hosts([host], dashboard).boxed(), None),
        Some(host) => {
            let dashboard = router(dashboard_errors).hosts([host], dashboard).elsewhere(api_hosts);
            (api.elsewhere([host]).boxed(), Some(dashboard.boxed()))
        }
    }
}
