//! The quota-svc that a command calls: that of the running `ip-lookup`, or one in this process while the service is
//! stopped.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context, bail};
use http_server::Lifecycle;
use quota_client::{ClientError, QuotaClient, QuotaToken};
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
    pub url: String,
    pub token: QuotaToken,
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
        let url = format!("http://{}", config.quota_listen);
        let token_file = data_dir::quota_token_file(&config.data_dir);
        // Without a token, no service has ever run on this directory.
        let not_running =
            match QuotaToken::load_optional(token_file.exists().then_some(token_file.as_path()))? {
                None => None,
                Some(token) => match probe(&url, &token).await? {
                    None => return Ok(Self { url, token, own: None }),
                    Some(error) => Some(error),
                },
            };
        if config.redis_url.is_none() && !data_dir::store_file(&config.data_dir).exists() && !create {
            bail!(
                "{} has no store: set --data-dir to the directory of the service, or start the service once",
                config.data_dir.display()
            );
        }
        Self::start(config).await.map_err(|error| {
            match not_running {
            Some(cause) if matches!(error.downcast_ref(), Some(OpenError::InUse(_))) => error.context(format!(
                "the service seems to be running, but does not respond at {} ({cause}). If it has another \
                 --quota-listen, set the same one here",
                config.quota_listen
            )),
            _ => error,
        }
        })
    }

    /// Starts a quota-svc in this process, on any port of loopback.
    async fn start(config: &Config) -> anyhow::Result<Self> {
        let data = data_dir::prepare(&config.data_dir)?;
        let token = QuotaToken::load(&data.quota_token_file)?;
        let kit = Kit::for_command(&config.serve_args());
        let mut quota = config.quota(&data);
        quota.listen = (Ipv4Addr::LOCALHOST, 0).into();
        let service = QuotaService::start(&quota, &kit).await?;
        let url = format!("http://{}", service.local_addr());
        let own = OwnService { lifecycle: kit.lifecycle, task: tokio::spawn(service.run()) };
        let connection = Self { url, token, own: Some(own) };
        let client = QuotaClient::new(&connection.url, PROBE_TIMEOUT)?.with_token(Some(&connection.token));
        match client.status().await?.store_unavailable {
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

/// Calls the quota-svc at `url`. Returns why it is not that of the service with this token; `None` if it is.
async fn probe(url: &str, token: &QuotaToken) -> anyhow::Result<Option<ClientError>> {
    let client = QuotaClient::new(url, PROBE_TIMEOUT).context("--quota-listen")?.with_token(Some(token));
    Ok(match client.status().await {
        Ok(_) => None,
        // An earlier version accepts the token, but does not know the operation.
        Err(error) if error.status().is_some_and(|status| status != 401) => None,
        Err(error) => Some(error),
    })
}
