//! Metrics about the geo data and proxy discovery. Their values are read when OpenTelemetry collects metrics.

use std::time::{SystemTime, UNIX_EPOCH};

use edge::DiscoveryStatus;
use geo::Geo;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use tokio::sync::watch;

/// Publishes the build time and age of each geo database, and the numbers of loaded and rejected files.
///
/// `paths` is the number of values of `--geo-db`. With it, an alert can tell missing databases from a service
/// without `--geo-db`.
pub fn publish_geo(meter: &Meter, geo: &Geo, paths: usize) {
    meter
        .u64_observable_gauge("geo_database_paths")
        .with_description("Files and directories in --geo-db")
        .with_callback(move |observer| observer.observe(paths as u64, &[]))
        .build();
    let observed = geo.clone();
    meter
        .u64_observable_gauge("geo_database_build_timestamp")
        .with_unit("s")
        .with_description("Build time of a geo database in use")
        .with_callback(move |observer| {
            for database in observed.databases() {
                observer
                    .observe(database.build_epoch, &database_labels(database.name, database.kind.as_str()));
            }
        })
        .build();
    let observed = geo.clone();
    meter
        .u64_observable_gauge("geo_database_age")
        .with_unit("s")
        .with_description("Age of a geo database in use, since its build")
        .with_callback(move |observer| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            for database in observed.databases() {
                let age = now.saturating_sub(database.build_epoch);
                observer.observe(age, &database_labels(database.name, database.kind.as_str()));
            }
        })
        .build();
    let observed = geo.clone();
    meter
        .u64_observable_gauge("geo_files_rejected")
        .with_description("Geo files whose present content is not in use, because it is invalid or does not fit the memory limit")
        .with_callback(move |observer| observer.observe(observed.reload_status().rejections.len() as u64, &[]))
        .build();
    let observed = geo.clone();
    meter
        .u64_observable_counter("geo_database_loads")
        .with_description("Geo files loaded and rejected since the start")
        .with_callback(move |observer| {
            let counts = observed.reload_status();
            observer.observe(counts.loaded, &[KeyValue::new("result", "loaded")]);
            observer.observe(counts.rejected, &[KeyValue::new("result", "refused")]);
        })
        .build();
}

/// The label `database` has few values: the names of the files that the operator chose.
fn database_labels(name: String, kind: &'static str) -> [KeyValue; 2] {
    [KeyValue::new("database", name), KeyValue::new("kind", kind)]
}

/// Publishes the number of discovered proxies and the state of discovery.
pub fn publish_discovery(meter: &Meter, status: watch::Receiver<DiscoveryStatus>) {
    meter
        .u64_observable_gauge("lookup_discovered_proxies")
        .with_description("Trusted proxies found by discovery; the label is the state of discovery")
        .with_callback(move |observer| {
            let status = *status.borrow();
            let proxies = match status {
                DiscoveryStatus::Following { proxies } | DiscoveryStatus::Stale { proxies } => proxies,
                DiscoveryStatus::Off | DiscoveryStatus::Waiting => 0,
            };
            observer.observe(proxies as u64, &[KeyValue::new("state", status.label())]);
        })
        .build();
}
