//! The pages about the API: documentation, Swagger UI, the OpenAPI document.

mod docs;
mod page;
mod swagger;

use poem::endpoint::make_sync;
use poem::web::Redirect;
use poem::{Endpoint, EndpointExt, IntoResponse, Response, Route, get};
use service_kit::Operation;

use crate::api::Document;
use crate::geo::Geo;
use crate::links::Links;

use docs::Docs;
use page::Page;

/// All pages, written once at the start.
#[derive(Debug)]
pub struct Pages {
    docs: Docs,
    swagger: Page,
    json: Page,
    yaml: Page,
    index: String,
}

impl Pages {
    /// Pages that point to `links` and give the geo data's makers their credit.
    pub fn new(links: &Links, geo: Geo) -> Self {
        let document = Document::new(&links.base);
        Self {
            docs: Docs::new(links, geo),
            // Try-it-out must reach this server by whatever name the browser knows it.
            swagger: swagger::page(&Document::new(&links.base_path())),
            json: Page::new("application/json", document.json()),
            yaml: Page::new("application/yaml", document.yaml()),
            index: format!("{}/docs", links.base_path().trim_end_matches('/')),
        }
    }

    /// Their routes.
    pub fn routes(self) -> Route {
        let Self { docs, swagger, json, yaml, index } = self;
        Route::new()
            .at("/", get(named("index", make_sync(move |_| Redirect::temporary(&index).into_response()))))
            .at("/docs", get(named("docs", make_sync(move |request| docs.answer(&request)))))
            .at("/swagger", get(named("swagger", make_sync(move |request| swagger.answer(&request)))))
            .at("/openapi.json", get(named("openapi_json", make_sync(move |request| json.answer(&request)))))
            .at("/openapi.yaml", get(named("openapi_yaml", make_sync(move |request| yaml.answer(&request)))))
    }
}

/// The name under which a page is counted.
fn named(
    name: &'static str,
    page: impl Endpoint<Output = Response> + 'static,
) -> impl Endpoint<Output = Response> {
    page.after(move |answer: poem::Result<Response>| async move {
        let mut response = answer?;
        response.set_data(Operation(name));
        Ok::<_, poem::Error>(response)
    })
}
