//! Exported accounts and keys: their form in an export, and their validation in an import.

use anyhow::{Context, anyhow, bail, ensure};
use api_key::KeyDigest;
use quota_api::invisible::is_invisible;
use quota_api::{
    DayUsage, ExportedAccount, ExportedKey, KEYS_PER_ACCOUNT, StoredAccount, is_affordable_hash,
};
use serde_json::Value;

use super::account::{Login, MAX_CONTACT, MAX_CREDENTIAL, contact_fits, standing_fits};
use super::id::{AccountId, KeyId};
use super::key::{KeyMeta, StoredKey};
use super::time::day_of_date;

/// Maximum length of a hint in an import, in characters.
const MAX_HINT: usize = 32;

/// A validated line of an export.
#[derive(Debug, Clone)]
pub struct ImportAccount {
    pub account: StoredAccount,
    pub keys: Vec<StoredKey>,
}

/// One line of an export.
pub fn export(account: StoredAccount, keys: &[StoredKey], now: i64) -> ExportedAccount {
    let key = |StoredKey { meta, record }: &StoredKey| ExportedKey {
        sha256: meta.digest.to_hex(),
        hint: meta.hint.clone(),
        settings: meta.settings.clone(),
        state: record.state,
        state_since: record.state_since,
        created_at: meta.created_at,
        daily_limit: record.daily_limit,
        successor: meta.successor.map(|id| id.to_string()),
        usage: record.usage(now).into_iter().filter(|day| day.requests > 0).collect(),
    };
    ExportedAccount { account, keys: keys.iter().map(key).collect() }
}

impl ImportAccount {
    /// Validates one line of an export. The error is a message for the CLI or the API response.
    pub fn from_export(line: &ExportedAccount, now: i64) -> anyhow::Result<Self> {
        let ExportedAccount { account, keys } = line;
        let login = Login::parse(&account.login)?;
        if let Some(field) = invisible_field(&serde_json::to_value(line)?, String::new()) {
            bail!("`{}` has control characters or invisible characters", field.trim_start_matches('.'));
        }
        let credential = account.credential.as_deref().unwrap_or_default();
        ensure!(
            credential.len() <= MAX_CREDENTIAL,
            "a credential must be at most {MAX_CREDENTIAL} bytes long"
        );
        ensure!(
            is_affordable_hash(credential),
            "the password hash in `credential` takes more than 64 MiB or 10 passes"
        );
        ensure!(contact_fits(&account.contact), "a contact must be at most {MAX_CONTACT} bytes long");
        ensure!(standing_fits(&account.standing), "a standing has too many events, or a reason is too long");
        ensure!(
            keys.len() <= 2 * KEYS_PER_ACCOUNT,
            "an account can have at most {KEYS_PER_ACCOUNT} keys and as many old ones"
        );
        let keys = keys.iter().enumerate().map(|(index, key)| {
            import_key(key, login.account_id(), now).map_err(|reason| anyhow!("keys[{index}]: {reason}"))
        });
        let keys = keys.collect::<anyhow::Result<_>>()?;
        // Version 0 means that there is no credential.
        let credential_version = account.credential_version.max(u32::from(account.credential.is_some()));
        let login = login.as_str().to_owned();
        Ok(Self { account: StoredAccount { login, credential_version, ..account.clone() }, keys })
    }
}

/// The path of the first text with a character that is not visible, such as `.keys[0].hint`.
fn invisible_field(value: &Value, path: String) -> Option<String> {
    match value {
        Value::String(text) => text.chars().any(is_invisible).then_some(path),
        Value::Array(values) => {
            values.iter().enumerate().find_map(|(i, value)| invisible_field(value, format!("{path}[{i}]")))
        }
        Value::Object(fields) => {
            fields.iter().find_map(|(name, value)| invisible_field(value, format!("{path}.{name}")))
        }
        _ => None,
    }
}

fn import_key(key: &ExportedKey, account: AccountId, now: i64) -> anyhow::Result<StoredKey> {
    ensure!(key.hint.chars().count() <= MAX_HINT, "a hint must be at most {MAX_HINT} characters");
    let digest = KeyDigest::from_hex(&key.sha256)?;
    ensure!(
        KeyId::of(&digest).shard() == account.shard(),
        "this key is for another login; generate one with: quota-svc key generate LOGIN"
    );
    let settings = key.settings.clone().checked()?;
    let successor = key.successor.as_deref().map(KeyId::from_hex).transpose()?;
    let meta =
        KeyMeta { successor, ..KeyMeta::new(account, digest, key.hint.clone(), key.created_at, settings) };
    let StoredKey { meta, mut record } =
        StoredKey::new(meta, key.daily_limit.filter(|limit| *limit > 0), now);
    (record.state, record.state_since) = (key.state, key.state_since);
    for DayUsage { day, requests } in &key.usage {
        let day = day_of_date(day).with_context(|| format!("`{day}` is not a date (YYYY-MM-DD)"))?;
        record.set_used_on(day, *requests);
    }
    Ok(StoredKey { meta, record })
}

#[cfg(test)]
mod tests {
    use quota_api::{Event, EventKind, KeySettings, KeyState, Limits, Scope, Suspension};

    use super::super::value::notices_tests::contact;
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn stored_account_and_key() -> (StoredAccount, StoredKey) {
        let account = StoredAccount {
            credential_version: 3,
            ..StoredAccount::new("ada".to_owned(), Some("x".to_owned()), 5)
        };
        let settings = KeySettings {
            expires_at: Some(1_900_000_000),
            allowed_origins: vec!["https://a.example".to_owned()],
            ..KeySettings::new("laptop", Scope::Geo)
        };
        let digest = KeyDigest([AccountId::of("ada").0[0]; 32]);
        let meta = KeyMeta {
            successor: Some(KeyId([9; 16])),
            ..KeyMeta::new(AccountId::of("ada"), digest, "ipl_abcd…wxyz".to_owned(), 7, settings)
        };
        let StoredKey { meta, mut record } = StoredKey::new(meta, Some(77), NOW - 3 * 86_400_000);
        for time in [NOW - 3 * 86_400_000, NOW - 86_400_000, NOW, NOW] {
            record.charge(time, &Limits::default());
        }
        (record.state, record.state_since) = (KeyState::Paused, 11);
        (account, StoredKey { meta, record })
    }

    #[test]
    fn export_and_import_round_trip() {
        let (account, key) = stored_account_and_key();
        let line = export(account.clone(), std::slice::from_ref(&key), NOW);
        assert_eq!(line.keys[0].usage.iter().map(|day| day.requests).collect::<Vec<_>>(), [1, 1, 2]);
        let imported = ImportAccount::from_export(&line, NOW).unwrap();
        assert_eq!(imported.account, account);
        assert_eq!(imported.keys[0].record.usage(NOW), key.record.usage(NOW));
        assert_eq!(imported.keys[0].meta, key.meta);
        assert_eq!(export(imported.account, &imported.keys, NOW), line);
    }

    #[test]
    fn export_line_is_flat_and_unknown_fields_are_rejected() {
        let (account, key) = stored_account_and_key();
        let mut line = serde_json::to_value(export(account, &[key], NOW)).unwrap();
        assert_eq!((&line["login"], &line["keys"][0]["name"]), (&"ada".into(), &"laptop".into()));
        assert!(serde_json::from_value::<ExportedAccount>(line.clone()).is_ok());
        line["keys"][0]["hush"] = 1.into();
        assert!(serde_json::from_value::<ExportedAccount>(line).is_err());
    }

    #[test]
    fn invalid_line_error_names_the_reason() {
        let (account, key) = stored_account_and_key();
        let valid = export(account, &[key], NOW);
        let mut line = valid.clone();
        line.keys[0].sha256 = "abc".to_owned();
        assert!(ImportAccount::from_export(&line, NOW).unwrap_err().to_string().contains("64 lowercase"));
        let mut line = valid.clone();
        line.keys[0].usage[0].day = "yesterday".to_owned();
        assert!(ImportAccount::from_export(&line, NOW).unwrap_err().to_string().contains("yesterday"));
        let mut line = valid.clone();
        line.keys[0].successor = Some("abc".to_owned());
        assert!(ImportAccount::from_export(&line, NOW).unwrap_err().to_string().contains("32 lowercase"));
        let mut line = valid;
        line.keys = vec![line.keys[0].clone(); 21];
        assert!(ImportAccount::from_export(&line, NOW).unwrap_err().to_string().contains("at most 10"));
    }

    #[test]
    fn key_of_another_shard_is_rejected_with_the_command_for_a_right_one() {
        let (account, key) = stored_account_and_key();
        let mut line = export(account, &[key], NOW);
        for (shard, digest) in (0..=u8::MAX).map(|first| (first % 64, KeyDigest([first; 32]))) {
            line.keys[0].sha256 = digest.to_hex();
            match ImportAccount::from_export(&line, NOW) {
                Ok(_) => assert_eq!(shard, AccountId::of("ada").shard()),
                Err(error) => {
                    assert_ne!(shard, AccountId::of("ada").shard());
                    assert!(error.to_string().contains("quota-svc key generate LOGIN"), "{error}");
                }
            }
        }
    }

    #[test]
    fn costly_password_hash_is_rejected() {
        let (mut account, key) = stored_account_and_key();
        account.credential = Some("$argon2id$v=19$m=4194304,t=2,p=1$c29tZXNhbHQ$aGFzaA".to_owned());
        let error = ImportAccount::from_export(&export(account, &[key], NOW), NOW).unwrap_err().to_string();
        assert!(error.contains("`credential` takes more than 64 MiB"), "{error}");
    }

    #[test]
    fn invisible_characters_in_an_import_are_rejected() {
        let (mut account, key) = stored_account_and_key();
        account.contact = contact(true, true);
        let event = Event { at: 1, kind: EventKind::Suspended, reason: "abuse".to_owned() };
        account.standing.events = vec![event.clone(), event];
        account.standing.suspension = Some(Suspension { reason: "abuse".to_owned(), at: 1 });
        let valid = export(account, &[key.clone(), key], NOW);
        ImportAccount::from_export(&valid, NOW).unwrap();
        for (field, expected) in [
            ("/login", "a login can't contain"),
            ("/credential", "`credential` has"),
            ("/contact/webhook/url", "`contact.webhook.url` has"),
            ("/contact/mail/address", "`contact.mail.address` has"),
            ("/standing/suspension/reason", "`standing.suspension.reason` has"),
            ("/standing/events/1/reason", "`standing.events[1].reason` has"),
            ("/keys/1/name", "`keys[1].name` has"),
            ("/keys/1/hint", "`keys[1].hint` has"),
        ] {
            for text in ["a\u{202e}b", "a\u{2066}b", "a\u{7}b"] {
                let mut line = serde_json::to_value(&valid).unwrap();
                *line.pointer_mut(field).unwrap() = text.into();
                let line = serde_json::from_value(line).unwrap();
                let error = ImportAccount::from_export(&line, NOW).unwrap_err().to_string();
                assert!(error.starts_with(expected), "{error}");
            }
        }
        let mut line = valid;
        line.keys[1].settings.name = "\u{fe0f}".to_owned();
        let error = ImportAccount::from_export(&line, NOW).unwrap_err().to_string();
        assert!(error.starts_with("keys[1]: a key name must be"), "{error}");
    }
}
