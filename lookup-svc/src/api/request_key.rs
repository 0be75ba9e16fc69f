//! Reads the API key from the `Authorization` header or, failing that, from the query string.

use std::borrow::Cow;
use std::str;

use http::{HeaderMap, header};
use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaParamIn, MetaSchema, MetaSchemaRef, MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use url::form_urlencoded;

const BEARER: &str = "bearer";

/// Stands for a token that is not valid UTF-8. It is never a valid key, and it is not empty, because an empty key counts
/// as missing.
const INVALID_TOKEN: &str = "?";

/// Extracts a reference to the request; poem's own extractor allocates.
pub(super) struct RawRequest<'a>(pub(super) &'a Request);

impl<'a> ApiExtractor<'a> for RawRequest<'a> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::PoemExtractor];
    type ParamType = ();
    type ParamRawType = ();

    async fn from_request(
        request: &'a Request,
        _body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        Ok(Self(request))
    }
}

/// The API key of a request, if any. A Bearer token wins over the query string.
pub(super) struct RequestKey<'a>(Option<Cow<'a, str>>);

impl<'a> RequestKey<'a> {
    pub(super) fn as_str(&self) -> Option<&str> {
        self.0.as_deref()
    }

    pub(super) fn find(headers: &'a HeaderMap, query: Option<&'a str>) -> Self {
        Self(bearer_token(headers).map(Cow::Borrowed).or_else(|| query_parameter(query, "key")))
    }
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
pub(super) fn query_parameter<'q>(query: Option<&'q str>, name: &str) -> Option<Cow<'q, str>> {
    let mut pairs = form_urlencoded::parse(query?.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

impl<'a> ApiExtractor<'a> for RequestKey<'a> {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];
    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        registry.create_security_scheme("bearer", scheme("http", "API key in the `Authorization` header."));
        let description = "API key in the query string, if you can't set headers. A Bearer token in the `Authorization` header takes precedence.";
        let in_query = MetaSecurityScheme {
            name: Some("key"),
            key_in: Some("query"),
            scheme: None,
            ..scheme("apiKey", description)
        };
        registry.create_security_scheme("key", in_query);
    }

    fn security_schemes() -> Vec<&'static str> {
        vec!["bearer", "key"]
    }

    async fn from_request(
        request: &'a Request,
        _body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        Ok(Self::find(request.headers(), request.uri().query()))
    }
}

fn scheme(ty: &'static str, description: &'static str) -> MetaSecurityScheme {
    MetaSecurityScheme {
        ty,
        description: Some(description),
        name: None,
        key_in: None,
        scheme: Some(BEARER),
        bearer_format: None,
        flows: None,
        openid_connect_url: None,
    }
}

/// Documents the parameter `key`, which [`RequestKey`] reads.
pub(super) struct KeyParam;

impl<'a> ApiExtractor<'a> for KeyParam {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::Parameter];
    type ParamType = String;
    type ParamRawType = String;

    fn param_in() -> Option<MetaParamIn> {
        Some(MetaParamIn::Query)
    }

    fn param_schema_ref() -> Option<MetaSchemaRef> {
        Some(MetaSchemaRef::Inline(Box::new(MetaSchema::new("string"))))
    }

    async fn from_request(
        _request: &'a Request,
        _body: &mut RequestBody,
        _options: ExtractParamOptions<String>,
    ) -> Result<Self> {
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(authorization: Option<&[u8]>, query: Option<&str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        if let Some(value) = authorization {
            headers.insert(header::AUTHORIZATION, value.try_into().expect("valid header value"));
        }
        RequestKey::find(&headers, query).as_str().map(str::to_owned)
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
}
