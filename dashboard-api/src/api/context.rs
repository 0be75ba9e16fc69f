//! State shared by the handlers, and what they extract from a request: its session, client address and CSRF header.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use edge::{ConnectionFacts, Edge, Peer};
use http::header::SET_COOKIE;
use http::{HeaderMap, Method};
use http_server::RequestOrigin;
use poem::{Request, RequestBody};
use poem_openapi::registry::{MetaSecurityScheme, Registry};
use poem_openapi::{ApiExtractor, ApiExtractorType, ExtractParamOptions};
use quota_client::QuotaClient;
use quota_client::wire::{Account, Actor, Role};
use service_kit::SerdeJson;

use super::PREFIX;
use crate::accounts::Accounts;
use crate::config::Attribution;
use crate::error::{Error, Result};
use crate::mail::{Mailer, Task};
use crate::notices::target::TargetRules;
use crate::session::{Cookies, Session, unix_now};
use crate::throttle::Throttle;

/// A response with `Set-Cookie` headers. A field of an `ApiResponse` could set only one of them.
pub type WithCookies<T> = poem_openapi::payload::Response<T>;

pub struct Context {
    pub quota: QuotaClient,
    pub accounts: Accounts,
    pub throttle: Arc<Throttle>,
    pub cookies: Cookies,
    /// Finds the client address, for throttling.
    pub edge: Edge,
    /// Documentation URL in error responses and on the page.
    pub docs_url: String,
    /// Public URL of the lookup API.
    pub lookup_url: String,
    /// Origin of `--public-url`.
    pub public_origin: Option<String>,
    /// URL of the dashboard, for links in notices.
    pub dashboard_url: String,
    /// Where webhooks may be sent; `None` if none are sent.
    pub webhooks: Option<TargetRules>,
    /// `None` if no mail is sent.
    pub mail: Option<Arc<Mailer>>,
    /// Host name of the dashboard's URL, without a port. `None` if every host is accepted.
    pub host: Option<String>,
    /// Links in the page's footer.
    pub attribution: Vec<Attribution>,
}

/// A signed-in admin.
pub struct Admin {
    /// ID of the admin's account.
    account: String,
    /// Its changes are recorded under the admin's login.
    pub quota: QuotaClient,
}

impl Admin {
    /// Admins who suspend or delete themselves could not undo it.
    pub fn check_other(&self, account: &str) -> Result<()> {
        if self.account == account { Err(Error::OWN_ACCOUNT) } else { Ok(()) }
    }
}

impl Context {
    /// Returns the request's active session: the only source of an account ID for the handlers.
    pub async fn session(&self, request: &SessionRequired) -> Result<Session> {
        Ok(self.authorize(request).await?.0)
    }

    /// For the operations below `/admin`. Logs the changes: an account that is deleted has no events any more.
    pub async fn admin(&self, request: &SessionRequired) -> Result<Admin> {
        let (_, account) = self.authorize(request).await?;
        // The path says so, too.
        Access::Admin.check(&account)?;
        if request.method != Method::GET {
            tracing::info!(admin = account.login, method = %request.method, path = request.path, "admin action");
        }
        let quota = self.quota.clone().acting_as(Actor::Admin(account.login));
        Ok(Admin { account: account.id, quota })
    }

    /// Reads the account with each request, so that a suspension and a change of the role apply immediately.
    async fn authorize(&self, request: &SessionRequired) -> Result<(Session, Account)> {
        let session = self.cookies.session(&request.headers, unix_now()).ok_or(Error::UNAUTHENTICATED)?;
        let account = self.quota.session_account(&session.account, &session.id_sha256()).await?;
        let account = account.ok_or(Error::UNAUTHENTICATED)?;
        Access::of(&request.method, &request.path).check(&account)?;
        Ok((session, account))
    }

    /// Returns the client address, for throttling.
    pub fn address(&self, request: &Request) -> IpAddr {
        // Only connections over a Unix socket have no peer address. The throttle counts all of them as one address.
        let peer = request.remote_addr().as_socket_addr().map(|peer| peer.ip());
        let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let unknown = RequestOrigin::client_is_unknown(request);
        let peer = if unknown { Peer::Balancer(peer) } else { Peer::Address(peer) };
        self.edge.identify(peer, request.headers(), ConnectionFacts::direct(request.version())).ip
    }

    /// Starts to send mail, if this service sends any.
    pub fn spawn_mail(&self, task: Task) {
        if let Some(mailer) = &self.mail {
            mailer.spawn(task);
        }
    }

    /// Responds with the account, and with the cookies of its new session.
    pub fn signed_in<T>(
        &self,
        (account, session): (Account, Session),
        response: fn(SerdeJson<Account>) -> T,
    ) -> Result<WithCookies<T>> {
        let cookies = self.cookies.set(&session, &account.login, unix_now())?;
        let response = WithCookies::new(response(SerdeJson(account)));
        Ok(cookies.into_iter().fold(response, |response, cookie| response.header(SET_COOKIE, cookie)))
    }
}

/// Extractor for operations that need a session. It adds this requirement to the OpenAPI document but does not check
/// the session: the handler does, with [`Context::session`] or [`Context::admin`].
pub struct SessionRequired {
    pub headers: HeaderMap,
    method: Method,
    path: String,
}

const SCHEME: &str = "session";

impl<'a> ApiExtractor<'a> for SessionRequired {
    const TYPES: &'static [ApiExtractorType] = &[ApiExtractorType::SecurityScheme];

    type ParamType = ();
    type ParamRawType = ();

    fn register(registry: &mut Registry) {
        let scheme = MetaSecurityScheme {
            ty: "apiKey",
            description: Some(
                "Session cookie, set by sign-up and sign-in. With `--insecure-cookies` or a public URL such as `http://localhost`, it is named `ipl_session`.",
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
    ) -> poem::Result<Self> {
        let (method, headers) = (request.method().clone(), request.headers().clone());
        Ok(Self { headers, method, path: request.original_uri().path().to_owned() })
    }
}

/// What an operation with a session does. This is the only place that decides who may call which operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads what the account owns.
    Read,
    /// Changes what the account owns.
    Change,
    /// Reads or changes what others own.
    Admin,
}

impl Access {
    pub fn of(method: &Method, path: &str) -> Self {
        let operation = path.strip_prefix(PREFIX).unwrap_or(path);
        match *method {
            _ if operation == "/admin" || operation.starts_with("/admin/") => Self::Admin,
            Method::GET | Method::HEAD => Self::Read,
            _ => Self::Change,
        }
    }

    pub fn check(self, account: &Account) -> Result<(), Error> {
        match (self, &account.suspension) {
            (Self::Read, _) => Ok(()),
            (_, Some(suspension)) => Err(Error::Suspended(suspension.reason.clone())),
            (Self::Admin, None) if account.role != Role::Admin => Err(Error::ADMIN_REQUIRED),
            (Self::Change | Self::Admin, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_follows_from_method_and_path() {
        for (method, path, access) in [
            (Method::GET, "/api/v1/keys", Access::Read),
            (Method::PATCH, "/api/v1/keys/1", Access::Change),
            (Method::GET, "/api/v1/admin/overview", Access::Admin),
            (Method::POST, "/api/v1/admin/accounts/1/changes", Access::Admin),
            (Method::GET, "/api/v1/administrators", Access::Read),
        ] {
            assert_eq!(Access::of(&method, path), access, "{method} {path}");
        }
    }
}
