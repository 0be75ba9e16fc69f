//! The body of a successful answer, written once: the place as it was looked up, around it who calls.

use std::net::IpAddr;

use edge::{Caller, Iata};
use quota_client::wire::Scope;

use crate::fields::View;
use crate::geo::PlaceJson;
use crate::json::field;

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
    pub place: &'a PlaceJson,
}

impl Body<'_> {
    /// The JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(USUAL_SIZE);
        self.addresses(&mut json);
        if self.view.has_place() {
            json.extend_from_slice(self.place.place());
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

    fn connection(&self, json: &mut Vec<u8>) {
        let caller = self.caller;
        field!(json, "http_protocol", &caller.http_protocol);
        field!(json, "tls_version", &caller.tls_version);
        field!(json, "tls_cipher", &caller.tls_cipher);
        field!(json, "rtt", &caller.rtt_ms);
        field!(json, "colo", &caller.colo.as_ref().map(Iata::as_str));
        json.extend_from_slice(self.place.network());
    }

    fn demo_connection(&self, json: &mut Vec<u8>) {
        let caller = self.caller;
        field!(json, "http_protocol", &caller.http_protocol);
        field!(json, "tls_version", &caller.tls_version);
        field!(json, "rtt", &caller.rtt_ms);
        field!(json, "colo", &caller.colo.as_ref().map(Iata::as_str));
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
