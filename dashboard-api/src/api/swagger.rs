//! Swagger UI: poem-openapi's self-contained page. The content security policy allows its inline code by hash.

use data_encoding::BASE64;
use http::header;
use poem::endpoint::make_sync;
use poem::{Endpoint, Response};
use service_kit::OperationName;
use sha2::{Digest, Sha256};

/// Serves the page with its content security policy.
pub fn page(html: &str) -> impl Endpoint<Output = Response> + use<> {
    let (html, policy) = (html.to_owned(), policy(html));
    make_sync(move |_| {
        let mut response = Response::builder()
            .header(header::CONTENT_TYPE, "text/html; charset=utf-8")
            .header(header::CONTENT_SECURITY_POLICY, policy.clone())
            .body(html.clone());
        response.set_data(OperationName("swagger"));
        response
    })
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
        found.push(format!("'sha256-{}'", BASE64.encode(&Sha256::digest(content))));
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
        assert_eq!(hashes(html, "style"), format!("'sha256-{}'", BASE64.encode(&Sha256::digest("x{}"))));
        // Hashes of "alert(1)" and of the empty string, computed with `openssl dgst -sha256 -binary | base64`.
        let alert = "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='";
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        assert_eq!(hashes(html, "script"), format!("{alert} {empty}"));
    }
}
