//! The body of a successful answer, written once and straight from what was looked up.

use edge::{Caller, Iata};
use quota_client::wire::Scope;
use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::fields::{FIELDS, STATUS, View};
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

impl Body<'_> {
    /// The JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(USUAL_SIZE);
        serde_json::to_writer(&mut json, self).expect("strings, numbers and flags into memory");
        json
    }
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut json = serializer.serialize_struct("IpResponse", FIELDS.len())?;
        self.addresses(&mut json)?;
        if self.view.has_place() {
            self.place(&mut json)?;
        }
        match self.view {
            View::Scope(Scope::Full) => self.connection(&mut json)?,
            View::Demo => self.demo_connection(&mut json)?,
            View::Scope(Scope::Ip | Scope::Geo) => {}
        }
        json.end()
    }
}

impl Body<'_> {
    fn addresses<J: SerializeStruct>(&self, json: &mut J) -> Result<(), J::Error> {
        let (v4, v6) = match self.caller.ip {
            std::net::IpAddr::V4(ip) => (Some(ip), None),
            std::net::IpAddr::V6(ip) => (None, Some(ip)),
        };
        json.serialize_field(STATUS, "success")?;
        json.serialize_field("ip", &v4)?;
        json.serialize_field("ipv6", &v6)
    }

    fn place<J: SerializeStruct>(&self, json: &mut J) -> Result<(), J::Error> {
        let place = self.place;
        json.serialize_field("city", &place.city)?;
        json.serialize_field("region", &place.region)?;
        json.serialize_field("region_code", &place.region_code)?;
        json.serialize_field("country", &place.country)?;
        json.serialize_field("country_name", &place.country_name)?;
        json.serialize_field("continent", &place.continent)?;
        json.serialize_field("latitude", &place.latitude)?;
        json.serialize_field("longitude", &place.longitude)?;
        json.serialize_field("timezone", &place.timezone)?;
        json.serialize_field("timezone_offset", &place.timezone_offset)?;
        json.serialize_field("postal_code", &place.postal_code)?;
        json.serialize_field("asn", &place.asn)?;
        json.serialize_field("org", &place.org)?;
        json.serialize_field("as", &place.as_text)?;
        json.serialize_field("is_eu", &place.is_eu)?;
        json.serialize_field("currency", &place.currency)
    }

    fn connection<J: SerializeStruct>(&self, json: &mut J) -> Result<(), J::Error> {
        let caller = self.caller;
        json.serialize_field("http_protocol", &caller.http_protocol)?;
        json.serialize_field("tls_version", &caller.tls_version)?;
        json.serialize_field("tls_cipher", &caller.tls_cipher)?;
        json.serialize_field("rtt", &caller.rtt_ms)?;
        json.serialize_field("colo", &caller.colo.as_ref().map(Iata::as_str))?;
        json.serialize_field("proxy", &self.place.proxy)?;
        json.serialize_field("hosting", &self.place.hosting)
    }

    fn demo_connection<J: SerializeStruct>(&self, json: &mut J) -> Result<(), J::Error> {
        let caller = self.caller;
        json.serialize_field("http_protocol", &caller.http_protocol)?;
        json.serialize_field("tls_version", &caller.tls_version)?;
        json.serialize_field("rtt", &caller.rtt_ms)?;
        json.serialize_field("colo", &caller.colo.as_ref().map(Iata::as_str))
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
