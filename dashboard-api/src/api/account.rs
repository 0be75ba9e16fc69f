//! Operations on the account: sign-up, sign-in, sign-out, password change, password links, deletion.

use std::sync::Arc;

use poem_openapi::{ApiResponse, OpenApi};
use quota_client::wire::{EventList, KEYS_PER_ACCOUNT};
use secrecy::SecretString;
use service_kit::SerdeJson;

use super::Tag;
use super::context::{Context, Csrf, RequestInfo, SessionRequired, WithCookies};
use super::error::ApiError;
use super::model::{Account, Confirmation, Credentials, Link, LinkPassword, PasswordChange, Settings};
use crate::accounts::AccountError;
use crate::mail::Task;
use crate::session::{self, unix_now};

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
        let attribution = self.0.attribution.iter();
        let link =
            |line: &crate::config::Attribution| Link { text: line.text.clone(), url: line.url.to_string() };
        SerdeJson(Settings {
            signup: self.0.accounts.signup_is_open(),
            lookup_url: self.0.lookup_url.clone(),
            docs_url: self.0.docs_url.clone(),
            keys_per_account: KEYS_PER_ACCOUNT as u32,
            webhooks: self.0.webhooks.is_some(),
            mail: self.0.mail.is_some(),
            attribution: attribution.map(link).collect(),
        })
    }

    /// Sign up
    ///
    /// Creates an account and signs it in.
    #[oai(path = "/account", method = "post", operation_id = "signUp")]
    async fn sign_up(
        &self,
        request: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        credentials: SerdeJson<Credentials>,
    ) -> Result<WithCookies<SignedUpResponse>, ApiError> {
        let address = self.0.address(&request);
        let Credentials { login, password } = credentials.0;
        let signed_up = self.0.accounts.sign_up(&login, &password.into(), address).await;
        let (account, session) = signed_up.map_err(self.0.error())?;
        let login = account.login.clone();
        let response = SignedUpResponse::Account(SerdeJson(account.into()));
        self.0.with_cookies(response, &session, &login).map_err(self.0.error())
    }

    /// Sign in
    ///
    /// Checks login and password, and sets the session cookie. After several wrong passwords, further attempts are
    /// rejected for a while.
    #[oai(path = "/session", method = "post", operation_id = "signIn")]
    async fn sign_in(
        &self,
        request: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        credentials: SerdeJson<Credentials>,
    ) -> Result<WithCookies<SignedInResponse>, ApiError> {
        let Credentials { login, password } = credentials.0;
        let known_browser = self.0.known_browsers.read(&request.headers, &login, unix_now());
        let address = self.0.address(&request);
        let signed_in = self.0.accounts.sign_in(&login, &password.into(), address, known_browser).await;
        let (account, session) = signed_in.map_err(self.0.error())?;
        let login = account.login.clone();
        let response = SignedInResponse::Account(SerdeJson(account.into()));
        self.0.with_cookies(response, &session, &login).map_err(self.0.error())
    }

    /// Sign out
    ///
    /// Revokes the session on the server, so that a copied cookie stops working too. Also clears the cookie of a session
    /// that has already ended.
    #[oai(path = "/session", method = "delete", operation_id = "signOut")]
    async fn sign_out(
        &self,
        request: SessionRequired,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Result<SignedOutResponse, ApiError> {
        // Even if the session has expired or was revoked: at time 0 no cookie has expired.
        let session = self.0.cookies.read(&request.headers, 0).ok_or(AccountError::Unauthenticated);
        let session = session.map_err(self.0.error())?;
        session::revoke(&self.0.quota, &session).await.map_err(self.0.error())?;
        Ok(SignedOutResponse::Done(self.0.cookies.clear()))
    }

    /// Get the signed-in account
    ///
    /// Shows whose session the cookie is.
    #[oai(path = "/account", method = "get", operation_id = "getAccount")]
    async fn account(&self, request: SessionRequired) -> Result<SerdeJson<Account>, ApiError> {
        let session = self.0.session(&request).await?;
        let account = self.0.quota.account(&session.account).await.map_err(self.0.error())?;
        Ok(SerdeJson(account.into()))
    }

    /// List the account's events
    ///
    /// What admins and the operator did with it.
    #[oai(path = "/account/events", method = "get", operation_id = "listAccountEvents")]
    async fn events(&self, request: SessionRequired) -> Result<SerdeJson<EventList>, ApiError> {
        let session = self.0.session(&request).await?;
        Ok(SerdeJson(self.0.quota.account_events(&session.account).await.map_err(self.0.error())?))
    }

    /// Change the password
    ///
    /// Revokes every other session of the account.
    #[oai(path = "/account/password", method = "put", operation_id = "changePassword")]
    async fn change_password(
        &self,
        request: SessionRequired,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        change: SerdeJson<PasswordChange>,
    ) -> Result<Done, ApiError> {
        let session = self.0.session(&request).await?;
        let PasswordChange { current_password, new_password } = change.0;
        let (current, new) = (SecretString::from(current_password), SecretString::from(new_password));
        self.0.accounts.change_password(&session, &current, &new).await.map_err(self.0.error())?;
        self.0.spawn_mail(Task::PasswordChanged { account: session.account });
        Ok(Done::Done)
    }

    /// Set a password with a link
    ///
    /// The link comes by mail or from the operator, and works once. Revokes every session of the account. Needs no session; sign in
    /// afterwards.
    #[oai(path = "/account/password-link", method = "post", operation_id = "setPasswordWithLink")]
    async fn set_password_with_link(
        &self,
        request: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        link: SerdeJson<LinkPassword>,
    ) -> Result<Done, ApiError> {
        let address = self.0.address(&request);
        let LinkPassword { token, password } = link.0;
        let set = self.0.accounts.set_password_with_link(&token, &password.into(), address).await;
        let account = set.map_err(self.0.error())?;
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
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        confirmation: SerdeJson<Confirmation>,
    ) -> Result<SignedOutResponse, ApiError> {
        let session = self.0.session(&request).await?;
        let password = SecretString::from(confirmation.0.password);
        self.0.accounts.delete(&session, &password).await.map_err(self.0.error())?;
        Ok(SignedOutResponse::Done(self.0.cookies.clear()))
    }
}
