//! A server on a real socket, and clients that behave badly.

mod admin;
mod body;
mod crowd;
mod headers;
mod http2;
mod json;
mod otlp;
mod panics;
mod process;
mod rig;
mod slow;
mod stop;
