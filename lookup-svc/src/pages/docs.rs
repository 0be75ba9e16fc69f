//! The documentation page.

use geo::{Attribution, Field, Geo, asn};
use poem::{Request, Response};
use quota_client::wire::{Limits, Scope};
use service_kit::{THEME, csp_hash, escape, icon_url};

use super::template::Template;
use super::{LivePage, html, top};
use crate::fields::{FieldGroup, FieldSet, GROUPS};
use crate::lookup::unix_now;
use crate::public_urls::PublicUrls;
use crate::quota_status::{QuotaStatus, grouped};

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");
const SCRIPT: &str = include_str!("docs.js");

/// The documentation page, rendered again when the geo data changes or is a day older, and when the limits change.
pub(super) struct Docs {
    /// The page without what it says about the geo data and the limits.
    template: Template,
    policy: String,
    geo: Geo,
    quota: QuotaStatus,
    page: LivePage<(String, Option<Limits>)>,
}

impl Docs {
    pub(super) fn new(urls: &PublicUrls, geo: Geo, quota: QuotaStatus, ietf: bool) -> Self {
        let policy = format!(
            "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            csp_hash(&[THEME, STYLE].concat()),
            csp_hash(SCRIPT),
        );
        let template = Template::new(TEMPLATE).fill(|slot| static_slot(slot, urls, ietf));
        Self { template, policy, geo, quota, page: LivePage::default() }
    }

    pub(super) fn respond(&self, request: &Request) -> Response {
        let content = (about_data(&self.geo), self.quota.limits());
        self.page.respond(request, content, |(about_data, limits)| {
            let text = self.template.render(|slot| match slot {
                "about_data" => about_data.clone(),
                limit => limit_text(limit, *limits),
            });
            html(text, &self.policy)
        })
    }
}

/// Values of the slots that never change.
fn static_slot(slot: &str, urls: &PublicUrls, ietf: bool) -> Option<String> {
    Some(match slot {
        "style" => [THEME, STYLE].concat(),
        "icon_url" => icon_url(),
        "top" => top(urls, "Docs"),
        "script" => SCRIPT.to_owned(),
        "fields" => GROUPS.iter().map(rows).collect(),
        "draft_headers" => if ietf { DRAFT_HEADERS } else { "" }.to_owned(),
        "example" => escape(&FieldSet::Scope(Scope::Full).example()),
        "lists_date" => asn::built_in_date().to_owned(),
        "base" => escape(&urls.base),
        "docs" => escape(&urls.docs),
        "dashboard" => escape(&urls.dashboard),
        "signup" => escape(&urls.signup),
        _ => return None,
    })
}

/// States a limit or, if it is unknown, where to find it.
fn limit_text(slot: &str, limits: Option<Limits>) -> String {
    match (slot, limits) {
        ("daily_limit", Some(Limits { daily, .. })) => {
            let daily = grouped(daily);
            format!("{daily} requests per day per key, unless the operator has set another limit for the key")
        }
        ("burst_limit", Some(Limits { burst, .. })) => {
            format!("{} requests within 60 seconds per key", grouped(burst))
        }
        ("demo_limit", Some(Limits { demo, .. })) => {
            format!("{} requests per day, shared by all callers", grouped(demo))
        }
        ("burst_within", Some(Limits { burst, .. })) => {
            format!("more than {} requests within 60 seconds", grouped(burst))
        }
        ("daily_limit", None) => "per day and key: see <code>X-RateLimit-Limit</code>".to_owned(),
        ("burst_limit", None) => {
            "within 60 seconds, per key: see <code>X-RateLimit-Limit</code> of the 429 response".to_owned()
        }
        ("demo_limit", None) => {
            "per day, shared by all callers: see <code>X-RateLimit-Limit</code>".to_owned()
        }
        ("burst_within", None) => "too many requests within 60 seconds".to_owned(),
        _ => String::new(),
    }
}

/// Rows of the table of headers.
const DRAFT_HEADERS: &str = r#"<tr><td><code>RateLimit</code></td><td>requests left (<code>r</code>) and seconds until the limit resets (<code>t</code>), in the format of the Internet-Draft <a href="https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11">draft-ietf-httpapi-ratelimit-headers-11</a>: <code>"daily";r=9876;t=3600</code> means 9,876 requests left for the next 3,600 seconds</td></tr>
<tr><td><code>RateLimit-Policy</code></td><td>the daily limit (<code>q</code>) and its window in seconds (<code>w</code>), in the same format; on 429, the limit that was exceeded</td></tr>
"#;

fn rows(group: &FieldGroup) -> String {
    let scope = group.scope.as_str();
    let demo = if group.in_demo { "yes" } else { "" };
    let row = |field: &Field| {
        format!(
            "<tr><td><code>{}</code></td><td data-label=\"Type\">{}</td>\
             <td data-label=\"Scope\"><span class=\"scope {scope}\">{scope}</span></td>\
             <td data-label=\"In demo\">{demo}</td><td>{}</td></tr>\n",
            field.name,
            field.ty.as_str(),
            // A caller does not know the operator's edge.
            escape(&field.description.replace("the edge network", "the server")),
        )
    };
    group.fields.iter().map(row).collect()
}

/// Which geo data is in use, its age, and the attributions that it requires.
fn about_data(geo: &Geo) -> String {
    let age = geo.built_in_age(unix_now());
    let use_of_built_in = match geo.only_built_in() {
        true => {
            "Only the built-in country data is in use: it has the country of almost every public address, but \
             no cities, coordinates or networks. It is dated"
        }
        false => {
            "Where no other database has the country of an address, it comes from the built-in country data, dated"
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
