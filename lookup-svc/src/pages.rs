//! Pages about the API: documentation, Swagger UI and the OpenAPI document.

mod docs;
mod page;

use poem::endpoint::make_sync;
use poem::web::Redirect;
use poem::{Endpoint, EndpointExt, IntoResponse, Response, Route, get};
use service_kit::{OperationName, StaticFile, swagger};

use crate::api::Document;
use crate::geo::Geo;
use crate::public_urls::PublicUrls;

use docs::Docs;

/// All pages, rendered at startup. The documentation page is rendered again when its attributions change.
#[derive(Debug)]
pub struct Pages {
    docs: Docs,
    swagger: StaticFile,
    json: StaticFile,
    yaml: StaticFile,
    /// Where `/` redirects to.
    index_target: String,
}

impl Pages {
    /// Renders pages that link to `urls`; `geo` provides the attributions of the documentation page.
    pub fn new(urls: &PublicUrls, geo: Geo) -> Self {
        let document = Document::new(&urls.base);
        Self {
            docs: Docs::new(urls, geo),
            // Its document has a relative server URL, so that "Try it out" works under any host name of this server.
            swagger: page::with_headers(swagger::page(
                "IP Lookup API: try it",
                &Document::new(&urls.base_path()).json(),
            )),
            json: page::new("application/json", document.json()),
            yaml: page::new("application/yaml", document.yaml()),
            index_target: format!("{}/docs", urls.base_path().trim_end_matches('/')),
        }
    }

    pub fn routes(self) -> Route {
        let Self { docs, swagger, json, yaml, index_target } = self;
        Route::new()
            .at(
                "/",
                get(named("index", make_sync(move |_| Redirect::temporary(&index_target).into_response()))),
            )
            .at("/docs", get(named("docs", make_sync(move |request| docs.respond(&request)))))
            .at("/swagger", get(named("swagger", make_sync(move |request| swagger.respond(&request)))))
            .at("/openapi.json", get(named("openapi_json", make_sync(move |request| json.respond(&request)))))
            .at("/openapi.yaml", get(named("openapi_yaml", make_sync(move |request| yaml.respond(&request)))))
    }
}

/// Sets the operation name of a page for metrics.
fn named(
    name: &'static str,
    page: impl Endpoint<Output = Response> + 'static,
) -> impl Endpoint<Output = Response> {
    page.after(move |result: poem::Result<Response>| async move {
        let mut response = result?;
        response.set_data(OperationName(name));
        Ok::<_, poem::Error>(response)
    })
}
