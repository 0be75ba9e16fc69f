//! Clients of every kind: what each sends, what is due to it, and how often it comes.

mod raw;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::progress::Progress;
use super::tally::{Seen, Tally};
use super::target::Target;

/// A kind of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Active keys, another client address in each request, which must come back.
    Good,
    /// Keys that nobody has, mistyped keys, no key: 401.
    Bad,
    /// Paused keys: 429.
    Paused,
    /// The demo: 200.
    Demo,
    /// Preflights of browsers: 204.
    Preflight,
    /// Wrong scopes, paths and methods, and bytes that are no HTTP.
    Malformed,
    /// Headers that arrive slowly, or never to their end.
    Slow,
    /// Many connections that ask nothing.
    Flood,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Good,
        Self::Bad,
        Self::Paused,
        Self::Demo,
        Self::Preflight,
        Self::Malformed,
        Self::Slow,
        Self::Flood,
    ];

    /// How many there are at the same time (of the good ones the user says it).
    pub fn clients(self) -> usize {
        match self {
            Self::Slow => 64,
            Self::Flood => 1,
            _ => 4,
        }
    }

    /// How long each waits before it comes again.
    fn pause(self) -> Duration {
        match self {
            Self::Good => Duration::ZERO,
            Self::Slow | Self::Flood => Duration::from_millis(500),
            _ => Duration::from_millis(5),
        }
    }
}

/// One client, which asks again and again.
pub struct Client {
    kind: Kind,
    target: Arc<Target>,
    http: reqwest::Client,
    /// Places of its keys among the good ones: nobody else uses them.
    keys: Vec<usize>,
    asked: usize,
    number: usize,
}

impl Client {
    /// The client `number` of `count`.
    pub fn new(kind: Kind, number: usize, count: usize, target: Arc<Target>) -> Self {
        let keys = (number..target.good.len()).step_by(count).collect();
        Self { kind, target, http: e2e::http::client(), keys, asked: 0, number }
    }

    /// Asks until then.
    pub async fn run(mut self, until: Instant, progress: Arc<Progress>) -> Tally {
        let mut tally = Tally::new(self.kind);
        while Instant::now() < until {
            let started = Instant::now();
            let key = (self.kind == Kind::Good).then(|| self.keys[self.asked % self.keys.len()]);
            let seen = self.ask(key).await;
            progress.note(&seen);
            tally.note(&seen, started.elapsed(), key);
            self.asked += 1;
            tokio::time::sleep(self.kind.pause()).await;
        }
        tally
    }

    async fn ask(&self, key: Option<usize>) -> Seen {
        match (self.kind, key) {
            (Kind::Good, Some(key)) => self.good(&self.target.good[key].secret).await,
            (Kind::Good, None) | (Kind::Bad, _) => self.bad().await,
            (Kind::Paused, _) => {
                let paused = &self.target.paused;
                let key = &paused[self.asked % paused.len()].secret;
                self.due(self.get("/api/v1/ip").bearer_auth(key), 429, "rate_limit_exceeded").await
            }
            (Kind::Demo, _) => self.due(self.get("/api/v1/ip/demo"), 200, "").await,
            (Kind::Preflight, _) => {
                let url = self.target.lookup.url("/api/v1/ip");
                let preflight = self.http.request(reqwest::Method::OPTIONS, url);
                let preflight = preflight.header("Origin", "https://page.example");
                self.due(preflight.header("Access-Control-Request-Method", "GET"), 204, "").await
            }
            (Kind::Malformed, _) => self.malformed().await,
            (Kind::Slow, _) if self.number.is_multiple_of(2) => raw::slow(&self.target).await,
            (Kind::Slow, _) => raw::endless(&self.target).await,
            (Kind::Flood, _) => raw::flood(&self.target).await,
        }
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(self.target.lookup.url(path))
    }

    async fn good(&self, key: &str) -> Seen {
        let [.., b, c, d] = (self.asked * 61 + self.number).to_be_bytes();
        let address = format!("8.{b}.{c}.{d}");
        let request = self.get("/api/v1/ip?scope=full").bearer_auth(key).header("X-Forwarded-For", &address);
        match fetch(request).await {
            Ok((200, body)) if body["ip"] == address.as_str() => Seen::Right,
            Ok((200, _)) => Seen::Wrong("200 with another client's address".to_owned()),
            other => judge(other, 200, ""),
        }
    }

    async fn bad(&self) -> Seen {
        let unknown = e2e::lookup::unknown_key();
        let request = self.get("/api/v1/ip");
        let (request, error) = match self.asked % 3 {
            0 => (request.bearer_auth(unknown), "invalid_api_key"),
            1 => (request.bearer_auth(&unknown[..41]), "invalid_api_key"),
            _ => (request, "missing_api_key"),
        };
        self.due(request, 401, error).await
    }

    async fn malformed(&self) -> Seen {
        let key = &self.target.good[0].secret;
        match self.asked % 4 {
            0 => self.due(self.get("/api/v1/ip?scope=all").bearer_auth(key), 400, "invalid_scope").await,
            1 => self.due(self.get("/api/v1/nowhere"), 404, "not_found").await,
            2 => {
                let post = self.http.post(self.target.lookup.url("/api/v1/ip")).bearer_auth(key);
                self.due(post, 405, "method_not_allowed").await
            }
            _ => raw::garbage(&self.target).await,
        }
    }

    async fn due(&self, request: reqwest::RequestBuilder, status: u16, error: &str) -> Seen {
        judge(fetch(request).await, status, error)
    }
}

type Fetched = Result<(u16, serde_json::Value), String>;

async fn fetch(request: reqwest::RequestBuilder) -> Fetched {
    let whole = async {
        let answer = request.send().await?;
        let status = answer.status().as_u16();
        answer.bytes().await.map(|body| (status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    whole.await.map_err(|error: reqwest::Error| match error {
        error if error.is_timeout() => "timeout".to_owned(),
        error if error.is_connect() => "connect".to_owned(),
        _ => "broken".to_owned(),
    })
}

/// A 500 is a clear error, which the client may try again; all else that is not due is wrong.
fn judge(fetched: Fetched, status: u16, error: &str) -> Seen {
    match fetched {
        Err(name) => Seen::Error(name),
        Ok((seen, body)) => match body["error"].as_str().unwrap_or_default() {
            code if seen == status && code == error => Seen::Right,
            code @ "internal_error" if seen == 500 => Seen::Error(format!("500 {code}")),
            code => Seen::Wrong(format!("{seen} {code} instead of {status} {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_clear_500_is_an_error_and_no_wrong_answer() {
        let (none, internal) = (json!(null), json!({"error": "internal_error"}));
        assert_eq!(judge(Ok((200, none.clone())), 200, ""), Seen::Right);
        assert!(matches!(judge(Ok((500, internal)), 200, ""), Seen::Error(_)));
        assert!(matches!(judge(Err("timeout".to_owned()), 200, ""), Seen::Error(_)));
        assert!(matches!(judge(Ok((500, none.clone())), 200, ""), Seen::Wrong(_)));
        assert!(matches!(judge(Ok((200, none)), 401, "invalid_api_key"), Seen::Wrong(_)));
    }
}
