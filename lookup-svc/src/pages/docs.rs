//! The documentation page.

use geo::{Attribution, Field, Geo, asn};
use poem::{Request, Response};
use quota_client::wire::{Limits, Scope};
use service_kit::{THEME, csp_hash, escape, icon_url};

use super::{fill, html, live, policy, top};
use crate::fields::{FieldGroup, FieldSet, GROUPS};
use crate::lookup::unix_now;
use crate::public_urls::PublicUrls;
use crate::quota_status::{QuotaStatus, grouped};

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");
const SCRIPT: &str = include_str!("docs.js");

/// Responds with the documentation page, which is rendered again when the geo data changes or is a day older, and when the
/// limits change.
pub(super) fn page(
    urls: PublicUrls,
    geo: Geo,
    quota: QuotaStatus,
    ietf: bool,
) -> impl Fn(&Request) -> Response + Send + Sync {
    let style = [THEME, STYLE].concat();
    let policy = policy(&style, &format!("script-src {}; img-src data:", csp_hash(SCRIPT)));
    let content = move || (about_data(&geo), quota.limits());
    live(content, move |(about_data, limits)| {
        let text = fill(TEMPLATE, |slot| match slot {
            "style" => style.clone(),
            "icon_url" => icon_url(),
            "top" => top(&urls, "Docs"),
            "script" => SCRIPT.to_owned(),
            "fields" => GROUPS.iter().map(rows).collect(),
            "draft_headers" => if ietf { DRAFT_HEADERS } else { "" }.to_owned(),
            "example" => escape(&FieldSet::Scope(Scope::Full).example()),
            "lists_date" => asn::built_in_date().to_owned(),
            "base" => escape(&urls.base),
            "docs" => escape(&urls.docs),
            "dashboard" => escape(&urls.dashboard),
            "signup" => escape(&urls.signup),
            "about_data" => about_data.clone(),
            limit => limit_text(limit, *limits),
        });
        html(text, &policy)
    })
}

/// States a limit or, if it is unknown, where to find it.
fn limit_text(slot: &str, limits: Option<Limits>) -> String {
    let header = "see <code>X-RateLimit-Limit</code>";
    match (slot, limits) {
        ("daily_limit", Some(limits)) => format!(
            "{} requests per day per key, unless the operator has set another limit for the key",
            grouped(limits.daily)
        ),
        ("burst_limit", Some(limits)) => {
            format!("{} requests within 60 seconds per key", grouped(limits.burst))
        }
        ("demo_limit", Some(limits)) => {
            format!("{} requests per day, shared by all callers", grouped(limits.demo))
        }
        ("burst_within", Some(limits)) => {
            format!("more than {} requests within 60 seconds", grouped(limits.burst))
        }
        ("daily_limit", None) => format!("per day and key: {header}"),
        ("burst_limit", None) => format!("within 60 seconds, per key: {header} of the 429 response"),
        ("demo_limit", None) => format!("per day, shared by all callers: {header}"),
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
