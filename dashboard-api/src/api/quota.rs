//! What a key's holder can ask with the key itself, without a session and without being charged.

use std::sync::Arc;

use api_key::ApiKey;
use http::header;
use poem_openapi::auth::Bearer;
use poem_openapi::{OpenApi, SecurityScheme};
use quota_client::found;
use quota_client::wire::{Key, KeyState, OwnedKey};
use service_kit::SerdeJson;

use super::Tag;
use super::context::{Context, RequestInfo};
use super::csrf::single;
use super::model::{QuotaReason, QuotaState};
use crate::accounts::{AccountError, Result};
use crate::session::unix_now;
use crate::throttle::Attempt;

pub struct QuotaApi(pub Arc<Context>);

/// An API key of the lookup API.
#[derive(SecurityScheme)]
#[oai(ty = "bearer", rename = "api_key")]
struct BearerKey(Bearer);

#[derive(SecurityScheme)]
enum KeyHolder {
    Bearer(BearerKey),
    #[oai(fallback)]
    Unknown,
}

#[OpenApi(tag = "Tag::Quota")]
impl QuotaApi {
    /// Get a key's quota
    ///
    /// Needs the API key, not a session. Is never charged. Web pages of all origins may call it, unless the key is for
    /// certain origins.
    #[oai(path = "/quota", method = "get", operation_id = "getQuota")]
    async fn get(&self, request: RequestInfo, holder: KeyHolder) -> Result<SerdeJson<QuotaState>> {
        let KeyHolder::Bearer(key) = holder else { return Err(AccountError::MissingKey) };
        let key = ApiKey::parse(&key.0.token).map_err(|_| AccountError::UnknownKey)?;
        let id = &key.digest().to_hex()[..32];
        self.0.throttle.allow(Attempt::Quota(id, self.0.address(&request)))?;
        let OwnedKey { key, .. } =
            found(self.0.quota.key(id, None).await)?.ok_or(AccountError::UnknownKey)?;
        let allowed = &key.settings.allowed_origins;
        let origin = single(&request.headers, header::ORIGIN);
        if !allowed.is_empty() && !allowed.iter().any(|allowed| Some(allowed.as_str()) == origin) {
            return Err(AccountError::WrongOrigin);
        }
        Ok(SerdeJson(state(&key, unix_now())))
    }
}

fn state(key: &Key, now: u64) -> QuotaState {
    let expires_at = key.settings.expires_at;
    let is_expired = expires_at.is_some_and(|at| u64::from(at) <= now);
    let (state, reason) = match key.state {
        _ if key.suspended => (KeyState::Inactive, Some(QuotaReason::Suspended)),
        KeyState::Inactive => (KeyState::Inactive, Some(QuotaReason::Deactivated)),
        _ if is_expired => (KeyState::Inactive, Some(QuotaReason::Expired)),
        KeyState::Paused => (KeyState::Paused, Some(QuotaReason::Burst)),
        KeyState::Active => (KeyState::Active, None),
    };
    QuotaState {
        state,
        reason,
        scope: key.settings.scope,
        daily_limit: key.daily_limit,
        used_today: key.used_today,
        remaining_today: key.daily_limit.saturating_sub(key.used_today),
        reset: (now / 86_400 + 1) * 86_400,
        burst_limit: key.burst_limit,
        burst_used: key.burst_used,
        burst_remaining: key.burst_limit.saturating_sub(key.burst_used),
        expires_at,
    }
}
