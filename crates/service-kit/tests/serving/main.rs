//! Tests the server on a real socket, mostly with misbehaving clients.

mod admin;
mod body;
mod connection_limit;
mod harness;
mod headers;
mod http2;
mod json;
mod managed;
mod otlp;
mod panics;
mod process;
mod proxy_protocol;
mod redirect;
mod request_id;
mod shutdown;
mod timeouts;
mod tls;
mod unread;
