//! The query parameter `scope`, which narrows the key's scope for one request.

use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaParamIn, MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use quota_client::wire::Scope;

use super::request_key::query_parameter;

const ALL: [Scope; 3] = [Scope::Ip, Scope::Geo, Scope::Full];

/// The value of the parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestedScope {
    Unspecified,
    Scope(Scope),
    Invalid,
}

impl RequestedScope {
    fn from_query(query: Option<&str>) -> Self {
        let Some(value) = query_parameter(query, "scope") else { return Self::Unspecified };
        let found = ALL.into_iter().find(|scope| name(*scope) == value);
        found.map_or(Self::Invalid, Self::Scope)
    }

    /// Returns the requested scope, if any. Fails if it is invalid.
    pub(super) fn validate(self) -> Result<Option<Scope>, ()> {
        match self {
            Self::Unspecified => Ok(None),
            Self::Scope(scope) => Ok(Some(scope)),
            Self::Invalid => Err(()),
        }
    }
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
    ) -> Result<Self> {
        Ok(Self(RequestedScope::from_query(request.uri().query())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_scope_value_is_parsed() {
        use RequestedScope::{Invalid, Unspecified};
        for (query, expected) in [
            ("", Unspecified),
            ("scope=", Unspecified),
            ("scope", Unspecified),
            ("scope=ip", RequestedScope::Scope(Scope::Ip)),
            ("scope=geo&scope=full", RequestedScope::Scope(Scope::Geo)),
            ("scope=f%75ll", RequestedScope::Scope(Scope::Full)),
            ("scope=GEO", Invalid),
            ("scope=all", Invalid),
            ("scope=+geo", Invalid),
            ("scope=nope&scope=geo", Invalid),
        ] {
            assert_eq!(RequestedScope::from_query(Some(query)), expected, "{query}");
        }
        assert_eq!(RequestedScope::from_query(None), Unspecified);
    }
}
