//! An HTTP server hardened against hostile and broken clients.
//!
//! Replaces poem's server, and adds:
//! - `handshake`, `proxy_header`: the client's address from a load balancer that forwards TCP
//! - `tls`, `certificates`: HTTPS, with certificates that can be replaced at any time
//! - `managed`: a certificate that the process obtains itself
//! - `server`: accepting connections, with a pause when file descriptors run out
//! - `connection_state`: timeouts, and backpressure on clients that do not read their responses
//! - `registry`: at a limit of the port, evicts a connection, preferably of a client network that uses much
//! - `limits`: limits on headers and HTTP/2 streams
//! - `handler`: error bodies for malformed requests
//! - `connection`, `lifecycle`: a shutdown that loses no request
//! - `redirect`, `host_router`: redirects to HTTPS, several host names on one port

#![warn(missing_docs)]

mod args;
mod certificates;
mod connection;
mod connection_info;
mod connection_state;
mod expiry;
mod handler;
mod handshake;
mod host;
mod host_router;
mod lifecycle;
mod limits;
mod managed;
mod proxy_header;
mod redirect;
mod registry;
mod request_id;
mod server;
mod tls;
mod tracked_stream;

pub use args::{ListenerArgs, ServeArgs};
pub use certificates::LoadedCertificate;
pub use connection_info::{ConnectionInfo, RequestOrigin};
pub use handler::{CloseConnection, ErrorResponder, SharedBody, TrustedPeers};
pub use host::{is_for_host, is_for_loopback, requested_host};
pub use host_router::{HostRouter, WRONG_HOST, wrong_host};
pub use lifecycle::Lifecycle;
pub use managed::{Challenges, ManagedCertificate};
pub use proxy_header::{ProxyHeader, ProxyHeaderError, ProxyHeaderTls};
pub use redirect::{RedirectTarget, hsts_header, redirect};
pub use request_id::{RequestId, X_REQUEST_ID};
pub use server::Server;
pub use tls::{Tls, TlsArgs, TlsInfo, TlsVersion};
