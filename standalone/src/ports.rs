//! The public ports and the admin port, and what each serves: one service, or the service of the requested host.

use anyhow::Context;
use http_server::{ErrorResponder, HostRouter, Tls};
use poem::EndpointExt;
use service_kit::{AdminServer, Kit, PortArgs, PortService, PublicPort, wrong_host};

use crate::config::Config;
use crate::service_urls::ServiceUrls;

/// The service label in the metrics of ports that several services share.
const NAME: &str = "ip-lookup";

/// The ports other than that of quota-svc, bound but not served yet.
pub struct Ports {
    /// With the port that redirects to it.
    api: PublicPort,
    /// `None` if the dashboard shares the API's port.
    dashboard: Option<PublicPort>,
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

    /// Serves until shutdown is complete. Without `--api-host`, a port serves its service for every host. The errors of the
    /// services format the 421 for other hosts.
    pub async fn serve(
        self,
        config: &Config,
        kit: &Kit,
        mut lookup: PortService,
        mut dashboard: PortService,
    ) {
        self.admin.serve();
        // The redirect port is for all hosts, an unknown one is redirected to the API.
        lookup.redirects.append(&mut dashboard.redirects);
        // If the dashboard shares the API's port, its tasks must run as long as that is served.
        let _dashboard_tasks = std::mem::take(&mut dashboard.tasks);
        let router = |errors: &ErrorResponder| HostRouter::new(wrong_host(kit, NAME, errors.clone()));
        let (api, own) = match &config.api_host {
            None => (lookup.endpoint, Some(dashboard.endpoint)),
            Some(api_host) => {
                let api_hosts: Vec<_> = config.family_hosts().chain([api_host]).collect();
                let api = router(&lookup.errors).hosts(api_hosts.clone(), lookup.endpoint);
                match &config.dashboard_host {
                    None => (api.boxed(), Some(dashboard.endpoint)),
                    Some(host) if self.dashboard.is_none() => {
                        (api.hosts([host], dashboard.endpoint).boxed(), None)
                    }
                    Some(host) => {
                        let own = router(&dashboard.errors).hosts([host], dashboard.endpoint);
                        (api.elsewhere([host]).boxed(), Some(own.elsewhere(api_hosts).boxed()))
                    }
                }
            }
        };
        let serving_dashboard = async {
            if let Some((port, endpoint)) = self.dashboard.zip(own) {
                port.serve(NAME, PortService { endpoint, ..dashboard }).await;
            }
        };
        tokio::join!(self.api.serve(NAME, PortService { endpoint: api, ..lookup }), serving_dashboard);
    }
}
