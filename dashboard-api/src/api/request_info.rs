//! Extractors for what handlers need besides the body: headers, peer address and HTTP version.

use edge::Peer;
use http::{HeaderMap, Version};
use http_server::RequestOrigin;
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::param::Header;
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, Enum, ExtractParamOptions};

/// Extractor for operations that need no session.
pub struct RequestInfo {
    pub headers: HeaderMap,
    /// The other end of the connection, often a proxy.
    pub peer: Option<Peer>,
    pub version: Version,
}

impl<'a> FromRequest<'a> for RequestInfo {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        let unknown = RequestOrigin::client_is_unknown(request);
        let peer_of = |ip| if unknown { Peer::Balancer(ip) } else { Peer::Address(ip) };
        let peer = request.remote_addr().as_socket_addr().map(|peer| peer_of(peer.ip()));
        Ok(Self { headers: request.headers().clone(), peer, version: request.version() })
    }
}

/// Extractor for operations that need a session. It adds this requirement to the OpenAPI document but does not check
/// the session: the handler does, with [`Context::session`](super::Context::session).
pub struct SessionRequired(pub HeaderMap);

const SCHEME: &str = "session";

impl<'a> ApiExtractor<'a> for SessionRequired {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        let scheme = MetaSecurityScheme {
            ty: "apiKey",
            description: Some(
                "Session cookie, set by sign-up and sign-in. With `--insecure-cookies` it is named `ipl_session`.",
            ),
            name: Some("__Host-ipl_session"),
            key_in: Some("cookie"),
            scheme: None,
            bearer_format: None,
            flows: None,
            openid_connect_url: None,
        };
        registry.create_security_scheme(SCHEME, scheme);
    }

    fn security_schemes() -> Vec<&'static str> {
        vec![SCHEME]
    }

    async fn from_request(
        request: &'a Request,
        _body: &mut RequestBody,
        _options: ExtractParamOptions<()>,
    ) -> Result<Self> {
        Ok(Self(request.headers().clone()))
    }
}

/// The CSRF header, as a parameter in the OpenAPI document. [`CsrfGuard`](super::csrf::CsrfGuard) has already
/// checked it.
pub type Csrf = Header<CsrfToken>;

/// Must be `1` in every request other than GET. Pages of other origins can't set this header.
#[derive(Enum)]
pub enum CsrfToken {
    /// The only value.
    #[oai(rename = "1")]
    One,
}
