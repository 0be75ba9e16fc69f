//! The service as a whole: its parts put together, its port open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use edge::{DiscoveryStatus, Edge};
use poem::EndpointExt;
use poem::Response;
use poem::endpoint::BoxEndpoint;
use quota_client::{Charger, QuotaClient};
use service_kit::{Alarm, Condition, Kit, Lifecycle, Server};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::api::{Answers, Api, finish};
use crate::config::Config;
use crate::geo::Geo;
use crate::links::Links;
use crate::lookup::Lookup;
use crate::metrics::{self, QuotaMetrics, Tally};
use crate::pages::Pages;
use crate::router;

/// How often /readyz learns which geo databases are loaded, at the most.
const GEO_REPORT: Duration = Duration::from_secs(1);

/// lookup-svc with its port open; [`run`](Self::run) serves it.
pub struct LookupService {
    server: Server,
    endpoint: BoxEndpoint<'static, Response>,
    lifecycle: Lifecycle,
    background: JoinSet<()>,
}

impl LookupService {
    /// Loads the geo data, starts following the edge, and opens the port.
    ///
    /// quota-svc need not be there yet: until it is, answers are 500.
    pub async fn start(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        let links = Links::new(config);
        let edge = Edge::start(&config.edge).await.context("the edge can not be set up")?;
        let geo = open_geo(config).await?;
        let meter = kit.telemetry.meter();
        let client = QuotaClient::new(&config.quota.quota_url, config.quota.quota_deadline)
            .context("--quota-url can not be used")?;
        let charger = Charger::new(client, config.batching(), Arc::new(QuotaMetrics::new(&meter)));

        let tally = Arc::new(Tally::default());
        tally.publish(&meter);
        metrics::publish_geo(&meter, &geo);
        metrics::publish_discovery(&meter, edge.status());

        let mut background = JoinSet::new();
        background.spawn(geo.clone().watch());
        background.spawn(report_geo(
            geo.clone(),
            kit.readiness.condition("geo"),
            config.geo.geo_check_interval,
        ));
        background.spawn(report_edge(edge.status(), kit.readiness.condition("lookup-edge")));

        let pages = Pages::new(&links, geo.clone());
        let api = Api {
            lookup: Lookup { edge, geo, charger },
            answers: Answers::new(&links),
            tally,
            alarm: Alarm::default(),
        };
        let endpoint = router::endpoint(api, pages, &links, &kit.telemetry, config.body_deadline());
        let server = Server::bind("lookup", config.listen, &config.serve).await?;
        Ok(Self {
            server: server.docs_url(&links.docs).error_headers(finish().headers()),
            endpoint: endpoint.boxed(),
            lifecycle: kit.lifecycle.clone(),
            background,
        })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until the lifecycle stops and what was under way is finished.
    pub async fn run(self) {
        self.server.serve(self.endpoint, self.lifecycle).await;
        drop(self.background);
    }
}

/// Files may be large: not on a worker thread.
async fn open_geo(config: &Config) -> anyhow::Result<Geo> {
    let args = config.geo.clone();
    let geo =
        tokio::task::spawn_blocking(move || Geo::open(&args)).await.context("loading geo data failed")?;
    let geo = geo.context("the geo data can not be used")?;
    for database in geo.databases() {
        let (kind, built) = (database.kind.as_str(), database.build_epoch);
        tracing::info!(database = database.name, kind, built, "geo database loaded");
    }
    Ok(geo)
}

async fn report_geo(geo: Geo, condition: Condition, every: Duration) {
    loop {
        let names: Vec<_> =
            geo.databases().iter().map(|db| format!("{} ({})", db.name, db.kind.as_str())).collect();
        condition.set_ready(names.join(", "));
        tokio::time::sleep(every.max(GEO_REPORT)).await;
    }
}

/// Before the first list a proxy would be taken for the client: no traffic until then.
async fn report_edge(mut status: watch::Receiver<DiscoveryStatus>, condition: Condition) {
    loop {
        let now = *status.borrow_and_update();
        match now.is_ready() {
            true => condition.set_ready(format!("proxy discovery: {}", now.label())),
            false => condition.set_not_ready("the proxies have not been listed yet"),
        }
        if status.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use service_kit::ServeArgs;

    use super::*;

    #[tokio::test]
    async fn there_is_no_traffic_before_the_proxies_are_known() {
        let kit = Kit::for_tests(&ServeArgs::default());
        let (sender, receiver) = watch::channel(DiscoveryStatus::Waiting);
        let reporting = tokio::spawn(report_edge(receiver, kit.readiness.condition("lookup-edge")));
        assert!(!kit.readiness.is_ready());
        for status in [DiscoveryStatus::Following { proxies: 2 }, DiscoveryStatus::Stale { proxies: 2 }] {
            sender.send_replace(status);
            while !kit.readiness.report().checks["lookup-edge"].detail.contains(status.label()) {
                tokio::task::yield_now().await;
            }
            assert!(kit.readiness.is_ready(), "{status:?}");
        }
        drop(sender);
        reporting.await.expect("it ends with its source");
    }
}
