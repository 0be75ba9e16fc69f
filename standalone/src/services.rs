//! Runs all services in one process. They communicate over loopback HTTP, like the containers of a pod in Kubernetes.
//! quota-svc shuts down last.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use dashboard_api::app::DashboardApp;
use lookup_svc::app::LookupApp;
use quota_client::wire::Actor;
use quota_client::{QuotaClient, QuotaToken};
use quota_svc::app::QuotaService;
use service_kit::{Kit, Lifecycle, RedirectServer, RequestTelemetry, Server, Tls, TlsArgs};
use tokio::task::JoinSet;

use crate::acme::Acme;
use crate::banner::Banner;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::port_endpoints::PortEndpoints;
use crate::ports::{Ports, PublicPorts};
use crate::public_urls::PublicUrls;
use crate::{bootstrap, commands, data_dir};

/// Timeout per call during startup. Generous, because the machine may be busy.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The peer address of connections from this machine to `listen`.
fn own_address(listen: SocketAddr) -> IpAddr {
    match listen.ip() {
        ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Starts all services, prints the banner and returns when all have stopped.
pub async fn run(config: &Config, kit: &Kit) -> anyhow::Result<()> {
    config.check()?;
    // Only validates the flags; the actual ports are known after binding.
    PublicUrls::new(config)?;
    let acme = Acme::new(&config.acme, config.hosts(), &config.data_dir)?;
    let managed = acme.as_ref().map(Acme::certificate);
    // The certificates of all ports that serve HTTPS.
    let tls = Tls::load(&TlsArgs { managed, ..config.tls.clone() })?;
    let ports = Ports::bind(config, kit, tls.as_ref()).await?;
    let urls = ports.public.urls(config);
    let mut background = JoinSet::new();
    if let Some(tls) = &tls {
        background.spawn(kit.reload_certificates(tls, "tls"));
    }
    let data = data_dir::prepare(&config.data_dir)?;
    // quota-svc has its own lifecycle, to stop last: requests in flight in the other services still need it.
    let quota_kit = Kit { lifecycle: Lifecycle::new(&kit.serve), ..kit.clone() };
    let quota = QuotaService::start_on(ports.quota, &config.quota(&data), &quota_kit).await?;
    let quota_addr = quota.local_addr();
    let quota = tokio::spawn(kit.tasks.watch("quota-svc", quota.run()));

    let result = serve_public(config, kit, quota_addr, &data, &urls, ports.public, acme).await;
    // If the public services failed to start, no shutdown has begun yet, and the end of quota-svc would be a failure.
    kit.lifecycle.begin_shutdown();
    quota_kit.lifecycle.begin_shutdown();
    quota.await.context("quota-svc stopped unexpectedly")?;
    result
}

async fn serve_public(
    config: &Config,
    kit: &Kit,
    quota: SocketAddr,
    data: &DataDir,
    urls: &PublicUrls,
    ports: PublicPorts,
    acme: Option<Acme>,
) -> anyhow::Result<()> {
    let token = QuotaToken::load(&data.quota_token_file)?;
    let client = QuotaClient::new(&format!("http://{quota}"), STARTUP_TIMEOUT)?;
    let client = client.with_token(Some(&token)).acting_as(Actor::System);
    let dashboard = DashboardApp::start(&config.dashboard(quota, data, urls)?, kit).await?;
    let lookup = LookupApp::start(&config.lookup(quota, data, urls)?, kit).await?;
    // Before the account is created: if this failed later, its password would never be shown.
    let redirect = match ports.redirect {
        Some(server) => Some(redirect(server, config, kit, urls, &lookup, &dashboard)?),
        None => None,
    };
    let first_start = bootstrap::create_account(&client, config.print_credentials)
        .await
        .context("can't access the store: check --redis-url, or omit it to use --data-dir")?;
    let geo = lookup.geo_summary();
    let program = commands::program(config, quota);
    let local_api = config.base_url.is_none() && config.api_host.is_none();
    let banner = Banner {
        urls,
        local_api,
        trusts_this_machine: local_api && lookup.trusted_proxies().contains(own_address(config.listen)),
        proxy_protocol: config.listener.proxy_protocol,
        program: &program,
        geo: &geo,
        admin: ports.admin.local_addr(),
    };
    let explain = lookup.explain_endpoint(config.explain, ports.admin.local_addr());
    ports.admin.route("/explain", explain).serve();
    banner.print(first_start.as_ref());
    let mut background = JoinSet::new();
    if let Some(acme) = acme {
        background.spawn(kit.tasks.watch("certificate renewal", acme.run()));
    }
    let redirecting = async {
        if let Some(redirect) = redirect {
            redirect.serve(kit.lifecycle.clone()).await;
        }
    };
    let api_port = lookup.configure(ports.api);
    let dashboard_port = ports.dashboard.map(|port| dashboard.configure(port));
    let (lookup, _lookup_tasks) = lookup.into_endpoint();
    let (dashboard, _dashboard_tasks) = dashboard.into_endpoint();
    let endpoints = PortEndpoints::new(config, kit, urls, lookup, dashboard);
    let dashboard = dashboard_port.zip(endpoints.dashboard);
    let serving_dashboard = async {
        if let Some((port, endpoint)) = dashboard {
            port.serve(endpoint, kit.lifecycle.clone()).await;
        }
    };
    tokio::join!(api_port.serve(endpoints.api, kit.lifecycle.clone()), serving_dashboard, redirecting);
    Ok(())
}

/// Redirects to the https URL of the requested host, for an unknown host to the API's.
fn redirect(
    server: Server,
    config: &Config,
    kit: &Kit,
    urls: &PublicUrls,
    lookup: &LookupApp,
    dashboard: &DashboardApp,
) -> anyhow::Result<RedirectServer> {
    let api = lookup.redirect_target()?;
    // With --api-host alone, the dashboard may be for this machine only.
    let local_dashboard = config.api_host.is_some() && urls.dashboard.starts_with("http://");
    let mut others = lookup.other_redirect_targets()?;
    if !local_dashboard {
        others.push(dashboard.redirect_target(&urls.dashboard)?);
    }
    let telemetry = RequestTelemetry::new(&kit.telemetry, "ip-lookup");
    let server = RedirectServer::new(server, api, others, telemetry);
    let trusted = lookup.trusted_proxies();
    Ok(server.proxy_protocol(&config.listener, move |peer| trusted.contains(peer)))
}
