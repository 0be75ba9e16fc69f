//! Everything a service needs to run: flags, telemetry, a hardened HTTP server, graceful shutdown, an admin port,
//! readiness and error responses.

#![warn(missing_docs)]

pub mod admin;
pub mod atomic_file;
pub mod background;
pub mod body;
pub mod build_info;
pub mod command_line;
pub mod config;
pub mod direct_router;
pub mod error;
pub mod flag_defaults;
pub mod headers;
pub mod host;
pub mod host_router;
pub mod hsts;
pub mod json;
pub mod kit;
pub mod lifecycle;
pub mod listen_addr;
pub mod log_throttle;
pub mod openapi;
mod panic;
mod progress;
pub mod project;
pub mod readiness;
pub mod redirect;
pub mod request_id;
pub mod request_telemetry;
pub mod runtime;
pub mod serve;
pub mod static_file;
pub mod swagger;
pub mod telemetry;
pub mod terminal;
pub mod tls;
pub mod url_flag;

pub use background::BackgroundTasks;
pub use body::BodyLimit;
pub use config::{LogFormat, ServeArgs, TelemetryArgs, parse_duration};
pub use direct_router::DirectRouter;
pub use error::{ErrorBody, catch_all};
pub use flag_defaults::flag_defaults;
pub use headers::add_missing_headers;
pub use host::{host_name, is_for_loopback, is_loopback_name, requested_host};
pub use host_router::HostRouter;
pub use json::SerdeJson;
pub use kit::{AdminServer, Kit};
pub use lifecycle::Lifecycle;
pub use listen_addr::ListenAddrParser;
pub use log_throttle::LogThrottle;
pub use progress::{Progress, WriteLine};
pub use readiness::{Condition, Readiness};
pub use redirect::{RedirectServer, RedirectTarget};
pub use request_id::{RequestId, X_REQUEST_ID};
pub use request_telemetry::{RequestTelemetry, inject_request_context, named};
pub use serve::{CloseConnection, ConnectionInfo, ListenerArgs, Server, Tls, TlsArgs, TlsInfo};
pub use static_file::{StaticFile, csp_hash};
pub use telemetry::Telemetry;
pub use url_flag::{base_url, host_flag, web_url};
