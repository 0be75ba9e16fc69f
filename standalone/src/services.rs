//! Runs all services in one process. They communicate over loopback HTTP, like the containers of a pod in Kubernetes.
//! quota-svc shuts down last.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use dashboard_api::app::DashboardService;
use lookup_svc::app::LookupService;
use lookup_svc::public_urls::PublicUrls as ApiUrls;
use quota_client::wire::Actor;
use quota_client::{QuotaClient, QuotaToken};
use quota_svc::app::QuotaService;
use service_kit::{Kit, Lifecycle, RedirectServer, RequestTelemetry};

use crate::banner::Banner;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::public_urls::PublicUrls;
use crate::{bootstrap, data_dir};

/// Timeout per call during startup. Generous, because the machine may be busy.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts all services, prints the banner and returns when all have stopped.
pub async fn run(config: &Config, kit: &Kit) -> anyhow::Result<()> {
    let urls = PublicUrls::new(config)?;
    let data = data_dir::prepare(&config.data_dir)?;
    // quota-svc has its own lifecycle, to stop last: requests in flight in the other services still need it.
    let quota_kit = Kit { lifecycle: Lifecycle::new(&kit.serve), ..kit.clone() };
    let quota = QuotaService::start(&config.quota(&data), &quota_kit).await?;
    let quota_addr = quota.local_addr();
    let quota = tokio::spawn(kit.tasks.watch("quota-svc", quota.run()));

    let result = serve_public(config, kit, quota_addr, &data, urls).await;
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
    mut urls: PublicUrls,
) -> anyhow::Result<()> {
    let token = QuotaToken::load(&data.quota_token_file)?;
    let client = QuotaClient::new(&format!("http://{quota}"), STARTUP_TIMEOUT)?;
    let client = client.with_token(Some(&token)).acting_as(Actor::System);
    let dashboard = DashboardService::start(&config.dashboard(quota, data, &urls)?, kit).await?;
    urls.use_dashboard_address(config, dashboard.local_addr());
    let lookup = LookupService::start(&config.lookup(quota, data, &urls)?, kit).await?;
    urls.use_api_address(config, lookup.local_addr());
    // Fails before an account is created, whose password would not be shown.
    let redirect = match config.redirect_listen {
        Some(addr) => {
            let api = lookup_svc::app::redirect_target(&ApiUrls::new(&config.lookup(quota, data, &urls)?))?;
            let docs_url = format!("{}/docs", urls.api);
            let others = vec![dashboard_api::app::redirect_target(&urls.dashboard, &docs_url)?];
            let telemetry = RequestTelemetry::new(&kit.telemetry, "ip-lookup");
            let server = RedirectServer::bind(addr, api, others, &kit.serve, telemetry).await?;
            let trusted = lookup.trusted_proxies();
            Some(server.proxy_protocol(&config.listener, move |peer| trusted.contains(peer)))
        }
        None => None,
    };
    let credentials = bootstrap::create_account(&client)
        .await
        .context("can't access the store: check --redis-url, or omit it to use --data-dir")?;
    // The admin server starts after the other ports are open, so that /readyz never reports ready before clients can
    // connect.
    let admin = kit.serve_admin(config.admin_listen).await?;
    let geo = lookup.geo_summary();
    let banner = Banner {
        urls: &urls,
        local_api: config.base_url.is_none(),
        proxy_protocol: config.listener.proxy_protocol,
        quota,
        data,
        geo: &geo,
        admin,
    };
    banner.print(credentials.as_ref());
    let redirecting = async {
        if let Some(redirect) = redirect {
            redirect.serve(kit.lifecycle.clone()).await;
        }
    };
    tokio::join!(lookup.run(), dashboard.run(), redirecting);
    Ok(())
}
