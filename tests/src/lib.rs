//! What only the end-to-end tests need: the rendered Helm chart, real ingress proxies, a container engine, a delayed
//! network, the documents and the processes of notices. `testkit` has everything else.

pub mod chart;
pub mod delayed_network;
pub mod documents;
pub mod edge_proxy;
pub mod engine;
pub mod notices;
