//! Explains how a request would be handled: which proxy is trusted and why, which headers are used, and where each field
//! of the response comes from. For the command `explain` and for `POST /explain` on the admin port.

mod endpoint;
mod report;
mod request;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use edge::{ConnectionFacts, Edge, EdgeArgs};
use geo::{Geo, GeoArgs};
use service_kit::command_line::Output;

use crate::lookup::unix_now;

pub use endpoint::endpoint;
pub use report::Report;
pub use request::{ExplainArgs, ExplainRequest, InvalidRequest};

/// How long the command waits for the proxies that Kubernetes lists.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

/// Explains requests with the trusted proxies and geo data of a running service or of a command.
#[derive(Clone)]
pub struct Explainer {
    edge: Arc<Edge>,
    geo: Geo,
    /// Whether `--proxy-protocol` is on: the peer's address then comes from the PROXY header.
    proxy_protocol: bool,
}

impl Explainer {
    pub fn new(edge: Arc<Edge>, geo: Geo, proxy_protocol: bool) -> Self {
        Self { edge, geo, proxy_protocol }
    }

    /// Explains a request. The facts of the connection to this process are unknown, because there is no connection.
    pub fn explain(&self, request: &ExplainRequest) -> Report {
        let own = ConnectionFacts { rtt_from_socket: true, ..ConnectionFacts::default() };
        let own = if self.proxy_protocol { own.behind_balancer(None) } else { own };
        let explanation = self.edge.explain(request.peer, &request.headers, own);
        Report::new(&self.edge, &self.geo, request, &explanation, self.proxy_protocol, unix_now())
    }
}

/// Runs the command `explain` with the flags of the service.
pub async fn run(
    edge: &EdgeArgs,
    geo: &GeoArgs,
    proxy_protocol: bool,
    args: ExplainArgs,
    output: Output,
) -> anyhow::Result<()> {
    let edge = Edge::start(edge).await.context("can't set up client address detection")?;
    // After the timeout, the report says that the proxies are not known.
    let mut status = edge.status();
    let _ = tokio::time::timeout(DISCOVERY_TIMEOUT, status.wait_for(|status| status.is_ready())).await;
    let geo_args = geo.clone();
    let geo = tokio::task::spawn_blocking(move || Geo::open(&geo_args)).await?;
    let geo = geo.context("can't load the geo data")?;
    let output = if args.json { Output::Json } else { output };
    let report = Explainer::new(Arc::new(edge), geo, proxy_protocol).explain(&args.into_request());
    output.show(&report, || report.to_string())
}
