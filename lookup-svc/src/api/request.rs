//! Reads the API key and the scope of a request.

use std::borrow::Cow;
use std::str;

use http::{HeaderMap, header};
use quota_client::wire::Scope;
use url::form_urlencoded;

use super::error::ApiError;

const BEARER: &str = "bearer";

/// Stands for a token that is not valid UTF-8. It is never a valid key, and it is not empty, because an empty key counts
/// as missing.
const INVALID_TOKEN: &str = "?";

/// The API key, if any: the Bearer token in the `Authorization` header or, failing that, the query parameter `key`.
pub(super) fn key<'r>(headers: &'r HeaderMap, query: Option<&'r str>) -> Option<Cow<'r, str>> {
    bearer_token(headers).map(Cow::Borrowed).or_else(|| query_parameter(query, "key"))
}

/// The query parameter `scope`, if any, which narrows the key's scope for one request.
pub(super) fn scope(query: Option<&str>) -> Result<Option<Scope>, ApiError> {
    let Some(value) = query_parameter(query, "scope") else { return Ok(None) };
    let found = Scope::ALL.iter().find(|scope| scope.as_str() == value);
    found.copied().map(Some).ok_or(ApiError::InvalidScope)
}

/// The request's origin, as browsers send it; `None` unless there is exactly one.
pub(super) fn origin(headers: &HeaderMap) -> Option<&[u8]> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin = origins.next()?;
    origins.next().is_none().then(|| origin.as_bytes())
}

/// The Bearer token of the first `Authorization` header; `None` if there is no token or it is empty.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes().trim_ascii();
    let (scheme, token) = value.split_at_checked(BEARER.len())?;
    let separated = token.first().is_some_and(u8::is_ascii_whitespace);
    if !separated || !scheme.eq_ignore_ascii_case(BEARER.as_bytes()) {
        return None;
    }
    let token = token.trim_ascii();
    (!token.is_empty()).then(|| str::from_utf8(token).unwrap_or(INVALID_TOKEN))
}

/// The first value of a query parameter; `None` if the parameter is missing or this value is empty.
fn query_parameter<'q>(query: Option<&'q str>, name: &str) -> Option<Cow<'q, str>> {
    let mut pairs = form_urlencoded::parse(query?.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(authorization: Option<&[u8]>, query: Option<&str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.try_into().expect("valid header value"));
        }
        key(&headers, query).map(Cow::into_owned)
    }

    #[test]
    fn bearer_token_wins_over_query_string() {
        type Case = (Option<&'static [u8]>, Option<&'static str>, Option<&'static str>);
        let cases: [Case; 16] = [
            (None, None, None),
            (Some(b"Bearer a"), None, Some("a")),
            (Some(b"bearer   a "), None, Some("a")),
            (Some(b"BEARER\ta"), None, Some("a")),
            (Some(b"Bearer a"), Some("key=b"), Some("a")),
            (Some(b"Bearer "), Some("key=b"), Some("b")),
            (Some(b"Bearer"), Some("key=b"), Some("b")),
            (Some(b"Bearera"), Some("key=b"), Some("b")),
            (Some(b"Basic a"), Some("key=b"), Some("b")),
            (Some(b"Basic a"), None, None),
            (Some(b"Bearer \xff"), Some("key=b"), Some(INVALID_TOKEN)),
            (None, Some("key="), None),
            (None, Some("key"), None),
            (None, Some("key=&key=b"), None),
            (None, Some("a=1&key=b&key=c"), Some("b")),
            (None, Some("k%65y=%62"), Some("b")),
        ];
        for (header, query, expected) in cases {
            assert_eq!(find(header, query).as_deref(), expected, "{header:?} {query:?}");
        }
    }

    #[test]
    fn first_scope_value_is_parsed() {
        const INVALID: Result<Option<Scope>, ApiError> = Err(ApiError::InvalidScope);
        for (query, expected) in [
            ("", Ok(None)),
            ("scope=", Ok(None)),
            ("scope", Ok(None)),
            ("scope=ip", Ok(Some(Scope::Ip))),
            ("scope=geo&scope=full", Ok(Some(Scope::Geo))),
            ("scope=f%75ll", Ok(Some(Scope::Full))),
            ("scope=GEO", INVALID),
            ("scope=all", INVALID),
            ("scope=+geo", INVALID),
            ("scope=nope&scope=geo", INVALID),
        ] {
            assert_eq!(scope(Some(query)), expected, "{query}");
        }
        assert_eq!(scope(None), Ok(None));
    }
}
