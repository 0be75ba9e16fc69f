//! The account's webhook, which gets notices about its keys.

use std::sync::Arc;
use std::time::Instant;

use poem_openapi::OpenApi;
use quota_client::wire::{Channel, Webhook};
use service_kit::SerdeJson;

use super::Tag;
use super::context::{Context, Csrf, SessionRequired};
use super::error::ApiError;
use super::model::{SendResult, SetWebhook, WebhookSecret, WebhookStatus};
use crate::accounts::AccountError;
use crate::deadline;
use crate::notices::now_ms;
use crate::notices::webhook::{self, Message, new_secret};
use crate::throttle::Attempt;

pub struct WebhookApi(pub Arc<Context>);

#[OpenApi(tag = "Tag::Account")]
impl WebhookApi {
    /// Get the webhook
    ///
    /// Without its secret. With the last attempt to deliver a notice.
    #[oai(path = "/account/webhook", method = "get", operation_id = "getWebhook")]
    async fn show(&self, request: SessionRequired) -> Result<SerdeJson<WebhookStatus>, ApiError> {
        let session = self.0.session(&request).await?;
        let mut status = self.0.quota.contact(&session.account).await.map_err(self.0.error())?;
        let webhook = status.contact.webhook;
        Ok(SerdeJson(WebhookStatus {
            enabled: webhook.as_ref().is_some_and(|webhook| webhook.enabled),
            url: webhook.map(|webhook| webhook.url),
            last_delivery: status.last_deliveries.remove(Channel::Webhook.as_str()),
        }))
    }

    /// Set or remove the webhook
    ///
    /// A new webhook gets a secret, which is shown only in this response; a change of its URL keeps the secret.
    #[oai(path = "/account/webhook", method = "put", operation_id = "setWebhook")]
    async fn set(
        &self,
        request: SessionRequired,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
        change: SerdeJson<SetWebhook>,
    ) -> Result<SerdeJson<WebhookSecret>, ApiError> {
        let session = self.0.session(&request).await?;
        let SetWebhook { url, enabled } = change.0;
        let mut contact = self.0.quota.contact(&session.account).await.map_err(self.0.error())?.contact;
        let Some(url) = url else {
            contact.webhook = None;
            self.0.quota.set_contact(&session.account, &contact).await.map_err(self.0.error())?;
            return Ok(SerdeJson(WebhookSecret { secret: None }));
        };
        let rules = self.0.webhooks.as_ref().ok_or(AccountError::WebhooksDisabled).map_err(self.0.error())?;
        rules.parse(&url).map_err(AccountError::from).map_err(self.0.error())?;
        let (new, secret) = match contact.webhook {
            Some(webhook) => (None, webhook.secret),
            None => {
                let secret = new_secret().map_err(self.0.error())?;
                (Some(secret.clone()), secret)
            }
        };
        contact.webhook = Some(Webhook { url, secret, enabled });
        self.0.quota.set_contact(&session.account, &contact).await.map_err(self.0.error())?;
        Ok(SerdeJson(WebhookSecret { secret: new }))
    }

    /// Replace the webhook's secret
    ///
    /// The new one is shown only in this response. The old one stops working immediately.
    #[oai(path = "/account/webhook/secret", method = "post", operation_id = "replaceWebhookSecret")]
    async fn replace_secret(
        &self,
        request: SessionRequired,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Result<SerdeJson<WebhookSecret>, ApiError> {
        let session = self.0.session(&request).await?;
        let secret = new_secret().map_err(self.0.error())?;
        let mut contact = self.0.quota.contact(&session.account).await.map_err(self.0.error())?.contact;
        let webhook = contact.webhook.as_mut().ok_or(AccountError::NoWebhook).map_err(self.0.error())?;
        webhook.secret.clone_from(&secret);
        self.0.quota.set_contact(&session.account, &contact).await.map_err(self.0.error())?;
        Ok(SerdeJson(WebhookSecret { secret: Some(secret) }))
    }

    /// Send a test event
    ///
    /// To the webhook, even if it is switched off. At most one per minute.
    #[oai(path = "/account/webhook/test", method = "post", operation_id = "testWebhook")]
    async fn test(
        &self,
        request: SessionRequired,
        #[oai(name = "X-CSRF-Token")] _csrf: Csrf,
    ) -> Result<SerdeJson<SendResult>, ApiError> {
        let session = self.0.session(&request).await?;
        let contact = self.0.quota.contact(&session.account).await.map_err(self.0.error())?.contact;
        let webhook = contact.webhook.ok_or(AccountError::NoWebhook).map_err(self.0.error())?;
        let rules = self.0.webhooks.as_ref().ok_or(AccountError::WebhooksDisabled).map_err(self.0.error())?;
        let attempt = Attempt::TestEvent { account: &session.account };
        self.0.accounts.throttle(attempt, Instant::now()).map_err(self.0.error())?;
        let message = Message::test(now_ms(), &self.0.dashboard_url).map_err(self.0.error())?;
        let sent = deadline::excluding(webhook::send(rules, &webhook, &message)).await;
        Ok(SerdeJson(SendResult { error: sent.err().map(|error| error.to_string()) }))
    }
}
