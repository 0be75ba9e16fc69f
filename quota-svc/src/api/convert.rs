//! Converts between the types of the internal API and those of the domain and the store.

use api_key::KeyDigest;
use quota_api::DayUsage;

use crate::domain::account::{Account, KEYS_PER_ACCOUNT, Login, MAX_CREDENTIAL};
use crate::domain::event::{Actor, Event, EventKind};
use crate::domain::invisible::is_invisible;
use crate::domain::key::{KeyMeta, KeyName, StoredKey};
use crate::domain::limits::Limits;
use crate::domain::record::{KeyRecord, KeyState, Scope, USAGE_DAYS};
use crate::domain::time::{date_of, day_of, day_of_date};
use crate::domain::verdict::{Outcome, Verdict};
use crate::store::{Cause, ImportAccount, UnreadableKey};

/// Maximum length of a hint in an import, in characters.
const MAX_HINT: usize = 32;

const _: () = assert!(KEYS_PER_ACCOUNT == quota_api::KEYS_PER_ACCOUNT);

/// Implements `From` for enums with the same variants.
macro_rules! convert_variants {
    ($from:path => $to:path: $($variant:ident),+) => {
        impl From<$from> for $to {
            fn from(value: $from) -> Self {
                use $from as From;
                match value {
                    $(From::$variant => Self::$variant,)+
                }
            }
        }
    };
}

convert_variants!(Scope => quota_api::Scope: Ip, Geo, Full);
convert_variants!(quota_api::Scope => Scope: Ip, Geo, Full);
convert_variants!(KeyState => quota_api::KeyState: Active, Paused, Inactive);
convert_variants!(quota_api::KeyState => KeyState: Active, Paused, Inactive);
convert_variants!(quota_api::Actor => Actor: Owner, Operator, System);
convert_variants!(EventKind => quota_api::EventKind:
    Created, Imported, Paused, Resumed, Deactivated, Reactivated, Renamed, LimitChanged);
convert_variants!(Outcome => quota_api::Outcome:
    Allowed, UnknownKey, Inactive, Paused, BurstExceeded, DailyExceeded, Unavailable);

impl From<Verdict> for quota_api::Verdict {
    fn from(verdict: Verdict) -> Self {
        let Verdict { outcome, scope, limit, remaining, reset, retry_after } = verdict;
        let (outcome, scope) = (outcome.into(), scope.map(Into::into));
        Self { outcome, scope, limit, remaining, reset, retry_after }
    }
}

impl From<Event> for quota_api::Event {
    fn from(event: Event) -> Self {
        Self { at: event.at, kind: event.kind.into(), reason: event.reason }
    }
}

/// An account without its credential.
pub fn account(account: &Account) -> quota_api::Account {
    quota_api::Account {
        id: account.id().to_string(),
        login: account.login.as_str().to_owned(),
        created_at: account.created_at,
        credential_version: account.credential_version,
    }
}

/// A key with its usage so far on the day of `now`.
pub fn key(key: &StoredKey, limits: &Limits, now: i64) -> quota_api::Key {
    let StoredKey { meta, record } = key;
    let today = day_of(now);
    quota_api::Key {
        id: meta.id().to_string(),
        account: meta.account.to_string(),
        name: meta.name.as_str().to_owned(),
        hint: meta.hint.clone(),
        scope: record.scope.into(),
        state: record.state.into(),
        state_since: record.state_since,
        created_at: meta.created_at,
        daily_limit: record.limit(limits),
        burst_limit: u32::from(limits.burst),
        used_today: record.used_on(today, today),
    }
}

pub fn unreadable_key(key: UnreadableKey) -> quota_api::UnreadableKey {
    let UnreadableKey { id, meta, reason } = key;
    let (name, hint) = meta.map(|meta| (meta.name.as_str().to_owned(), meta.hint)).unzip();
    quota_api::UnreadableKey { id: id.to_string(), name, hint, reason }
}

/// Usage of the last 31 days, oldest first; today is the last.
pub fn usage(record: &KeyRecord, now: i64) -> Vec<DayUsage> {
    let today = day_of(now);
    let first = today.saturating_sub(USAGE_DAYS as u32 - 1);
    let days = first..=today;
    days.map(|day| DayUsage { day: date_of(day), requests: record.used_on(day, today) }).collect()
}

/// One line of an export.
pub fn to_export(account: Account, keys: &[StoredKey], now: i64) -> quota_api::ExportedAccount {
    let key = |key: &StoredKey| quota_api::ExportedKey {
        sha256: key.meta.digest.to_hex(),
        name: key.meta.name.as_str().to_owned(),
        hint: key.meta.hint.clone(),
        scope: key.record.scope.into(),
        state: key.record.state.into(),
        state_since: key.record.state_since,
        created_at: key.meta.created_at,
        daily_limit: key.record.daily_limit,
        usage: usage(&key.record, now).into_iter().filter(|day| day.requests > 0).collect(),
    };
    quota_api::ExportedAccount {
        login: account.login.as_str().to_owned(),
        created_at: account.created_at,
        keys: keys.iter().map(key).collect(),
        credential: account.credential,
        credential_version: account.credential_version,
    }
}

/// Converts and validates one line of an export. The error is a message for the CLI or the API response.
pub fn from_export(line: &quota_api::ExportedAccount, now: i64) -> Result<ImportAccount, Cause> {
    let login = Login::parse_new(&line.login)?;
    if line.credential.as_ref().is_some_and(|credential| credential.len() > MAX_CREDENTIAL) {
        return Err(format!("a credential must be at most {MAX_CREDENTIAL} bytes long").into());
    }
    if line.keys.len() > KEYS_PER_ACCOUNT {
        return Err(format!("an account can have at most {KEYS_PER_ACCOUNT} keys").into());
    }
    let account = Account {
        login,
        created_at: line.created_at,
        credential: line.credential.clone(),
        credential_version: line.credential_version,
    };
    let keys = line.keys.iter().enumerate().map(|(index, key)| {
        key_from_export(key, &account, now).map_err(|reason| format!("keys[{index}]: {reason}"))
    });
    let keys = keys.collect::<Result<_, _>>()?;
    Ok(ImportAccount { account, keys })
}

fn key_from_export(key: &quota_api::ExportedKey, account: &Account, now: i64) -> Result<StoredKey, Cause> {
    if key.hint.chars().count() > MAX_HINT || key.hint.chars().any(is_invisible) {
        let reason = format!("a hint must be at most {MAX_HINT} characters, without invisible characters");
        return Err(reason.into());
    }
    let meta = KeyMeta {
        account: account.id(),
        name: KeyName::parse_new(&key.name)?,
        hint: key.hint.clone(),
        digest: KeyDigest::from_hex(&key.sha256)?,
        created_at: key.created_at,
    };
    let mut record = KeyRecord::new(key.scope.into(), key.daily_limit.filter(|limit| *limit > 0), now);
    (record.state, record.state_since) = (key.state.into(), key.state_since);
    for DayUsage { day, requests } in &key.usage {
        let day = day_of_date(day).ok_or_else(|| format!("`{day}` is not a date (YYYY-MM-DD)"))?;
        record.set_used_on(day, *requests);
    }
    Ok(StoredKey { meta, record })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn stored_account_and_key() -> (Account, StoredKey) {
        let login = Login::parse("ada").unwrap();
        let account =
            Account { login, created_at: 5, credential: Some("x".to_owned()), credential_version: 3 };
        let meta = KeyMeta {
            account: account.id(),
            name: KeyName::parse("laptop").unwrap(),
            hint: "ipl_abcd…wxyz".to_owned(),
            digest: KeyDigest([9; 32]),
            created_at: 7,
        };
        let mut record = KeyRecord::new(Scope::Geo, Some(77), NOW - 3 * 86_400_000);
        for time in [NOW - 3 * 86_400_000, NOW - 86_400_000, NOW, NOW] {
            record.charge(time, &Limits::default());
        }
        (record.state, record.state_since) = (KeyState::Paused, 11);
        (account, StoredKey { meta, record })
    }

    #[test]
    fn export_and_import_round_trip() {
        let (account, key) = stored_account_and_key();
        let line = to_export(account.clone(), std::slice::from_ref(&key), NOW);
        assert_eq!(line.keys[0].usage.iter().map(|day| day.requests).collect::<Vec<_>>(), [1, 1, 2]);
        let imported = from_export(&line, NOW).unwrap();
        assert_eq!(imported.account, account);
        assert_eq!(usage(&imported.keys[0].record, NOW), usage(&key.record, NOW));
        assert_eq!(imported.keys[0].meta, key.meta);
        assert_eq!(to_export(imported.account, &imported.keys, NOW), line);
    }

    #[test]
    fn invalid_line_error_names_the_reason() {
        let (account, key) = stored_account_and_key();
        let valid = to_export(account, &[key], NOW);
        let mut line = valid.clone();
        line.keys[0].sha256 = "abc".to_owned();
        assert!(from_export(&line, NOW).unwrap_err().to_string().contains("64 lowercase"));
        let mut line = valid.clone();
        line.keys[0].usage[0].day = "yesterday".to_owned();
        assert!(from_export(&line, NOW).unwrap_err().to_string().contains("yesterday"));
        let mut line = valid;
        line.keys = vec![line.keys[0].clone(); 11];
        assert!(from_export(&line, NOW).unwrap_err().to_string().contains("at most 10"));
    }

    #[test]
    fn invisible_characters_in_an_import_are_rejected() {
        let (account, key) = stored_account_and_key();
        let valid = to_export(account, &[key.clone(), key], NOW);
        for text in ["a\u{202e}b", "a\u{2066}b", "\u{fe0f}"] {
            let mut line = valid.clone();
            line.login = text.to_owned();
            let error = from_export(&line, NOW).expect_err("the login is invalid").to_string();
            assert!(error.contains("a login must be"), "{error}");
            let mut line = valid.clone();
            line.keys[1].name = text.to_owned();
            let error = from_export(&line, NOW).expect_err("the name is invalid").to_string();
            assert!(error.starts_with("keys[1]: a key name must be"), "{error}");
        }
        let mut line = valid;
        line.keys[1].hint = "ipl_\u{202e}abcd".to_owned();
        let error = from_export(&line, NOW).expect_err("the hint is invalid").to_string();
        assert!(error.starts_with("keys[1]: a hint must be"), "{error}");
    }
}
