//! The services put together: they talk over loopback HTTP as everywhere else, and stop in order.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use dashboard_api::session::SessionKey;
use lookup_svc::app::LookupService;
use quota_client::QuotaClient;
use quota_svc::app::QuotaService;
use service_kit::{Kit, Lifecycle};

use crate::config::Config;
use crate::{data_dir, first_start, welcome};

/// A call at the start may meet a busy machine.
const FIRST_CALL: Duration = Duration::from_secs(5);

/// Starts everything, greets, and returns when all has stopped.
pub async fn run(config: &Config, kit: &Kit) -> anyhow::Result<()> {
    let data = data_dir::prepare(&config.data_dir)?;
    // quota-svc stops after the others: what they still have under way needs its verdicts.
    let quota_kit = Kit { lifecycle: Lifecycle::new(&kit.serve), ..kit.clone() };
    let quota = QuotaService::start(&config.quota(data.store_file), &quota_kit).await?;
    let quota_addr = quota.local_addr();
    let quota = tokio::spawn(quota.run());

    let served = serve_public(config, kit, quota_addr, data.session_key).await;
    quota_kit.lifecycle.begin_stop();
    quota.await.context("quota-svc ended unexpectedly")?;
    served
}

async fn serve_public(
    config: &Config,
    kit: &Kit,
    quota: SocketAddr,
    session_key: SessionKey,
) -> anyhow::Result<()> {
    let client = QuotaClient::new(&format!("http://{quota}"), FIRST_CALL)?;
    let dashboard = dashboard_api::app::start(&config.dashboard(quota, session_key)?, kit).await?;
    let lookup = LookupService::start(&config.lookup(quota, dashboard.local_addr())?, kit).await?;
    let made = first_start::create_account(&client).await.context(
        "the store does not answer: check --redis-url, or leave it out to keep everything in --data-dir",
    )?;
    // After the ports are open: whoever sees /readyz say yes must find them.
    let admin = kit.serve_admin(config.admin_listen).await?;
    let places =
        welcome::Places { lookup: lookup.local_addr(), dashboard: dashboard.local_addr(), quota, admin };
    welcome::print(&places, made.as_ref());
    tokio::join!(lookup.run(), dashboard.run());
    Ok(())
}
