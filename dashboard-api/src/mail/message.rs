//! The text of every mail: what happened, why, what to do, and the link.

use data_encoding::HEXLOWER;
use lettre::Address;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, Message as Encoded};
use quota_client::wire::{Key, Notice, NoticeKind, rfc3339};
use sha2::{Digest, Sha256};

/// A message without its recipient.
pub struct Message {
    /// The same for every attempt.
    id: String,
    subject: String,
    text: String,
}

/// ID of a notice's messages, the same for every attempt and every repeat of an announcement.
pub fn notice_id(notice: &Notice) -> String {
    let digest = Sha256::digest(format!("{} {} {}", notice.kind.as_str(), notice.key, notice.at));
    format!("msg_{}", HEXLOWER.encode(&digest[..16]))
}

/// What happened to a key, why, and what its owner can do. The link follows.
pub fn sentence(notice: &Notice, key: &Key) -> String {
    let (name, hint, limit) = (&key.settings.name, &key.hint, notice.limit);
    match notice.kind {
        NoticeKind::KeyPaused => format!(
            "Key “{name}” ({hint}) is paused: it made more than {limit} requests within 60 seconds. Its requests get 429 until you resume it"
        ),
        NoticeKind::KeyDailyLimit80 => format!(
            "Key “{name}” ({hint}) has made {} of its {limit} requests for today. After them, its requests get 429 until midnight UTC",
            notice.used
        ),
        NoticeKind::KeyDailyLimit => format!(
            "Key “{name}” ({hint}) has used up its daily limit of {limit} requests. Its requests get 429 until midnight UTC"
        ),
        NoticeKind::KeyExpiring => {
            let time = key.settings.expires_at.map_or("soon".to_owned(), |at| format!("at {}", rfc3339(at)));
            format!(
                "Key “{name}” ({hint}) expires {time}. After that its requests get 403. Replace it or extend its expiry"
            )
        }
    }
}

impl Message {
    pub fn notice(notice: &Notice, key: &Key, link: &str) -> Self {
        let what = match notice.kind {
            NoticeKind::KeyPaused => "is paused",
            NoticeKind::KeyDailyLimit80 => "has used 80 % of its daily limit",
            NoticeKind::KeyDailyLimit => "has reached its daily limit",
            NoticeKind::KeyExpiring => "expires soon",
        };
        let subject = format!("API key “{}” {what}", key.settings.name);
        let text = format!(
            "{}:\n\n{link}\n\nYour account in the dashboard has a switch for these messages.",
            sentence(notice, key)
        );
        Self { id: notice_id(notice), subject, text }
    }

    /// Without the login: until the address is verified, anyone may have entered it.
    pub fn verification(link: &str) -> Self {
        let text = format!(
            "Somebody, probably you, entered this address in an account of the IP lookup dashboard. To verify it, open this link \
             within 24 hours:\n\n{link}\n\nIf it was not you, ignore this message."
        );
        Self::new("Verify your mail address", text)
    }

    pub fn password_reset(login: &str, link: &str) -> Self {
        let text = format!(
            "Somebody, probably you, requested a new password for {login}. To set it, open this link within 30 minutes. It \
             works once:\n\n{link}\n\nIf it was not you, ignore this message: the password stays as it is."
        );
        Self::new("Set a new password", text)
    }

    pub fn password_changed(login: &str, url: &str) -> Self {
        let text = format!(
            "The password of {login} was changed. If it was you, there is nothing to do. If not, set a new one at once: open the \
             dashboard and choose “Forgot your password?”.\n\n{url}/#forgot-password"
        );
        Self::new("Your password was changed", text)
    }

    pub fn address_changed(login: &str, url: &str) -> Self {
        let text = format!(
            "This address no longer belongs to the account {login}: somebody who knows its password has replaced or removed it. \
             If it was you, there is nothing to do. If not, sign in, change the password and enter your address again; if you \
             can't, ask the operator.\n\n{url}/"
        );
        Self::new("Your mail address was changed", text)
    }

    fn new(subject: &str, text: String) -> Self {
        let id = HEXLOWER.encode(&Sha256::digest(format!("{text}{:?}", std::time::SystemTime::now())));
        Self { id, subject: subject.to_owned(), text }
    }

    /// The message as it is sent. lettre encodes the headers, so that no text can add one.
    pub fn build(&self, from: &Mailbox, to: Address) -> Result<Encoded, lettre::error::Error> {
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        Encoded::builder()
            .from(from.clone())
            .to(Mailbox::new(None, to))
            .message_id(Some(format!("<{}@{}>", self.id, from.email.domain())))
            .subject(self.subject.replace(char::is_control, " "))
            .raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()))
            .header(ContentType::TEXT_PLAIN)
            .body(self.text.clone() + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_can_not_add_a_header() {
        let message = Message::new("Hello\r\nBcc: eve@example.org", "Text".to_owned());
        let from = "noreply@example.org".parse().unwrap();
        let encoded = message.build(&from, "ada@example.org".parse().unwrap()).unwrap();
        let encoded = String::from_utf8(encoded.formatted()).unwrap();
        assert!(!encoded.lines().any(|line| line.starts_with("Bcc")), "{encoded}");
        assert_eq!(encoded.matches("Subject: ").count(), 1, "{encoded}");
    }
}
