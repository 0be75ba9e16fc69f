//! One database record as it is stored, borrowed: the union of every layout we know.

use serde::de::MapAccess;

use super::keys::{FromKeys, Into};
use super::scalar::Scalar;

/// A whole record.
#[derive(Debug, Default)]
pub(super) struct Record<'a> {
    pub continent: Coded<'a>,
    pub country: Named<'a>,
    pub city: Named<'a>,
    /// The largest subdivision, which comes first.
    pub subdivision: Named<'a>,
    pub postal: Coded<'a>,
    pub location: Location<'a>,
    pub flat: Flat<'a>,
    pub network: Network<'a>,
}

/// MaxMind's `{iso_code | code, names: {en}, is_in_european_union}`, or a flat layout's text.
#[derive(Debug, Default)]
pub(super) struct Named<'a> {
    pub scalar: Scalar<'a>,
    pub code: Scalar<'a>,
    pub english: Scalar<'a>,
    pub in_eu: Scalar<'a>,
    pub is_map: bool,
}

/// The same of which only the code is of use; its names are skipped unread.
#[derive(Debug, Default)]
pub(super) struct Coded<'a> {
    pub scalar: Scalar<'a>,
    pub code: Scalar<'a>,
}

/// MaxMind's `location`.
#[derive(Debug, Default)]
pub(super) struct Location<'a> {
    pub latitude: Scalar<'a>,
    pub longitude: Scalar<'a>,
    pub time_zone: Scalar<'a>,
}

/// The place keys of the flat layouts (IPinfo, ip-location-db).
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

/// Who runs the network and what it is used for; MaxMind's `traits` has the same keys.
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
    fn slot(&mut self, key: &[u8]) -> Option<&mut Scalar<'a>> {
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
    fn slot(&mut self, key: &[u8]) -> Option<&mut Scalar<'a>> {
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

impl<'a> FromKeys<'a> for Record<'a> {
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        match key {
            b"continent" => map.next_value_seed(Into::new(&mut self.continent))?,
            b"country" => map.next_value_seed(Into::new(&mut self.country))?,
            b"city" => map.next_value_seed(Into::new(&mut self.city))?,
            b"subdivisions" => map.next_value_seed(Into::new(&mut self.subdivision))?,
            b"postal" => map.next_value_seed(Into::new(&mut self.postal))?,
            b"location" => map.next_value_seed(Into::new(&mut self.location))?,
            b"traits" => map.next_value_seed(Into::new(&mut self.network))?,
            _ => match self.flat.slot(key) {
                Some(slot) => *slot = map.next_value()?,
                None => return self.network.take(key, map),
            },
        }
        Ok(true)
    }
}

impl<'a> FromKeys<'a> for Named<'a> {
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        self.is_map = true;
        match key {
            b"iso_code" | b"code" => self.code = map.next_value()?,
            b"is_in_european_union" => self.in_eu = map.next_value()?,
            b"names" => map.next_value_seed(Into::new(&mut English(&mut self.english)))?,
            _ => return Ok(false),
        }
        Ok(true)
    }
    fn take_scalar(&mut self, scalar: Scalar<'a>) {
        self.scalar = scalar;
    }
}

impl<'a> FromKeys<'a> for Coded<'a> {
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let ours = key == b"code" || key == b"iso_code";
        if ours {
            self.code = map.next_value()?;
        }
        Ok(ours)
    }
    fn take_scalar(&mut self, scalar: Scalar<'a>) {
        self.scalar = scalar;
    }
}

impl<'a> FromKeys<'a> for Location<'a> {
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        match key {
            b"latitude" => self.latitude = map.next_value()?,
            b"longitude" => self.longitude = map.next_value()?,
            b"time_zone" => self.time_zone = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl<'a> FromKeys<'a> for Network<'a> {
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let Some(slot) = self.slot(key) else {
            return Ok(false);
        };
        *slot = map.next_value()?;
        Ok(true)
    }
}

/// Of `names` only the English one; the other languages are skipped unread.
struct English<'s, 'a>(&'s mut Scalar<'a>);

impl<'a> FromKeys<'a> for English<'_, 'a> {
    fn take<A: MapAccess<'a>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        if key == b"en" {
            *self.0 = map.next_value()?;
        }
        Ok(key == b"en")
    }
}
