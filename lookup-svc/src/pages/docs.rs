//! The documentation page.

use poem::{Request, Response};
use service_kit::{StaticFile, csp_hash};

use super::page::{self, escape};
use crate::fields::{FIELDS, Field, FieldSet};
use crate::geo::{Attribution, Geo, asn};
use crate::lookup::unix_now;
use crate::public_urls::PublicUrls;

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");

/// The documentation page, rendered again when the geo data changes or is a day older.
pub(super) struct Docs {
    /// The page without what it says about the geo data.
    template: String,
    policy: String,
    geo: Geo,
    /// The current page and what it says about the geo data.
    current: std::sync::Mutex<(String, StaticFile)>,
}

impl Docs {
    pub(super) fn new(urls: &PublicUrls, geo: Geo) -> Self {
        let policy = format!(
            "default-src 'none'; style-src {}; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            csp_hash(STYLE)
        );
        let template = fill(urls);
        let about_data = about_data(&geo);
        let page = page::html(template.replace("{{about_data}}", &about_data), &policy);
        Self { template, policy, geo, current: (about_data, page).into() }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        let about_data = about_data(&self.geo);
        let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.0 != about_data {
            let html = self.template.replace("{{about_data}}", &about_data);
            *current = (about_data, page::html(html, &self.policy));
        }
        current.1.respond(request)
    }
}

/// Fills in every placeholder except the one of the geo data.
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

/// Which geo data is in use, its age, and the attributions that it requires.
fn about_data(geo: &Geo) -> String {
    let age = geo.built_in_age(unix_now());
    let use_of_built_in = match geo.only_built_in() {
        true => {
            "Only the built-in country data is in use: it has the country of almost every public address, but \
             no cities, coordinates or networks. It is of"
        }
        false => {
            "Where no other database has the country of an address, it comes from the built-in country data, of"
        }
    };
    format!("<p>{use_of_built_in} {age}.</p>\n{}", list(&geo.attributions()))
}

fn list(attributions: &[Attribution]) -> String {
    let item = |attribution: &Attribution| {
        format!("<li><a href=\"{}\">{}</a></li>", escape(attribution.url), escape(attribution.text))
    };
    format!("<ul>{}</ul>", attributions.iter().map(item).collect::<String>())
}
