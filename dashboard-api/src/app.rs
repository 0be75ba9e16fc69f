//! Starts the dashboard: builds the handlers' context, opens the port and serves until shutdown.

use std::sync::Arc;

use anyhow::Context as _;
use edge::{DiscoveryStatus, Edge};
use http_server::RedirectTarget;
use poem::endpoint::BoxEndpoint;
use quota_client::wire::Actor;
use quota_client::{QuotaClient, QuotaToken};
use service_kit::{Kit, PortService, inject_request_context, responder};
use tokio::task::JoinSet;

use crate::accounts::Accounts;
use crate::api::{self, Context};
use crate::config::{Config, Switch};
use crate::deadline::{self, QUOTA_TIMEOUT};
use crate::first_account::FirstAccount;
use crate::mail::Mailer;
use crate::notices::Deliveries;
use crate::notices::target::TargetRules;
use crate::router;
use crate::session::{Cookies, SessionKey};
use crate::throttle::Throttle;

/// dashboard-api without its port.
pub struct DashboardService {
    endpoint: BoxEndpoint<'static>,
    context: Arc<Context>,
    tasks: JoinSet<()>,
}

impl DashboardService {
    /// Starts proxy discovery. quota-svc need not be reachable yet: until it is, requests that need it get 503.
    pub async fn start(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        config.check()?;
        if config.accounts.insecure_cookies && !config.service.listen.ip().is_loopback() {
            tracing::warn!(
                "session cookies are sent without the Secure attribute (--insecure-cookies); anyone on the network path \
                 can take over a session"
            );
        }
        let edge = Edge::start(&config.edge).await?;
        if config.service.listener.proxy_protocol {
            edge.require_trusted_proxies()?;
        }
        let discovery_report =
            kit.readiness.condition("dashboard-edge").follow(edge.status(), DiscoveryStatus::readiness);
        let token = QuotaToken::load_flag(config.quota_token_file.as_deref())?;
        let quota = quota_client(config)?.with_token(&token);
        let context = context(config, &config.accounts.session_key()?, edge, quota)?;
        let endpoint = router::endpoint(&context, &kit.telemetry)?;
        let (quota, mut tasks) = (context.quota.clone(), JoinSet::new());
        let first_account =
            config.accounts.first_account_dir.as_deref().map(FirstAccount::read).transpose()?;
        tasks.spawn(kit.await_store("dashboard-store", async move |waiting| {
            quota.wait_for_store(|reason| waiting.set_not_ready(reason)).await;
            if let Some(first_account) = first_account {
                first_account.create(&quota, |reason| waiting.set_not_ready(reason)).await;
            }
        }));
        tasks.spawn(kit.tasks.watch("proxy discovery", discovery_report));
        // Also without webhooks and mail: it removes the notices, which would wait forever.
        let (webhooks, mail) = (context.webhooks.clone(), context.mail.clone());
        let (quota, link) = (context.quota.clone(), context.dashboard_url.clone());
        let deliveries = Deliveries::new(quota, webhooks, mail, link, &kit.telemetry.meter());
        tasks.spawn(kit.tasks.watch("notices", deliveries.run()));
        Ok(Self { endpoint, context, tasks })
    }

    /// What the dashboard's port serves. With a public URL, it redirects there; this fails if the URL is not https.
    pub fn into_port_service(self, redirect_to: Option<&str>) -> anyhow::Result<PortService> {
        let headers = router::security_headers(self.context.public_origin.as_deref());
        let errors = responder(&*self.context.docs_url, &headers);
        let target = redirect_to.map(|url| RedirectTarget::new("--public-url", url, errors.clone()));
        let trusted = self.context.edge.trusted();
        Ok(PortService {
            endpoint: self.endpoint,
            errors,
            trusted: Arc::new(move |peer| trusted.contains(peer)),
            redirects: target.transpose()?.into_iter().collect(),
            tasks: self.tasks,
        })
    }
}

/// Returns the OpenAPI document as pretty-printed JSON.
pub async fn document() -> anyhow::Result<String> {
    let config = Config::default();
    let edge = Edge::start(&config.edge).await?;
    api::document(&context(&config, &SessionKey::generate()?, edge, quota_client(&config)?)?)
}

fn quota_client(config: &Config) -> anyhow::Result<QuotaClient> {
    let quota = QuotaClient::new(&config.quota_url, QUOTA_TIMEOUT).context("--quota-url")?;
    let quota = quota.acting_as(Actor::Owner);
    Ok(quota.with_context(inject_request_context).with_deadline(deadline::current))
}

/// The state of the handlers.
fn context(
    config: &Config,
    key: &SessionKey,
    edge: Edge,
    quota: QuotaClient,
) -> anyhow::Result<Arc<Context>> {
    let (args, notices, throttle) = (&config.accounts, &config.notices, Arc::<Throttle>::default());
    let networks = notices.webhook_allow_network.clone();
    let rules = || TargetRules { allow_http: notices.webhook_allow_http, networks };
    let max_accounts = (args.signup == Switch::On).then_some(args.max_accounts);
    let url = config.dashboard_url();
    Ok(Arc::new(Context {
        accounts: Accounts::new(quota.clone(), throttle.clone(), max_accounts)?,
        cookies: Cookies::new(key, config.secure_cookies()),
        edge,
        docs_url: config.docs_url(),
        lookup_url: config.lookup_url.as_str().trim_end_matches('/').to_owned(),
        public_origin: config.public_origin(),
        webhooks: (notices.webhooks == Switch::On).then(rules),
        mail: Mailer::new(&notices.mail, key, quota.clone(), throttle.clone(), url.clone())?,
        dashboard_url: url,
        quota,
        throttle,
        host: config.host(),
        attribution: config.attribution.clone(),
    }))
}
