//! One database record as stored: the union of all supported layouts.

use serde::de::MapAccess;

use super::map_seed::{FromMap, MapSeed};
use super::scalar::Scalar;

#[derive(Debug, Default)]
pub(super) struct MmdbRecord<'a> {
    pub continent: Coded<'a>,
    pub country: Named<'a>,
    pub city: Named<'a>,
    /// The largest subdivision, which is the first in the file's list.
    pub subdivision: Named<'a>,
    pub postal: Coded<'a>,
    pub location: LocationMap<'a>,
    pub flat: Flat<'a>,
    pub network: Network<'a>,
}

/// MaxMind's `{iso_code | code, names: {en}, is_in_european_union}`, or a string in flat layouts.
#[derive(Debug, Default)]
pub(super) struct Named<'a> {
    pub scalar: Scalar<'a>,
    pub code: Scalar<'a>,
    pub english: Scalar<'a>,
    pub in_eu: Scalar<'a>,
    pub is_map: bool,
}

/// Like `Named`, but only the code is needed. Names are skipped.
#[derive(Debug, Default)]
pub(super) struct Coded<'a> {
    pub scalar: Scalar<'a>,
    pub code: Scalar<'a>,
}

/// MaxMind's `location`.
#[derive(Debug, Default)]
pub(super) struct LocationMap<'a> {
    pub latitude: Scalar<'a>,
    pub longitude: Scalar<'a>,
    pub time_zone: Scalar<'a>,
}

/// Top-level location keys of the flat layouts (IPinfo, ip-location-db).
#[derive(Debug, Default)]
pub(super) struct Flat<'a> {
    pub country_code: Scalar<'a>,
    pub country_name: Scalar<'a>,
    pub continent_code: Scalar<'a>,
    pub region: Scalar<'a>,
    pub region_code: Scalar<'a>,
    pub latitude: Scalar<'a>,
    pub longitude: Scalar<'a>,
    pub timezone: Scalar<'a>,
    pub postal_code: Scalar<'a>,
}

/// Operator and use of the network. The keys are at the top level or, for MaxMind, in `traits`.
#[derive(Debug, Default)]
pub(super) struct Network<'a> {
    pub asn: Scalar<'a>,
    pub as_org: Scalar<'a>,
    pub isp: Scalar<'a>,
    pub organization: Scalar<'a>,
    pub anonymous: Scalar<'a>,
    pub vpn: Scalar<'a>,
    pub public_proxy: Scalar<'a>,
    pub residential_proxy: Scalar<'a>,
    pub tor: Scalar<'a>,
    pub relay: Scalar<'a>,
    pub hosting: Scalar<'a>,
    pub hosting_provider: Scalar<'a>,
}

impl<'a> Flat<'a> {
    fn field_mut(&mut self, key: &[u8]) -> Option<&mut Scalar<'a>> {
        Some(match key {
            b"country_code" => &mut self.country_code,
            b"country_name" => &mut self.country_name,
            b"continent_code" => &mut self.continent_code,
            b"region" | b"state1" => &mut self.region,
            b"region_code" => &mut self.region_code,
            b"latitude" | b"lat" => &mut self.latitude,
            b"longitude" | b"lng" => &mut self.longitude,
            b"timezone" => &mut self.timezone,
            b"postal_code" | b"postcode" => &mut self.postal_code,
            _ => return None,
        })
    }
}

impl<'a> Network<'a> {
    fn field_mut(&mut self, key: &[u8]) -> Option<&mut Scalar<'a>> {
        Some(match key {
            b"autonomous_system_number" | b"asn" => &mut self.asn,
            b"autonomous_system_organization" | b"as_name" => &mut self.as_org,
            b"isp" => &mut self.isp,
            b"organization" | b"name" => &mut self.organization,
            b"is_anonymous" => &mut self.anonymous,
            b"is_anonymous_vpn" | b"vpn" => &mut self.vpn,
            b"is_public_proxy" | b"proxy" => &mut self.public_proxy,
            b"is_residential_proxy" => &mut self.residential_proxy,
            b"is_tor_exit_node" | b"tor" => &mut self.tor,
            b"relay" => &mut self.relay,
            b"is_hosting_provider" => &mut self.hosting_provider,
            b"is_hosting" | b"hosting" => &mut self.hosting,
            _ => return None,
        })
    }
}

impl<'a> FromMap<'a> for MmdbRecord<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        match key {
            b"continent" => map.next_value_seed(MapSeed::new(&mut self.continent))?,
            b"country" => map.next_value_seed(MapSeed::new(&mut self.country))?,
            b"city" => map.next_value_seed(MapSeed::new(&mut self.city))?,
            b"subdivisions" => map.next_value_seed(MapSeed::new(&mut self.subdivision))?,
            b"postal" => map.next_value_seed(MapSeed::new(&mut self.postal))?,
            b"location" => map.next_value_seed(MapSeed::new(&mut self.location))?,
            b"traits" => map.next_value_seed(MapSeed::new(&mut self.network))?,
            _ => match self.flat.field_mut(key) {
                Some(field) => *field = map.next_value()?,
                None => return self.network.read_entry(key, map),
            },
        }
        Ok(true)
    }
}

impl<'a> FromMap<'a> for Named<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        self.is_map = true;
        match key {
            b"iso_code" | b"code" => self.code = map.next_value()?,
            b"is_in_european_union" => self.in_eu = map.next_value()?,
            b"names" => map.next_value_seed(MapSeed::new(&mut English(&mut self.english)))?,
            _ => return Ok(false),
        }
        Ok(true)
    }
    fn set_scalar(&mut self, scalar: Scalar<'a>) {
        self.scalar = scalar;
    }
}

impl<'a> FromMap<'a> for Coded<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let is_code = key == b"code" || key == b"iso_code";
        if is_code {
            self.code = map.next_value()?;
        }
        Ok(is_code)
    }
    fn set_scalar(&mut self, scalar: Scalar<'a>) {
        self.scalar = scalar;
    }
}

impl<'a> FromMap<'a> for LocationMap<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        match key {
            b"latitude" => self.latitude = map.next_value()?,
            b"longitude" => self.longitude = map.next_value()?,
            b"time_zone" => self.time_zone = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl<'a> FromMap<'a> for Network<'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let Some(field) = self.field_mut(key) else {
            return Ok(false);
        };
        *field = map.next_value()?;
        Ok(true)
    }
}

/// Reads only the English name from `names`.
struct English<'s, 'a>(&'s mut Scalar<'a>);

impl<'a> FromMap<'a> for English<'_, 'a> {
    fn read_entry<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        if key == b"en" {
            *self.0 = map.next_value()?;
        }
        Ok(key == b"en")
    }
}
