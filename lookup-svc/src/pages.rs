//! The pages: the home page, and those about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod home;
mod template;

use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderName, HeaderValue, header};
use poem::{Request, Response, Route, get};
use quota_client::wire::Limits;
use service_kit::{StaticFile, named, swagger};

use crate::api::Document;
use crate::lookup::Backends;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

use docs::Docs;
use home::Home;

/// Pages that link to `urls`. The home page is rendered for each request. The others are rendered again when the geo data
/// or the limits in `quota` change, which they describe. `ietf`: whether the headers of
/// the IETF draft are sent, which they describe, too.
pub fn routes(urls: &PublicUrls, backends: Arc<Backends>, quota: QuotaStatus, ietf: bool) -> Route {
    let docs = Docs::new(urls, backends.geo.clone(), quota.clone(), ietf);
    let home = Home::new(backends, urls);
    let map = file("image/svg+xml", home::MAP.to_owned());
    let swagger = Arc::new(Documents::new(urls, quota, ietf));
    let (json, yaml) = (swagger.clone(), swagger.clone());
    Route::new()
        .at("/", get(named("home", move |request| home.respond(request))))
        .at(home::MAP_PATH, get(named("world_map", move |request| map.respond(request))))
        .at("/docs", get(named("docs", move |request| docs.respond(request))))
        .at("/swagger", get(named("swagger", move |request| swagger.swagger(request))))
        .at("/openapi.json", get(named("openapi_json", move |request| json.json(request))))
        .at("/openapi.yaml", get(named("openapi_yaml", move |request| yaml.yaml(request))))
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
            with_headers(swagger::page("IP Lookup API: try it", &document.json()))
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

/// Escapes text for HTML elements and attribute values.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}
