//! The body of a successful answer, written once and straight from what was looked up.

use std::net::IpAddr;

use edge::{Caller, Iata};
use quota_client::wire::Scope;
use serde::Serialize;

use crate::fields::View;
use crate::geo::Place;

/// A full answer has about 600 bytes.
const USUAL_SIZE: usize = 1024;

/// What is shown to a caller. Fields outside the view are absent, fields without data are null.
#[derive(Debug)]
pub struct Body<'a> {
    /// Which fields.
    pub view: View,
    /// Who calls and how.
    pub caller: &'a Caller<'a>,
    /// Where that is.
    pub place: &'a Place<'a>,
}

/// Writes one field: its name needs no escaping, so that it is there with its punctuation before the program runs.
macro_rules! field {
    ($json:ident, $name:literal, $value:expr) => {{
        $json.extend_from_slice(concat!(",\"", $name, "\":").as_bytes());
        write_value($json, $value);
    }};
}

impl Body<'_> {
    /// The JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(USUAL_SIZE);
        self.addresses(&mut json);
        if self.view.has_place() {
            self.place(&mut json);
        }
        match self.view {
            View::Scope(Scope::Full) => self.connection(&mut json),
            View::Demo => self.demo_connection(&mut json),
            View::Scope(Scope::Ip | Scope::Geo) => {}
        }
        json.push(b'}');
        json
    }

    fn addresses(&self, json: &mut Vec<u8>) {
        let (v4, v6) = match self.caller.ip {
            IpAddr::V4(ip) => (Some(ip), None),
            IpAddr::V6(ip) => (None, Some(ip)),
        };
        json.extend_from_slice(br#"{"status":"success""#);
        field!(json, "ip", &v4);
        field!(json, "ipv6", &v6);
    }

    fn place(&self, json: &mut Vec<u8>) {
        let place = self.place;
        field!(json, "city", &place.city);
        field!(json, "region", &place.region);
        field!(json, "region_code", &place.region_code);
        field!(json, "country", &place.country);
        field!(json, "country_name", &place.country_name);
        field!(json, "continent", &place.continent);
        field!(json, "latitude", &place.latitude);
        field!(json, "longitude", &place.longitude);
        field!(json, "timezone", &place.timezone);
        field!(json, "timezone_offset", &place.timezone_offset);
        field!(json, "postal_code", &place.postal_code);
        field!(json, "asn", &place.asn);
        field!(json, "org", &place.org);
        field!(json, "as", &place.as_text);
        field!(json, "is_eu", &place.is_eu);
        field!(json, "currency", &place.currency);
    }

    fn connection(&self, json: &mut Vec<u8>) {
        let caller = self.caller;
        field!(json, "http_protocol", &caller.http_protocol);
        field!(json, "tls_version", &caller.tls_version);
        field!(json, "tls_cipher", &caller.tls_cipher);
        field!(json, "rtt", &caller.rtt_ms);
        field!(json, "colo", &caller.colo.as_ref().map(Iata::as_str));
        field!(json, "proxy", &self.place.proxy);
        field!(json, "hosting", &self.place.hosting);
    }

    fn demo_connection(&self, json: &mut Vec<u8>) {
        let caller = self.caller;
        field!(json, "http_protocol", &caller.http_protocol);
        field!(json, "tls_version", &caller.tls_version);
        field!(json, "rtt", &caller.rtt_ms);
        field!(json, "colo", &caller.colo.as_ref().map(Iata::as_str));
    }
}

fn write_value(json: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(json, value).expect("strings, numbers and flags into memory");
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
