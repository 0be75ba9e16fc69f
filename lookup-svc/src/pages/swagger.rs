//! Swagger UI: poem-openapi's bundle in our own page, whose content security policy allows no other script.

use service_kit::{StaticFile, csp_hash};

use super::page;
use crate::api::Document;

const TEMPLATE: &str = include_str!("swagger.html");
const START: &str = include_str!("swagger.js");

/// Renders the page with the OpenAPI document embedded.
pub(super) fn page(document: &Document) -> StaticFile {
    let original = document.swagger_ui();
    let style = between(&original, r#"<style charset="UTF-8">"#, "</style>");
    let bundle = between(&original, r#"<script charset="UTF-8">"#, "</script>");
    // `</script>` in the document would end the script element, so `<` is written as `\u003c`, an escape that JSON
    // allows in any string.
    let start = START.replace("{{document}}", &document.json().trim().replace('<', "\\u003c"));
    let policy = format!(
        "default-src 'none'; script-src {} {}; style-src {}; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        csp_hash(bundle),
        csp_hash(&start),
        csp_hash(style),
    );
    let html =
        TEMPLATE.replace("{{style}}", style).replace("{{start}}", &start).replace("{{bundle}}", bundle);
    page::html(html, &policy)
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> &'t str {
    let rest = text.split_once(open).map_or("", |(_, rest)| rest);
    rest.split_once(close).map_or("", |(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundle_is_found_in_poem_openapi_page() {
        let original = Document::new("/").swagger_ui();
        assert!(between(&original, r#"<script charset="UTF-8">"#, "</script>").len() > 500_000);
        assert!(between(&original, r#"<style charset="UTF-8">"#, "</style>").len() > 50_000);
    }
}
