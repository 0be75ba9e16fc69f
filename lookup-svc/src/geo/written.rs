//! A place as it stands in an answer.

use super::place::Place;
use crate::json::field;

/// What the fields of a place usually take.
const USUAL_SIZE: usize = 512;

/// The fields of a place as JSON, each with the comma before it; nothing at all where none was asked for.
#[derive(Debug, Default)]
pub struct PlaceJson {
    json: Vec<u8>,
    network_at: usize,
}

impl PlaceJson {
    /// Writes a place down.
    pub fn of(place: &Place<'_>) -> Self {
        let mut json = Vec::with_capacity(USUAL_SIZE);
        write_place(&mut json, place);
        let network_at = json.len();
        write_network(&mut json, place);
        Self { json, network_at }
    }

    /// From the city to the currency.
    pub fn place(&self) -> &[u8] {
        &self.json[..self.network_at]
    }

    /// What is known about the network's use: `proxy` and `hosting`.
    pub fn network(&self) -> &[u8] {
        &self.json[self.network_at..]
    }

    pub(super) fn len(&self) -> usize {
        self.json.len()
    }
}

fn write_place(json: &mut Vec<u8>, place: &Place<'_>) {
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

fn write_network(json: &mut Vec<u8>, place: &Place<'_>) {
    field!(json, "proxy", &place.proxy);
    field!(json, "hosting", &place.hosting);
}
