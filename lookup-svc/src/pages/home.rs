//! The home page, for people: address, location, network and connection of the visitor. Rendered by the code of a lookup,
//! but not charged and not counted as one.

mod facts;

use std::net::IpAddr;
use std::sync::Arc;

use edge::ClientInfo;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_server::requested_host;
use poem::{Request, Response};
use quota_client::wire::Scope;
use serde_json::{Map, Value};
use service_kit::{ErrorBody, THEME, csp_hash, error};

use super::template::Template;
use super::{SECURITY_HEADERS, escape};
use crate::caller::Caller;
use crate::fields::FieldSet;
use crate::lookup::{Backends, unix_now};
use crate::public_urls::PublicUrls;

use facts::Facts;

const TEMPLATE: &str = include_str!("home.html");
const STYLE: &str = include_str!("home.css");
const SCRIPT: &str = include_str!("home.js");
const ICON: &str = include_str!("icon.svg");

/// Path of the map below the base URL.
pub(super) const MAP_PATH: &str = "/world-map.svg";
/// Land areas, made by `world-map.py`.
pub(super) const MAP: &str = include_str!("../../data/world-map.svg");

const WRONG_HOST: &str = "This connection was opened for another host name. Use a new connection.";

/// The fields of a lookup with the scope `full`.
type Fields = Map<String, Value>;

/// Renders the page for each request.
pub(super) struct Home {
    backends: Arc<Backends>,
    urls: PublicUrls,
    template: Template,
    headers: HeaderMap,
    /// The origins whose pages may read this one: our own, under each host name. The first is that of the base URL.
    origins: Vec<HeaderValue>,
    /// The host names in them.
    hosts: Vec<String>,
}

impl Home {
    pub(super) fn new(backends: Arc<Backends>, urls: &PublicUrls) -> Self {
        let origins = urls.origins();
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; img-src 'self' data:; connect-src 'self' {}; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            csp_hash(&[THEME, STYLE].concat()),
            csp_hash(SCRIPT),
            origins.join(" "),
        );
        Self {
            backends,
            template: Template::new(TEMPLATE).fill(|slot| static_slot(slot, urls)),
            headers: headers(&policy),
            origins: origins.iter().filter_map(|origin| origin.parse().ok()).collect(),
            hosts: urls.hosts(),
            urls: urls.clone(),
        }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        let caller = Caller::of(request);
        let mut response = match self.is_misdirected(requested_host(request), caller.server_name()) {
            true => {
                let body = ErrorBody::new("wrong_host", WRONG_HOST, &self.urls.docs);
                error::response(StatusCode::MISDIRECTED_REQUEST, &body)
            }
            false => {
                let html = self.render(&caller.identify(&self.backends.edge, request, true));
                Response::builder().content_type("text/html; charset=utf-8").body(html)
            }
        };
        response.headers_mut().extend(self.headers.clone());
        let origin = self.allowed_origin(request.headers().get(header::ORIGIN));
        response.headers_mut().extend(origin.map(|origin| (header::ACCESS_CONTROL_ALLOW_ORIGIN, origin)));
        response
    }

    /// Whether a request for one of our hosts came on a connection (by SNI) that was opened for another one. A browser
    /// may do that if the certificate has both names; the address would then be that of the connection, possibly of
    /// the other family. After 421 it opens a new connection.
    fn is_misdirected(&self, host: Option<&str>, server_name: Option<&str>) -> bool {
        let index = |name: &str| self.hosts.iter().position(|host| host.eq_ignore_ascii_case(name));
        match (host.and_then(index), server_name.and_then(index)) {
            (Some(host), Some(connection)) => host != connection,
            _ => false,
        }
    }

    /// Returns the request's origin if it is one of ours: other sites could use this page as an uncharged lookup. For any
    /// other origin, returns the base URL's, because without this header the API's `*` would be added.
    fn allowed_origin(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        let ours = self.origins.iter().find(|ours| Some(*ours) == origin);
        ours.or(self.origins.first()).cloned()
    }

    fn render(&self, client: &ClientInfo<'_>) -> String {
        let json = self.backends.render(FieldSet::Scope(Scope::Full), client);
        let fields: Fields = serde_json::from_slice(&json).unwrap_or_default();
        let facts = Facts::new(&fields, client, &self.backends.geo.databases(), unix_now());
        let map_url = format!("{}{MAP_PATH}", self.urls.base_path().trim_end_matches('/'));
        self.template.render(|slot| match slot {
            "addresses" => self.addresses(client.ip),
            "location" => facts.location(client.ip, &map_url),
            "network" => facts.network(client.ip),
            "connection" => facts.connection(),
            "attributions" => self.attributions(),
            _ => String::new(),
        })
    }

    /// The address of this connection, and where to find that of the other family.
    fn addresses(&self, ip: IpAddr) -> String {
        let own = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
        [("ipv4", "IPv4", &self.urls.ipv4), ("ipv6", "IPv6", &self.urls.ipv6)]
            .into_iter()
            .map(|(family, name, url)| match url {
                _ if family == own => format!(
                    "<div><dt>{name} address</dt><dd><code id=\"own\" data-family=\"{family}\">{ip}</code>\
                     <button type=\"button\" class=\"ghost\" data-copy=\"own\" aria-label=\"Copy {name} address\" hidden>Copy</button></dd></div>"
                ),
                Some(url) => format!(
                    "<div data-family=\"{family}\" data-url=\"{url}/\"><dt>{name} address</dt>\
                     <dd><a href=\"{url}/\">Show my {name} address</a></dd></div>",
                    url = escape(url)
                ),
                None => String::new(),
            })
            .collect()
    }

    fn attributions(&self) -> String {
        let links = self.backends.geo.attributions().into_iter().map(|attribution| {
            format!("<a href=\"{}\">{}</a>", escape(attribution.url), escape(attribution.text))
        });
        links.collect::<Vec<_>>().join(" · ")
    }
}

/// Values of the slots that are the same for all visitors.
fn static_slot(slot: &str, urls: &PublicUrls) -> Option<String> {
    let below_base = |path: &str| escape(&format!("{}{path}", urls.base_path().trim_end_matches('/')));
    Some(match slot {
        "style" => [THEME, STYLE].concat(),
        "script" => SCRIPT.to_owned(),
        "icon" => ICON.trim().to_owned(),
        "icon_url" => escape(&format!("data:image/svg+xml,{}", ICON.trim().replace('#', "%23"))),
        "home" => below_base("/"),
        "demo" => below_base("/api/v1/ip/demo"),
        "docs_page" => below_base("/docs"),
        "swagger" => below_base("/swagger"),
        "base" => escape(&urls.base),
        "dashboard" => escape(&urls.dashboard),
        "signup" => escape(&urls.signup),
        _ => return None,
    })
}

fn headers(policy: &str) -> HeaderMap {
    let value = HeaderValue::from_static;
    // A policy that can't be sent is replaced by one that allows nothing.
    let policy = HeaderValue::try_from(policy).unwrap_or(value("default-src 'none'"));
    let mut headers: HeaderMap = SECURITY_HEADERS.into_iter().collect();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::CACHE_CONTROL, value("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, value("nosniff"));
    headers.insert(header::VARY, value("Origin"));
    headers
}
