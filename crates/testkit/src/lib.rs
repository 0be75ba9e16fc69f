//! Harness of all tests: starts real servers and this workspace's binaries, and injects network faults.
//!
//! `tests/README.md` explains how the tests are organized. Every server listens on its own port and stops with its
//! test.

pub mod attack;
pub mod cluster;
pub mod fault_proxy;
pub mod http;
pub mod http2;
pub mod kube_api;
pub mod loadgen;
pub mod lookup;
pub mod mmdb;
pub mod namespace;
pub mod otlp;
pub mod pebble;
pub mod ports;
pub mod process;
pub mod quota;
pub mod redis;
pub mod sentinel;
pub mod smtp;
pub mod spawner;
pub mod tls;
pub mod tools;
pub mod tzif;
pub mod wait;
pub mod webhook;
