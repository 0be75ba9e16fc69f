//! The pages: the home page, and those about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod documents;
mod home;
mod page;
mod template;

use std::sync::Arc;

use poem::{Route, get};
use service_kit::named;

use crate::lookup::Backends;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

use docs::Docs;
use documents::Documents;
use home::Home;

/// Pages that link to `urls`. The home page is rendered for each request. The others are rendered again when the geo data
/// or the limits in `quota` change, which they describe. `ietf`: whether the headers of
/// the IETF draft are sent, which they describe, too.
pub fn routes(urls: &PublicUrls, backends: Arc<Backends>, quota: QuotaStatus, ietf: bool) -> Route {
    let docs = Docs::new(urls, backends.geo.clone(), quota.clone(), ietf);
    let home = Home::new(backends, urls);
    let map = page::new("image/svg+xml", home::MAP.to_owned());
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
