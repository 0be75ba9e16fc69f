//! The documentation page.

use poem::{Request, Response};
use quota_client::wire::{Limits, Scope};
use service_kit::csp_hash;

use super::page::{self, LivePage, escape};
use crate::fields::{FIELDS, Field, FieldSet};
use crate::geo::{Attribution, Geo, asn};
use crate::limits::{QuotaLimits, grouped};
use crate::lookup::unix_now;
use crate::public_urls::PublicUrls;

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");
const SCRIPT: &str = include_str!("docs.js");

/// The documentation page, rendered again when the geo data changes or is a day older, and when the limits change.
pub(super) struct Docs {
    /// The page without what it says about the geo data and the limits.
    template: String,
    policy: String,
    geo: Geo,
    limits: QuotaLimits,
    page: LivePage<(String, Option<Limits>)>,
}

impl Docs {
    pub(super) fn new(urls: &PublicUrls, geo: Geo, limits: QuotaLimits) -> Self {
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            csp_hash(STYLE),
            csp_hash(SCRIPT),
        );
        Self { template: fill(urls), policy, geo, limits, page: LivePage::default() }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        let content = (about_data(&self.geo), self.limits.current());
        self.page.respond(request, content, |(about_data, limits)| {
            let html = fill_limits(&self.template, *limits).replace("{{about_data}}", about_data);
            page::html(html, &self.policy)
        })
    }
}

/// Fills in every placeholder except those of the geo data and the limits.
fn fill(urls: &PublicUrls) -> String {
    TEMPLATE
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{fields}}", &FIELDS.iter().map(row).collect::<String>())
        .replace("{{example}}", &escape(&FieldSet::Scope(Scope::Full).example()))
        .replace("{{lists_date}}", asn::built_in_date())
        .replace("{{base}}", &escape(&urls.base))
        .replace("{{docs}}", &escape(&urls.docs))
        .replace("{{dashboard}}", &escape(&urls.dashboard))
        .replace("{{signup}}", &escape(&urls.signup))
}

/// States the limits or, if they are unknown, where to find them.
fn fill_limits(template: &str, limits: Option<Limits>) -> String {
    let [daily, burst, demo, burst_within] = match limits {
        Some(Limits { daily, burst, demo }) => [
            format!(
                "{} requests per day per key, unless the operator has set another limit for the key",
                grouped(daily)
            ),
            format!("{} requests within 60 seconds per key", grouped(burst)),
            format!("{} requests per day, shared by all callers", grouped(demo)),
            format!("more than {} requests within 60 seconds", grouped(burst)),
        ],
        None => [
            "per day and key: see <code>X-RateLimit-Limit</code>".to_owned(),
            "within 60 seconds, per key: see <code>X-RateLimit-Limit</code> of the 429 response".to_owned(),
            "per day, shared by all callers: see <code>X-RateLimit-Limit</code>".to_owned(),
            "too many requests within 60 seconds".to_owned(),
        ],
    };
    template
        .replace("{{daily_limit}}", &daily)
        .replace("{{burst_limit}}", &burst)
        .replace("{{demo_limit}}", &demo)
        .replace("{{burst_within}}", &burst_within)
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
