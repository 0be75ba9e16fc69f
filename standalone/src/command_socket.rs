//! Commands reach quota-svc through a Unix socket in the data directory, not through its TCP port. While the service is
//! stopped, any user of the machine could listen on that port and get the token of a command. Only the service's user can
//! create a socket in the data directory.

use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The delay after a failed accept: file descriptors have run out, so an immediate retry would fail, too.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

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
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((command, _)) => drop(connections.spawn(forward_one(command, quota))),
                Err(error) => {
                    tracing::warn!(%error, "can't accept the connection of a command; retrying");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn forward_one(mut command: UnixStream, quota: SocketAddr) -> io::Result<()> {
    let mut quota = TcpStream::connect(quota).await?;
    copy_bidirectional(&mut command, &mut quota).await.map(drop)
}
