//! Swagger UI: poem-openapi's bundle in a page of ours, which may run nothing but that.

use super::page::{Page, hash};
use crate::api::Document;

const TEMPLATE: &str = include_str!("swagger.html");
const START: &str = include_str!("swagger.js");

/// The page, with the document inside.
pub(super) fn page(document: &Document) -> Page {
    let whole = document.swagger_ui();
    let style = between(&whole, r#"<style charset="UTF-8">"#, "</style>");
    let bundle = between(&whole, r#"<script charset="UTF-8">"#, "</script>");
    // In a script `<` could end it; in JSON it may be written like this everywhere.
    let start = START.replace("{{document}}", &document.json().trim().replace('<', "\\u003c"));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}' 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(bundle),
        hash(&start),
        hash(style),
    );
    let html =
        TEMPLATE.replace("{{style}}", style).replace("{{start}}", &start).replace("{{bundle}}", bundle);
    Page::html(html, &policy)
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> &'t str {
    let rest = text.split_once(open).map_or("", |(_, rest)| rest);
    rest.split_once(close).map_or("", |(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_found_in_the_framework_s_page() {
        let whole = Document::new("/").swagger_ui();
        assert!(between(&whole, r#"<script charset="UTF-8">"#, "</script>").len() > 500_000);
        assert!(between(&whole, r#"<style charset="UTF-8">"#, "</style>").len() > 50_000);
    }
}
