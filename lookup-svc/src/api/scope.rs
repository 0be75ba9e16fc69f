//! The query parameter `scope`, which narrows the key's scope for one request.

use poem::{Request, RequestBody};
use poem_openapi::registry::{MetaParamIn, MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use quota_client::wire::Scope;

use super::error::ApiError;
use super::request_key::query_parameter;

const ALL: [Scope; 3] = [Scope::Ip, Scope::Geo, Scope::Full];

/// The value of the parameter, if there is one.
pub(super) type RequestedScope = Result<Option<Scope>, ApiError>;

fn from_query(query: Option<&str>) -> RequestedScope {
    let Some(value) = query_parameter(query, "scope") else { return Ok(None) };
    let found = ALL.into_iter().find(|scope| name(*scope) == value);
    found.map(Some).ok_or(ApiError::InvalidScope)
}

/// The scope's name in the API.
pub(super) const fn name(scope: Scope) -> &'static str {
    match scope {
        Scope::Ip => "ip",
        Scope::Geo => "geo",
        Scope::Full => "full",
    }
}

/// Extracts the parameter. Does not reject an invalid scope, because the error for a missing key takes precedence.
pub(super) struct ScopeParam(pub(super) RequestedScope);

impl ScopeParam {
    pub(super) fn find(query: Option<&str>) -> Self {
        Self(from_query(query))
    }
}

impl<'a> ApiExtractor<'a> for ScopeParam {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::Parameter];
    type ParamType = String;
    type ParamRawType = String;

    fn param_in() -> Option<MetaParamIn> {
        Some(MetaParamIn::Query)
    }

    fn param_schema_ref() -> Option<MetaSchemaRef> {
        let enum_items = ALL.map(|scope| name(scope).into()).to_vec();
        Some(MetaSchemaRef::Inline(Box::new(MetaSchema { enum_items, ..MetaSchema::new("string") })))
    }

    async fn from_request(
        request: &'a Request,
        _body: &mut RequestBody,
        _options: ExtractParamOptions<String>,
    ) -> poem::Result<Self> {
        Ok(Self::find(request.uri().query()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_scope_value_is_parsed() {
        const INVALID: RequestedScope = Err(ApiError::InvalidScope);
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
            assert_eq!(from_query(Some(query)), expected, "{query}");
        }
        assert_eq!(from_query(None), Ok(None));
    }
}
