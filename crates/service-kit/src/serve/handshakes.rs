//! Handshakes in progress: PROXY headers and TLS. They have a limit of their own, so that clients that never finish one
//! take no connection from others.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use futures_util::future::{AbortHandle, Abortable};
use tokio::sync::watch;

/// The handshakes of a port, oldest first.
#[derive(Debug)]
pub(super) struct PendingHandshakes {
    limit: usize,
    next_id: AtomicU64,
    pending: watch::Sender<BTreeMap<u64, AbortHandle>>,
}

impl PendingHandshakes {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, next_id: AtomicU64::new(0), pending: watch::Sender::default() }
    }

    /// Runs a handshake in a task of its own. At the limit it replaces the oldest one.
    pub(super) fn spawn(self: &Arc<Self>, handshake: impl Future<Output = ()> + Send + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        let id = self.next_id.fetch_add(1, Relaxed);
        if self.pending.borrow().len() >= self.limit {
            self.drop_oldest();
        }
        self.pending.send_modify(|pending| drop(pending.insert(id, handle)));
        let handshakes = self.clone();
        tokio::spawn(async move {
            let _ = Abortable::new(handshake, registration).await;
            handshakes.pending.send_modify(|pending| drop(pending.remove(&id)));
        });
    }

    /// Closes the connection of the oldest handshake.
    pub(super) fn drop_oldest(&self) {
        self.pending.send_modify(|pending| {
            if let Some((_, oldest)) = pending.pop_first() {
                oldest.abort();
            }
        });
    }

    pub(super) fn drop_all(&self) {
        self.pending.borrow().values().for_each(AbortHandle::abort);
    }

    pub(super) async fn wait_finished(&self) {
        // Fails only if the sender is dropped.
        let _ = self.pending.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn handshake_above_the_limit_drops_the_oldest() {
        let handshakes = Arc::new(PendingHandshakes::new(2));
        let start = || {
            let (alive, dropped) = oneshot::channel::<()>();
            handshakes.spawn(async move {
                let _alive = alive;
                pending().await
            });
            dropped
        };
        let (mut first, mut second, mut third) = (start(), start(), start());
        assert!((&mut first).await.is_err(), "the oldest was dropped");
        assert!(second.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert!(third.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        handshakes.drop_all();
        handshakes.wait_finished().await;
        assert!(second.await.is_err() && third.await.is_err());
    }
}
