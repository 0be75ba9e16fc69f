//! Builds the service from its parts and serves it.

use std::sync::Arc;

use anyhow::Context;
use edge::{DiscoveryStatus, Edge, TrustedProxies};
use geo::update::DailyUpdate;
use geo::{Geo, GeoArgs};
use http_server::{ErrorResponder, RedirectTarget};
use poem::EndpointExt;
use poem::Response;
use poem::endpoint::BoxEndpoint;
use quota_client::{ChargeService, Charger, QuotaClient, QuotaToken};
use service_kit::{Kit, PortService, RequestTelemetry, responder};
use tokio::task::JoinSet;

use crate::api::{Api, Responses};
use crate::config::Config;
use crate::lookup::{Backends, unix_now};
use crate::metrics::{self, QuotaMetrics, RequestCounters};
use crate::public_urls::PublicUrls;
use crate::quota_status::{HUNG_AFTER, QuotaStatus};
use crate::{pages, router};

/// lookup-svc without its port.
pub struct LookupService {
    endpoint: BoxEndpoint<'static, Response>,
    urls: PublicUrls,
    /// Formats errors that the API does not build.
    errors: ErrorResponder,
    trusted: Arc<TrustedProxies>,
    geo: Geo,
    /// Tasks that end with the service. The process shuts down if one of them fails.
    tasks: JoinSet<()>,
}

impl LookupService {
    /// Starts proxy discovery.
    ///
    /// quota-svc may start later; until its store has been reached, the service is not ready and lookups get 500.
    ///
    /// Charges go to `charges`, if it is set, instead of over HTTP.
    pub async fn start(
        config: &Config,
        geo_data: GeoData,
        kit: &Kit,
        charges: Option<Arc<dyn ChargeService>>,
    ) -> anyhow::Result<Self> {
        let urls = PublicUrls::new(config);
        urls.check_hosts()?;
        let edge = Edge::start(&config.edge).await.context("can't set up client address detection")?;
        if config.service.listener.proxy_protocol {
            edge.require_trusted_proxies()?;
        }
        let GeoData { geo, update } = geo_data;
        let meter = kit.telemetry.meter();
        let client = QuotaClient::new(&config.quota.quota_url, HUNG_AFTER)
            .context("invalid --quota-url")?
            .with_token(&QuotaToken::load_flag(config.quota.quota_token_file.as_deref())?);
        let charges = charges.unwrap_or_else(|| client.charge_service());
        let charger = Charger::new(charges, config.batching(), Arc::new(QuotaMetrics::new(&meter)));

        let counters = Arc::new(RequestCounters::default());
        counters.publish(&meter);
        metrics::publish_geo(&meter, &geo, config.geo.geo_db.len());
        metrics::publish_discovery(&meter, edge.status());

        let mut tasks = JoinSet::new();
        tasks.spawn(kit.tasks.watch("charges", charger.clone().failed()));
        let store_client = client.clone();
        tasks.spawn(kit.await_store("lookup-store", async move |waiting| {
            store_client.wait_for_store(|reason| waiting.set_not_ready(reason)).await;
        }));
        kit.readiness.condition("timezones").set_ready(geo.timezones().to_string());
        let condition = kit.readiness.condition("geo");
        let report = move |geo: &Geo| condition.set_ready(geo.summary(unix_now()));
        report(&geo);
        let geo_reload = geo.clone().watch(report);
        tasks.spawn(kit.tasks.watch("geo reload", geo_reload));
        if let Some(update) = update {
            tasks.spawn(kit.tasks.watch("geo-update", update.run()));
        }
        let discovery_report =
            kit.readiness.condition("lookup-edge").follow(edge.status(), DiscoveryStatus::readiness);
        tasks.spawn(kit.tasks.watch("proxy discovery", discovery_report));

        let trusted = edge.trusted();
        let tracing_proxies = trusted.clone();
        let telemetry = RequestTelemetry::new(&kit.telemetry, "lookup-svc")
            .trust_trace_of(move |peer| tracing_proxies.contains(peer));
        let (quota, quota_update) = QuotaStatus::follow(client, kit.readiness.condition("lookup-quota"));
        tasks.spawn(kit.tasks.watch("status of quota-svc", quota_update));
        let backends = Arc::new(Backends { edge, geo: geo.clone(), charger });
        let pages = pages::routes(&urls, backends.clone(), &quota, config.ratelimit_headers);
        let responses = Responses::new(&urls, config.ratelimit_headers, quota);
        let errors = responder(&*urls.docs, &responses.default);
        let api = Api { backends, responses, counters, outage_log: Arc::default() };
        let endpoint = router::endpoint(api, pages, errors.clone(), telemetry, config.body_timeout());
        Ok(Self { endpoint: endpoint.boxed(), urls, errors, trusted, geo, tasks })
    }

    /// The trusted proxies, which discovery keeps current.
    pub fn trusted_proxies(&self) -> Arc<TrustedProxies> {
        self.trusted.clone()
    }

    /// The geo data in use and its age. Without databases, says how cities and networks are added.
    pub fn geo_summary(&self, how_to_add: &str) -> String {
        match &self.geo.databases()[..] {
            [built_in] => {
                let date = built_in.date().map(|date| date.to_string()).unwrap_or_default();
                format!("countries only ({date}). Cities and networks: {how_to_add}")
            }
            _ => self.geo.summary(unix_now()),
        }
    }

    /// What the API's port serves. Fails if it is to redirect, and one of the URLs is not https.
    pub fn into_port_service(self, redirects: bool) -> anyhow::Result<PortService> {
        let urls = [
            ("--base-url", Some(&self.urls.base)),
            ("--ipv4-host", self.urls.ipv4.as_ref()),
            ("--ipv6-host", self.urls.ipv6.as_ref()),
        ];
        let urls = urls.into_iter().filter_map(|(flag, url)| Some((flag, url?))).filter(|_| redirects);
        let targets = urls.map(|(flag, url)| RedirectTarget::new(flag, url, self.errors.clone()));
        let trusted = self.trusted;
        Ok(PortService {
            redirects: targets.collect::<anyhow::Result<_>>()?,
            endpoint: self.endpoint,
            errors: self.errors,
            trusted: Arc::new(move |peer| trusted.contains(peer)),
            tasks: self.tasks,
        })
    }
}

/// The geo data, and its daily update if there is one.
pub struct GeoData {
    geo: Geo,
    update: Option<DailyUpdate>,
}

impl GeoData {
    /// Loads the geo data on a blocking thread, because the files can be large.
    pub async fn load(args: &GeoArgs) -> anyhow::Result<Self> {
        let (args, to) = (args.clone(), args.geo_db.first().or(args.default_dir.as_ref()));
        let update = args.geo_update.as_ref().map(|source| {
            let to = to.context("--geo-update needs --geo-db, the directory to install the databases in")?;
            DailyUpdate::new(source, to).context("--geo-update")
        });
        let update = update.transpose()?;
        if update.is_some()
            && let Some(dir) = args.geo_db.first()
        {
            let message = || format!("--geo-update needs a directory, which {} can't be", dir.display());
            std::fs::create_dir_all(dir).with_context(message)?;
        }
        let geo = tokio::task::spawn_blocking(move || Geo::open(&args))
            .await
            .context("loading the geo data panicked")?;
        let geo = geo.context("can't load the geo data")?;
        log(&geo);
        Ok(Self { geo, update })
    }
}

fn log(geo: &Geo) {
    for database in geo.databases() {
        let (kind, built) = (database.kind.as_str(), database.build_epoch);
        let date = database.date_and_age(unix_now());
        tracing::info!(database = database.name, kind, built, date, "geo database loaded");
    }
    if geo.only_built_in() {
        tracing::info!("geo data: {}", geo.summary(unix_now()));
    }
    tracing::info!(tzdata = %geo.timezones(), "timezone data in use");
}

#[cfg(test)]
mod tests {
    use http_server::ServeArgs;
    use tokio::sync::watch;

    use super::*;

    #[tokio::test]
    async fn service_is_not_ready_until_proxies_are_listed() {
        let kit = Kit::detached(&ServeArgs::default());
        let (sender, receiver) = watch::channel(DiscoveryStatus::Waiting);
        let condition = kit.readiness.condition("lookup-edge");
        let reporting = tokio::spawn(condition.follow(receiver, DiscoveryStatus::readiness));
        assert!(!kit.readiness.report().ready);
        for status in [DiscoveryStatus::Following { proxies: 2 }, DiscoveryStatus::Stale { proxies: 2 }] {
            sender.send_replace(status);
            while !kit.readiness.report().checks["lookup-edge"].detail.contains(status.label()) {
                tokio::task::yield_now().await;
            }
            assert!(kit.readiness.report().ready, "{status:?}");
        }
        drop(sender);
        reporting.await.expect("the task ends when the sender is dropped");
    }
}
