//! What the end-to-end tests are written with: real servers, real processes, a network that misbehaves on demand.
//!
//! One file of `tests/tests/` per behaviour. Tests named `load_*` get the machine to themselves
//! (`.config/nextest.toml`). Every server listens on a port of its own and ends with its test.

pub mod chart;
pub mod cluster;
pub mod edge_proxy;
pub mod fault_proxy;
pub mod http;
pub mod kube_api;
pub mod loadgen;
pub mod lookup;
pub mod otlp;
pub mod ports;
pub mod process;
pub mod quota;
pub mod redis;
pub mod sentinel;
pub mod spawner;
pub mod tls;
pub mod tools;
pub mod wait;
