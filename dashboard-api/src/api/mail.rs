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
use super::model::{LinkToken, LoginBody, MailStatus, SendResult, SetMail};
use crate::accounts::AccountError;
use crate::deadline;
use crate::mail::{self, MailError, Mailer, Task};
use crate::throttle::{Attempt, Purpose, Throttled};

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
    /// An address that is not verified gets a link, which verifies it, with every call. The old one is notified of a change.
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
        let old = contact.mail.take();
        let is_new = address.as_ref() != old.as_ref().map(|mail| &mail.address);
        let (was_verified, old) = old.map(|mail| (mail.verified, mail.address)).unzip();
        let verified = was_verified == Some(true) && !is_new;
        if is_new {
            let password = password.ok_or(AccountError::WrongPassword).map_err(self.0.error())?;
            self.0.accounts.confirm(&session, &password.into()).await.map_err(self.0.error())?;
        }
        let link = address.clone().filter(|_| !verified);
        if let Some(address) = &link {
            let mailer = self.mailer().map_err(self.0.error())?;
            mail::address(address).map_err(|_| AccountError::InvalidAddress).map_err(self.0.error())?;
            self.allow_request(&client).map_err(self.0.error())?;
            mailer.allow(Purpose::Verification, address).map_err(self.0.error())?;
        }
        contact.mail = address.map(|address| Mail { address, verified, notices });
        self.0.quota.set_contact(&session.account, &contact).await.map_err(self.0.error())?;
        if let Some(old) = old.filter(|_| is_new && was_verified == Some(true)) {
            self.0.spawn_mail(Task::AddressChanged { account: session.account.clone(), old });
        }
        let Some(address) = link else { return Ok(SerdeJson(SendResult { error: None })) };
        let mailer = self.mailer().map_err(self.0.error())?;
        let message = mailer.verification(&session.account, &address);
        let sent = deadline::excluding(timeout(WAIT, mailer.send(&address, &message))).await;
        let error = sent.unwrap_or(Err(MailError::TimedOut)).err().map(|error| mailer.log_failure(error));
        Ok(SerdeJson(SendResult { error }))
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
        let mailer = self.mailer().map_err(self.0.error())?;
        match mailer.verify(&link.0.token).await.map_err(self.0.error())? {
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
        forgotten: SerdeJson<LoginBody>,
    ) -> Result<Done, ApiError> {
        let mailer = self.mailer().map_err(self.0.error())?;
        self.allow_request(&client).map_err(self.0.error())?;
        mailer.spawn(Task::PasswordReset { login: forgotten.0.login });
        Ok(Done::Done)
    }
}

impl MailApi {
    fn mailer(&self) -> Result<&Mailer, AccountError> {
        self.0.mail.as_deref().ok_or(AccountError::MailDisabled)
    }

    fn allow_request(&self, client: &RequestInfo) -> Result<(), Throttled> {
        let attempt = Attempt::MailRequest { address: self.0.address(client) };
        self.0.accounts.throttle(attempt, Instant::now())
    }
}
