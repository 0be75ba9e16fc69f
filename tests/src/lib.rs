//! What only the end-to-end tests need: the rendered Helm chart and real ingress proxies. `testkit` has everything else.

pub mod chart;
pub mod edge_proxy;
pub mod engine;
