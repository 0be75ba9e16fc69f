//! How a service of ours runs: flags, telemetry, guarded serving, graceful stop, admin port, readiness, errors.

pub mod admin;
pub mod alarm;
pub mod body;
pub mod config;
pub mod error;
pub mod json;
pub mod kit;
pub mod lifecycle;
pub mod operations;
pub mod panic;
pub mod readiness;
pub mod runtime;
pub mod serve;
pub mod telemetry;
pub mod tls;
pub mod trace;

pub use alarm::Alarm;
pub use body::BodyLimit;
pub use config::{LogFormat, ServeArgs, TelemetryArgs, parse_duration};
pub use error::{ErrorBody, catch_all};
pub use json::SerdeJson;
pub use kit::Kit;
pub use lifecycle::Lifecycle;
pub use operations::Operations;
pub use panic::CatchPanic;
pub use readiness::{Condition, Readiness};
pub use serve::Server;
pub use telemetry::Telemetry;
pub use trace::{Operation, RequestTelemetry};
