//! What each port serves: one service, or the service of the requested host.

use http_server::{ErrorResponder, HostRouter};
use poem::EndpointExt;
use poem::endpoint::BoxEndpoint;
use service_kit::{Kit, wrong_host};

use crate::config::Config;

/// The endpoints of the public ports.
pub struct PortEndpoints {
    pub api: BoxEndpoint<'static>,
    /// `None` if the dashboard shares the API's port.
    pub dashboard: Option<BoxEndpoint<'static>>,
}

impl PortEndpoints {
    /// Without `--api-host`, a port serves its service for every host. The errors of the services format the 421 for other hosts.
    pub fn new(
        config: &Config,
        kit: &Kit,
        (api_errors, dashboard_errors): (ErrorResponder, ErrorResponder),
        api: BoxEndpoint<'static>,
        dashboard: BoxEndpoint<'static>,
    ) -> Self {
        let Some(api_host) = &config.api_host else { return Self { api, dashboard: Some(dashboard) } };
        let router = |errors| HostRouter::new(wrong_host(kit, "ip-lookup", errors));
        let api = router(api_errors).host(api_host, api);
        let api = config.family_hosts().fold(api, |api, host| api.also(host));
        match &config.dashboard_host {
            None => Self { api: api.boxed(), dashboard: Some(dashboard) },
            Some(host) if config.dashboard_listen.is_none() => {
                Self { api: api.host(host, dashboard).boxed(), dashboard: None }
            }
            Some(host) => Self {
                api: api.elsewhere(host).boxed(),
                dashboard: Some(
                    config
                        .family_hosts()
                        .chain([api_host])
                        .fold(router(dashboard_errors).host(host, dashboard), |dashboard, other| {
                            dashboard.elsewhere(other)
                        })
                        .boxed(),
                ),
            },
        }
    }
}
