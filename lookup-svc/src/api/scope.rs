//! The parameter `scope`: narrows what one request gets to see.

use poem::{Request, RequestBody, Result};
use poem_openapi::registry::{MetaParamIn, MetaSchema, MetaSchemaRef};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use quota_client::wire::Scope;

use super::credential::parameter;

const ALL: [Scope; 3] = [Scope::Ip, Scope::Geo, Scope::Full];

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Requested {
    Nothing,
    Scope(Scope),
    Nonsense,
}

impl Requested {
    fn of(query: Option<&str>) -> Self {
        let Some(value) = parameter(query, "scope") else { return Self::Nothing };
        let found = ALL.into_iter().find(|scope| name(*scope) == value);
        found.map_or(Self::Nonsense, Self::Scope)
    }

    /// The scope asked for, if any.
    pub(super) fn checked(self) -> Result<Option<Scope>, ()> {
        match self {
            Self::Nothing => Ok(None),
            Self::Scope(scope) => Ok(Some(scope)),
            Self::Nonsense => Err(()),
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

/// Reads the parameter without judging it: a missing key is to be told first.
pub(super) struct ScopeParam(pub(super) Requested);

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
        Ok(Self(Requested::of(request.uri().query())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_three_or_nothing() {
        use Requested::{Nonsense, Nothing};
        for (query, expected) in [
            ("", Nothing),
            ("scope=", Nothing),
            ("scope", Nothing),
            ("scope=ip", Requested::Scope(Scope::Ip)),
            ("scope=geo&scope=full", Requested::Scope(Scope::Geo)),
            ("scope=f%75ll", Requested::Scope(Scope::Full)),
            ("scope=GEO", Nonsense),
            ("scope=all", Nonsense),
            ("scope=+geo", Nonsense),
            ("scope=nope&scope=geo", Nonsense),
        ] {
            assert_eq!(Requested::of(Some(query)), expected, "{query}");
        }
        assert_eq!(Requested::of(None), Nothing);
    }
}
