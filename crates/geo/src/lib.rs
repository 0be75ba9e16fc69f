//! Location and network of an IP address, from one or more databases that are reloaded when their files change.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use base::flags::parse_duration;
use secrecy::SecretString;
use tokio::time::MissedTickBehavior;

pub mod asn;
pub mod country;
mod database;
mod location;
mod location_cache;
mod memory;
mod merge;
mod provider;
mod public_address;
mod record;
mod region_code;
mod reload;
mod snapshot;
mod timezone;
pub mod update;

pub use database::DatabaseInfo;
pub use location::{FULL_FIELDS, Field, GEO_FIELDS, Location, LocationJson, Type, write_value};
pub use provider::{Attribution, DatabaseKind};
pub use public_address::is_public;
pub use reload::ReloadStatus;
pub use timezone::TimezoneInfo;

use database::Database;
use memory::MemoryLimit;
use snapshot::Snapshot;

/// From this age on, operators are warned of the built-in data: addresses have moved to other countries meanwhile.
const YEAR_IN_DAYS: i32 = 365;

/// Flags of the geo data.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Geo data")]
pub struct GeoArgs {
    /// MMDB file or directory of MMDB files. Repeat it to combine several: the most precise database
    /// provides the location, the first of equally precise ones. The built-in country data provides the country
    /// of addresses for which none has one
    #[arg(long, env, value_name = "PATH", value_delimiter = ',')]
    pub geo_db: Vec<PathBuf>,

    /// Download databases at the start and daily, into the first --geo-db, a directory that is created if it is missing:
    /// dbip-lite, or the URL of a file as for the command geo-update
    // Secret, because a URL may contain a password or a token.
    #[arg(long, env, value_name = "SOURCE", hide_env_values = true)]
    pub geo_update: Option<SecretString>,

    /// A directory to use if there is no `geo_db`. It may be missing.
    #[arg(skip)]
    pub default_dir: Option<PathBuf>,

    /// How often to check for replaced databases and lists
    // For tests.
    #[arg(long, env, hide = true, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub geo_check_interval: Duration,

    /// File with the AS numbers of hosting networks, instead of the built-in list. One on each line,
    /// which a name may follow: 45090, AS45090, "AS45090 # name" or 45090,name
    #[arg(long, env, value_name = "FILE")]
    pub hosting_asns: Option<PathBuf>,

    /// File with the AS numbers of VPN and proxy networks, instead of the built-in list. Same format
    #[arg(long, env, value_name = "FILE")]
    pub proxy_asns: Option<PathBuf>,

    /// Directory with timezone data, such as /usr/share/zoneinfo, which is read at the start. Default: the built-in data
    #[arg(long, env, value_name = "DIR")]
    pub tzdata: Option<PathBuf>,
}

base::default_from_flags!(GeoArgs);

/// Why a database or list was rejected. Except for `NothingLoaded`, the messages continue the sentence "the file …".
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    #[error("was not found")]
    NotFound,
    #[error("can't be read: {0}")]
    Io(#[source] std::io::Error),
    #[error(
        "needs {} MiB of free memory, but the memory limit leaves only {} MiB; raise the limit",
        needed >> 20,
        available >> 20
    )]
    NotEnoughMemory { needed: u64, available: u64 },
    #[error("is not a valid MMDB file: {0}")]
    Corrupt(#[source] maxminddb::MaxMindDbError),
    /// Valid, but no record has a field of any supported layout.
    #[error("has no field that this service uses")]
    NoKnownFields,
    #[error("is invalid at line {line}: expected an AS number, which a name may follow")]
    AsnLine {
        /// Counted from 1.
        line: usize,
    },
    #[error("is empty; for a list without networks, add a comment line that starts with #")]
    AsnEmpty,
    #[error("has no timezone files")]
    NoTimezones,
    #[error("has an invalid file for the timezone {name}")]
    InvalidTimezone { name: String },
    #[error("{} {reason}", path.display())]
    NothingLoaded {
        /// The first file without usable data.
        path: PathBuf,
        reason: Box<GeoError>,
    },
}

impl GeoError {
    /// The error at the start because of this path.
    fn at(self, path: &Path) -> Self {
        Self::NothingLoaded { path: path.to_owned(), reason: Box::new(self) }
    }
}

impl From<std::io::Error> for GeoError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::NotFound => GeoError::NotFound,
            _ => GeoError::Io(error),
        }
    }
}

/// Loads a file as the service does, with all checks, and returns its metadata.
pub fn verify(path: &Path) -> Result<DatabaseInfo, GeoError> {
    Ok(Database::open(path, &MemoryLimit::of_this_process())?.info)
}

/// The loaded geo data. Clones share it.
#[derive(Clone)]
pub struct Geo {
    inner: Arc<Inner>,
}

struct Inner {
    current: ArcSwap<Snapshot>,
    watcher: Mutex<reload::FileWatcher>,
    interval: Duration,
    /// Outside the mutex, which is held for seconds while a file loads: metrics must not wait for it.
    status: ArcSwap<ReloadStatus>,
}

impl Geo {
    /// Loads every file once. An invalid database is logged and skipped if another one loads. A directory may be empty or
    /// unreadable, which is logged. An invalid list is an error. Blocks to read whole files: call it before serving, or from a blocking task.
    pub fn open(args: &GeoArgs) -> Result<Geo, GeoError> {
        Self::open_within(args, MemoryLimit::of_this_process())
    }

    fn open_within(args: &GeoArgs, memory: MemoryLimit) -> Result<Geo, GeoError> {
        // Loaded now instead of during the first request.
        LazyLock::force(&timezone::FINDER);
        LazyLock::force(&region_code::INDEX);
        let watcher = reload::FileWatcher::open(args, memory)?;
        let inner = Inner {
            status: ArcSwap::from_pointee(watcher.status.clone()),
            current: ArcSwap::from_pointee(watcher.snapshot()),
            watcher: Mutex::new(watcher),
            interval: args.geo_check_interval,
        };
        Ok(Geo { inner: Arc::new(inner) })
    }

    /// Looks up an address at `now` (Unix seconds) and passes the result to `use_location`. The location
    /// borrows from the current snapshot, which a concurrent reload does not affect.
    pub fn lookup<R>(&self, ip: IpAddr, now: i64, use_location: impl FnOnce(&Location<'_>) -> R) -> R {
        use_location(&self.inner.current.load().locate(ip.to_canonical(), now).0)
    }

    /// Like `lookup`, but passes the location as JSON, usually from the location cache.
    pub fn lookup_json<R>(&self, ip: IpAddr, now: i64, use_json: impl FnOnce(&LocationJson) -> R) -> R {
        self.inner.current.load().with_location_json(ip.to_canonical(), now, use_json)
    }

    /// Like `lookup`, and also passes each field with its source, as text. The source is right only if the field has a value.
    pub fn explain<R>(
        &self,
        ip: IpAddr,
        now: i64,
        use_location: impl FnOnce(&Location<'_>, Vec<(&'static str, String)>) -> R,
    ) -> R {
        let snapshot = self.inner.current.load();
        let (location, sources) = snapshot.explain(ip.to_canonical(), now);
        use_location(&location, sources)
    }

    /// The databases in use, in order of precedence. The last one is the built-in country data.
    pub fn databases(&self) -> Vec<DatabaseInfo> {
        let snapshot = self.inner.current.load();
        snapshot.databases().map(|database| database.info.clone()).collect()
    }

    /// Whether no database is loaded.
    pub fn only_built_in(&self) -> bool {
        self.inner.current.load().databases().count() == 1
    }

    /// Date and age of the built-in country data at `now` (Unix seconds): "2026-06-17, 5 months old".
    pub fn built_in_age(&self, now: i64) -> String {
        Database::built_in().info.date_and_age(now)
    }

    /// What the checks of the files have found since the start.
    pub fn reload_status(&self) -> Arc<ReloadStatus> {
        self.inner.status.load_full()
    }

    /// The databases in use with their ages at `now` (Unix seconds), the rejected and the deleted files, as one sentence for
    /// operators.
    pub fn summary(&self, now: i64) -> String {
        let status = self.inner.status.load();
        let mut databases = self.databases();
        databases.pop();
        let mut parts: Vec<_> = databases
            .iter()
            .map(|info| format!("{} ({}) of {}", info.name, info.kind.as_str(), info.date_and_age(now)))
            .collect();
        let built_in = format!("built-in country data of {}", self.built_in_age(now));
        parts.push(match parts.is_empty() {
            true => format!("only the {built_in}; geo-update or --geo-db adds cities and networks"),
            false => built_in,
        });
        parts.extend(status.rejections.iter().map(|rejection| format!("rejected: {rejection}")));
        let deleted = status.deleted.iter();
        parts.extend(deleted.map(|name| format!("deleted, and in use until another file is loaded: {name}")));
        if Database::built_in().info.age_in_days(now).is_some_and(|days| days >= YEAR_IN_DAYS) {
            parts.push(
                "warning: the built-in country data is over a year old; install a newer version".to_owned(),
            );
        }
        parts.join("; ")
    }

    pub fn timezones(&self) -> TimezoneInfo {
        self.inner.current.load().timezones.info.clone()
    }

    /// The attributions that the databases in use and the built-in timezone boundaries require, without duplicates.
    pub fn attributions(&self) -> Vec<Attribution> {
        let mut attributions = Vec::new();
        for attribution in self.databases().into_iter().filter_map(|database| database.attribution) {
            if !attributions.contains(&attribution) {
                attributions.push(attribution);
            }
        }
        attributions.push(provider::TIMEZONE_BOUNDARIES);
        attributions
    }

    /// Reloads the files that have changed. Returns whether the snapshot was replaced. Blocks.
    pub fn check(&self) -> bool {
        // Ignores lock poisoning, so that reloading continues after a panic, which leaves the state consistent.
        let mut watcher = self.inner.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = watcher.check();
        if changed {
            self.inner.current.store(Arc::new(watcher.snapshot()));
        }
        self.inner.status.store(Arc::new(watcher.status.clone()));
        changed
    }

    /// Calls `check` at the configured interval, forever, and `on_check` after each one. Spawn it as a background task.
    pub async fn watch(self, on_check: impl Fn(&Geo)) {
        let mut ticks = tokio::time::interval(self.inner.interval.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let geo = self.clone();
            match tokio::task::spawn_blocking(move || geo.check()).await {
                Ok(_) => on_check(&self),
                Err(error) => tracing::error!(%error, "could not check for new geo data"),
            }
        }
    }
}
