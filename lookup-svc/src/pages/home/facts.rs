//! The sections of the page: each field with its value, or the reason why it has none, and a few words of explanation.

use std::net::IpAddr;

use edge::{ClientInfo, Decision};
use geo::country::{self, Point};
use geo::{DatabaseInfo, DatabaseKind};
use serde_json::Value;
use service_kit::escape;

use super::Fields;
use crate::lookup::special_use;

/// The fields of one visitor, and what decides why some of them have no value.
pub(super) struct Facts<'a> {
    fields: &'a Fields,
    /// Whether a proxy forwarded the request: the connection facts are then those that it sends.
    forwarded: bool,
    has_cities: bool,
    has_networks: bool,
    /// Unix seconds.
    now: i64,
}

const NOT_FOUND: &str = "Not in the database";

impl<'a> Facts<'a> {
    pub(super) fn new(
        fields: &'a Fields,
        client: &ClientInfo<'_>,
        databases: &[DatabaseInfo],
        now: i64,
    ) -> Self {
        let has = |kinds: &[DatabaseKind]| databases.iter().any(|database| kinds.contains(&database.kind));
        Self {
            fields,
            forwarded: !matches!(
                client.decision,
                Decision::PeerUntrusted | Decision::Peer | Decision::Missing
            ),
            has_cities: has(&[DatabaseKind::City, DatabaseKind::Enterprise]),
            has_networks: has(&[
                DatabaseKind::Asn,
                DatabaseKind::CountryAsn,
                DatabaseKind::Isp,
                DatabaseKind::Enterprise,
            ]),
            now,
        }
    }

    pub(super) fn has_location(&self) -> bool {
        self.text("country").is_some()
    }

    pub(super) fn location(&self, ip: IpAddr, map_url: &str, example_url: &str) -> String {
        let Some(country) = self.text("country") else { return self.no_location(ip, example_url) };
        let country_name = self.text("country_name").unwrap_or_else(|| country.clone());
        let city = self.text("city");
        let title =
            city.as_ref().map_or_else(|| country_name.clone(), |city| format!("{city}, {country_name}"));
        let point = self.number("latitude").zip(self.number("longitude"));
        let mark = point.map(Mark::Location).or_else(|| country::point(&country).map(Mark::Country));
        let (description, caption) = match mark {
            Some(Mark::Country(_)) => (
                format!("World map with a circle around {country_name}"),
                "<p class=\"hint\">Only the country is known. The circle marks the country.</p>",
            ),
            _ => (format!("World map with a dot at {title}"), ""),
        };
        let map = mark.map(|mark| world_map(mark, &description, map_url)).unwrap_or_default();
        let region = with_code(self.text("region"), self.text("region_code"));
        let coordinates = point.map(|(latitude, longitude)| format!("{latitude}, {longitude}"));
        let no_cities = match self.has_cities || city.is_some() || point.is_some() {
            true => "",
            false => "<p class=\"hint\">This service has no data about cities.</p>",
        };
        // Without data about cities, a row without a value says nothing more. Some countries have a timezone.
        let of_city = |label, hint, value: Option<String>| match value.is_none() && !no_cities.is_empty() {
            true => String::new(),
            false => row(label, hint, value, NOT_FOUND),
        };
        let rows = [
            of_city("City", "Often the nearest larger one", city),
            of_city("Region", "State or province", region),
            row("Country", "", with_code(Some(country_name), Some(country.clone())), NOT_FOUND),
            of_city("Postal code", "", self.text("postal_code")),
            of_city("Coordinates", "Not your exact position", coordinates),
            of_city("Timezone", "", self.timezone()),
            row("Currency", "", self.text("currency"), NOT_FOUND),
            row("European Union", "", self.text("is_eu"), NOT_FOUND),
        ];
        format!(
            "<p class=\"place\">{}<span class=\"code\">{}</span> {}</p>{map}{caption}<dl>{}</dl>{no_cities}",
            flag(&country),
            escape(&country),
            escape(&title),
            rows.concat(),
        )
    }

    fn no_location(&self, ip: IpAddr, example_url: &str) -> String {
        let Some(special_use) = special_use(ip) else {
            return "<p>No database has a location for this address.</p>".to_owned();
        };
        let is_local = match ip {
            IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
        };
        let place = match (ip.is_loopback(), is_local) {
            (true, _) => "<p class=\"place\">You are on the same machine as this service.</p>",
            (_, true) => "<p class=\"place\">You are in the same network as this service.</p>",
            _ => "",
        };
        let proxy = match self.forwarded {
            true => "",
            false => {
                "<p class=\"hint\">If you came through a proxy, its address is shown here. The operator of this \
                 service can change that with <code>--trusted-proxies</code>.</p>"
            }
        };
        format!(
            "{place}<p><code>{ip}</code> is {special_use}. It has no location.</p>{proxy}\
             <a class=\"button\" href=\"{}\">Show an example</a>",
            escape(example_url)
        )
    }

    pub(super) fn network(&self, ip: IpAddr) -> String {
        if special_use(ip).is_some() && self.text("org").or_else(|| self.text("asn")).is_none() {
            return "<p>Such an address belongs to no network on the internet.</p>".to_owned();
        }
        if !self.has_networks && self.text("org").or_else(|| self.text("asn")).is_none() {
            return "<p>This service has no data about networks.</p>".to_owned();
        }
        let asn = self.text("asn").map(|asn| format!("AS{asn}"));
        let rows = [
            row("Operator", "Who runs the network of your address", self.text("org"), NOT_FOUND),
            row("AS number", "The number of this network on the internet", asn, NOT_FOUND),
            row("Hosting", "A data center or cloud, not a home or office", self.text("hosting"), NOT_FOUND),
            row("VPN or proxy", "A known one; many are not listed", self.text("proxy"), NOT_FOUND),
        ];
        format!("<dl>{}</dl>", rows.concat())
    }

    pub(super) fn connection(&self) -> String {
        let not_sent = "Not sent by the proxy";
        let or_not_sent = |reason| if self.forwarded { not_sent } else { reason };
        let no_tls = or_not_sent("Only over HTTPS");
        let rtt = self.text("rtt").map(|rtt| match rtt.as_str() {
            "0" => "Less than 1 ms".to_owned(),
            _ => format!("{rtt} ms"),
        });
        let rows = [
            row("HTTP version", "", self.text("http_protocol"), not_sent),
            row("TLS version", "", self.text("tls_version"), no_tls),
            row("TLS cipher suite", "", self.text("tls_cipher"), no_tls).replace('_', "_<wbr>"),
            row("Round-trip time", "From the server to you and back", rtt, or_not_sent("Not measured")),
            row("Data center", "Airport code of the server's city", self.text("colo"), "Not configured"),
        ];
        format!("<dl>{}</dl>", rows.concat())
    }

    /// A value in words. `None` if it is null.
    fn text(&self, name: &str) -> Option<String> {
        match self.fields.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(true) => Some("Yes".to_owned()),
            Value::Bool(false) => Some("No".to_owned()),
            _ => None,
        }
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.fields.get(name)?.as_f64()
    }

    /// "Europe/Berlin (UTC+1, now 14:05)".
    fn timezone(&self) -> Option<String> {
        let zone = self.text("timezone")?;
        let Some(offset) = self.fields.get("timezone_offset").and_then(Value::as_i64) else {
            return Some(zone);
        };
        let minutes = (self.now + offset).rem_euclid(86_400) / 60;
        let sign = if offset < 0 { '−' } else { '+' };
        let (hours, rest) = (offset.abs() / 3600, offset.abs() % 3600 / 60);
        let rest = if rest == 0 { String::new() } else { format!(":{rest:02}") };
        Some(format!("{zone} (UTC{sign}{hours}{rest}, now {:02}:{:02})", minutes / 60, minutes % 60))
    }
}

/// One field, with an explanation if its name needs one. The value is escaped; the other texts are ours.
fn row(label: &str, hint: &str, value: Option<String>, missing: &str) -> String {
    let value = match value {
        Some(value) => format!("<dd>{}</dd>", escape(&value)),
        None => format!("<dd class=\"missing\">{missing}</dd>"),
    };
    let hint = if hint.is_empty() { String::new() } else { format!(" <span class=\"hint\">{hint}</span>") };
    format!("<div><dt>{label}{hint}</dt>{value}</div>")
}

/// "California (US-CA)".
fn with_code(name: Option<String>, code: Option<String>) -> Option<String> {
    match (name, code) {
        (Some(name), Some(code)) => Some(format!("{name} ({code})")),
        (name, code) => name.or(code),
    }
}

/// The flag as an emoji, which the script shows if the browser has a picture of it. The country's code, which is always
/// shown, is next to it.
fn flag(country: &str) -> String {
    let indicator = |letter: char| char::from_u32(u32::from(letter) - u32::from('A') + 0x1F1E6);
    let is_code = country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_uppercase());
    match is_code {
        true => {
            let emoji: String = country.chars().filter_map(indicator).collect();
            format!("<span id=\"flag\" aria-hidden=\"true\" hidden>{emoji}</span>")
        }
        false => String::new(),
    }
}

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    /// A dot at these coordinates.
    Location(Point),
    /// A circle around a point of a country.
    Country(Point),
}

/// The visible part of the map: it ends in the Arctic Ocean and south of Cape Horn.
const TOP: f64 = 8.0;
const BOTTOM: f64 = 292.0;

/// An image of the map, with its description for people who don't see it.
fn world_map(mark: Mark, description: &str, map_url: &str) -> String {
    let circle = |(x, y): (f64, f64), class: &str, radius: u8| {
        format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>")
    };
    let mark = match mark {
        Mark::Location(point) => circle(position(point), "halo", 16) + &circle(position(point), "dot", 6),
        Mark::Country(point) => circle(position(point), "area", 26),
    };
    format!(
        "<svg class=\"map\" viewBox=\"0 {TOP} 720 {}\" role=\"img\" aria-label=\"{}\">\
         <image href=\"{}\" width=\"720\" height=\"300\"/>{mark}</svg>",
        BOTTOM - TOP,
        escape(description),
        escape(map_url),
    )
}

/// The projection of `world-map.py`: two units per degree.
fn position((latitude, longitude): Point) -> (f64, f64) {
    (2.0 * (longitude + 180.0), (2.0 * (90.0 - latitude)).clamp(TOP, BOTTOM))
}

#[cfg(test)]
mod tests {
    use edge::ConnectionFacts;
    use serde_json::json;

    use super::*;

    const MAP: &str = "/world-map.svg";
    const EXAMPLE: &str = "/example";

    fn client(decision: Decision) -> ClientInfo<'static> {
        ClientInfo { ip: [8, 8, 8, 8].into(), decision, facts: ConnectionFacts::default() }
    }

    fn database(kind: DatabaseKind) -> DatabaseInfo {
        DatabaseInfo {
            name: String::new(),
            database_type: String::new(),
            kind,
            ip_version: 6,
            build_epoch: 0,
            attribution: None,
        }
    }

    fn fields(value: Value) -> Fields {
        value.as_object().cloned().expect("an object")
    }

    #[test]
    fn values_of_databases_are_escaped() {
        let hostile = "</dd><script>alert(1)</script>{{script}}\"'&";
        let fields = fields(json!({
            "country": "<b>", "country_name": hostile, "city": hostile, "region": hostile, "region_code": hostile,
            "postal_code": hostile, "timezone": hostile, "currency": hostile, "org": hostile, "tls_cipher": hostile,
            "colo": hostile, "latitude": 1.5, "longitude": 2.5,
        }));
        let client = client(Decision::Xff);
        let facts = Facts::new(&fields, &client, &[], 0);
        let html = facts.location(client.ip, MAP, EXAMPLE) + &facts.network(client.ip) + &facts.connection();
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert_eq!(html.matches("&lt;/dd&gt;&lt;script&gt;").count(), 14, "{html}");
    }

    #[test]
    fn coordinates_are_a_dot_and_a_country_alone_is_a_circle() {
        let client = client(Decision::PeerUntrusted);
        let city = fields(json!({
            "country": "DE", "country_name": "Germany", "city": "Berlin", "region": "Berlin", "region_code": "DE-BE",
            "latitude": 52.5, "longitude": 13.5, "timezone": "Europe/Berlin", "timezone_offset": 3600, "is_eu": true,
        }));
        let html = Facts::new(&city, &client, &[], 47_100).location(client.ip, MAP, EXAMPLE);
        for part in [
            "<span id=\"flag\" aria-hidden=\"true\" hidden>🇩🇪</span><span class=\"code\">DE</span> Berlin, Germany",
            "aria-label=\"World map with a dot at Berlin, Germany\"",
            "<circle class=\"dot\" cx=\"387.0\" cy=\"75.0\" r=\"6\"/>",
            "<dd>Berlin (DE-BE)</dd>",
            "<dd>52.5, 13.5</dd>",
            "<dd>Europe/Berlin (UTC+1, now 14:05)</dd>",
            "<dd>Yes</dd>",
        ] {
            assert!(html.contains(part), "{part} is missing in {html}");
        }
        let country =
            fields(json!({"country": "DE", "country_name": "Germany", "timezone": "Europe/Berlin"}));
        let html = Facts::new(&country, &client, &[], 0).location(client.ip, MAP, EXAMPLE);
        assert!(html.contains("<dd>Europe/Berlin</dd>") && !html.contains("Postal code"), "{html}");
        assert!(html.contains("class=\"area\"") && html.contains("Only the country is known"), "{html}");
        assert!(!html.contains("class=\"dot\""), "{html}");
    }

    #[test]
    fn cipher_suite_may_break_at_underscores() {
        let fields = fields(json!({"tls_cipher": "TLS_AES_128_GCM_SHA256"}));
        let html = Facts::new(&fields, &client(Decision::PeerUntrusted), &[], 0).connection();
        assert!(html.contains("<dd>TLS_<wbr>AES_<wbr>128_<wbr>GCM_<wbr>SHA256</dd>"), "{html}");
    }

    #[test]
    fn offsets_have_minutes_only_if_needed() {
        let client = client(Decision::PeerUntrusted);
        for (offset, want) in [
            (19_800, "X (UTC+5:30, now 05:30)"),
            (-28_800, "X (UTC−8, now 16:00)"),
            (-12_600, "X (UTC−3:30, now 20:30)"),
            (0, "X (UTC+0, now 00:00)"),
        ] {
            let fields = fields(json!({"timezone": "X", "timezone_offset": offset}));
            assert_eq!(Facts::new(&fields, &client, &[], 0).timezone().as_deref(), Some(want));
        }
    }

    #[test]
    fn missing_values_say_why() {
        let empty = fields(json!({"country": "DE", "country_name": "Germany", "city": null}));
        let direct = client(Decision::PeerUntrusted);
        let facts = Facts::new(&empty, &direct, &[database(DatabaseKind::Country)], 0);
        assert!(facts.location(direct.ip, MAP, EXAMPLE).contains("no data about cities"));
        assert!(facts.network(direct.ip).contains("no data about networks"));
        assert!(
            facts.connection().contains("Only over HTTPS") && facts.connection().contains("Not measured")
        );

        let databases = [database(DatabaseKind::City), database(DatabaseKind::Asn)];
        let forwarded = client(Decision::Xff);
        let facts = Facts::new(&empty, &forwarded, &databases, 0);
        assert_eq!(facts.location(direct.ip, MAP, EXAMPLE).matches(NOT_FOUND).count(), 7);
        assert!(facts.network(direct.ip).contains(NOT_FOUND));
        assert_eq!(facts.connection().matches("Not sent by the proxy").count(), 4);
    }

    #[test]
    fn address_without_a_location_says_why() {
        let empty = Fields::new();
        let direct = client(Decision::PeerUntrusted);
        let facts = Facts::new(&empty, &direct, &[], 0);
        let html = facts.location([192, 168, 1, 2].into(), MAP, EXAMPLE);
        assert!(html.contains("<code>192.168.1.2</code> is a private address"), "{html}");
        assert!(html.contains("It has no location") && html.contains("--trusted-proxies"), "{html}");
        assert!(html.contains("in the same network") && html.contains("href=\"/example\""), "{html}");
        assert!(facts.network([192, 168, 1, 2].into()).contains("no network on the internet"));
        let html = facts.location([192, 0, 2, 1].into(), MAP, EXAMPLE);
        assert!(html.contains("special use") && !html.contains("You are"), "{html}");
        let html = facts.location([8, 8, 8, 8].into(), MAP, EXAMPLE);
        assert_eq!(html, "<p>No database has a location for this address.</p>");
        let forwarded = client(Decision::Xff);
        let html = Facts::new(&empty, &forwarded, &[], 0).location([10, 0, 0, 1].into(), MAP, EXAMPLE);
        assert!(html.contains("private") && !html.contains("--trusted-proxies"), "{html}");
    }

    #[test]
    fn position_is_projected_and_stays_on_the_map() {
        assert_eq!(position((0.0, 0.0)), (360.0, 180.0));
        assert_eq!(position((52.5, 13.5)), (387.0, 75.0));
        assert_eq!(position((-77.8, 166.7)), (693.4, BOTTOM));
        assert_eq!(position((90.0, -180.0)), (0.0, TOP));
    }

    #[test]
    fn description_is_escaped() {
        let svg = world_map(Mark::Country((0.0, 0.0)), "\"><script>", "/world-map.svg");
        assert!(svg.contains("aria-label=\"&quot;&gt;&lt;script&gt;\""), "{svg}");
    }
}
