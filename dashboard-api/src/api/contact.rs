//! Where the account's owner wants notices: the webhook, and the mail address, which also gets password links.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use poem::Request;
use poem_openapi::{Object, OpenApi};
use quota_client::wire::{Channel, Contact, Delivery, Mail, NoticeKind, Webhook};
use serde::{Deserialize, Serialize};
use service_kit::SerdeJson;

use super::Tag;
use super::account::Done;
use super::admin::LoginBody;
use super::context::{Context, SessionRequired};
use crate::deadline;
use crate::error::{Error, Result};
use crate::mail::{self, Mailer, Task};
use crate::notices::target::TargetRules;
use crate::notices::webhook::{self, Message, new_secret};
use crate::session::now_ms;
use crate::throttle::Attempt;

/// How long an owner waits for the result of a verification message. Less than the page waits for a response.
const WAIT: Duration = Duration::from_secs(15);

/// Where and when a webhook gets notices.
#[derive(Object, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// An https URL with a public host and the port 443 or 8443. Absent: there is no webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether notices are sent.
    pub enabled: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub muted: BTreeSet<NoticeKind>,
}

/// The account's webhook, without its secret.
#[derive(Object, Serialize)]
pub struct WebhookStatus {
    /// Where and when it gets notices.
    #[oai(flatten)]
    #[serde(flatten)]
    pub settings: WebhookSettings,
    /// Last attempt to deliver a notice. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<Delivery>,
}

/// The secret of a webhook, for the verification of its signatures.
#[derive(Object, Serialize)]
pub struct WebhookSecret {
    /// As in `whsec_…`. Shown only in this response. Absent if it has not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// The account's mail address.
#[derive(Object, Default, Serialize)]
pub struct MailStatus {
    /// The address. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether the link that was sent to the address has been used. Until then, it gets no other mail.
    pub verified: bool,
    /// Whether notices are sent.
    pub notices: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[oai(default)]
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub muted: BTreeSet<NoticeKind>,
    /// Last attempt to deliver a notice. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_delivery: Option<Delivery>,
}

/// A mail address to set.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMail {
    /// At most 254 characters. If absent, the address is removed.
    pub address: Option<String>,
    /// Whether notices are sent.
    pub notices: bool,
    /// Kinds of notices that are not sent. Absent if all are.
    #[oai(default)]
    #[serde(default)]
    pub muted: BTreeSet<NoticeKind>,
    /// The account's password. Needed to set, change or remove the address.
    pub password: Option<String>,
}

/// The token of a link.
#[derive(Object, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkToken {
    /// What follows `#verify-mail=` in the link.
    pub token: String,
}

/// Result of a test event, or of mail with a link.
#[derive(Object, Serialize)]
pub struct SendResult {
    /// Why it was not delivered. Absent if it was, or if nothing had to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

pub struct ContactApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Account")]
impl ContactApi {
    /// Get the webhook
    ///
    /// Without its secret. With the last attempt to deliver a notice.
    #[oai(path = "/account/webhook", method = "get", operation_id = "getWebhook")]
    async fn webhook(&self, request: SessionRequired) -> Result<SerdeJson<WebhookStatus>> {
        let session = self.0.session(&request).await?;
        let mut status = self.0.quota.contact(&session.account).await?;
        let last_delivery = status.last_deliveries.remove(Channel::Webhook.as_str());
        let settings = status.contact.webhook.map(|Webhook { url, enabled, muted, .. }| WebhookSettings {
            url: Some(url),
            enabled,
            muted,
        });
        Ok(SerdeJson(WebhookStatus { settings: settings.unwrap_or_default(), last_delivery }))
    }

    /// Set or remove the webhook
    ///
    /// A new webhook gets a secret, which is shown only in this response; a change of its URL keeps the secret.
    #[oai(path = "/account/webhook", method = "put", operation_id = "setWebhook")]
    async fn set_webhook(
        &self,
        request: SessionRequired,
        change: SerdeJson<WebhookSettings>,
    ) -> Result<SerdeJson<WebhookSecret>> {
        let session = self.0.session(&request).await?;
        let WebhookSettings { url, enabled, muted } = change.0;
        let old = self.0.quota.contact(&session.account).await?.contact;
        let (mut webhook, mut new) = (None, None);
        if let Some(url) = url {
            self.rules()?.parse(&url)?;
            let secret = match &old.webhook {
                Some(webhook) => webhook.secret.clone(),
                None => new.insert(new_secret()?).clone(),
            };
            webhook = Some(Webhook { url, secret, enabled, muted });
        }
        self.0.quota.set_contact(&session.account, old.clone(), Contact { webhook, ..old }).await?;
        Ok(SerdeJson(WebhookSecret { secret: new }))
    }

    /// Replace the webhook's secret
    ///
    /// The new one is shown only in this response. The old one stops working immediately.
    #[oai(path = "/account/webhook/secret", method = "post", operation_id = "replaceWebhookSecret")]
    async fn replace_webhook_secret(&self, request: SessionRequired) -> Result<SerdeJson<WebhookSecret>> {
        let session = self.0.session(&request).await?;
        let old = self.0.quota.contact(&session.account).await?.contact;
        let (mut contact, secret) = (old.clone(), new_secret()?);
        contact.webhook.as_mut().ok_or(Error::NO_WEBHOOK)?.secret.clone_from(&secret);
        self.0.quota.set_contact(&session.account, old, contact).await?;
        Ok(SerdeJson(WebhookSecret { secret: Some(secret) }))
    }

    /// Send a test event
    ///
    /// To the webhook, even if it is switched off. At most one per minute.
    #[oai(path = "/account/webhook/test", method = "post", operation_id = "testWebhook")]
    async fn test_webhook(&self, request: SessionRequired) -> Result<SerdeJson<SendResult>> {
        let session = self.0.session(&request).await?;
        let contact = self.0.quota.contact(&session.account).await?.contact;
        let webhook = contact.webhook.ok_or(Error::NO_WEBHOOK)?;
        let rules = self.rules()?;
        self.0.throttle.allow(Attempt::TestEvent(&session.account))?;
        let message = Message::test(now_ms(), &self.0.dashboard_url)?;
        let sent = deadline::excluding(webhook::send(rules, &webhook, &message, webhook::TIMEOUT)).await;
        Ok(SerdeJson(SendResult { error: sent.err().map(|error| error.to_string()) }))
    }

    /// Get the mail address
    ///
    /// With the last attempt to deliver a notice.
    #[oai(path = "/account/mail", method = "get", operation_id = "getMail")]
    async fn mail(&self, request: SessionRequired) -> Result<SerdeJson<MailStatus>> {
        let session = self.0.session(&request).await?;
        let mut status = self.0.quota.contact(&session.account).await?;
        let last_delivery = status.last_deliveries.remove(Channel::Mail.as_str());
        let mail = status.contact.mail.map(|Mail { address, verified, notices, muted }| MailStatus {
            address: Some(address),
            verified,
            notices,
            muted,
            last_delivery: None,
        });
        Ok(SerdeJson(MailStatus { last_delivery, ..mail.unwrap_or_default() }))
    }

    /// Set or remove the mail address
    ///
    /// An address that is not verified gets a link, which verifies it, with every call. The old one is notified of a change.
    #[oai(path = "/account/mail", method = "put", operation_id = "setMail")]
    async fn set_mail(
        &self,
        request: SessionRequired,
        change: SerdeJson<SetMail>,
    ) -> Result<SerdeJson<SendResult>> {
        let session = self.0.session(&request).await?;
        let SetMail { address, notices, muted, password } = change.0;
        let (quota, account) = (&self.0.quota, &session.account);
        let old = quota.contact(account).await?.contact;
        let is_new = address.as_ref() != old.mail.as_ref().map(|mail| &mail.address);
        let verified = !is_new && old.verified_address().is_some();
        if is_new {
            let password = password.ok_or(Error::WRONG_PASSWORD)?;
            self.0.accounts.check_password(&session, &password.into()).await?;
        }
        let link = address.clone().filter(|_| !verified);
        if let Some(address) = &link {
            self.mailer()?;
            mail::address(address).map_err(|_| Error::INVALID_ADDRESS)?;
            self.0.throttle.allow(Attempt::Verification(account))?;
        }
        let mail = address.map(|address| Mail { address, verified, notices, muted });
        quota.set_contact(account, old.clone(), Contact { mail, ..old.clone() }).await?;
        if let Some(old) = old.verified_address().filter(|_| is_new) {
            self.0.spawn_mail(Task::AddressChanged { account: account.clone(), old: old.to_owned() });
        }
        let Some(address) = link else { return Ok(SerdeJson(SendResult { error: None })) };
        let mailer = self.mailer()?;
        let message = mailer.verification(account, &address)?;
        let sent = deadline::excluding(mailer.send(&address, &message, WAIT)).await;
        Ok(SerdeJson(SendResult { error: sent.err().map(|error| error.to_string()) }))
    }

    /// Verify a mail address with a link
    ///
    /// The link was sent to the address. Needs no session.
    #[oai(path = "/account/mail/verify", method = "post", operation_id = "verifyMail")]
    async fn verify_mail(&self, client: &Request, link: SerdeJson<LinkToken>) -> Result<Done> {
        self.0.throttle.allow(Attempt::Link(self.0.address(client)))?;
        match self.mailer()?.verify(&link.0.token).await? {
            true => Ok(Done::Done),
            false => Err(Error::INVALID_LINK),
        }
    }

    /// Request a password link by mail
    ///
    /// The response is the same whether the account exists, and has a verified mail address, or not. The link works once and
    /// within 30 minutes. Needs no session.
    #[oai(path = "/account/forgot-password", method = "post", operation_id = "forgotPassword")]
    async fn forgot_password(&self, client: &Request, forgotten: SerdeJson<LoginBody>) -> Result<Done> {
        let mailer = self.mailer()?;
        self.0.throttle.allow(Attempt::ForgotPassword(self.0.address(client)))?;
        mailer.spawn(Task::PasswordReset { login: forgotten.0.login });
        Ok(Done::Done)
    }
}

impl ContactApi {
    fn rules(&self) -> Result<&TargetRules> {
        self.0.webhooks.as_ref().ok_or(Error::WEBHOOKS_DISABLED)
    }

    fn mailer(&self) -> Result<&Arc<Mailer>> {
        self.0.mail.as_ref().ok_or(Error::MAIL_DISABLED)
    }
}
