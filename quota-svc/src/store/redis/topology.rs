//! Which connection a name is served by: one server's, or a Cluster's by slot.

mod cluster;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::link::{Link, Route};
use super::names::Name;
use super::script::Call;
use super::target::{Access, Place};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There is no connection now; nothing was sent.
    #[error("no connection to {0}")]
    Down(String),
    /// Sent, and not answered in time.
    #[error("no answer in time from {0}")]
    TimedOut(String),
    /// The server, or the connection, says no.
    #[error("{0}")]
    Failed(#[from] RedisError),
}

/// An answer and the connection it came by, on which a write can be confirmed.
pub struct Answer {
    /// What the server said.
    pub value: Value,
    /// The connection.
    pub via: MultiplexedConnection,
    /// The server's address.
    pub server: Arc<str>,
}

/// One server, or a Cluster.
pub enum Topology {
    /// One server, also one that sentinels name.
    Single(Arc<Link>),
    /// A Cluster.
    Cluster(Cluster),
}

impl Topology {
    /// Starts connecting; `timeout` is what a whole call may take.
    pub fn start(place: &Place, access: &Access, timeout: Duration) -> Self {
        let single = |route| Self::Single(Arc::new(Link::start(route, access.clone(), timeout)));
        match place.clone() {
            Place::Server(node) => single(Route::Server(node)),
            Place::Socket(path) => single(Route::Socket(path)),
            Place::Sentinel { sentinels, master } => single(Route::Sentinel { sentinels, master }),
            Place::Cluster(seeds) => Self::Cluster(Cluster::start(seeds, access.clone(), timeout)),
        }
    }

    /// Whether names of different tags may not share a call.
    pub fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// What is missing, for /readyz; `None` if everything is connected.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Single(link) if link.is_up() => None,
            Self::Single(link) => Some(format!("no connection to {}", link.label())),
            Self::Cluster(cluster) => cluster.trouble(),
        }
    }

    /// Runs a script where `name` lives, within the time of one call also where the server has to be told its text.
    pub async fn run(&self, name: &Name, call: &Call) -> Result<Answer, CallError> {
        let ran = async {
            match self.attempt(name, &call.by_sha()).await {
                // A server that does not know the script has not run it.
                Err(CallError::Failed(error)) if is(&error, ServerErrorKind::NoScript) => {
                    self.attempt(name, &call.by_text()).await
                }
                other => other,
            }
        };
        self.in_time(name, ran).await
    }

    /// Sends a command where `name` lives, within the time of one call.
    pub async fn send(&self, name: &Name, command: &Cmd) -> Result<Answer, CallError> {
        self.in_time(name, self.attempt(name, command)).await
    }

    async fn in_time(
        &self,
        name: &Name,
        call: impl Future<Output = Result<Answer, CallError>>,
    ) -> Result<Answer, CallError> {
        let answer = tokio::time::timeout(self.timeout(), call).await;
        answer.unwrap_or_else(|_| Err(self.give_up(name)))
    }

    /// No answer in time: puts the connection in doubt.
    fn give_up(&self, name: &Name) -> CallError {
        match self {
            Self::Single(link) => {
                link.report_doubt();
                CallError::TimedOut(link.label().to_string())
            }
            Self::Cluster(cluster) => cluster.give_up(name.slot()),
        }
    }

    fn timeout(&self) -> Duration {
        match self {
            Self::Single(link) => link.timeout(),
            Self::Cluster(cluster) => cluster.timeout(),
        }
    }

    /// Nothing that may have been executed is sent again.
    async fn attempt(&self, name: &Name, command: &Cmd) -> Result<Answer, CallError> {
        match self {
            Self::Single(link) => send_by(link, command).await,
            Self::Cluster(cluster) => cluster.send(name.slot(), command).await,
        }
    }
}

/// Sends a command by one link.
async fn send_by(link: &Link, command: &Cmd) -> Result<Answer, CallError> {
    let mut via = link.connection().ok_or_else(|| CallError::Down(link.label().to_string()))?;
    match command.query_async(&mut via).await {
        Ok(value) => Ok(Answer { value, via, server: link.label().clone() }),
        Err(error) => {
            report(link, &error);
            let late = error.is_timeout();
            Err(if late { CallError::TimedOut(link.label().to_string()) } else { error.into() })
        }
    }
}

/// Tells the link's keeper what an error means for the connection.
fn report(link: &Link, error: &RedisError) {
    if is(error, ServerErrorKind::ReadOnly) || is(error, ServerErrorKind::MasterDown) {
        link.report_wrong_server();
    } else if error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        // The server says so itself; PING tells when that is over.
        || is(error, ServerErrorKind::BusyLoading)
        || error.code() == Some("MISCONF")
    {
        link.report_doubt();
    }
}

fn is(error: &RedisError, kind: ServerErrorKind) -> bool {
    error.kind() == ErrorKind::Server(kind)
}
