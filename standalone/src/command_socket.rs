//! The quota-svc that commands call: that of the running service, or one in this process while the service is stopped.
//!
//! Commands reach the service through a Unix socket in the data directory, not through the TCP port of quota-svc. While the
//! service is stopped, any user of the machine could listen on that port and get the token of a command. Only the service's
//! user can create a socket in the data directory.

use std::fs::{self, Permissions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use quota_client::{COMMAND_TIMEOUT, ClientError, QuotaClient, QuotaToken};
use quota_svc::app::QuotaService;
use quota_svc::store::embedded::OpenError;
use service_kit::Kit;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener};
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::data_dir;

/// The delay after a failed accept: file descriptors have run out, so an immediate retry would fail, too.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Timeout of the call that finds out whether the service is running. Generous, because the machine may be busy.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a process serves the socket.
pub fn is_served(path: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(path).is_ok()
}

/// Creates the socket. Removes one that a killed process has left, so the caller must hold the store's lock.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Forwards each connection to the quota port. Never returns.
pub async fn forward(listener: UnixListener, quota: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((mut command, _)) => drop(tokio::spawn(async move {
                copy_bidirectional(&mut command, &mut TcpStream::connect(quota).await?).await
            })),
            Err(error) => {
                tracing::warn!(%error, "can't accept the connection of a command; retrying");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Runs `command` with a client of the running service's quota-svc, and its address for messages. If the service is not running,
/// opens the store in this process; creates it only if `create` is set.
pub async fn run_command(
    config: &Config,
    create: bool,
    command: impl AsyncFnOnce(QuotaClient, String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let socket = data_dir::command_socket(&config.data_dir);
    let token_file = data_dir::quota_token_file(&config.data_dir);
    let mut not_running = None;
    // Without a token, no service has ever run on this directory.
    if token_file.exists() {
        let token = QuotaToken::load(&token_file)?;
        let client = QuotaClient::over_socket(&socket, COMMAND_TIMEOUT)?.with_token(&token);
        match timeout(PROBE_TIMEOUT, client.status()).await.unwrap_or(Err(ClientError::TimedOut)) {
            Ok(_) => return command(client, socket.display().to_string()).await,
            Err(error) => not_running = Some(anyhow::Error::from(error)),
        }
    }
    let has_store = config.redis_url.is_some() || data_dir::store_file(&config.data_dir).exists();
    ensure!(
        has_store || create,
        "{} has no store: set --data-dir to the directory of the service, or start the service once",
        config.data_dir.display()
    );
    run_with_own_service(config, command).await.map_err(|error| match not_running {
        Some(cause) if matches!(error.downcast_ref(), Some(OpenError::InUse(_))) => error.context(format!(
            "the service seems to be running, but does not respond at {} ({}); its log may say why",
            socket.display(),
            cause.root_cause()
        )),
        _ => error,
    })
}

/// Runs `command` with a quota-svc in this process, on any port of loopback. Closes the store at the end.
async fn run_with_own_service(
    config: &Config,
    command: impl AsyncFnOnce(QuotaClient, String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    data_dir::prepare(&config.data_dir)?;
    let token = QuotaToken::load(&data_dir::quota_token_file(&config.data_dir))?;
    let kit = Kit::detached(&config.serve_args());
    let mut quota = config.quota();
    quota.listen = (Ipv4Addr::LOCALHOST, 0).into();
    let service = QuotaService::start(None, &quota, &kit).await?;
    let address = format!("http://{}", service.local_addr());
    let client = QuotaClient::new(&address, COMMAND_TIMEOUT)?.with_token(&token);
    let service = tokio::spawn(service.run());
    let result = match client.status().await?.store_unavailable {
        None => command(client, address).await,
        Some(reason) => Err(anyhow!("can't access the store: {reason}. Check --redis-url")),
    };
    kit.lifecycle.begin_shutdown();
    service.await.context("the store could not be closed")?;
    result
}
