//! An HTTP server hardened against hostile and broken clients.
//!
//! Replaces poem's server, and adds:
//! - `handshake`, `proxy_header`: the client's address from a load balancer that forwards TCP
//! - `tls`, `certificates`: HTTPS, with certificates that can be replaced at any time, or that the process obtains itself
//! - `server`: accepting connections, with a pause when file descriptors run out
//! - `connection_state`, `header_blocks`: timeouts, and what a connection makes the process hold
//! - `streams`: HTTP/2 streams, in the task of their connection
//! - `registry`: at a limit, closes a connection of the client network that uses the most
//! - `limits`: limits on connections, memory, headers and HTTP/2 streams
//! - `handler`, `error`: error bodies for malformed requests
//! - `connection`, `lifecycle`: a shutdown that loses no request
//! - `redirect`, `host`: redirects to HTTPS, several host names on one port

#![warn(missing_docs)]

mod args;
mod certificates;
mod connection;
mod connection_info;
mod connection_state;
mod error;
mod handler;
mod handshake;
mod header_blocks;
mod host;
mod lifecycle;
mod limits;
mod port;
mod proxy_header;
mod redirect;
mod registry;
mod server;
mod socket;
mod streams;
mod tls;
mod tracked_stream;

pub use args::{ListenerArgs, ServeArgs};
pub use certificates::{Challenges, LoadedCertificate, ManagedCertificate};
pub use connection_info::{ConnectionInfo, RequestId, RequestOrigin, X_REQUEST_ID};
pub use error::ErrorResponder;
pub use handler::{CloseConnection, SharedBody};
pub use host::{HostRouter, WRONG_HOST, is_for_host, is_for_loopback, requested_host, wrong_host};
pub use lifecycle::Lifecycle;
pub use port::TrustedPeers;
pub use proxy_header::{ProxyHeader, ProxyHeaderError, ProxyHeaderTls};
pub use redirect::{RedirectTarget, hsts_header, redirect};
pub use registry::ConnectionStats;
pub use server::Server;
pub use tls::{Tls, TlsArgs, TlsInfo, TlsVersion};
