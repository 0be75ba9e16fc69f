//! Signing up, in and out; the account itself.

use std::sync::Arc;

use poem_openapi::{ApiResponse, OpenApi};
use quota_client::wire::KEYS_PER_ACCOUNT;
use secrecy::SecretString;
use service_kit::SerdeJson;

use super::Tag;
use super::context::Context;
use super::error::ApiError;
use super::model::{Account, Confirmation, Credentials, Link, PasswordChange, Settings};
use super::visitor::{Csrf, SignedIn, Visitor};
use crate::accounts::SignIn;
use crate::session;

/// Accounts and sessions.
pub struct AccountApi(pub Arc<Context>);

#[derive(ApiResponse)]
enum Created {
    /// The account, signed in.
    #[oai(status = 201)]
    Account(
        SerdeJson<Account>,
        /// The session's cookie.
        #[oai(header = "Set-Cookie")]
        String,
    ),
}

#[derive(ApiResponse)]
enum Entered {
    /// The account, signed in.
    #[oai(status = 200)]
    Account(
        SerdeJson<Account>,
        /// The session's cookie.
        #[oai(header = "Set-Cookie")]
        String,
    ),
}

#[derive(ApiResponse)]
enum Left {
    /// Done; the cookie is taken away.
    #[oai(status = 204)]
    Done(
        /// An empty cookie.
        #[oai(header = "Set-Cookie")]
        String,
    ),
}

/// Done; there is nothing to show.
#[derive(ApiResponse)]
pub(super) enum Done {
    /// Done.
    #[oai(status = 204)]
    Done,
}

#[OpenApi(tag = "Tag::Account")]
impl AccountApi {
    /// Show what a visitor must know
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
            attribution: attribution.map(link).collect(),
        })
    }

    /// Sign up
    ///
    /// Creates an account and signs it in.
    #[oai(path = "/account", method = "post", operation_id = "signUp")]
    async fn sign_up(
        &self,
        visitor: Visitor,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        credentials: SerdeJson<Credentials>,
    ) -> Result<Created, ApiError> {
        let address = self.0.address(&visitor);
        let signed_up = self.0.accounts.sign_up(&sign_in(credentials.0), address).await;
        let (account, ticket) = signed_up.map_err(self.0.error())?;
        let cookie = self.0.cookies.set(&ticket).map_err(self.0.error())?;
        Ok(Created::Account(SerdeJson(account.into()), cookie))
    }

    /// Sign in
    #[oai(path = "/session", method = "post", operation_id = "signIn")]
    async fn sign_in(
        &self,
        visitor: Visitor,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        credentials: SerdeJson<Credentials>,
    ) -> Result<Entered, ApiError> {
        let address = self.0.address(&visitor);
        let signed_in = self.0.accounts.sign_in(&sign_in(credentials.0), address).await;
        let (account, ticket) = signed_in.map_err(self.0.error())?;
        let cookie = self.0.cookies.set(&ticket).map_err(self.0.error())?;
        Ok(Entered::Account(SerdeJson(account.into()), cookie))
    }

    /// Sign out
    ///
    /// The session ends, also for a copy of its cookie.
    #[oai(path = "/session", method = "delete", operation_id = "signOut")]
    async fn sign_out(
        &self,
        visitor: SignedIn,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Result<Left, ApiError> {
        let ticket = self.0.session(&visitor).await?;
        session::end(&self.0.quota, &ticket).await.map_err(self.0.error())?;
        Ok(Left::Done(self.0.cookies.clear()))
    }

    /// Show who is signed in
    #[oai(path = "/account", method = "get", operation_id = "getAccount")]
    async fn account(&self, visitor: SignedIn) -> Result<SerdeJson<Account>, ApiError> {
        let ticket = self.0.session(&visitor).await?;
        let account = self.0.quota.account(&ticket.account).await.map_err(self.0.error())?;
        Ok(SerdeJson(account.into()))
    }

    /// Change the password
    ///
    /// Ends every other session of the account.
    #[oai(path = "/account/password", method = "put", operation_id = "changePassword")]
    async fn change_password(
        &self,
        visitor: SignedIn,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        change: SerdeJson<PasswordChange>,
    ) -> Result<Done, ApiError> {
        let ticket = self.0.session(&visitor).await?;
        let PasswordChange { current_password, new_password } = change.0;
        let (current, new) = (SecretString::from(current_password), SecretString::from(new_password));
        let address = self.0.address(&visitor.0);
        let changed = self.0.accounts.change_password(&ticket, &current, &new, address).await;
        changed.map_err(self.0.error())?;
        Ok(Done::Done)
    }

    /// Delete the account
    ///
    /// With all of its keys and sessions, for good.
    #[oai(path = "/account/delete", method = "post", operation_id = "deleteAccount")]
    async fn delete(
        &self,
        visitor: SignedIn,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        confirmation: SerdeJson<Confirmation>,
    ) -> Result<Left, ApiError> {
        let ticket = self.0.session(&visitor).await?;
        let password = SecretString::from(confirmation.0.password);
        let address = self.0.address(&visitor.0);
        self.0.accounts.delete(&ticket, &password, address).await.map_err(self.0.error())?;
        Ok(Left::Done(self.0.cookies.clear()))
    }
}

fn sign_in(given: Credentials) -> SignIn {
    SignIn { login: given.login, password: given.password.into() }
}
