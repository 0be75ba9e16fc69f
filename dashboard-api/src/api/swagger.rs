//! Swagger UI: poem-openapi's self-contained page. The content security policy allows its inline code by hash.

use http::header;
use service_kit::{StaticFile, csp_hash};

/// The page with its content security policy.
pub fn page(html: String) -> StaticFile {
    let policy = policy(&html);
    StaticFile::new("text/html; charset=utf-8", html).header(header::CONTENT_SECURITY_POLICY, &policy)
}

/// A content security policy that allows only the page's inline scripts and styles.
fn policy(html: &str) -> String {
    format!(
        "default-src 'none'; script-src {}; style-src {}; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hashes(html, "script"),
        hashes(html, "style")
    )
}

/// Hashes the content of each `tag` element. Returns the hashes in the syntax of a content security policy.
fn hashes(html: &str, tag: &str) -> String {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let mut found = Vec::new();
    let mut rest = html;
    while let Some((_, after)) = rest.split_once(&open) {
        let Some((content, next)) = after.split_once('>').and_then(|(_, content)| content.split_once(&close))
        else {
            break;
        };
        found.push(csp_hash(content));
        rest = next;
    }
    found.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inline_element_is_hashed() {
        let html = "<style a='b'>x{}</style><script>alert(1)</script><p><script charset=\"UTF-8\"></script>";
        assert_eq!(hashes(html, "style"), csp_hash("x{}"));
        // Hashes of "alert(1)" and of the empty string, computed with `openssl dgst -sha256 -binary | base64`.
        let alert = "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='";
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        assert_eq!(hashes(html, "script"), format!("{alert} {empty}"));
    }
}
