//! Where an address is and who runs its network: loaded databases, merged, reloaded while running.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::MissedTickBehavior;

pub mod asn;
pub mod country;
mod database;
mod file;
mod keys;
mod layout;
mod merge;
mod place;
mod provider;
mod record;
mod reload;
#[doc(hidden)]
pub mod sample;
mod scalar;
mod shelf;
mod snapshot;
mod watched;
#[doc(hidden)]
pub mod writer;
mod written;
mod zone;

pub use database::DatabaseInfo;
pub use place::{AsText, Place, RegionCode};
pub use provider::{Attribution, Kind};
pub use written::PlaceJson;

use snapshot::Snapshot;

/// Which databases to use.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Geo data")]
pub struct GeoArgs {
    /// MMDB file, or folder of them; repeat it to combine several, the first one that knows a
    /// field wins. Without it a small built-in sample is used
    #[arg(long, env, value_name = "PATH", value_delimiter = ',')]
    pub geo_db: Vec<PathBuf>,

    /// How often to look whether a database or list was replaced
    #[arg(long, env, value_name = "DURATION", default_value = "10s", value_parser = humantime::parse_duration)]
    pub geo_check_interval: Duration,

    /// File with the AS numbers of hosting networks, instead of the built-in list
    #[arg(long, env, value_name = "FILE")]
    pub hosting_asns: Option<PathBuf>,

    /// File with the AS numbers of VPN and proxy networks, instead of the built-in list
    #[arg(long, env, value_name = "FILE")]
    pub proxy_asns: Option<PathBuf>,
}

impl Default for GeoArgs {
    fn default() -> Self {
        GeoArgs {
            geo_db: Vec::new(),
            geo_check_interval: Duration::from_secs(10),
            hosting_asns: None,
            proxy_asns: None,
        }
    }
}

/// Why a database or list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// A folder, a device, a pipe.
    #[error("is not a regular file")]
    NotAFile,
    /// More than we are willing to hold in memory.
    #[error("is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// It changed while it was read.
    #[error("is being written to")]
    Changing,
    /// Damaged, or no MMDB at all.
    #[error("is no intact MMDB file: {0}")]
    Broken(#[source] maxminddb::MaxMindDbError),
    /// A sound MMDB without a field that we know.
    #[error("has no field that this service knows")]
    Useless,
    /// A line of an AS list that is not "number name".
    #[error("line {line} is not an AS number and its operator's name")]
    AsnLine {
        /// Its number, from 1.
        line: usize,
    },
    /// An AS list without a single line.
    #[error("the list is empty; if no network is meant, say so in a line that starts with #")]
    AsnEmpty,
    /// Nothing that was asked for could be loaded.
    #[error("no geo data could be loaded from {}", path.display())]
    NothingLoaded {
        /// The first path that gave nothing.
        path: PathBuf,
    },
}

/// Opens a file as a look-up would, checks all of it, and says what it is.
pub fn verify(path: &Path) -> Result<DatabaseInfo, GeoError> {
    let (bytes, _) = file::read(path, reload::DATABASE_LIMIT)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(database::Database::load(&name, bytes)?.info)
}

/// The loaded geo data; clones share it.
#[derive(Clone)]
pub struct Geo {
    inner: Arc<Inner>,
}

struct Inner {
    current: ArcSwap<Snapshot>,
    watcher: Mutex<reload::Watcher>,
    interval: Duration,
    /// Apart from the watcher, which is busy for seconds while it loads: metrics must not wait.
    loaded: AtomicU64,
    refused: AtomicU64,
}

/// How often files were taken over or refused since the start, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Files loaded, the first time included.
    pub loaded: u64,
    /// Files refused.
    pub refused: u64,
}

impl Geo {
    /// Loads everything once. A broken file is logged and left out as long as another one loads.
    /// Reads whole files: call it before serving, or from a blocking task.
    pub fn open(args: &GeoArgs) -> Result<Geo, GeoError> {
        zone::prepare();
        let mut watcher = reload::Watcher::new(args)?;
        let look = watcher.look();
        watcher.check_start()?;
        let inner = Inner {
            loaded: AtomicU64::new(look.loaded),
            refused: AtomicU64::new(look.refused),
            current: ArcSwap::from_pointee(watcher.snapshot()),
            watcher: Mutex::new(watcher),
            interval: args.geo_check_interval,
        };
        Ok(Geo { inner: Arc::new(inner) })
    }

    /// Looks an address up at `now` (Unix seconds) and shows the result to `use_place`; what it
    /// borrows stays valid for that call even if the databases are replaced meanwhile.
    pub fn lookup<R>(&self, ip: IpAddr, now: i64, use_place: impl FnOnce(&Place<'_>) -> R) -> R {
        use_place(&self.inner.current.load().place(ip.to_canonical(), now))
    }

    /// The same, as it stands in an answer. Most callers get what was written for an earlier one.
    pub fn lookup_json<R>(&self, ip: IpAddr, now: i64, use_json: impl FnOnce(&PlaceJson) -> R) -> R {
        self.inner.current.load().show(ip.to_canonical(), now, use_json)
    }

    /// The databases in use, in order.
    pub fn databases(&self) -> Vec<DatabaseInfo> {
        let snapshot = self.inner.current.load();
        snapshot.databases().map(|database| database.info.clone()).collect()
    }

    /// The credits to show for the databases in use, each once.
    pub fn attributions(&self) -> Vec<Attribution> {
        let mut credits: Vec<_> = self.databases().into_iter().filter_map(|db| db.attribution).collect();
        let mut seen = Vec::new();
        credits.retain(|credit| {
            !seen.contains(credit) && {
                seen.push(*credit);
                true
            }
        });
        credits
    }

    /// How often files were loaded and refused.
    pub fn reload_counts(&self) -> ReloadCounts {
        ReloadCounts {
            loaded: self.inner.loaded.load(Ordering::Relaxed),
            refused: self.inner.refused.load(Ordering::Relaxed),
        }
    }

    /// Looks at the files now and takes over what changed; true if something did. Blocks.
    pub fn check(&self) -> bool {
        let mut watcher = self.watcher();
        let look = watcher.look();
        if look.changed {
            self.inner.current.store(Arc::new(watcher.snapshot()));
        }
        self.inner.loaded.fetch_add(look.loaded, Ordering::Relaxed);
        self.inner.refused.fetch_add(look.refused, Ordering::Relaxed);
        look.changed
    }

    /// Checks at the configured interval, for ever: spawn it beside the server.
    pub async fn watch(self) {
        let mut ticks = tokio::time::interval(self.inner.interval.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let geo = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || geo.check()).await {
                tracing::error!(%error, "looking for new geo data failed");
            }
        }
    }

    /// A panic while loading must not end reloading for good: the state is whole between steps.
    fn watcher(&self) -> std::sync::MutexGuard<'_, reload::Watcher> {
        self.inner.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
