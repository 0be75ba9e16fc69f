//! Everything a service needs to run, apart from the HTTP server itself: flags, telemetry, an admin port, public ports,
//! readiness and error responses.

#![warn(missing_docs)]

pub mod admin;
pub mod background;
pub mod body;
pub mod build_info;
pub mod command_line;
pub mod error;
mod flags;
pub mod json;
pub mod kit;
pub mod openapi;
mod page_header;
mod public_port;
pub mod readiness;
pub mod request_telemetry;
pub mod runtime;
pub mod static_file;
pub mod swagger;
pub mod telemetry;

pub use background::BackgroundTasks;
pub use body::BodyLimit;
pub use error::{ErrorBody, add_missing_headers, catch_all, method_not_allowed, responder};
pub use flags::{
    ListenAddrParser, LogFormat, TelemetryArgs, base_url, host_flag, is_local_http, parse_listen_addr,
    web_url,
};
pub use json::SerdeJson;
pub use kit::{AdminServer, Kit};
pub use page_header::{ICON, PageLinks, THEME, escape, icon_url};
pub use poem_openapi::OperationId;
pub use public_port::{PortArgs, PortService, PublicPort, PublicServiceArgs, wrong_host};
pub use readiness::{Condition, Readiness};
pub use request_telemetry::{RequestTelemetry, inject_request_context, named};
pub use static_file::{StaticFile, csp_hash};
pub use telemetry::Telemetry;
