//! Mail to owners: notices, links, and messages about the security of their accounts.

pub mod message;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use base::log_throttle::LogThrottle;
use lettre::address::AddressError;
use lettre::message::Mailbox;
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::{self, AsyncSmtpTransport};
use lettre::{Address, AsyncTransport, Tokio1Executor};
use message::Message;
use quota_client::wire::{Account, SessionKind};
use quota_client::{ClientError, QuotaClient, found};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::password_link::{LinkToken, RESET_TTL};
use crate::session::{Sealer, SessionKey, unix_now};
use crate::throttle::{Attempt, Purpose, Throttle, Throttled};

/// Time for one attempt, including the wait for a free connection.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Connections to the mail server at the same time.
const CONNECTIONS: usize = 8;
/// Messages that are sent in the background, or wait for their next attempt. Further ones are dropped.
const MAX_TASKS: usize = 256;
/// Time after each failed attempt in the background.
const BACKOFF: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(60), Duration::ZERO];
/// Lifetime of the link that verifies an address.
const VERIFICATION_TTL: Duration = Duration::from_secs(86_400);
const MAX_ADDRESS: usize = 254;

#[derive(clap::Args, Debug, Clone, Default)]
#[command(next_help_heading = "Notices")]
pub struct MailArgs {
    /// Mail server, for notices and password links: smtp://USER@HOST (STARTTLS, port 587) or smtps://USER@HOST (TLS from the
    /// start, port 465). Needs --public-url
    #[arg(long, env, value_name = "URL", value_parser = smtp_url, requires = "mail_from")]
    pub smtp_url: Option<Url>,
    /// File with the password of the user in --smtp-url
    #[arg(long, env, value_name = "PATH")]
    pub smtp_password_file: Option<PathBuf>,
    /// Sender of mail, such as "IP Lookup <noreply@example.org>"
    #[arg(long, env, value_name = "ADDRESS")]
    pub mail_from: Option<Mailbox>,
}

fn smtp_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let problem = match url.scheme() {
        "smtp" | "smtps" if url.password().is_some() => "put the password into --smtp-password-file",
        "smtp" | "smtps" if url.path().len() > 1 || url.query().is_some() || !url.has_host() => {
            "expected a user, a host and a port only, as in smtp://user@mail.example.org"
        }
        "smtp" | "smtps" => return Ok(url),
        _ => "it must begin with smtp:// or smtps://",
    };
    Err(problem.to_owned())
}

/// Why a message was not sent. The owner sees this text, so it must not tell anything about the operator's network.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    #[error("the mail address is not valid")]
    Address(#[from] AddressError),
    #[error("the message can't be written")]
    Message(#[from] lettre::error::Error),
    #[error("the mail server did not respond in time")]
    TimedOut,
    #[error("the mail server rejected the message with status {0}")]
    Rejected(u16),
    #[error("the connection to the mail server failed")]
    Connection(#[source] smtp::Error),
    #[error("too many messages wait")]
    TooMany,
}

/// Work in the background.
pub enum Task {
    /// Sends a password link to the owner of this login, if there is one with a verified address and none was requested within
    /// the last 10 minutes.
    PasswordReset { login: String },
    /// Tells the owner of this account that its password was changed.
    PasswordChanged { account: String },
    /// Tells the old address of this account that it was replaced or removed.
    AddressChanged { account: String, old: String },
}

type Transport = AsyncSmtpTransport<Tokio1Executor>;

pub struct Mailer {
    transport: Transport,
    from: Mailbox,
    connections: Semaphore,
    tasks: Arc<Semaphore>,
    throttle: Arc<Throttle>,
    quota: QuotaClient,
    /// URL of the dashboard, without a trailing slash.
    url: String,
    /// Of the links that verify an address.
    sealer: Sealer,
    failures: LogThrottle,
}

impl MailArgs {
    /// The mail server and the sender. `None` if no mail server is set.
    pub(crate) fn transport(&self) -> anyhow::Result<Option<(Transport, Mailbox)>> {
        let Some(server) = &self.smtp_url else { return Ok(None) };
        let from = self.mail_from.clone().context("--smtp-url needs --mail-from")?;
        let mut server = server.clone();
        server.set_query(Some("tls=required"));
        match (server.username(), &self.smtp_password_file) {
            ("", None) => {}
            ("", Some(_)) => bail!("--smtp-password-file needs a user in --smtp-url, as in smtp://user@host"),
            (_, None) => bail!("--smtp-url has a user: set --smtp-password-file"),
            (_, Some(path)) => {
                let password = std::fs::read_to_string(path);
                let password =
                    password.with_context(|| format!("--smtp-password-file {}", path.display()))?;
                // Encoded by hand, because `set_password` leaves a `%` as it is, and lettre decodes it.
                let password = password.trim_end_matches(['\r', '\n']).replace('%', "%25");
                let _ = server.set_password(Some(&password));
            }
        }
        let transport = Transport::from_url(server.as_str());
        let transport = transport.context("--smtp-url")?.timeout(Some(TIMEOUT));
        let transport = transport.hello_name(ClientId::Domain(from.email.domain().to_owned()));
        Ok(Some((transport.build(), from)))
    }
}

/// Parses a mail address. Quoted names, and IP addresses in place of a domain, can't be sent to.
pub fn address(text: &str) -> Result<Address, AddressError> {
    let can_be_sent_to = text.len() <= MAX_ADDRESS && !text.contains(['"', '[']);
    if can_be_sent_to { text.parse() } else { Err(AddressError::InvalidInput) }
}

impl Mailer {
    /// `None` if no mail server is set.
    pub fn new(
        args: &MailArgs,
        key: &SessionKey,
        quota: QuotaClient,
        throttle: Arc<Throttle>,
        url: String,
    ) -> anyhow::Result<Option<Arc<Self>>> {
        let Some((transport, from)) = args.transport()? else { return Ok(None) };
        Ok(Some(Arc::new(Self {
            transport,
            from,
            connections: Semaphore::new(CONNECTIONS),
            tasks: Arc::new(Semaphore::new(MAX_TASKS)),
            throttle,
            quota,
            url,
            sealer: key.sealer("mail verification v1"),
            failures: LogThrottle::default(),
        })))
    }

    /// Counts a message to this address, or rejects it.
    pub fn allow(&self, purpose: Purpose, recipient: &str) -> Result<(), Throttled> {
        self.throttle.allow(Attempt::Mail(purpose, recipient))
    }

    /// Sends a message within `time`, or logs why it was not sent.
    pub async fn send(&self, to: &str, message: &Message, time: Duration) -> Result<(), MailError> {
        let sent = timeout(time, self.attempt(to, message)).await.unwrap_or(Err(MailError::TimedOut));
        sent.inspect_err(|error| self.log(error))
    }

    async fn attempt(&self, to: &str, message: &Message) -> Result<(), MailError> {
        let message = message.build(&self.from, address(to)?)?;
        // Fails only if the semaphore is closed, which never happens.
        let _connection = self.connections.acquire().await;
        let sent = self.transport.send(message).await;
        sent.map(drop).map_err(|error| match error.status() {
            Some(status) => MailError::Rejected(status.into()),
            None if error.is_timeout() => MailError::TimedOut,
            None => MailError::Connection(error),
        })
    }

    pub fn spawn(self: &Arc<Self>, task: Task) {
        let Ok(permit) = self.tasks.clone().try_acquire_owned() else { return self.log(&MailError::TooMany) };
        let mailer = self.clone();
        tokio::spawn(async move {
            if let Err(error) = mailer.perform(task).await {
                mailer.log(&*error);
            }
            drop(permit);
        });
    }

    /// The message with the link that verifies an address of an account.
    pub fn verification(&self, account: &str, address: &str) -> Result<Message, getrandom::Error> {
        let (content, expires) = (format!("{account} {address}"), unix_now() + VERIFICATION_TTL.as_secs());
        let token = self.sealer.seal(&content, "", expires)?;
        Ok(Message::verification(&format!("{}/#verify-mail={token}", self.url)))
    }

    /// Marks the address that a link was sent to as verified. Returns `false` if the link is malformed or has expired, or the
    /// account has another address by now.
    pub async fn verify(&self, token: &str) -> Result<bool, ClientError> {
        let content = self.sealer.open(token, "", unix_now());
        let Some((account, address)) = content.as_deref().and_then(|text| text.split_once(' ')) else {
            return Ok(false);
        };
        let Some(old) = found(self.quota.contact(account).await)? else { return Ok(false) };
        let mut contact = old.contact.clone();
        let Some(mail) = contact.mail.as_mut().filter(|mail| mail.address == address) else {
            return Ok(false);
        };
        mail.verified = true;
        self.quota.set_contact(account, old.contact, contact).await?;
        Ok(true)
    }

    fn log(&self, error: &(dyn std::error::Error + 'static)) {
        if let Some(occurrences) = self.failures.allow() {
            let causes: Vec<_> = anyhow::Chain::new(error).map(ToString::to_string).collect();
            tracing::warn!(error = causes.join(": "), occurrences, "can't send mail");
        }
    }

    /// Sends the message of a task, if anybody gets one.
    async fn perform(&self, task: Task) -> anyhow::Result<()> {
        let account = match &task {
            Task::PasswordReset { login } => match self.quota.find_account(login).await {
                Err(error) if error.status() == Some(400) => None,
                account => account?,
            },
            Task::PasswordChanged { account } | Task::AddressChanged { account, .. } => {
                Some(self.quota.account(account).await?)
            }
        };
        let Some(Account { id, login, .. }) = account else { return Ok(()) };
        let address = match &task {
            Task::AddressChanged { old, .. } => Some(old.clone()),
            _ => self.quota.contact(&id).await?.contact.verified_address().map(str::to_owned),
        };
        let is_reset = matches!(task, Task::PasswordReset { .. });
        let purpose = if is_reset { Purpose::PasswordReset } else { Purpose::Security };
        let is_allowed = |address: &String| self.allow(purpose, address).is_ok();
        let Some(address) = address.filter(is_allowed) else { return Ok(()) };
        let message = match task {
            Task::AddressChanged { .. } => Message::address_changed(&login, &self.url),
            Task::PasswordChanged { .. } => Message::password_changed(&login, &self.url),
            Task::PasswordReset { .. } => {
                let token = LinkToken::generate(&id)?;
                if !token.store(&self.quota, SessionKind::RequestedLink, RESET_TTL).await? {
                    return Ok(());
                }
                Message::password_reset(&login, &token.link(&self.url))
            }
        };
        for wait in BACKOFF {
            if self.send(&address, &message, TIMEOUT).await.is_ok() {
                break;
            }
            sleep(wait).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn server_that_never_responds_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let args = MailArgs {
            smtp_url: Some(format!("smtp://{}", listener.local_addr().unwrap()).parse().unwrap()),
            mail_from: Some("noreply@example.org".parse().unwrap()),
            ..MailArgs::default()
        };
        let quota = QuotaClient::new("http://127.0.0.1:9", TIMEOUT).unwrap();
        let key = SessionKey::generate().unwrap();
        let mailer = Mailer::new(&args, &key, quota, Arc::default(), String::new()).unwrap().unwrap();
        let silent = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Ends when the mailer gives up.
            stream.read_to_end(&mut Vec::new()).await.unwrap();
        };
        let message = Message::verification("https://keys.example");
        let time = Duration::from_millis(200);
        let (sent, ()) = tokio::join!(mailer.send("ada@example.org", &message, time), silent);
        assert!(matches!(sent, Err(MailError::TimedOut)), "{sent:?}");
    }
}
