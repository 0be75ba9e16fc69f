//! Runs all services in one process. They communicate over loopback HTTP, like the containers of a pod in Kubernetes, except
//! for charges, which are function calls. quota-svc shuts down last.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base::flags::flag_defaults;
use dashboard_api::app::DashboardService;
use dashboard_api::session::SessionKey;
use edge::Edge;
use http::HeaderMap;
use http_server::{Lifecycle, RedirectTarget, Server, Tls, TlsArgs};
use lookup_svc::app::{GeoData, LookupService};
use quota_client::wire::Actor;
use quota_client::{ChargeService, QuotaClient, QuotaToken};
use quota_svc::app::QuotaService;
use quota_svc::store::embedded::OpenError;
use service_kit::command_line::print;
use service_kit::{Kit, PublicServiceArgs, responder};
use tokio::task::JoinSet;
use url::Url;

use crate::acme::Acme;
use crate::config::Config;
use crate::ports::Ports;
use crate::service_urls::ServiceUrls;
use crate::{banner, bootstrap, command_socket, commands, data_dir};

/// Timeout per call during startup. Generous, because the machine may be busy.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts all services, prints the banner and returns when all have stopped.
pub async fn run(config: &Config, kit: &Kit) -> anyhow::Result<()> {
    start(config, kit).await.map_err(|error| {
        match is_taken(&error) && command_socket::is_served(&data_dir::command_socket(&config.data_dir)) {
            true => error.context(format!(
                "ip-lookup already runs with the data directory {}: stop it, or choose another --data-dir and other ports",
                config.data_dir.display()
            )),
            false => error,
        }
    })
}

/// Whether a port or the store is in use by another process.
fn is_taken(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let is_store = matches!(cause.downcast_ref(), Some(OpenError::InUse(_)));
        kind == Some(io::ErrorKind::AddrInUse) || is_store
    })
}

/// Rejects invalid flags, before a port is opened.
async fn check(config: &Config) -> anyhow::Result<()> {
    config.check()?;
    // Only for the checks below: the actual ports are known after binding.
    let urls = ServiceUrls::new(config)?;
    if config.redirect_addr().is_some() {
        RedirectTarget::new("--base-url", &urls.api, responder("/", &HeaderMap::new()))?;
    }
    let edge = Edge::start(&config.edge()).await?;
    if config.listener.proxy_protocol {
        edge.require_trusted_proxies()?;
    }
    config.quota().check()?;
    config.dashboard(config.quota_listen, SessionKey::generate()?, &urls)?.check()
}

async fn start(config: &Config, kit: &Kit) -> anyhow::Result<()> {
    check(config).await?;
    let geo = GeoData::load(&config.geo_args()).await?;
    let acme = Acme::new(&config.acme, config.hosts(), &config.data_dir)?;
    let managed = acme.as_ref().map(|acme| acme.certificate.clone());
    // The certificates of all ports that serve HTTPS.
    let tls = Tls::load(&TlsArgs { managed, ..config.tls.clone() })?;
    // Before anything is created: after a failure, a first start would leave an account whose password was never shown.
    let ports = Ports::bind(config, kit, tls.as_ref()).await?;
    let quota_port =
        Server::bind("quota", config.quota_listen, &kit.serve).await.context("--quota-listen")?;
    let session_key = data_dir::prepare(&config.data_dir)?;
    // quota-svc has its own lifecycle, to stop last: requests in flight in the other services still need it.
    let quota_kit = Kit { lifecycle: Lifecycle::new(&kit.serve), ..kit.clone() };
    let quota = QuotaService::start(Some(quota_port), &config.quota(), &quota_kit).await;
    let quota = quota.map_err(|error| data_dir::suggest_data_dir(&config.data_dir, error))?;
    data_dir::note_store(&config.data_dir, config.redis_url.is_some());
    let (quota_addr, charges) = (quota.local_addr(), quota.charge_service());
    let quota = tokio::spawn(kit.tasks.watch("quota-svc", quota.run()));
    let mut forwarding = JoinSet::new();
    // After the store is open: its lock shows that no other process serves commands on this directory.
    let socket = data_dir::command_socket(&config.data_dir);
    match command_socket::bind(&socket) {
        Ok(listener) => {
            let forward = command_socket::forward(listener, quota_addr);
            forwarding.spawn(kit.tasks.watch("command socket", forward));
        }
        Err(error) => tracing::warn!(
            socket = %socket.display(),
            %error,
            "can't create the socket for commands, so they can't reach this process; choose another --data-dir"
        ),
    }

    let result = tokio::select! {
        biased;
        never = announce_shutdown(&kit.lifecycle) => match never {},
        result = serve_public(config, kit, (quota_addr, charges), session_key, ports, acme, geo) => result,
    };
    // If the public services failed to start, no shutdown has begun yet, and the end of quota-svc would be a failure.
    kit.lifecycle.begin_shutdown();
    quota_kit.lifecycle.begin_shutdown();
    quota.await.context("quota-svc stopped unexpectedly")?;
    result
}

/// Prints that the shutdown has begun, because the log does not show it at the default level.
async fn announce_shutdown(lifecycle: &Lifecycle) -> Infallible {
    lifecycle.drain_delay_over().await;
    // Standard output may be closed.
    let _ = print("\nStopping. Press Ctrl-C again to stop at once.");
    pending().await
}

async fn serve_public(
    config: &Config,
    kit: &Kit,
    (quota, charges): (SocketAddr, Arc<dyn ChargeService>),
    session_key: SessionKey,
    ports: Ports,
    acme: Option<Acme>,
    geo: GeoData,
) -> anyhow::Result<()> {
    let urls = &ports.urls(config);
    let token = QuotaToken::load(&data_dir::quota_token_file(&config.data_dir))?;
    let client = QuotaClient::new(&format!("http://{quota}"), STARTUP_TIMEOUT)?;
    let client = client.with_token(&token).acting_as(Actor::System);
    let dashboard = DashboardService::start(&config.dashboard(quota, session_key, urls)?, kit).await?;
    let lookup = LookupService::start(&config.lookup(quota, urls), geo, kit, Some(charges)).await?;
    let geo = lookup.geo_summary(&match config.geo.geo_update {
        Some(_) => "being downloaded (--geo-update)".to_owned(),
        None => format!("{} geo-update dbip-lite", commands::program(config)),
    });
    let trusted = lookup.trusted_proxies();
    // Before the account is created: if this failed later, its password would never be shown.
    let redirects = config.redirect_addr().is_some();
    // With --api-host alone, the dashboard may be for this machine only.
    let local_dashboard = config.api_host.is_some() && urls.dashboard.starts_with("http://");
    let dashboard_url = Some(&*urls.dashboard).filter(|_| redirects && !local_dashboard);
    let lookup = lookup.into_port_service(redirects)?;
    let dashboard = dashboard.into_port_service(dashboard_url)?;
    let inaccessible = "can't access the store: check --redis-url, or omit it to use --data-dir";
    let has_account = tokio::select! {
        found = bootstrap::has_account(&client) => found.context(inaccessible)?,
        () = kit.lifecycle.drain_delay_over() => return Ok(()),
    };
    let first_start = match has_account {
        true => None,
        false => {
            Some(bootstrap::create_account(&client, config.print_credentials).await.context(inaccessible)?)
        }
    };
    banner::print(config, urls, &trusted, &geo, ports.admin.local_addr(), first_start.as_ref());
    let mut background = JoinSet::new();
    if let Some(acme) = acme {
        background.spawn(kit.tasks.watch("certificate renewal", acme.run()));
    }
    ports.serve(config, kit, lookup, dashboard).await;
    Ok(())
}

impl Config {
    fn lookup(&self, quota: SocketAddr, urls: &ServiceUrls) -> lookup_svc::config::Config {
        let mut config = lookup_svc::config::Config {
            base_url: urls.api.clone(),
            ipv4_host: self.ipv4_host.clone(),
            ipv6_host: self.ipv6_host.clone(),
            dashboard_url: urls.dashboard.clone(),
            ratelimit_headers: self.ratelimit_headers,
            edge: self.edge(),
            geo: self.geo_args(),
            service: self.service_args(self.listen),
            ..lookup_svc::config::Config::default()
        };
        config.quota.quota_url = format!("http://{quota}");
        config.quota.quota_token_file = Some(data_dir::quota_token_file(&self.data_dir));
        config
    }

    fn dashboard(
        &self,
        quota: SocketAddr,
        session_key: SessionKey,
        urls: &ServiceUrls,
    ) -> anyhow::Result<dashboard_api::config::Config> {
        let is_named = self.public_url.is_some() || self.dashboard_host.is_some();
        let url: Url = urls.dashboard.parse().context("--public-url")?;
        let mut config = dashboard_api::config::Config {
            quota_url: format!("http://{quota}"),
            quota_token_file: Some(data_dir::quota_token_file(&self.data_dir)),
            default_host: url.host_str().map(str::to_owned),
            public_url: is_named.then_some(url),
            lookup_url: urls.api.parse().context("--base-url")?,
            edge: self.edge(),
            service: self.service_args(self.dashboard_addr()),
            notices: self.notices.clone(),
            ..dashboard_api::config::Config::default()
        };
        config.accounts.session_key = Some(session_key);
        config.accounts.signup = self.signup;
        // Some browsers reject Secure cookies over plain HTTP. Loopback traffic does not leave the machine.
        let local_only = !is_named && self.dashboard_addr().ip().is_loopback();
        config.accounts.insecure_cookies = self.insecure_cookies || local_only;
        Ok(config)
    }

    fn service_args(&self, listen: SocketAddr) -> PublicServiceArgs {
        let (serving, listener) = (self.serve_args(), self.listener.clone());
        PublicServiceArgs { listen, serving, listener, ..flag_defaults() }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn dashboard_accepts_the_host_of_its_default_url() {
        for (flags, host) in [
            ("", "localhost"),
            ("--dashboard-listen 192.0.2.1:8081 --insecure-cookies", "192.0.2.1"),
            ("--dashboard-listen [2001:db8::1]:8081 --insecure-cookies", "2001:db8::1"),
            ("--public-url https://keys.example", "keys.example"),
        ] {
            let flags_of = ["ip-lookup"].into_iter().chain(flags.split_whitespace());
            let config = Config::try_parse_from(flags_of).unwrap();
            let (urls, key) = (ServiceUrls::new(&config).unwrap(), SessionKey::generate().unwrap());
            let dashboard = config.dashboard(config.quota_listen, key, &urls).unwrap();
            assert_eq!(dashboard.host().as_deref(), Some(host), "{flags}");
        }
    }
}
