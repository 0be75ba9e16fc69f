//! The documentation page: what the API offers and what each error means.

use poem::{Request, Response};

use super::page::{Page, escape, hash};
use crate::fields::{FIELDS, Field, View};
use crate::geo::{Attribution, Geo};
use crate::links::Links;

const TEMPLATE: &str = include_str!("docs.html");
const STYLE: &str = include_str!("docs.css");

/// The page and what it needs to stay right: the geo data's credits change with the data.
pub(super) struct Docs {
    text: String,
    policy: String,
    geo: Geo,
    current: std::sync::Mutex<(Vec<Attribution>, Page)>,
}

impl std::fmt::Debug for Docs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Docs").finish_non_exhaustive()
    }
}

impl Docs {
    pub(super) fn new(links: &Links, geo: Geo) -> Self {
        let policy = format!(
            "default-src 'none'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            hash(STYLE)
        );
        let text = fill(links);
        let credits = geo.attributions();
        let page = Page::html(text.replace("{{credits}}", &list(&credits)), &policy);
        Self { text, policy, geo, current: (credits, page).into() }
    }

    pub(super) fn answer(&self, request: &Request) -> Response {
        let credits = self.geo.attributions();
        let mut current = self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if current.0 != credits {
            let page = Page::html(self.text.replace("{{credits}}", &list(&credits)), &self.policy);
            *current = (credits, page);
        }
        current.1.answer(request)
    }
}

/// Everything but the credits.
fn fill(links: &Links) -> String {
    let example: Vec<_> =
        FIELDS.iter().map(|field| format!("  \"{}\": {}", field.name, field.example)).collect();
    TEMPLATE
        .replace("{{style}}", STYLE)
        .replace("{{fields}}", &FIELDS.iter().map(row).collect::<String>())
        .replace("{{example}}", &escape(&format!("{{\n{}\n}}", example.join(",\n"))))
        .replace("{{base}}", &escape(&links.base))
        .replace("{{docs}}", &escape(&links.docs))
        .replace("{{dashboard}}", &escape(&links.dashboard))
        .replace("{{signup}}", &escape(&links.signup))
}

fn row(field: &Field) -> String {
    let scope = format!("{:?}", field.scope).to_lowercase();
    let demo = if View::Demo.shows(field) { "yes" } else { "" };
    format!(
        "<tr><td><code>{}</code></td><td>{}</td><td><span class=\"scope {scope}\">{scope}</span></td><td>{demo}</td><td>{}</td></tr>\n",
        field.name,
        field.ty.name(),
        escape(field.meaning),
    )
}

fn list(credits: &[Attribution]) -> String {
    if credits.is_empty() {
        return "<p>No third-party geo data is loaded.</p>".to_owned();
    }
    let line = |credit: &Attribution| {
        format!("<li><a href=\"{}\">{}</a></li>", escape(credit.url), escape(credit.text))
    };
    format!("<ul>{}</ul>", credits.iter().map(line).collect::<String>())
}
