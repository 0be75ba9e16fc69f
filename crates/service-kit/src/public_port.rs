//! A public port with its certificates, redirect port, readiness and shutdown.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use http_server::{
    ErrorResponder, ListenerArgs, RedirectTarget, ServeArgs, Server, Tls, TlsArgs, TrustedPeers, WRONG_HOST,
    redirect,
};
use poem::{Endpoint, EndpointExt, Request, Response, endpoint::BoxEndpoint};
use tokio::task::JoinSet;

use crate::{
    body::BodyLimit,
    error::catch_all,
    flags::{ListenAddrParser, TelemetryArgs},
    kit::Kit,
    request_telemetry::{RequestTelemetry, named},
};

/// Maximum connections on a redirect port. Normally each is closed after its response, so few are open.
const REDIRECT_CONNECTIONS: usize = 1024;

/// A small body of a request that is redirected or rejected is read: closing the connection with unread bytes would reset
/// it, and the client might not get the response. But not for long.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// The flags that services with a public port have in common.
#[derive(clap::Args, Clone, Debug)]
pub struct PublicServiceArgs {
    /// Listen address of the service
    #[arg(long, env, value_name = "ADDR", default_value = "[::]:8080", value_parser = ListenAddrParser)]
    pub listen: SocketAddr,
    /// Listen address of /livez, /readyz and /metrics
    #[arg(long, env, value_name = "ADDR", default_value = "[::]:9080", value_parser = ListenAddrParser)]
    pub admin_listen: SocketAddr,
    /// Listen address of a port that redirects plain HTTP to the public URL, which must be an https URL
    #[arg(long, env, value_name = "ADDR", value_parser = ListenAddrParser)]
    pub redirect_listen: Option<SocketAddr>,
    /// The public port and its redirect port.
    #[command(flatten)]
    pub listener: ListenerArgs,
    /// All ports.
    #[command(flatten)]
    pub serving: ServeArgs,
    /// Certificates.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// The log.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

impl PublicServiceArgs {
    /// The port, with its name in the log and the readiness condition of its certificates, which are loaded.
    pub fn port(&self, name: &'static str, certificates: &'static str) -> anyhow::Result<PortArgs<'_>> {
        Ok(PortArgs {
            name,
            flag: "--listen",
            listen: self.listen,
            redirect_listen: self.redirect_listen,
            tls: Tls::load(&self.tls)?,
            certificates: Some(certificates),
            listener: &self.listener,
        })
    }
}

/// Where a port listens, and how.
#[derive(Clone, Debug)]
pub struct PortArgs<'a> {
    /// The name in the log.
    pub name: &'static str,
    /// The flag of the address, for error messages.
    pub flag: &'static str,
    /// The address.
    pub listen: SocketAddr,
    /// The address of the port that redirects to this one.
    pub redirect_listen: Option<SocketAddr>,
    /// The certificates; without them, the port serves plain HTTP.
    pub tls: Option<Tls>,
    /// The readiness condition of the certificates. `None` if another port already reloads them.
    pub certificates: Option<&'static str>,
    /// Flags of the port and its redirect port.
    pub listener: &'a ListenerArgs,
}

/// What a port serves.
pub struct PortService {
    /// Handles the requests.
    pub endpoint: BoxEndpoint<'static>,
    /// Formats the port's own errors.
    pub errors: ErrorResponder,
    /// The trusted proxies.
    pub trusted: TrustedPeers,
    /// Where the redirect port redirects to. The first is the default, the others are for their own hosts.
    pub redirects: Vec<RedirectTarget>,
    /// Tasks that end with the service.
    pub tasks: JoinSet<()>,
}

/// A public port and its redirect port, bound but not served yet.
pub struct PublicPort {
    kit: Kit,
    server: Server,
    redirect: Option<Server>,
    /// Reloads the certificates.
    tasks: JoinSet<()>,
}

impl PublicPort {
    /// Binds both ports.
    pub async fn bind(kit: &Kit, args: PortArgs<'_>) -> anyhow::Result<Self> {
        let server = Server::bind(args.name, args.listen, &kit.serve).await.context(args.flag)?;
        let mut tasks = JoinSet::new();
        if let Some((tls, condition)) = args.tls.as_ref().zip(args.certificates) {
            tasks.spawn(kit.reload_certificates(tls, condition));
        }
        let server = server.proxy_protocol(args.listener).tls(args.tls);
        kit.publish_connections(args.name, server.stats());
        let redirect = match args.redirect_listen {
            Some(addr) => {
                let max_connections = kit.serve.max_connections.min(REDIRECT_CONNECTIONS);
                let serve = ServeArgs { max_connections, ..kit.serve.clone() };
                let server = Server::bind("redirect", addr, &serve).await.context("--redirect-listen")?;
                kit.publish_connections("redirect", server.stats());
                // A load balancer sends PROXY headers on all of its ports.
                Some(server.proxy_protocol(args.listener))
            }
            None => None,
        };
        Ok(Self { kit: kit.clone(), server, redirect, tasks })
    }

    /// The address of the port.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// The address of the redirect port.
    pub fn redirect_addr(&self) -> Option<SocketAddr> {
        self.redirect.as_ref().map(Server::local_addr)
    }

    /// Serves until shutdown is complete. `name` is the service label in the metrics of the redirect port.
    pub async fn serve(self, name: &'static str, service: PortService) {
        let PortService { endpoint, errors, trusted, redirects, tasks: _tasks } = service;
        let configure = |server: Server| {
            let trusted = trusted.clone();
            server.errors(errors.clone()).trust(move |peer| trusted(peer))
        };
        let (lifecycle, _reload) = (&self.kit.lifecycle, self.tasks);
        let redirecting = async {
            if let Some((server, endpoint)) = self.redirect.zip(redirect_endpoint(&self.kit, name, redirects))
            {
                configure(server).serve(endpoint, lifecycle.clone()).await;
            }
        };
        tokio::join!(configure(self.server).serve(endpoint, lifecycle.clone()), redirecting);
    }
}

fn redirect_endpoint(
    kit: &Kit,
    name: &'static str,
    targets: Vec<RedirectTarget>,
) -> Option<BoxEndpoint<'static>> {
    let errors = targets.first()?.errors.clone();
    let respond = move |request: &Request| redirect(&targets, request).unwrap_or_default();
    Some(own_response(kit, name, errors, named("redirect", respond)))
}

/// The endpoint for requests whose host belongs to no service of a port.
pub fn wrong_host(kit: &Kit, name: &'static str, errors: ErrorResponder) -> BoxEndpoint<'static> {
    let respond = {
        let errors = errors.clone();
        move |_: &Request| http_server::wrong_host(&errors)
    };
    own_response(kit, name, errors, named(WRONG_HOST, respond))
}

/// Wraps an endpoint that is no service's.
fn own_response(
    kit: &Kit,
    name: &'static str,
    errors: ErrorResponder,
    endpoint: impl Endpoint<Output = Response> + 'static,
) -> BoxEndpoint<'static> {
    let endpoint =
        endpoint.with(BodyLimit { timeout: BODY_TIMEOUT, ..BodyLimit::default() }).with(catch_all(errors));
    endpoint.with(RequestTelemetry::new(&kit.telemetry, name)).boxed()
}
