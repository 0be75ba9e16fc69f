//! Starts the dashboard: builds the handlers' context, opens the port and serves until shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use edge::{DiscoveryStatus, Edge};
use poem::endpoint::BoxEndpoint;
use quota_client::wire::Actor;
use quota_client::{QuotaClient, QuotaToken};
use service_kit::{
    Kit, Lifecycle, ListenerArgs, RedirectServer, RedirectTarget, RequestTelemetry, Server, Tls,
    inject_request_context,
};
use tokio::task::JoinSet;

use crate::accounts::{Accounts, SignupPolicy};
use crate::api::{self, Context};
use crate::config::{Config, Switch};
use crate::router;
use crate::session::{Cookies, KnownBrowsers, SessionKey};

/// Timeout of a call to quota-svc. Longer than quota-svc needs at worst, so that it can report a slow store before the
/// call times out: creating an account or key writes twice and waits for a confirmation, each for up to
/// `--write-timeout` (3 s by default). The page's own timeout (`page/api.js`) is longer still.
pub(crate) const QUOTA_TIMEOUT: Duration = Duration::from_secs(15);

/// dashboard-api without a port.
pub struct DashboardApp {
    endpoint: BoxEndpoint<'static>,
    context: Arc<Context>,
    listener: ListenerArgs,
    background: JoinSet<()>,
}

impl DashboardApp {
    /// Starts proxy discovery. quota-svc need not be reachable yet: until it is, requests that need it get 503.
    pub async fn start(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        config.check()?;
        if config.accounts.insecure_cookies && !config.listen.ip().is_loopback() {
            tracing::warn!(
                "session cookies are sent without the Secure attribute (--insecure-cookies); anyone on the network path \
                 can take over a session"
            );
        }
        let edge = Edge::start(&config.edge).await?;
        if config.listener.proxy_protocol {
            edge.require_trusted_proxies()?;
        }
        let discovery_report =
            kit.readiness.condition("dashboard-edge").follow(edge.status(), DiscoveryStatus::readiness);
        let context = Arc::new(context(config, &config.accounts.session_key()?, edge)?);
        let endpoint = router::endpoint(&context, &kit.telemetry)?;
        let mut background = JoinSet::new();
        let quota = context.quota.clone();
        background.spawn(kit.await_store("dashboard-store", async move |waiting| {
            quota.wait_for_store(|reason| waiting.set_not_ready(reason)).await;
        }));
        background.spawn(kit.tasks.watch("proxy discovery", discovery_report));
        Ok(Self { endpoint, context, listener: config.listener.clone(), background })
    }

    /// Sets whose PROXY headers and request IDs a port accepts, and the headers and links of the port's own errors.
    pub fn configure(&self, server: Server) -> Server {
        let (balancers, proxies) = (self.context.edge.trusted(), self.context.edge.trusted());
        server
            .proxy_protocol(&self.listener, move |peer| balancers.contains(peer))
            .request_ids_from(move |peer| proxies.contains(peer))
            .docs_url(&self.context.docs_url)
            .error_headers(api::security_headers(self.context.public_origin.as_deref()))
    }

    /// Where to redirect plain HTTP requests for the dashboard. Fails unless its public URL is https.
    pub fn redirect_target(&self, public_url: &str) -> anyhow::Result<RedirectTarget> {
        let headers = api::security_headers(None);
        RedirectTarget::new("--public-url", public_url, &self.context.docs_url, headers)
    }

    /// The endpoint, and the tasks that must run as long as it is served.
    pub fn into_endpoint(self) -> (BoxEndpoint<'static>, JoinSet<()>) {
        (self.endpoint, self.background)
    }
}

/// dashboard-api, bound to its port. [`run`](Self::run) serves requests.
pub struct DashboardService {
    app: DashboardApp,
    server: Server,
    redirect: Option<RedirectServer>,
    lifecycle: Lifecycle,
}

impl DashboardService {
    /// Starts the service and binds its port.
    pub async fn start(config: &Config, kit: &Kit) -> anyhow::Result<Self> {
        let tls = Tls::load(&config.tls)?;
        let mut app = DashboardApp::start(config, kit).await?;
        if let Some(tls) = &tls {
            app.background.spawn(kit.reload_certificates(tls, "dashboard-tls"));
        }
        let server = Server::bind("dashboard", config.listen, &kit.serve).await?;
        let server = app.configure(server).tls(tls);
        let redirect = match config.redirect_listen {
            Some(addr) => {
                let telemetry = RequestTelemetry::new(&kit.telemetry, "dashboard-api");
                let url = config.public_url.as_ref().map(ToString::to_string);
                let url = url.context("--redirect-listen redirects to --public-url: set it")?;
                let target = app.redirect_target(&url)?;
                let server = RedirectServer::bind(addr, target, Vec::new(), &kit.serve, telemetry).await?;
                let balancers = app.context.edge.trusted();
                Some(server.proxy_protocol(&config.listener, move |peer| balancers.contains(peer)))
            }
            None => None,
        };
        Ok(Self { app, server, redirect, lifecycle: kit.lifecycle.clone() })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Serves until shutdown is complete.
    pub async fn run(self) {
        let (redirect, lifecycle) = (self.redirect, self.lifecycle.clone());
        let redirecting = async {
            if let Some(redirect) = redirect {
                redirect.serve(lifecycle).await;
            }
        };
        let (endpoint, _background) = self.app.into_endpoint();
        tokio::join!(self.server.serve(endpoint, self.lifecycle), redirecting);
    }
}

/// Returns the OpenAPI document as pretty-printed JSON.
pub async fn document() -> anyhow::Result<String> {
    let config = Config::default();
    let edge = Edge::start(&config.edge).await?;
    let context = Arc::new(context(&config, &SessionKey::generate()?, edge)?);
    api::document(&context)
}

fn context(config: &Config, key: &SessionKey, edge: Edge) -> anyhow::Result<Context> {
    let token = QuotaToken::load_optional(config.quota_token_file.as_deref())?;
    let quota = QuotaClient::new(&config.quota_url, QUOTA_TIMEOUT).context("--quota-url")?;
    let quota = quota.with_token(token.as_ref()).acting_as(Actor::Owner);
    let quota = quota.with_context(inject_request_context);
    let args = &config.accounts;
    let signup = SignupPolicy { open: args.signup == Switch::On, max_accounts: args.max_accounts };
    Ok(Context {
        accounts: Accounts::new(quota.clone(), signup)?,
        cookies: Cookies::new(key, config.secure_cookies()),
        known_browsers: KnownBrowsers::new(key, config.secure_cookies()),
        quota,
        edge,
        docs_url: config.docs_url(),
        lookup_url: config.lookup_url.as_str().trim_end_matches('/').to_owned(),
        public_origin: config.public_origin(),
        public_host: config.public_url.as_ref().and_then(|url| url.host_str().map(str::to_owned)),
        attribution: config.attribution.clone(),
    })
}
