//! The pages: the home page, and those about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod home;
mod template;

use std::sync::{Arc, Mutex, PoisonError};

use geo::{DatabaseInfo, Geo};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use poem::{Request, Response, Route, get};
use quota_client::wire::Limits;
use serde_json::json;
use service_kit::{ICON, PageLinks, StaticFile, THEME, csp_hash, escape, icon_url, named, swagger};

use crate::api::Document;
use crate::lookup::Backends;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

use docs::Docs;
use home::{Home, View};

/// Crawlers may read the pages. A lookup of their own address is of no use to them.
const ROBOTS: &str = "User-agent: *\nDisallow: /api/\nDisallow: /ip\n";

/// The page for a path that does not exist.
pub fn not_found(urls: &PublicUrls) -> StaticFile {
    const STYLE: &str = "main { max-width: 1080px; margin: 0 auto; padding: 24px; }";
    let style = [THEME, STYLE].concat();
    let policy = format!(
        "default-src 'none'; style-src {}; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        csp_hash(&style)
    );
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Not found · IP Lookup</title>\n\
         <link rel=\"icon\" href=\"{}\" type=\"image/svg+xml\">\n<style>{style}</style>\n</head>\n<body>\n{}\n<main>\n\
         <h1>This page does not exist</h1>\n<p>Check the address, or start at the <a href=\"{}/\">home page</a>.</p>\n\
         </main>\n</body>\n</html>\n",
        icon_url(),
        top(urls, ""),
        escape(urls.base_path().trim_end_matches('/')),
    );
    html(text, &policy)
}

/// Pages that link to `urls`. The home page is rendered for each request. The others are rendered again when the geo data
/// or the limits in `quota` change, which they describe. `ietf`: whether the headers of
/// the IETF draft are sent, which they describe, too.
pub fn routes(urls: &PublicUrls, backends: Arc<Backends>, quota: QuotaStatus, ietf: bool) -> Route {
    let docs = Docs::new(urls, backends.geo.clone(), quota.clone(), ietf);
    let geo = backends.geo.clone();
    let home = Arc::new(Home::new(backends, urls));
    let view = |name, view| {
        let home = home.clone();
        get(named(name, move |request| home.respond(request, view)))
    };
    let map = file("image/svg+xml", home::MAP.to_owned());
    let icon = file("image/svg+xml", ICON.to_owned());
    let robots = file("text/plain; charset=utf-8", ROBOTS.to_owned());
    let swagger = Arc::new(Documents::new(urls, quota, ietf));
    let (json, yaml) = (swagger.clone(), swagger.clone());
    Route::new()
        .at("/", view("home", View::Home))
        .at("/ip", view("ip", View::Address))
        .at("/example", view("example", View::Example))
        .at(home::MAP_PATH, get(named("world_map", move |request| map.respond(request))))
        .at("/favicon.ico", get(named("icon", move |request| icon.respond(request))))
        .at("/robots.txt", get(named("robots", move |request| robots.respond(request))))
        .at("/docs", get(named("docs", move |request| docs.respond(request))))
        .at("/geo-data.json", get(named("geo_data", move |_| geo_data(&geo))))
        .at("/swagger", get(named("swagger", move |request| swagger.swagger(request))))
        .at("/openapi.json", get(named("openapi_json", move |request| json.json(request))))
        .at("/openapi.yaml", get(named("openapi_yaml", move |request| yaml.yaml(request))))
}

/// The geo databases in use, with their build times. Pages of other origins, such as the dashboard, may read it.
fn geo_data(geo: &Geo) -> Response {
    let database = |database: &DatabaseInfo| {
        json!({
            "name": database.name,
            "kind": database.kind.as_str(),
            "built_at": database.build_epoch,
        })
    };
    let databases: Vec<_> = geo.databases().iter().map(database).collect();
    Response::builder()
        .content_type("application/json")
        .header(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")
        .body(json!({ "databases": databases }).to_string())
}

/// Swagger UI and the OpenAPI document. Both state the limits of quota-svc.
struct Documents {
    urls: PublicUrls,
    quota: QuotaStatus,
    ietf: bool,
    swagger: LivePage<Option<Limits>>,
    json: LivePage<Option<Limits>>,
    yaml: LivePage<Option<Limits>>,
}

impl Documents {
    fn new(urls: &PublicUrls, quota: QuotaStatus, ietf: bool) -> Self {
        let (swagger, json, yaml) = Default::default();
        Self { urls: urls.clone(), quota, ietf, swagger, json, yaml }
    }

    fn swagger(&self, request: &Request) -> Response {
        self.swagger.respond(request, self.quota.limits(), |limits| {
            // A relative server URL, so that "Try it out" works under any host name of this server.
            let document = Document::new(&self.urls.base_path(), &self.urls, *limits, self.ietf);
            let top = top(&self.urls, "API explorer");
            with_headers(swagger::page("API explorer · IP Lookup", &top, &document.json()))
        })
    }

    fn json(&self, request: &Request) -> Response {
        let render = |limits: &_| file("application/json", self.document(*limits).json());
        self.json.respond(request, self.quota.limits(), render)
    }

    fn yaml(&self, request: &Request) -> Response {
        let render = |limits: &_| file("application/yaml", self.document(*limits).yaml());
        self.yaml.respond(request, self.quota.limits(), render)
    }

    fn document(&self, limits: Option<Limits>) -> Document {
        Document::new(&self.urls.base, &self.urls, limits, self.ietf)
    }
}

/// A page that is rendered when it is first requested, and again when its content has changed.
struct LivePage<C> {
    /// What the current page was rendered from.
    current: Mutex<Option<(C, StaticFile)>>,
}

impl<C> Default for LivePage<C> {
    fn default() -> Self {
        Self { current: Mutex::new(None) }
    }
}

impl<C: PartialEq> LivePage<C> {
    fn respond(&self, request: &Request, content: C, render: impl FnOnce(&C) -> StaticFile) -> Response {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match current.take().filter(|(rendered, _)| *rendered == content) {
            Some((_, page)) => page,
            None => render(&content),
        };
        let response = page.respond(request);
        *current = Some((content, page));
        response
    }
}

/// The header of every page. `current` is the name of the page's own link.
fn top(urls: &PublicUrls, current: &str) -> String {
    let path = urls.base_path();
    let path = path.trim_end_matches('/');
    PageLinks {
        home: &format!("{path}/"),
        docs: &format!("{path}/docs"),
        explorer: &format!("{path}/swagger"),
        dashboard: &urls.dashboard,
    }
    .header(current)
}

/// Whether the client prefers HTML: its Accept header names it. A browser's does; those of curl, wget and scripts do not.
pub fn accepts_html(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(header::ACCEPT).into_iter().filter_map(|accept| accept.to_str().ok());
    let mut types = ranges.flat_map(|ranges| ranges.split(',')).map(|range| range.split(';').next());
    types.any(|name| name.is_some_and(|name| name.trim().eq_ignore_ascii_case("text/html")))
}

/// A file that browsers may store but must check for changes before each use.
fn file(content_type: &'static str, text: String) -> StaticFile {
    StaticFile::new(content_type, text).header(header::CACHE_CONTROL, "no-cache")
}

/// An HTML page with a content security policy.
fn html(text: String, policy: &str) -> StaticFile {
    let page = StaticFile::new("text/html; charset=utf-8", text);
    with_headers(page.header(header::CONTENT_SECURITY_POLICY, policy))
}

/// The headers that all HTML pages have in common, besides their content security policies.
const SECURITY_HEADERS: [(HeaderName, HeaderValue); 2] = [
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// Adds the headers of HTML pages.
fn with_headers(page: StaticFile) -> StaticFile {
    let page = page.header(header::CACHE_CONTROL, "no-cache");
    SECURITY_HEADERS
        .iter()
        .fold(page, |page, (name, value)| page.header(name.clone(), value.to_str().unwrap_or_default()))
}
