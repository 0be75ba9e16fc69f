//! The quota-svc that a command calls: that of the running `ip-lookup`, or one in this process while the service is
//! stopped.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, bail};
use http_server::Lifecycle;
use quota_client::{COMMAND_TIMEOUT, ClientError, QuotaClient, QuotaToken};
use quota_svc::app::QuotaService;
use quota_svc::store::embedded::OpenError;
use service_kit::Kit;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::data_dir;

/// Timeout of the call that finds out whether the service is running. Generous, because the machine may be busy.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// A quota-svc that is ready for calls.
pub struct Connection {
    pub client: QuotaClient,
    /// Where the quota-svc is, for messages.
    pub address: String,
    /// The quota-svc in this process.
    own: Option<OwnService>,
}

struct OwnService {
    lifecycle: Lifecycle,
    task: JoinHandle<()>,
}

impl Connection {
    /// Finds the quota-svc of the running service. If there is none, opens the store in this process. Creates it only if
    /// `create` is set.
    pub async fn open(config: &Config, create: bool) -> anyhow::Result<Self> {
        let socket = data_dir::command_socket(&config.data_dir);
        let token_file = data_dir::quota_token_file(&config.data_dir);
        let mut not_running = None;
        // Without a token, no service has ever run on this directory.
        if token_file.exists() {
            let token = QuotaToken::load(&token_file)?;
            let client = QuotaClient::over_socket(&socket, COMMAND_TIMEOUT)?.with_token(&token);
            let status = tokio::time::timeout(PROBE_TIMEOUT, client.status()).await;
            match status.unwrap_or(Err(ClientError::TimedOut)) {
                Ok(_) => return Ok(Self { client, address: socket.display().to_string(), own: None }),
                Err(error) => not_running = Some(anyhow::Error::from(error)),
            }
        }
        if config.redis_url.is_none() && !data_dir::store_file(&config.data_dir).exists() && !create {
            bail!(
                "{} has no store: set --data-dir to the directory of the service, or start the service once",
                config.data_dir.display()
            );
        }
        Self::start(config).await.map_err(|error| match not_running {
            Some(cause) if matches!(error.downcast_ref(), Some(OpenError::InUse(_))) => {
                error.context(format!(
                    "the service seems to be running, but does not respond at {} ({}); its log may say why",
                    socket.display(),
                    cause.root_cause()
                ))
            }
            _ => error,
        })
    }

    /// Starts a quota-svc in this process, on any port of loopback.
    async fn start(config: &Config) -> anyhow::Result<Self> {
        data_dir::prepare(&config.data_dir)?;
        let token = QuotaToken::load(&data_dir::quota_token_file(&config.data_dir))?;
        let kit = Kit::detached(&config.serve_args());
        let mut quota = config.quota();
        quota.listen = (Ipv4Addr::LOCALHOST, 0).into();
        let service = QuotaService::start(None, &quota, &kit).await?;
        let address = format!("http://{}", service.local_addr());
        let own = OwnService { lifecycle: kit.lifecycle, task: tokio::spawn(service.run()) };
        let client = QuotaClient::new(&address, COMMAND_TIMEOUT)?.with_token(&token);
        let status = client.status().await?;
        let connection = Self { client, address, own: Some(own) };
        match status.store_unavailable {
            None => Ok(connection),
            Some(reason) => {
                connection.close().await?;
                bail!("can't access the store: {reason}. Check --redis-url")
            }
        }
    }

    /// Waits for the result of a command, then closes the store if this process has opened it.
    pub async fn close_after(self, command: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
        let result = command.await;
        result.and(self.close().await)
    }

    async fn close(self) -> anyhow::Result<()> {
        let Some(OwnService { lifecycle, task }) = self.own else { return Ok(()) };
        lifecycle.begin_shutdown();
        task.await.context("the store could not be closed")
    }
}
