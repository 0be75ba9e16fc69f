//! Serializes the body of a successful response: client address, location, connection facts.

use std::net::IpAddr;

use edge::{ClientInfo, Iata};
use geo::{LocationJson, field};
use quota_client::wire::Scope;

use crate::fields::FieldSet;

/// Enough for most responses: a full one has about 600 bytes.
const INITIAL_CAPACITY: usize = 1024;

/// The body of a successful response. Fields outside the field set are absent; fields without data are null.
#[derive(Debug)]
pub struct LookupBody<'a> {
    pub field_set: FieldSet,
    pub client: &'a ClientInfo<'a>,
    pub location: &'a LocationJson,
}

impl LookupBody<'_> {
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(INITIAL_CAPACITY);
        self.write_addresses(&mut json);
        if self.field_set.has_geo_fields() {
            json.extend_from_slice(self.location.geo_fields());
        }
        let is_full = self.field_set == FieldSet::Scope(Scope::Full);
        if self.field_set.has_connection_facts() {
            self.write_connection_facts(&mut json, is_full);
        }
        if is_full {
            json.extend_from_slice(self.location.full_fields());
        }
        json.push(b'}');
        json
    }

    fn write_addresses(&self, json: &mut Vec<u8>) {
        let (v4, v6) = match self.client.ip {
            IpAddr::V4(ip) => (Some(ip), None),
            IpAddr::V6(ip) => (None, Some(ip)),
        };
        json.extend_from_slice(br#"{"status":"success""#);
        field!(json, "ip", &v4);
        field!(json, "ipv6", &v6);
    }

    fn write_connection_facts(&self, json: &mut Vec<u8>, with_cipher: bool) {
        let facts = &self.client.facts;
        field!(json, "http_protocol", &facts.http_protocol);
        field!(json, "tls_version", &facts.tls_version);
        if with_cipher {
            field!(json, "tls_cipher", &facts.tls_cipher);
        }
        field!(json, "rtt", &facts.rtt_ms);
        field!(json, "colo", &facts.colo.as_ref().map(Iata::as_str));
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
