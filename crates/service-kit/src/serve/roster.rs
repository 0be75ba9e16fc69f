//! The open connections of a port: whom to ask to go when others wait, and all of them at the end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::activity::{Activity, Order};

/// A new connection's first bytes are on their way; it gets this long before it may have to yield.
const MIN_AGE: Duration = Duration::from_millis(20);

/// Ordered by arrival, oldest first.
#[derive(Debug, Default)]
pub(super) struct Roster {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Activity>>>,
}

impl Roster {
    /// Takes a connection in; it leaves when the entry is dropped.
    pub(super) fn enter(self: &Arc<Self>, activity: Arc<Activity>) -> Entry {
        let id = self.next.fetch_add(1, Relaxed);
        self.lock().insert(id, activity);
        Entry { id, roster: self.clone() }
    }

    /// Asks one connection to go: the oldest that never sent a request, else the oldest idle one.
    pub(super) fn make_room(&self) {
        let open = self.lock();
        let idle = || {
            open.values().filter(|activity| {
                !activity.is_busy() && activity.order().is_none() && activity.age() >= MIN_AGE
            })
        };
        let choice = idle().find(|activity| !activity.has_served()).or_else(|| idle().next());
        if let Some(activity) = choice {
            activity.give(Order::Yield);
        }
    }

    /// Tells everyone.
    pub(super) fn give_all(&self, order: Order) {
        self.lock().values().for_each(|activity| activity.give(order));
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Activity>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the roster.
#[derive(Debug)]
pub(super) struct Entry {
    id: u64,
    roster: Arc<Roster>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.roster.lock().remove(&self.id);
    }
}
