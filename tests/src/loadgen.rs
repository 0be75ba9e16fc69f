//! Workers that call a service without a pause until they are told to stop, and what came of it.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::RequestBuilder;
use tokio::task::JoinSet;

/// The longest that workers may take to finish their last call.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When it was started.
    pub at: Instant,
    /// How long it took.
    pub latency: Duration,
    /// What came of it: a status such as `200`, or what the test's own step made of the answer.
    pub outcome: String,
}

/// A load that is under way; dropping it ends it.
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
    /// Starts `workers` tasks, each of which runs `step` again and again; `step` returns what came of the call.
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

    /// Sends what `request` builds, again and again. The outcome is the status, or for a call without an answer
    /// `timeout`, `connect` or `broken`.
    pub fn http<R>(workers: usize, request: R) -> Self
    where
        R: Fn() -> RequestBuilder + Clone + Send + 'static,
    {
        Self::start(workers, move || send(request()))
    }

    /// How many calls have ended so far: what a test waits on before it breaks something.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.shared.completed.load(Ordering::Relaxed)
    }

    /// Lets every worker finish its call and gives all samples, oldest first.
    ///
    /// # Panics
    /// When a call does not end within 30 s, or a step panicked.
    pub async fn stop(self) -> Report {
        self.shared.stopped.store(true, Ordering::Relaxed);
        let all = tokio::time::timeout(STOP_WITHIN, self.workers.join_all()).await;
        let all = all.unwrap_or_else(|_| panic!("a call has not ended within {STOP_WITHIN:?}"));
        let mut samples: Vec<Sample> = all.into_iter().flatten().collect();
        samples.sort_by_key(|sample| sample.at);
        Report { samples }
    }
}

/// What a load saw.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Every call, oldest first.
    pub samples: Vec<Sample>,
}

impl Report {
    /// How many calls had this outcome.
    #[must_use]
    pub fn count(&self, outcome: &str) -> usize {
        self.samples.iter().filter(|sample| sample.outcome == outcome).count()
    }

    /// The number of calls by outcome.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<&str, usize> {
        let mut outcomes = BTreeMap::new();
        for sample in &self.samples {
            *outcomes.entry(sample.outcome.as_str()).or_default() += 1;
        }
        outcomes
    }

    /// The calls that were started in a span of time.
    #[must_use]
    pub fn between(&self, from: Instant, to: Instant) -> Self {
        let inside = |sample: &&Sample| (from..to).contains(&sample.at);
        Self { samples: self.samples.iter().filter(inside).cloned().collect() }
    }

    /// The latency that this share of all calls (such as 0.99) did not exceed; zero without calls.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Duration {
        let mut latencies: Vec<_> = self.samples.iter().map(|sample| sample.latency).collect();
        latencies.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * latencies.len() as f64).ceil() as usize;
        latencies.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }

    /// The longest call.
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
        // A step that never has to wait would keep the others, and the test itself, from running.
        tokio::task::yield_now().await;
    }
    samples
}

/// Sends one request and reads the whole answer.
pub async fn send(request: RequestBuilder) -> String {
    let whole = async {
        let answer = request.send().await?;
        let status = answer.status();
        answer.bytes().await.map(|_| status)
    };
    match whole.await {
        Ok(status) => status.as_u16().to_string(),
        Err(e) if e.is_timeout() => "timeout".to_owned(),
        Err(e) if e.is_connect() => "connect".to_owned(),
        Err(_) => "broken".to_owned(),
    }
}
