//! An HTTP server hardened against hostile and broken clients.
//!
//! Replaces poem's server. `server` accepts connections, `connection` serves each of them, `handler` handles their requests,
//! `connection_state` records what they do and make the process hold, and `registry` closes one at a limit: of the client
//! network that uses the most.

#![warn(missing_docs)]

mod certificates;
mod connection;
mod connection_info;
mod connection_state;
mod error;
mod handler;
mod header_blocks;
mod host;
mod lifecycle;
mod limits;
mod port;
mod proxy_header;
mod redirect;
mod registry;
mod server;
mod tls;
mod tracked_stream;

pub use certificates::{Challenges, LoadedCertificate, ManagedCertificate};
pub use connection_info::{ConnectionInfo, RequestId, RequestOrigin, X_REQUEST_ID};
pub use error::ErrorResponder;
pub use handler::{CloseConnection, SharedBody};
pub use host::{HostRouter, WRONG_HOST, is_for_host, is_for_loopback, requested_host, wrong_host};
pub use lifecycle::Lifecycle;
pub use limits::{ListenerArgs, ServeArgs};
pub use port::TrustedPeers;
pub use proxy_header::ProxyHeader;
pub use redirect::{RedirectTarget, hsts_header, redirect};
pub use registry::ConnectionStats;
pub use server::Server;
pub use tls::{Tls, TlsArgs, TlsInfo, TlsVersion};
