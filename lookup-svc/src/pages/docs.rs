//! The documentation page.

use poem::{Request, Response};
use service_kit::{StaticFile, csp_hash};

use super::page::{self, escape};
use crate::fields::{FIELDS, Field, FieldSet};
use crate::geo::{Attribution, Geo, asn};
use crate::public_urls::PublicUrls;

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");

/// The documentation page, rendered again when the attributions of the geo data change.
pub(super) struct Docs {
    /// The page without its attributions.
    template: String,
    policy: String,
    geo: Geo,
    /// The current page and the attributions in it.
    current: std::sync::Mutex<(Vec<Attribution>, StaticFile)>,
}

impl Docs {
    pub(super) fn new(urls: &PublicUrls, geo: Geo) -> Self {
        let policy = format!(
            "default-src 'none'; style-src {}; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            csp_hash(STYLE)
        );
        let template = fill(urls);
        let attributions = geo.attributions();
        let page = page::html(template.replace("{{attributions}}", &list(&attributions)), &policy);
        Self { template, policy, geo, current: (attributions, page).into() }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        let attributions = self.geo.attributions();
        let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.0 != attributions {
            let html = self.template.replace("{{attributions}}", &list(&attributions));
            *current = (attributions, page::html(html, &self.policy));
        }
        current.1.respond(request)
    }
}

/// Fills in every placeholder except the attributions.
fn fill(urls: &PublicUrls) -> String {
    let example: Vec<_> =
        FIELDS.iter().map(|field| format!("  \"{}\": {}", field.name, field.example)).collect();
    TEMPLATE
        .replace("{{style}}", STYLE)
        .replace("{{fields}}", &FIELDS.iter().map(row).collect::<String>())
        .replace("{{example}}", &escape(&format!("{{\n{}\n}}", example.join(",\n"))))
        .replace("{{lists_date}}", asn::built_in_date())
        .replace("{{base}}", &escape(&urls.base))
        .replace("{{docs}}", &escape(&urls.docs))
        .replace("{{dashboard}}", &escape(&urls.dashboard))
        .replace("{{signup}}", &escape(&urls.signup))
}

fn row(field: &Field) -> String {
    let scope = format!("{:?}", field.scope).to_lowercase();
    let demo = if FieldSet::Demo.contains(field) { "yes" } else { "" };
    format!(
        "<tr><td><code>{}</code></td><td>{}</td><td><span class=\"scope {scope}\">{scope}</span></td><td>{demo}</td><td>{}</td></tr>\n",
        field.name,
        field.ty.name(),
        escape(field.description),
    )
}

fn list(attributions: &[Attribution]) -> String {
    if attributions.is_empty() {
        return "<p>No third-party geo data is loaded.</p>".to_owned();
    }
    let item = |attribution: &Attribution| {
        format!("<li><a href=\"{}\">{}</a></li>", escape(attribution.url), escape(attribution.text))
    };
    format!("<ul>{}</ul>", attributions.iter().map(item).collect::<String>())
}
