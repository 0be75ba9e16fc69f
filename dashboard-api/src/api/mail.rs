//! The account's mail address, which gets notices and password links.

use std::sync::Arc;
use std::time::{Duration, Instant};

use poem_openapi::OpenApi;
use quota_client::wire::{Channel, Mail};
use service_kit::SerdeJson;
use tokio::time::timeout;

use super::Tag;
use super::account::Done;
use super::context::{Context, Csrf, RequestInfo, SessionRequired};
use super::error::ApiError;
use super::model::{ForgottenPassword, LinkToken, MailStatus, SendResult, SetMail};
use crate::accounts::AccountError;
use crate::deadline;
use crate::mail::{self, MailError, Mailer, Task};
use crate::session::Session;
use crate::throttle::{Attempt, Purpose};

/// How long an owner waits for the result of a verification message. Less than the page waits for a response.
const WAIT: Duration = Duration::from_secs(15);

pub struct MailApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Account")]
impl MailApi {
    /// Get the mail address
    ///
    /// With the last attempt to deliver a notice.
    #[oai(path = "/account/mail", method = "get", operation_id = "getMail")]
    async fn show(&self, request: SessionRequired) -> Result<SerdeJson<MailStatus>, ApiError> {
        let session = self.0.session(&request).await?;
        let mut status = self.0.quota.contact(&session.account).await.map_err(self.0.error())?;
        let mail = status.contact.mail;
        Ok(SerdeJson(MailStatus {
            verified: mail.as_ref().is_some_and(|mail| mail.verified),
            notices: mail.as_ref().is_some_and(|mail| mail.notices),
            address: mail.map(|mail| mail.address),
            last_delivery: status.last_deliveries.remove(Channel::Mail.as_str()),
        }))
    }

    /// Set or remove the mail address
    ///
    /// A new address gets a link, which verifies it. The old one is told about the change.
    #[oai(path = "/account/mail", method = "put", operation_id = "setMail")]
    async fn set(
        &self,
        request: SessionRequired,
        client: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        change: SerdeJson<SetMail>,
    ) -> Result<SerdeJson<SendResult>, ApiError> {
        let session = self.0.session(&request).await?;
        let SetMail { address, notices, password } = change.0;
        let mut contact = self.0.quota.contact(&session.account).await.map_err(self.0.error())?.contact;
        let old = contact.mail.as_ref().map(|mail| mail.address.clone());
        let is_new = address != old;
        if is_new {
            let password = password.ok_or(AccountError::WrongPassword).map_err(self.0.error())?;
            let confirmed = self.0.accounts.confirm(&session, &password.into()).await;
            confirmed.map_err(self.0.error())?;
        }
        if let Some(address) = address.as_deref().filter(|_| is_new) {
            mail::address(address).map_err(|_| AccountError::InvalidAddress).map_err(self.0.error())?;
            self.allow_verification(&client, address)?;
        }
        let told = old.filter(|_| is_new && contact.verified_address().is_some());
        let verified = !is_new && contact.verified_address().is_some();
        contact.mail = address.map(|address| Mail { address, verified, notices });
        self.0.quota.set_contact(&session.account, &contact).await.map_err(self.0.error())?;
        if let Some(old) = told {
            self.0.spawn_mail(Task::AddressChanged { account: session.account.clone(), old });
        }
        self.send_verification(&session, contact.mail.filter(|_| is_new)).await
    }

    /// Send the link that verifies the address again
    #[oai(path = "/account/mail/verification", method = "post", operation_id = "sendVerification")]
    async fn resend(
        &self,
        request: SessionRequired,
        client: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Result<SerdeJson<SendResult>, ApiError> {
        let session = self.0.session(&request).await?;
        let contact = self.0.quota.contact(&session.account).await.map_err(self.0.error())?.contact;
        let mail = contact.mail.filter(|mail| !mail.verified);
        if let Some(mail) = &mail {
            self.allow_verification(&client, &mail.address)?;
        }
        self.send_verification(&session, mail).await
    }

    /// Verify a mail address with a link
    ///
    /// The link was sent to the address. Needs no session.
    #[oai(path = "/account/mail/verify", method = "post", operation_id = "verifyMail")]
    async fn verify(
        &self,
        client: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        link: SerdeJson<LinkToken>,
    ) -> Result<Done, ApiError> {
        let attempt = Attempt::PasswordLink { address: self.0.address(&client) };
        self.0.accounts.throttle(attempt, Instant::now()).map_err(self.0.error())?;
        match self.mailer()?.verify(&link.0.token).await.map_err(self.0.error())? {
            true => Ok(Done::Done),
            false => Err(self.0.error()(AccountError::InvalidLink)),
        }
    }

    /// Request a password link by mail
    ///
    /// The response is the same whether the account exists, and has a verified mail address, or not. The link works once and
    /// within 30 minutes. Needs no session.
    #[oai(path = "/account/forgot-password", method = "post", operation_id = "forgotPassword")]
    async fn forgot_password(
        &self,
        client: RequestInfo,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        forgotten: SerdeJson<ForgottenPassword>,
    ) -> Result<Done, ApiError> {
        let mailer = self.mailer()?;
        self.allow_request(&client)?;
        mailer.spawn(Task::PasswordReset { login: forgotten.0.login });
        Ok(Done::Done)
    }
}

impl MailApi {
    fn mailer(&self) -> Result<&Mailer, ApiError> {
        self.0.mail.as_deref().ok_or(AccountError::MailDisabled).map_err(self.0.error())
    }

    fn allow_request(&self, client: &RequestInfo) -> Result<(), ApiError> {
        let attempt = Attempt::MailRequest { address: self.0.address(client) };
        self.0.accounts.throttle(attempt, Instant::now()).map_err(self.0.error())
    }

    fn allow_verification(&self, client: &RequestInfo, address: &str) -> Result<(), ApiError> {
        let mailer = self.mailer()?;
        self.allow_request(client)?;
        mailer.allow(Purpose::Verification, address).map_err(self.0.error())
    }

    async fn send_verification(
        &self,
        session: &Session,
        mail: Option<Mail>,
    ) -> Result<SerdeJson<SendResult>, ApiError> {
        let Some(Mail { address, .. }) = mail else { return Ok(SerdeJson(SendResult { error: None })) };
        let mailer = self.mailer()?;
        let message = mailer.verification(&session.account, &address);
        let sent = deadline::excluding(timeout(WAIT, mailer.send(&address, &message))).await;
        let error = sent.unwrap_or(Err(MailError::TimedOut)).err().map(|error| {
            let shown = error.to_string();
            mailer.log(error.into());
            shown
        });
        Ok(SerdeJson(SendResult { error }))
    }
}
