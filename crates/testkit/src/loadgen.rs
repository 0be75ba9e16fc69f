//! Load generator: workers that call a service continuously until stopped, and a report of the results.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::RequestBuilder;
use tokio::task::JoinSet;

/// Time between the starts of a worker's calls, unless a call takes longer. It leaves CPU time to the tests beside it.
const INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time for the workers to finish their last call.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Start time.
    pub at: Instant,
    pub latency: Duration,
    /// What the `step` of [`Load::start`] returned; in a load from [`Load::http`], for example the status `200`.
    pub outcome: String,
}

/// A running load; stopped when dropped.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    workers: JoinSet<Vec<Sample>>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    completed: AtomicUsize,
}

impl Load {
    /// Starts `workers` tasks that run `step` in a loop. `step` makes one call and returns its outcome.
    pub fn start<F, S>(workers: usize, step: S) -> Self
    where
        S: Fn() -> F + Clone + Send + 'static,
        F: Future<Output = String> + Send + 'static,
    {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            tasks.spawn(work(step.clone(), shared.clone()));
        }
        Self { shared, workers: tasks }
    }

    /// Sends the requests built by `request` in a loop. The outcome is the status, or `timeout`, `connect` or `broken` if
    /// there is no complete response.
    pub fn http<R>(workers: usize, request: R) -> Self
    where
        R: Fn() -> RequestBuilder + Clone + Send + 'static,
    {
        Self::start(workers, move || send(request()))
    }

    /// Number of finished calls. Tests wait on it before they inject a fault.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Lets every worker finish its current call and returns the report.
    ///
    /// # Panics
    /// If a call does not finish within 30 s, or a step panicked.
    pub async fn stop(self) -> Report {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let all = tokio::time::timeout(STOP_TIMEOUT, self.workers.join_all()).await;
        let all = all.unwrap_or_else(|_| panic!("a call did not finish within {STOP_TIMEOUT:?}"));
        let mut samples: Vec<Sample> = all.into_iter().flatten().collect();
        samples.sort_by_key(|sample| sample.at);
        Report { samples }
    }
}

/// The results of a load.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Every call, oldest first.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Number of calls with this outcome.
    #[must_use]
    pub fn count(&self, outcome: &str) -> usize {
        self.samples.iter().filter(|sample| sample.outcome == outcome).count()
    }

    /// Number of calls by outcome.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<&str, usize> {
        let mut outcomes = BTreeMap::new();
        for sample in &self.samples {
            *outcomes.entry(sample.outcome.as_str()).or_default() += 1;
        }
        outcomes
    }

    /// The calls that started between two points in time.
    #[must_use]
    pub fn between(&self, from: Instant, to: Instant) -> Self {
        let inside = |sample: &&Sample| (from..to).contains(&sample.at);
        Self { samples: self.samples.iter().filter(inside).cloned().collect() }
    }

    /// The latency percentile for a share such as 0.99; zero without calls.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Duration {
        let mut latencies: Vec<_> = self.samples.iter().map(|sample| sample.latency).collect();
        latencies.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * latencies.len() as f64).ceil() as usize;
        latencies.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// Latency of the slowest call.
    #[must_use]
    pub fn slowest(&self) -> Duration {
        self.percentile(1.0)
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99, max) = (self.percentile(0.5), self.percentile(0.99), self.slowest());
        write!(f, "{} calls {:?}, p50 {p50:?}, p99 {p99:?}, max {max:?}", self.samples.len(), self.outcomes())
    }
}

async fn work<F: Future<Output = String>>(step: impl Fn() -> F, shared: Arc<Shared>) -> Vec<Sample> {
    let mut samples = Vec::new();
    while !shared.stopped.load(Ordering::Relaxed) {
        let at = Instant::now();
        let outcome = step().await;
        samples.push(Sample { at, latency: at.elapsed(), outcome });
        shared.completed.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep_until((at + INTERVAL).into()).await;
    }
    samples
}

/// Sends one request, reads the complete response and returns the outcome as in [`Load::http`].
pub async fn send(request: RequestBuilder) -> String {
    let exchange = async {
        let response = request.send().await?;
        let status = response.status();
        response.bytes().await.map(|_| status)
    };
    match exchange.await {
        Ok(status) => status.as_u16().to_string(),
        Err(e) if e.is_timeout() => "timeout".to_owned(),
        Err(e) if e.is_connect() => "connect".to_owned(),
        Err(_) => "broken".to_owned(),
    }
}
