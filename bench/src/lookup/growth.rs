//! One lookup-svc with its quota-svc, two such pairs on one Redis server, and one pair on a Cluster.

use quota_client::wire::Limits;

use super::chain::{Chain, LOOKUP};
use super::{CONNECTIONS, KEYS, Options, World, measure_all, report};
use crate::gate::Gate;
use crate::store::start_cluster;

/// Measures with two wrks in every case, so that they cost the same. There are no required bounds.
pub(super) async fn compare(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let (world, limits) = (World::write()?, Limits::default());
    let flags = world.flags();
    let flags = flags.each_ref().map(String::as_str);
    let single = Chain::start(KEYS, KEYS, options.programs(), &limits).await?;
    let masters = start_cluster().await;
    let cluster =
        Chain::start_on(masters.url(), masters.nodes, KEYS, KEYS, options.programs(), &limits).await?;
    let (first, on_cluster) = (single.start_lookup(&flags).await?, cluster.start_lookup(&flags).await?);
    let second = single.start_pair(&flags).await?;
    let mut variants = [
        single.variant(report::ONE_PAIR, &first, &world.addresses),
        single.variant(report::TWO_PAIRS, &first, &world.addresses),
        cluster.variant(report::ONE_PAIR_CLUSTER, &on_cluster, &world.addresses),
    ];
    for (variant, lookup) in variants.iter_mut().zip([&first, &second[0], &on_cluster]) {
        variant.urls.push(lookup.url(LOOKUP));
    }
    variants[1].pids.extend(second.each_ref().map(super::Server::pid));
    let measurements = measure_all(options, &variants, &CONNECTIONS[..1]).await?;
    report::print(&measurements, &variants.each_ref().map(|variant| variant.name));
    Ok(Vec::new())
}
