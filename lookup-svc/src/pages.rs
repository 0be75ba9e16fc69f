//! The pages: the home page, and those about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod home;
mod page;
mod template;

use std::sync::Arc;

use poem::{Route, get};
use service_kit::{named, swagger};

use crate::api::Document;
use crate::lookup::Lookup;
use crate::public_urls::PublicUrls;

use docs::Docs;
use home::Home;

/// Renders pages that link to `urls`. The home page is rendered for each request. The documentation page is rendered
/// again when the geo data changes, which it describes.
pub fn routes(urls: &PublicUrls, lookup: Arc<Lookup>) -> Route {
    let docs = Docs::new(urls, lookup.geo.clone());
    let home = Home::new(lookup, urls);
    let map = page::new("image/svg+xml", home::MAP.to_owned());
    // Its document has a relative server URL, so that "Try it out" works under any host name of this server.
    let swagger = swagger::page("IP Lookup API: try it", &Document::new(&urls.base_path()).json());
    let swagger = page::with_headers(swagger);
    let document = Document::new(&urls.base);
    let json = page::new("application/json", document.json());
    let yaml = page::new("application/yaml", document.yaml());
    Route::new()
        .at("/", get(named("home", move |request| home.respond(request))))
        .at(home::MAP_PATH, get(named("world_map", move |request| map.respond(request))))
        .at("/docs", get(named("docs", move |request| docs.respond(request))))
        .at("/swagger", get(named("swagger", move |request| swagger.respond(request))))
        .at("/openapi.json", get(named("openapi_json", move |request| json.respond(request))))
        .at("/openapi.yaml", get(named("openapi_yaml", move |request| yaml.respond(request))))
}
