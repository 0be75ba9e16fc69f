//! Parsers for flags that are URLs or host names.

use url::Url;

/// Parses an http or https URL. Pages link to it, so other schemes such as `javascript:` must be rejected.
pub fn web_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}; example: https://ip.example"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err("must start with http:// or https://".to_owned()),
    }
}

/// Parses an http or https URL to which paths are appended, and removes a trailing slash.
pub fn base_url(text: &str) -> Result<String, String> {
    let url = web_url(text)?;
    match (url.query(), url.fragment()) {
        (None, None) => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("must not have a query or fragment".to_owned()),
    }
}

/// Parses a host name, and converts it to lower case without a final dot.
pub fn host_flag(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte))
    };
    match name.len() <= 253 && name.split('.').all(is_label) {
        true => Ok(name),
        false => Err(
            "expected a host name without scheme, port and path, such as ip.example.org. Names with other \
                      letters must be in ASCII form (xn--…)"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_urls_are_accepted() {
        for url in ["file:///etc", "data:text/html,x", "javascript:alert(1)", "ip.example", "http://", ""] {
            assert!(web_url(url).is_err(), "{url}");
        }
        assert!(web_url("https://docs.example/x#y").is_ok());
    }

    #[test]
    fn base_url_has_no_trailing_slash_query_or_fragment() {
        assert_eq!(base_url("https://ip.example/lookup/"), Ok("https://ip.example/lookup".to_owned()));
        for url in ["https://ip.example?a", "https://ip.example#a", "ftp://ip.example"] {
            assert!(base_url(url).is_err(), "{url}");
        }
    }
}
