//! The lookup, independent of HTTP: client address, quota check, response body.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use edge::{ClientInfo, Edge};
use geo::{Geo, LocationJson};
use quota_client::wire::{Charge, Verdict};
use quota_client::{ChargeError, Charger};
use service_kit::telemetry::SPAN_TARGET;
use tracing::Instrument;

use crate::fields::FieldSet;

/// What a lookup needs.
pub struct Backends {
    /// Client address and connection facts.
    pub edge: Arc<Edge>,
    /// Location and network.
    pub geo: Geo,
    /// Quota check.
    pub charger: Charger,
}

impl Backends {
    pub async fn charge(&self, charge: Charge) -> Result<Verdict, ChargeError> {
        self.charger.charge(charge).instrument(quota_span()).await
    }

    /// Renders the response body as JSON.
    pub fn render(&self, field_set: FieldSet, client: &ClientInfo<'_>) -> Vec<u8> {
        if !field_set.has_geo_fields() {
            return field_set.to_json(client, &LocationJson::default());
        }
        self.geo.lookup_json(client.ip, unix_now(), |location| field_set.to_json(client, location))
    }
}

/// The span around a charge, enabled only if traces are exported. The call to quota-svc carries its trace context.
fn quota_span() -> tracing::Span {
    tracing::trace_span!(target: SPAN_TARGET, "quota.charge", otel.kind = "client")
}

/// The current time in Unix seconds.
pub fn unix_now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
