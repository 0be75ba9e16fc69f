//! The Helm chart: what it renders, and its pods as local processes.

mod cluster;
mod direct;
mod images;
mod options;
mod processes;
mod renders;
mod rolling_restart;
mod valkey_users;
