//! The pages about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod page;

use poem::web::Redirect;
use poem::{IntoResponse, Route, get};
use service_kit::{named, swagger};

use crate::api::Document;
use crate::geo::Geo;
use crate::public_urls::PublicUrls;

use docs::Docs;

/// Renders pages that link to `urls`; `geo` provides what the documentation page says about the geo data; the page is
/// rendered again when that changes.
pub fn routes(urls: &PublicUrls, geo: Geo) -> Route {
    let index_target = format!("{}/docs", urls.base_path().trim_end_matches('/'));
    let docs = Docs::new(urls, geo);
    // Its document has a relative server URL, so that "Try it out" works under any host name of this server.
    let swagger = swagger::page("IP Lookup API: try it", &Document::new(&urls.base_path()).json());
    let swagger = page::with_headers(swagger);
    let document = Document::new(&urls.base);
    let json = page::new("application/json", document.json());
    let yaml = page::new("application/yaml", document.yaml());
    Route::new()
        .at("/", get(named("index", move |_| Redirect::temporary(&index_target).into_response())))
        .at("/docs", get(named("docs", move |request| docs.respond(request))))
        .at("/swagger", get(named("swagger", move |request| swagger.respond(request))))
        .at("/openapi.json", get(named("openapi_json", move |request| json.respond(request))))
        .at("/openapi.yaml", get(named("openapi_yaml", move |request| yaml.respond(request))))
}
