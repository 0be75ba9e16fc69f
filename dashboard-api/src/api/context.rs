//! What the handlers share, and the two questions each begins with: who is signed in, and from where.

use std::net::{IpAddr, Ipv4Addr};

use edge::Edge;
use quota_client::QuotaClient;

use super::error::{ApiError, Failure};
use super::visitor::{SignedIn, Visitor};
use crate::accounts::Accounts;
use crate::config::Attribution;
use crate::session::{self, Cookies, Ticket, unix_now};

/// What the handlers share.
pub struct Context {
    /// Keys, accounts and sessions.
    pub quota: QuotaClient,
    /// Signing up and in.
    pub accounts: Accounts,
    /// Session cookies.
    pub cookies: Cookies,
    /// Who is calling, for throttling.
    pub edge: Edge,
    /// Where errors link to.
    pub docs_url: String,
    /// The lookup API's public address.
    pub lookup_url: String,
    /// The origin that browsers see where a proxy changes the Host header.
    pub public_origin: Option<String>,
    /// Lines in the page's footer.
    pub attribution: Vec<Attribution>,
}

impl Context {
    /// The session of this request: the only way to an account's id.
    pub async fn session(&self, visitor: &SignedIn) -> Result<Ticket, ApiError> {
        let ticket = self.cookies.read(&visitor.0.headers, unix_now());
        let ticket = ticket.ok_or(Failure::Unauthenticated).map_err(self.error())?;
        match session::lives(&self.quota, &ticket).await.map_err(self.error())? {
            true => Ok(ticket),
            false => Err(self.error()(Failure::Unauthenticated)),
        }
    }

    /// The address that throttling goes by.
    pub fn address(&self, visitor: &Visitor) -> IpAddr {
        // Only a Unix socket has none; whoever comes that way counts as one.
        let peer = visitor.peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        self.edge.identify(peer, &visitor.headers, visitor.version).ip
    }

    /// For `map_err`: an answer out of whatever went wrong.
    pub fn error<E: Into<Failure>>(&self) -> impl Fn(E) -> ApiError + '_ {
        |failure| failure.into().answer(&self.docs_url)
    }
}
