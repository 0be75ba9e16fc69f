//! Swagger UI: poem-openapi's bundle in our own page, whose content security policy allows no other script.

use http::header;
use poem_openapi::OpenApiService;

use crate::page_header::{LIGHT_THEME, icon_url};
use crate::static_file::{StaticFile, csp_hash};

const TEMPLATE: &str = include_str!("swagger/page.html");
/// Inverts the page in the dark theme: the bundle has only light colors.
const DARK: &str = include_str!("swagger/dark.css");
const START: &str = include_str!("swagger/start.js");

/// Renders the page with this title, this HTML above the UI, and this OpenAPI document embedded.
pub fn page(title: &str, top: &str, document: &str) -> StaticFile {
    let original = OpenApiService::new((), "", "").swagger_ui_html();
    let bundled = between(&original, r#"<style charset="UTF-8">"#, "</style>");
    // Without the theme's dark colors, because DARK inverts the whole page.
    let style = format!("{LIGHT_THEME}{bundled}{DARK}");
    let bundle = between(&original, r#"<script charset="UTF-8">"#, "</script>");
    // `</script>` in the document would end the script element, so `<` is written as `\u003c`, an escape that JSON
    // allows in any string.
    let start = START.replace("{{document}}", &document.trim().replace('<', "\\u003c"));
    let policy = format!(
        "default-src 'none'; script-src {} {}; style-src {}; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        csp_hash(bundle),
        csp_hash(&start),
        csp_hash(&style),
    );
    let html = TEMPLATE.replace("{{title}}", title).replace("{{icon}}", &icon_url());
    let html = html.replace("{{style}}", &style).replace("{{top}}", top);
    let html = html.replace("{{start}}", &start).replace("{{bundle}}", bundle);
    StaticFile::new("text/html; charset=utf-8", html).header(header::CONTENT_SECURITY_POLICY, &policy)
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
        let original = OpenApiService::new((), "", "").swagger_ui_html();
        assert!(between(&original, r#"<script charset="UTF-8">"#, "</script>").len() > 500_000);
        assert!(between(&original, r#"<style charset="UTF-8">"#, "</style>").len() > 50_000);
    }

    #[tokio::test]
    async fn every_inline_element_is_hashed() {
        let response = page("t", "", r#"{"a": "</script>"}"#).respond(&poem::Request::default());
        let policy = response.headers()["content-security-policy"].to_str().expect("text").to_owned();
        let html = response.into_body().into_string().await.expect("UTF-8");
        let mut rest = html.as_str();
        for tag in ["style", "script", "script"] {
            let (_, element) = rest.split_once(&format!("<{tag}>")).expect("a start tag");
            let (content, next) = element.split_once(&format!("</{tag}>")).expect("an end tag");
            assert!(policy.contains(&csp_hash(content)), "{tag}");
            rest = next;
        }
        assert!(!rest.contains("<script"), "{rest}");
    }
}
