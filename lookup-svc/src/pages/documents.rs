//! Swagger UI and the OpenAPI document. Both state the limits of quota-svc.

use poem::{Request, Response};
use quota_client::wire::Limits;
use service_kit::swagger;

use super::page::{self, LivePage};
use crate::api::Document;
use crate::public_urls::PublicUrls;
use crate::quota_status::QuotaStatus;

type Page = LivePage<Option<Limits>>;

pub(super) struct Documents {
    urls: PublicUrls,
    quota: QuotaStatus,
    ietf: bool,
    swagger: Page,
    json: Page,
    yaml: Page,
}

impl Documents {
    pub(super) fn new(urls: &PublicUrls, quota: QuotaStatus, ietf: bool) -> Self {
        let (swagger, json, yaml) = Default::default();
        Self { urls: urls.clone(), quota, ietf, swagger, json, yaml }
    }

    pub(super) fn swagger(&self, request: &Request) -> Response {
        self.swagger.respond(request, self.quota.limits(), |limits| {
            // A relative server URL, so that "Try it out" works under any host name of this server.
            let document = Document::new(&self.urls.base_path(), &self.urls, *limits, self.ietf);
            page::with_headers(swagger::page("IP Lookup API: try it", &document.json()))
        })
    }

    pub(super) fn json(&self, request: &Request) -> Response {
        let render = |limits: &_| page::new("application/json", self.document(*limits).json());
        self.json.respond(request, self.quota.limits(), render)
    }

    pub(super) fn yaml(&self, request: &Request) -> Response {
        let render = |limits: &_| page::new("application/yaml", self.document(*limits).yaml());
        self.yaml.respond(request, self.quota.limits(), render)
    }

    fn document(&self, limits: Option<Limits>) -> Document {
        Document::new(&self.urls.base, &self.urls, limits, self.ietf)
    }
}
