//! The documentation page.

use geo::{Attribution, Geo, asn};
use poem::{Request, Response};
use quota_client::wire::{Limits, Scope};
use service_kit::csp_hash;

use super::page::{self, LivePage, escape};
use crate::config::RateLimitHeaders;
use crate::fields::{FIELDS, Field, FieldSet};
use crate::lookup::unix_now;
use crate::public_urls::PublicUrls;
use crate::quota_status::{QuotaStatus, grouped};

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");
const SCRIPT: &str = include_str!("docs.js");

/// The documentation page, rendered again when the geo data changes or is a day older, and when the limits change.
pub(super) struct Docs {
    /// The page without what it says about the geo data and the limits.
    template: String,
    policy: String,
    geo: Geo,
    quota: QuotaStatus,
    headers: RateLimitHeaders,
    page: LivePage<(String, Option<Limits>)>,
}

impl Docs {
    pub(super) fn new(urls: &PublicUrls, geo: Geo, quota: QuotaStatus, headers: RateLimitHeaders) -> Self {
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            csp_hash(STYLE),
            csp_hash(SCRIPT),
        );
        Self { template: fill(urls, headers), policy, geo, quota, headers, page: LivePage::default() }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        let content = (about_data(&self.geo), self.quota.limits());
        self.page.respond(request, content, |(about_data, limits)| {
            let html = fill_limits(&self.template, *limits, self.headers);
            let html = html.replace("{{about_data}}", about_data);
            page::html(html, &self.policy)
        })
    }
}

/// Fills in every placeholder except those of the geo data and the limits.
fn fill(urls: &PublicUrls, headers: RateLimitHeaders) -> String {
    let remaining = headers.remaining_header();
    let remaining_unit = match headers {
        RateLimitHeaders::Legacy | RateLimitHeaders::Both => "requests left today",
        RateLimitHeaders::Ietf => "(r: requests left today)",
    };
    TEMPLATE
        .replace("{{style}}", STYLE)
        .replace("{{script}}", SCRIPT)
        .replace("{{fields}}", &FIELDS.iter().map(row).collect::<String>())
        .replace("{{rate_limit_headers}}", &header_rows(headers))
        .replace("{{limit_header}}", headers.limit_header())
        .replace("{{remaining_header}}", remaining)
        .replace("{{remaining_header_lowercase}}", &remaining.to_lowercase())
        .replace("{{remaining_unit}}", remaining_unit)
        .replace("{{example}}", &escape(&FieldSet::Scope(Scope::Full).example()))
        .replace("{{lists_date}}", asn::built_in_date())
        .replace("{{base}}", &escape(&urls.base))
        .replace("{{docs}}", &escape(&urls.docs))
        .replace("{{dashboard}}", &escape(&urls.dashboard))
        .replace("{{signup}}", &escape(&urls.signup))
}

/// States the limits or, if they are unknown, where to find them.
fn fill_limits(template: &str, limits: Option<Limits>, headers: RateLimitHeaders) -> String {
    let header = headers.limit_header();
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
            format!("per day and key: see <code>{header}</code>"),
            format!("within 60 seconds, per key: see <code>{header}</code> of the 429 response"),
            format!("per day, shared by all callers: see <code>{header}</code>"),
            "too many requests within 60 seconds".to_owned(),
        ],
    };
    template
        .replace("{{daily_limit}}", &daily)
        .replace("{{burst_limit}}", &burst)
        .replace("{{demo_limit}}", &demo)
        .replace("{{burst_within}}", &burst_within)
}

/// Rows for the headers with the values of a limit that the service sends.
fn header_rows(headers: RateLimitHeaders) -> String {
    let contract: &[_] = &[
        ("X-RateLimit-Limit", "the daily limit; on 429, the limit that was exceeded"),
        ("X-RateLimit-Remaining", "requests left under this limit"),
        ("X-RateLimit-Reset", "Unix time at which the limit resets"),
    ];
    let draft: &[_] = &[
        (
            "RateLimit",
            "requests left (<code>r</code>) and seconds until the limit resets (<code>t</code>), in the format of the \
             Internet-Draft <a href=\"https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11\">\
             draft-ietf-httpapi-ratelimit-headers-11</a>: <code>\"daily\";r=9876;t=3600</code> means 9,876 requests left \
             for the next 3,600 seconds",
        ),
        (
            "RateLimit-Policy",
            "the daily limit (<code>q</code>) and its window in seconds (<code>w</code>), in the same format; on 429, the \
             limit that was exceeded",
        ),
    ];
    let rows = match headers {
        RateLimitHeaders::Legacy => contract.to_vec(),
        RateLimitHeaders::Ietf => draft.to_vec(),
        RateLimitHeaders::Both => [contract, draft].concat(),
    };
    rows.into_iter()
        .map(|(name, meaning)| format!("<tr><td><code>{name}</code></td><td>{meaning}</td></tr>\n"))
        .collect()
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
