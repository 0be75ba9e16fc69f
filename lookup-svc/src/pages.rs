//! The pages: the home page, and those about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod home;

use std::sync::{Arc, Mutex, PoisonError};

use geo::{DatabaseInfo, Geo};
use http::{HeaderMap, StatusCode, header};
use poem::error::NotFoundError;
use poem::{Endpoint, EndpointExt, Request, Response, Result, Route, get};
use serde_json::json;
use service_kit::openapi::OpenApiDocument;
use service_kit::{ICON, PageLinks, StaticFile, THEME, csp_hash, escape, icon_url, named, swagger};

use crate::api::document;
use crate::lookup::Backends;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

use home::{Home, View};

/// Crawlers may read the pages. A lookup of their own address is of no use to them.
const ROBOTS: &str = "User-agent: *\nDisallow: /api/\nDisallow: /ip\n";

/// Pages that link to `urls`. The home page is rendered for each request. The others are rendered again when the geo data
/// or the limits in `quota` change, which they describe. `ietf`: whether the headers of
/// the IETF draft are sent, which they describe, too.
pub fn routes(
    urls: &PublicUrls,
    backends: Arc<Backends>,
    quota: &QuotaStatus,
    ietf: bool,
) -> impl Endpoint<Output = Response> + use<> {
    let geo = backends.geo.clone();
    let docs = docs::page(urls.clone(), geo.clone(), quota.clone(), ietf);
    let home = Arc::new(Home::new(backends, urls));
    let view = |id, view| {
        let home = home.clone();
        get(named(id, move |request| home.respond(request, view)))
    };
    let file = |id, content_type, text: &'static str| {
        let file = file(content_type, text.to_owned());
        get(named(id, move |request| file.respond(request)))
    };
    let described = |id, server: &str, render| {
        get(named(id, describing_api(server.to_owned(), urls.clone(), quota.clone(), ietf, render)))
    };
    let not_found = Arc::new(not_found(urls));
    let routes = Route::new()
        .at("/", view("home", View::Home))
        .at("/ip", view("ip", View::Address))
        .at("/example", view("example", View::Example))
        .at(home::MAP_PATH, file("world_map", "image/svg+xml", home::MAP))
        .at("/favicon.ico", file("icon", "image/svg+xml", ICON))
        .at("/robots.txt", file("robots", "text/plain; charset=utf-8", ROBOTS))
        .at("/docs", get(named("docs", docs)))
        .at("/geo-data.json", get(named("geo_data", move |_| geo_data(&geo))))
        // A relative server URL, so that "Try it out" works under any host name of this server.
        .at("/swagger", described("swagger", &urls.base_path(), swagger_ui))
        .at("/openapi.json", described("openapi_json", &urls.base, openapi_json))
        .at("/openapi.yaml", described("openapi_yaml", &urls.base, openapi_yaml));
    routes.around(move |routes, request| with_html_404(routes, request, not_found.clone()))
}

/// Responds with a page if the path does not exist and the client accepts HTML.
async fn with_html_404(routes: Arc<Route>, request: Request, page: Arc<StaticFile>) -> Result<Response> {
    let accepts_html = accepts_html(request.headers());
    match routes.call(request).await {
        Err(error) if accepts_html && error.is::<NotFoundError>() => {
            // Without the request's headers: a 404 is never 304.
            let mut response = page.respond(&Request::default());
            response.set_status(StatusCode::NOT_FOUND);
            Ok(response)
        }
        result => result,
    }
}

/// The page for a path that does not exist.
fn not_found(urls: &PublicUrls) -> StaticFile {
    const STYLE: &str = "main { max-width: 1080px; margin: 0 auto; padding: 24px; }";
    let style = [THEME, STYLE].concat();
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Not found · IP Lookup</title>\n\
         <link rel=\"icon\" href=\"{}\" type=\"image/svg+xml\">\n<style>{style}</style>\n</head>\n<body>\n{}\n<main>\n\
         <h1>This page does not exist</h1>\n<p>Check the address, or start at the <a href=\"{}\">home page</a>.</p>\n\
         </main>\n</body>\n</html>\n",
        icon_url(),
        top(urls, ""),
        escape(&urls.path_to("/")),
    );
    html(text, &policy(&style, "img-src data:"))
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

/// Responds with a page that is rendered from the OpenAPI document, which states the limits of quota-svc. `server` is the
/// API's URL in the document.
fn describing_api(
    server: String,
    urls: PublicUrls,
    quota: QuotaStatus,
    ietf: bool,
    render: fn(&PublicUrls, &OpenApiDocument) -> StaticFile,
) -> impl Fn(&Request) -> Response + Send + Sync {
    live(move || quota.limits(), move |limits| render(&urls, &document(&server, &urls, *limits, ietf)))
}

fn openapi_json(_: &PublicUrls, document: &OpenApiDocument) -> StaticFile {
    file("application/json", document.json())
}

fn openapi_yaml(_: &PublicUrls, document: &OpenApiDocument) -> StaticFile {
    file("application/yaml", document.yaml())
}

fn swagger_ui(urls: &PublicUrls, document: &OpenApiDocument) -> StaticFile {
    let top = top(urls, "API explorer");
    with_headers(swagger::page("API explorer · IP Lookup", &top, &document.json()))
}

/// Responds with a page that is rendered when it is first requested, and again when its content has changed.
fn live<C: PartialEq + Send>(
    content: impl Fn() -> C + Send + Sync,
    render: impl Fn(&C) -> StaticFile + Send + Sync,
) -> impl Fn(&Request) -> Response + Send + Sync {
    let current = Mutex::new(None);
    move |request| {
        let content = content();
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        let page = match current.take() {
            Some((rendered, page)) if rendered == content => page,
            _ => render(&content),
        };
        let (_, page) = current.insert((content, page));
        page.respond(request)
    }
}

/// Fills each `{{name}}` of a template. All in one pass, so that a value that looks like a slot stays as it is.
fn fill<V: AsRef<str>>(template: &str, value: impl Fn(&str) -> V) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some((before, (name, after))) =
        rest.split_once("{{").and_then(|(before, slot)| Some((before, slot.split_once("}}")?)))
    {
        text.push_str(before);
        text.push_str(value(name).as_ref());
        rest = after;
    }
    text + rest
}

/// The header of every page. `current` is the name of the page's own link.
fn top(urls: &PublicUrls, current: &str) -> String {
    PageLinks {
        home: &urls.path_to("/"),
        docs: &urls.path_to("/docs"),
        explorer: &urls.path_to("/swagger"),
        dashboard: &urls.dashboard,
    }
    .header(current)
}

/// Whether the client prefers HTML: its Accept header names it. A browser's does; those of curl, wget and scripts do not.
fn accepts_html(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(header::ACCEPT).into_iter().filter_map(|accept| accept.to_str().ok());
    let mut types = ranges.flat_map(|ranges| ranges.split(',')).map(|range| range.split(';').next());
    types.any(|name| name.is_some_and(|name| name.trim().eq_ignore_ascii_case("text/html")))
}

/// A file that browsers may store but must check for changes before each use.
fn file(content_type: &'static str, text: String) -> StaticFile {
    StaticFile::new(content_type, text).header(header::CACHE_CONTROL, "no-cache")
}

/// A content security policy that allows this style sheet and what `more` says.
fn policy(style: &str, more: &str) -> String {
    let style = csp_hash(style);
    format!(
        "default-src 'none'; style-src {style}; {more}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// An HTML page with a content security policy.
fn html(text: String, policy: &str) -> StaticFile {
    let page = StaticFile::new("text/html; charset=utf-8", text);
    with_headers(page.header(header::CONTENT_SECURITY_POLICY, policy))
}

/// Adds the headers of HTML pages, besides their content security policies.
fn with_headers(page: StaticFile) -> StaticFile {
    page.header(header::CACHE_CONTROL, "no-cache")
        .header(header::REFERRER_POLICY, "no-referrer")
        .header(header::X_FRAME_OPTIONS, "DENY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_that_looks_like_a_slot_is_not_filled() {
        let text = fill("a {{one}}, {{two}}; {{open", |name| match name {
            "one" => "{{two}}".to_owned(),
            name => format!("<{name}> {{{{one}}}}"),
        });
        assert_eq!(text, "a {{two}}, <two> {{one}}; {{open");
    }
}
