//! The home page, for people: address, location, network and connection of the visitor. Rendered by the code of a lookup,
//! but not charged and not counted as one.

mod facts;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use edge::ClientInfo;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_server::requested_host;
use poem::{Request, Response};
use quota_client::wire::Scope;
use serde_json::{Map, Value};
use service_kit::{ErrorBody, THEME, csp_hash, error, escape, icon_url};

use super::{accepts_html, fill, policy, top};
use crate::fields::FieldSet;
use crate::lookup::{Backends, Caller, unix_now};
use crate::public_urls::PublicUrls;

use facts::Facts;

const TEMPLATE: &str = include_str!("home.html");
const STYLE: &str = include_str!("home.css");
const SCRIPT: &str = include_str!("home.js");

/// Path of the map below the base URL.
pub(super) const MAP_PATH: &str = "/world-map.svg";
/// Land areas, made by `world-map.py`.
pub(super) const MAP: &str = include_str!("../../data/world-map.svg");

const WRONG_HOST: &str = "This connection was opened for another host name. Use a new connection.";

/// The address whose page visitors can see who have no location, because they are on the same machine or network.
const EXAMPLE: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));

/// What a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// The page if the client accepts HTML, otherwise the address.
    Home,
    /// The address as text.
    Address,
    /// The page for [`EXAMPLE`].
    Example,
}

/// The fields of a lookup with the scope `full`.
type Fields = Map<String, Value>;

/// Renders the page for each request.
pub(super) struct Home {
    backends: Arc<Backends>,
    urls: PublicUrls,
    /// Values of the slots that are the same for all visitors.
    fixed: HashMap<&'static str, String>,
    headers: HeaderMap,
    /// The origins whose pages may read this one: our own, under each host name. The first is that of the base URL.
    origins: Vec<HeaderValue>,
    /// The host names in them.
    hosts: Vec<String>,
}

impl Home {
    pub(super) fn new(backends: Arc<Backends>, urls: &PublicUrls) -> Self {
        let origins = urls.origins();
        let style = [THEME, STYLE].concat();
        let more = format!(
            "script-src {}; img-src 'self' data:; connect-src 'self' {}",
            csp_hash(SCRIPT),
            origins.join(" ")
        );
        Self {
            backends,
            headers: headers(&policy(&style, &more)),
            fixed: HashMap::from([
                ("style", style),
                ("script", SCRIPT.to_owned()),
                ("icon_url", icon_url()),
                ("top", top(urls, "Home")),
                ("demo", escape(&urls.path_to("/api/v1/ip/demo"))),
                ("base", escape(&urls.base)),
                ("signup", escape(&urls.signup)),
            ]),
            origins: origins.iter().filter_map(|origin| origin.parse().ok()).collect(),
            hosts: urls.hosts(),
            urls: urls.clone(),
        }
    }

    pub(super) fn respond(&self, request: &Request, view: View) -> Response {
        let caller = Caller::of(request);
        let mut response = match self.is_misdirected(requested_host(request), caller.server_name()) {
            true => {
                let body = ErrorBody::new("wrong_host", WRONG_HOST, &self.urls.docs);
                error::response(StatusCode::MISDIRECTED_REQUEST, &body)
            }
            false if view == View::Address || view == View::Home && !accepts_html(request.headers()) => {
                let client = caller.identify(&self.backends.edge, request, false);
                Response::builder().content_type("text/plain; charset=utf-8").body(format!("{}\n", client.ip))
            }
            false => {
                let mut client = caller.identify(&self.backends.edge, request, true);
                if view == View::Example {
                    client.ip = EXAMPLE;
                }
                Response::builder().content_type("text/html; charset=utf-8").body(self.render(&client, view))
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

    fn render(&self, client: &ClientInfo<'_>, view: View) -> String {
        let json = self.backends.render(FieldSet::Scope(Scope::Full), client);
        let fields: Fields = serde_json::from_slice(&json).unwrap_or_default();
        let facts = Facts::new(&fields, client, &self.backends.geo.databases(), unix_now());
        let path_to = |path| self.urls.path_to(path);
        fill(TEMPLATE, |slot| {
            let text = match slot {
                "heading" if view == View::Example => "An example address".to_owned(),
                "heading" => "Your IP address".to_owned(),
                "layout" if facts.has_location() => String::new(),
                "layout" => "local".to_owned(),
                "addresses" if view == View::Example => example_address(&path_to("/")),
                "addresses" => self.addresses(client.ip),
                "location" => facts.location(client.ip, &path_to(MAP_PATH), &path_to("/example")),
                "network" => facts.network(client.ip),
                "connection" => facts.connection(),
                "attributions" => self.attributions(),
                fixed => return self.fixed.get(fixed).map_or("", String::as_str).into(),
            };
            Cow::from(text)
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

/// The address of [`View::Example`], and the way back.
fn example_address(home: &str) -> String {
    format!(
        "<div><dt>IPv4 address</dt><dd><code>{EXAMPLE}</code><a href=\"{}\">Show my own address</a></dd></div>",
        escape(home)
    )
}

fn headers(policy: &str) -> HeaderMap {
    let value = HeaderValue::from_static;
    // A policy that can't be sent is replaced by one that allows nothing.
    let policy = HeaderValue::try_from(policy).unwrap_or(value("default-src 'none'"));
    HeaderMap::from_iter([
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::REFERRER_POLICY, value("no-referrer")),
        (header::X_FRAME_OPTIONS, value("DENY")),
        (header::X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (header::CACHE_CONTROL, value("no-store")),
        (header::VARY, value("Accept, Origin")),
    ])
}
