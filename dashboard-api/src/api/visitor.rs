//! What the handlers take from a request beside its body: headers and peer, with or without a session.

use std::net::IpAddr;

use http::{HeaderMap, Version};
use poem::{FromRequest, Request, RequestBody, Result};
use poem_openapi::param::Header;
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, Enum, ExtractParamOptions};

/// Anybody.
pub struct Visitor {
    /// The request's headers.
    pub headers: HeaderMap,
    /// The other end of the connection: often a proxy.
    pub peer: Option<IpAddr>,
    /// The request's HTTP version.
    pub version: Version,
}

impl Visitor {
    fn of(request: &Request) -> Self {
        let peer = request.remote_addr().as_socket_addr().map(std::net::SocketAddr::ip);
        Self { headers: request.headers().clone(), peer, version: request.version() }
    }
}

impl<'a> FromRequest<'a> for Visitor {
    async fn from_request(request: &'a Request, _body: &mut RequestBody) -> Result<Self> {
        Ok(Self::of(request))
    }
}

/// Somebody who must have a session: [`Context::session`](super::Context::session) tells whether they do.
pub struct SignedIn(pub Visitor);

const SCHEME: &str = "session";

impl<'a> ApiExtractor<'a> for SignedIn {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        let scheme = MetaSecurityScheme {
            ty: "apiKey",
            description: Some(
                "The cookie that signing in answers with; `ipl_session` with `--insecure-cookies`.",
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
        Ok(Self(Visitor::of(request)))
    }
}

/// The header that no foreign page can send; [`Guard`](super::csrf::Guard) has checked it before.
pub type Csrf = Header<CsrfToken>;

/// Sent with every change: a page of another origin can't set such a header.
#[derive(Enum)]
pub enum CsrfToken {
    /// Its only value.
    #[oai(rename = "1")]
    One,
}
