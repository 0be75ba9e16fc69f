//! What a key's holder can ask with the key itself, without a session and without being charged.

use std::sync::Arc;

use api_key::ApiKey;
use http::header;
use poem::Request;
use poem_openapi::auth::Bearer;
use poem_openapi::{Enum, Object, OpenApi, SecurityScheme};
use quota_client::found;
use quota_client::wire::{Key, KeyState, OwnedKey, Scope};
use serde::Serialize;
use service_kit::SerdeJson;

use super::Tag;
use super::context::Context;
use super::csrf::single;
use crate::error::{Error, Result};
use crate::session::unix_now;
use crate::throttle::Attempt;

/// State and quota of a key. Without its name and origins.
#[derive(Object, Serialize)]
pub struct QuotaState {
    /// State of the key. A key that has expired, or whose account is suspended, is `inactive`.
    pub state: KeyState,
    /// Why the key is not active. Absent if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<QuotaReason>,
    /// Which fields a lookup with this key returns.
    pub scope: Scope,
    /// Requests allowed per day (UTC).
    pub daily_limit: u32,
    /// Requests counted against the daily limit today.
    pub used_today: u32,
    /// Requests left today.
    pub remaining_today: u32,
    /// When the day ends: Unix time in seconds.
    pub reset: u64,
    /// Requests allowed within 60 seconds. One more pauses the key.
    pub burst_limit: u16,
    /// Requests within the last 60 seconds.
    pub burst_used: u16,
    /// Requests left within 60 seconds.
    pub burst_remaining: u16,
    /// When the key expires: Unix time in seconds. Absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u32>,
}

/// Why a key is not active. `burst`: it exceeded the burst limit. `suspended`: its account is.
#[derive(Enum, Serialize)]
#[oai(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum QuotaReason {
    Deactivated,
    Expired,
    Burst,
    Suspended,
}

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
    async fn get(&self, request: &Request, holder: KeyHolder) -> Result<SerdeJson<QuotaState>> {
        let KeyHolder::Bearer(key) = holder else { return Err(Error::MISSING_KEY) };
        let key = ApiKey::parse(&key.0.token).map_err(|_| Error::UNKNOWN_KEY)?;
        let id = &key.digest().to_hex()[..32];
        self.0.throttle.allow(Attempt::Quota(id, self.0.address(request)))?;
        let OwnedKey { key, .. } = found(self.0.quota.key(id, None).await)?.ok_or(Error::UNKNOWN_KEY)?;
        let allowed = &key.settings.allowed_origins;
        let origin = single(request.headers(), header::ORIGIN);
        if !allowed.is_empty() && !allowed.iter().any(|allowed| Some(allowed.as_str()) == origin) {
            return Err(Error::WRONG_ORIGIN);
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
