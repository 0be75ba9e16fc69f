//! Operations on the account: sign-up, sign-in, sign-out, password change, password links, deletion.

use std::sync::Arc;

use poem::Request;
use poem_openapi::{ApiResponse, Object, OpenApi};
use quota_client::wire::{Account, EventList, KEYS_PER_ACCOUNT};
use serde::{Deserialize, Serialize};
use service_kit::SerdeJson;

use super::Tag;
use super::context::{Context, SessionRequired, WithCookies};
use crate::config::Attribution;
use crate::error::{Error, Result};
use crate::mail::Task;
use crate::session::unix_now;

/// A login and a password.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// 1 to 254 characters without whitespace, control characters or invisible characters, such as an email address.
    /// Case-insensitive.
    pub login: String,
    /// 8 to 1,024 characters; for a new account not the login and not a common password.
    pub password: String,
}

/// A password change.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The current password.
    pub current_password: String,
    /// 8 to 1,024 characters, not the login and not a common password.
    pub new_password: String,
}

/// A new password, set with a password link.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPassword {
    /// What follows `#set-password=` in the link.
    pub token: String,
    /// 8 to 1,024 characters, not the login and not a common password.
    pub password: String,
}

/// The password that confirms a deletion.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confirmation {
    /// The account's password.
    pub password: String,
}

/// Settings that the page needs before sign-in.
#[derive(Object, Serialize)]
pub struct Settings {
    /// Whether visitors can create accounts.
    pub signup: bool,
    /// Public URL of the lookup API.
    pub lookup_url: String,
    /// URL of the documentation.
    pub docs_url: String,
    /// Maximum number of keys per account.
    pub keys_per_account: u32,
    /// Whether accounts can have a webhook.
    pub webhooks: bool,
    /// Whether accounts can have a mail address, and passwords can be reset by mail.
    pub mail: bool,
    /// Links that the licenses of the geo data require, for the page's footer.
    pub attribution: Vec<Attribution>,
}

pub struct AccountApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum SignedUpResponse {
    /// The new account. The response sets the session cookie and the known-browser cookie.
    #[oai(
        status = 201,
        header(
            name = "Set-Cookie",
            ty = "String",
            description = "The session cookie. Another `Set-Cookie` header, before it, has the known-browser cookie: for 90 days, sign-ins of this browser are throttled separately from those of others."
        )
    )]
    Account(SerdeJson<Account>),
}

#[derive(ApiResponse)]
enum SignedInResponse {
    /// The account. The response sets the session cookie and the known-browser cookie.
    #[oai(
        status = 200,
        header(
            name = "Set-Cookie",
            ty = "String",
            description = "The session cookie. Another `Set-Cookie` header, before it, has the known-browser cookie: for 90 days, sign-ins of this browser are throttled separately from those of others."
        )
    )]
    Account(SerdeJson<Account>),
}

#[derive(ApiResponse)]
enum SignedOutResponse {
    /// Done. The response clears the session cookie.
    #[oai(status = 204)]
    Done(
        /// The cleared session cookie.
        #[oai(header = "Set-Cookie")]
        String,
    ),
}

#[derive(ApiResponse)]
pub(super) enum Done {
    /// Done.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(tag = "Tag::Account")]
impl AccountApi {
    /// Get public settings
    ///
    /// What the page needs before anybody signs in. Needs no session.
    #[oai(path = "/settings", method = "get", operation_id = "getSettings")]
    async fn settings(&self) -> SerdeJson<Settings> {
        SerdeJson(Settings {
            signup: self.0.accounts.signup_is_open(),
            lookup_url: self.0.lookup_url.clone(),
            docs_url: self.0.docs_url.clone(),
            keys_per_account: KEYS_PER_ACCOUNT as u32,
            webhooks: self.0.webhooks.is_some(),
            mail: self.0.mail.is_some(),
            attribution: self.0.attribution.clone(),
        })
    }

    /// Sign up
    ///
    /// Creates an account and signs it in.
    #[oai(path = "/account", method = "post", operation_id = "signUp")]
    async fn sign_up(
        &self,
        request: &Request,
        credentials: SerdeJson<Credentials>,
    ) -> Result<WithCookies<SignedUpResponse>> {
        let (address, Credentials { login, password }) = (self.0.address(request), credentials.0);
        let signed_up = self.0.accounts.sign_up(&login, &password.into(), address).await?;
        self.0.signed_in(signed_up, SignedUpResponse::Account)
    }

    /// Sign in
    ///
    /// Checks login and password, and sets the session cookie. After several wrong passwords, further attempts are
    /// rejected for a while.
    #[oai(path = "/session", method = "post", operation_id = "signIn")]
    async fn sign_in(
        &self,
        request: &Request,
        credentials: SerdeJson<Credentials>,
    ) -> Result<WithCookies<SignedInResponse>> {
        let (address, Credentials { login, password }) = (self.0.address(request), credentials.0);
        let browser = self.0.cookies.known_browser(request.headers(), &login, unix_now());
        let signed_in =
            self.0.accounts.sign_in(&login, &password.into(), address, browser.as_deref()).await?;
        self.0.signed_in(signed_in, SignedInResponse::Account)
    }

    /// Sign out
    ///
    /// Revokes the session on the server, so that a copied cookie stops working too. Also clears the cookie of a session
    /// that has already ended.
    #[oai(path = "/session", method = "delete", operation_id = "signOut")]
    async fn sign_out(&self, request: SessionRequired) -> Result<SignedOutResponse> {
        // Even if the session has expired or was revoked: at time 0 no cookie has expired.
        let session = self.0.cookies.session(&request.headers, 0).ok_or(Error::UNAUTHENTICATED)?;
        self.0.quota.delete_session(&session.account, &session.id_sha256()).await?;
        Ok(SignedOutResponse::Done(self.0.cookies.clear_session()))
    }

    /// Get the signed-in account
    ///
    /// Shows whose session the cookie is.
    #[oai(path = "/account", method = "get", operation_id = "getAccount")]
    async fn account(&self, request: SessionRequired) -> Result<SerdeJson<Account>> {
        let session = self.0.session(&request).await?;
        Ok(SerdeJson(self.0.quota.account(&session.account).await?))
    }

    /// List the account's events
    ///
    /// What admins and the operator did with it.
    #[oai(path = "/account/events", method = "get", operation_id = "listAccountEvents")]
    async fn events(&self, request: SessionRequired) -> Result<SerdeJson<EventList>> {
        let session = self.0.session(&request).await?;
        Ok(SerdeJson(self.0.quota.account_events(&session.account).await?))
    }

    /// Change the password
    ///
    /// Revokes every other session of the account.
    #[oai(path = "/account/password", method = "put", operation_id = "changePassword")]
    async fn change_password(
        &self,
        request: SessionRequired,
        change: SerdeJson<PasswordChange>,
    ) -> Result<Done> {
        let session = self.0.session(&request).await?;
        let PasswordChange { current_password, new_password } = change.0;
        let (current, new) = (current_password.into(), new_password.into());
        self.0.accounts.change_password(&session, &current, &new).await?;
        self.0.spawn_mail(Task::PasswordChanged { account: session.account });
        Ok(Done::Done)
    }

    /// Set a password with a link
    ///
    /// The link comes by mail or from the operator, and works once. Revokes every session of the account. Needs no session; sign in
    /// afterwards.
    #[oai(path = "/account/password-link", method = "post", operation_id = "setPasswordWithLink")]
    async fn set_password_with_link(&self, request: &Request, link: SerdeJson<LinkPassword>) -> Result<Done> {
        let (address, LinkPassword { token, password }) = (self.0.address(request), link.0);
        let account = self.0.accounts.set_password_with_link(&token, &password.into(), address).await?;
        self.0.spawn_mail(Task::PasswordChanged { account });
        Ok(Done::Done)
    }

    /// Delete the account
    ///
    /// Deletes the account, its keys and its sessions permanently.
    #[oai(path = "/account/delete", method = "post", operation_id = "deleteAccount")]
    async fn delete(
        &self,
        request: SessionRequired,
        confirmation: SerdeJson<Confirmation>,
    ) -> Result<SignedOutResponse> {
        let session = self.0.session(&request).await?;
        self.0.accounts.delete(&session, &confirmation.0.password.into()).await?;
        Ok(SignedOutResponse::Done(self.0.cookies.clear_session()))
    }
}
