//! The services put together: they talk over loopback HTTP as everywhere else, and stop in order.

use std::time::Duration;

use anyhow::Context;
use lookup_svc::app::LookupService;
use quota_client::QuotaClient;
use quota_svc::app::QuotaService;
use service_kit::{Kit, Lifecycle};

use crate::config::{Config, url_of};
use crate::{data_dir, first_start, welcome};

/// A store that was just started may need a moment, Redis over a network a little longer.
const FIRST_CALL: Duration = Duration::from_secs(5);

/// Starts everything, greets, and returns when all has stopped.
pub async fn run(config: &Config, kit: &Kit) -> anyhow::Result<()> {
    let store_file = data_dir::prepare(&config.data_dir)?;
    kit.serve_admin(config.admin_listen).await?;
    // quota-svc stops after the others: what they still have under way needs its verdicts.
    let quota_kit = Kit { lifecycle: Lifecycle::new(&kit.serve), ..kit.clone() };
    let quota = QuotaService::start(&config.quota(store_file), &quota_kit).await?;
    let quota_addr = quota.local_addr();
    let quota = tokio::spawn(quota.run());

    let served = serve_public(config, kit, quota_addr).await;
    quota_kit.lifecycle.begin_stop();
    quota.await.context("quota-svc ended unexpectedly")?;
    served
}

async fn serve_public(config: &Config, kit: &Kit, quota_addr: std::net::SocketAddr) -> anyhow::Result<()> {
    let client = QuotaClient::new(&format!("http://{quota_addr}"), FIRST_CALL)?;
    let lookup = LookupService::start(&config.lookup(quota_addr)?, kit).await?;
    let key = first_start::create_key(&client).await.context(
        "the store does not answer: check --redis-url, or leave it out to keep everything in --data-dir",
    )?;
    welcome::print(&url_of(lookup.local_addr()), quota_addr, key.as_deref(), config);
    lookup.run().await;
    Ok(())
}
