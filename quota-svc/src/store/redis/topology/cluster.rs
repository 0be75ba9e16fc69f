//! A Cluster: a link to each master, a map of the slots that follows failovers, redirections obeyed.
//!
//! Our own and not the redis crate's, because that one sends a command again whose answer was lost: a charge
//! would count twice. Here only a redirection is followed, and a server that redirects has executed nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{Cmd, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;

use super::super::link::{Link, Route};
use super::super::target::{Access, Node};
use super::slots::{self, Range};
use super::{Answer, CallError, is, send_by};

const SLOTS: u16 = 16_384;
/// The map is read anew this often while all is well …
const CALM: Duration = Duration::from_secs(10);
/// … and this often while a master can't be reached or slots are not served.
const TROUBLED: Duration = Duration::from_millis(200);
const MOST_REDIRECTIONS: usize = 3;

/// A Cluster.
pub struct Cluster {
    shared: Arc<Shared>,
    keeper: tokio::task::JoinHandle<()>,
}

struct Shared {
    seeds: Vec<Node>,
    access: Access,
    timeout: Duration,
    map: ArcSwap<Map>,
    links: Mutex<HashMap<Node, Arc<Link>>>,
    outdated: Notify,
}

#[derive(Default)]
struct Map(Vec<(u16, u16, Arc<Link>)>);

impl Cluster {
    /// Starts reading the map from the seeds.
    pub fn start(seeds: Vec<Node>, access: Access, timeout: Duration) -> Self {
        let shared = Arc::new(Shared {
            seeds,
            access,
            timeout,
            map: ArcSwap::default(),
            links: Mutex::default(),
            outdated: Notify::new(),
        });
        Self { keeper: tokio::spawn(keep_map(shared.clone())), shared }
    }

    /// What is missing; `None` if every slot is served.
    pub fn trouble(&self) -> Option<String> {
        self.shared.map.load().trouble()
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// Sends a command to the master of a slot. Who calls bounds the time.
    pub async fn send(&self, slot: u16, command: &Cmd) -> Result<Answer, CallError> {
        self.shared.send(slot, command).await
    }

    /// No answer in time: doubts the slot's master and the map.
    pub fn give_up(&self, slot: u16) -> CallError {
        self.shared.outdated.notify_one();
        let Some(link) = self.shared.map.load().link(slot) else { return self.shared.unserved(slot) };
        link.report_doubt();
        CallError::TimedOut(link.label().to_string())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Shared {
    async fn send(&self, slot: u16, command: &Cmd) -> Result<Answer, CallError> {
        let mut link = self.map.load().link(slot).ok_or_else(|| self.unserved(slot))?;
        let mut asking = false;
        for _ in 0..MOST_REDIRECTIONS {
            let sent = if asking { send_asking(&link, command).await } else { send_by(&link, command).await };
            let error = match sent {
                Err(CallError::Failed(error)) => error,
                Err(error) => {
                    self.outdated.notify_one();
                    return Err(error);
                }
                Ok(answer) => return Ok(answer),
            };
            let Some(node) = redirection(&error, link.label()) else {
                self.outdated.notify_one();
                return Err(error.into());
            };
            asking = is(&error, ServerErrorKind::Ask);
            if !asking {
                self.outdated.notify_one();
            }
            link = self.link_to(&node);
            link.up().await;
        }
        Err(CallError::Down(format!("slot {slot}: redirected too often")))
    }

    fn unserved(&self, slot: u16) -> CallError {
        self.outdated.notify_one();
        CallError::Down(format!("a master of slot {slot}"))
    }

    fn link_to(&self, node: &Node) -> Arc<Link> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || Link::start(Route::Server(node.clone()), self.access.clone(), self.timeout);
        links.entry(node.clone()).or_insert_with(|| Arc::new(start())).clone()
    }

    /// Takes over a new map; links to nodes that are in it no more end.
    fn adopt(&self, ranges: Vec<Range>) {
        let entries = ranges.iter().map(|(first, last, node)| (*first, *last, self.link_to(node))).collect();
        self.map.store(Arc::new(Map(entries)));
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|node, _| ranges.iter().any(|(_, _, master)| master == node));
    }

    /// Asks the masters, then the seeds, until one answers.
    async fn read_map(&self) -> Option<Vec<Range>> {
        let known: Vec<Node> = {
            let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.iter().filter(|(_, link)| link.is_up()).map(|(node, _)| node.clone()).collect()
        };
        for node in known.iter().chain(&self.seeds) {
            let asked = tokio::time::timeout(self.timeout.max(TROUBLED), self.ask(node)).await;
            match asked {
                Ok(Ok(ranges)) if !ranges.is_empty() => return Some(ranges),
                other => {
                    tracing::debug!(node = node.0, port = node.1, ?other, "no map of the cluster's slots")
                }
            }
        }
        None
    }

    async fn ask(&self, node: &Node) -> redis::RedisResult<Vec<Range>> {
        let mut connection = self.access.connect(node).await?;
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let answer: Value = question.query_async(&mut connection).await?;
        Ok(slots::parse(&answer, &node.0))
    }
}

impl Map {
    fn link(&self, slot: u16) -> Option<Arc<Link>> {
        let range = self.0.iter().find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        Some(range.2.clone())
    }

    fn trouble(&self) -> Option<String> {
        let served: u32 = self.0.iter().map(|(first, last, _)| u32::from(last - first) + 1).sum();
        if let Some((_, _, link)) = self.0.iter().find(|(_, _, link)| !link.is_up()) {
            return Some(format!("no connection to {}", link.label()));
        }
        (served < u32::from(SLOTS)).then(|| format!("{served} of {SLOTS} slots are served"))
    }
}

async fn keep_map(shared: Arc<Shared>) {
    loop {
        if let Some(ranges) = shared.read_map().await {
            shared.adopt(ranges);
        }
        let calm = shared.map.load().trouble().is_none();
        let pause = if calm { CALM } else { TROUBLED };
        let _ = tokio::time::timeout(pause, shared.outdated.notified()).await;
        // Many callers may complain at once: one reading serves them all.
        tokio::time::sleep(TROUBLED / 4).await;
    }
}

fn redirection(error: &RedisError, asked: &str) -> Option<Node> {
    let (address, _) = error.redirect_node()?;
    let host = asked.rsplit_once(':').map_or(asked, |(host, _)| host);
    slots::parse_address(address, host)
}

/// A slot that is being moved: its new master serves it only to those who say ASKING first.
async fn send_asking(link: &Link, command: &Cmd) -> Result<Answer, CallError> {
    let mut via = link.connection().ok_or_else(|| CallError::Down(link.label().to_string()))?;
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").ignore().add_command(command.clone());
    let (value,): (Value,) = pipeline.query_async(&mut via).await?;
    Ok(Answer { value, via, server: link.label().clone() })
}
