//! The clients: the requests of each kind of traffic, and the expected responses.

mod raw;

use std::sync::Arc;
use std::time::Instant;

use super::client_stats::{ClientStats, Observation, TrafficKind};
use super::progress::Progress;
use super::target::Target;

/// One client, which sends one request after another.
pub struct Client {
    kind: TrafficKind,
    target: Arc<Target>,
    http: reqwest::Client,
    /// Indexes into the target's `valid_keys`; empty if this kind of client has no keys of its own.
    keys: Vec<usize>,
    /// Requests sent so far.
    sent: usize,
    /// Index among the clients of its kind.
    number: usize,
}

impl Client {
    /// Creates the client with this number among those of its kind; numbers start at 0.
    pub fn new(
        kind: TrafficKind,
        number: usize,
        keys: Vec<usize>,
        target: Arc<Target>,
    ) -> anyhow::Result<Self> {
        let mut http = testkit::http::builder();
        if kind == TrafficKind::Https {
            http = http.tls_certs_only([target.certificate_authority()?]);
            if number.is_multiple_of(2) {
                http = http.pool_max_idle_per_host(0);
            }
        }
        Ok(Self { kind, target, http: http.build()?, keys, sent: 0, number })
    }

    /// Sends requests until `deadline`.
    pub async fn run(mut self, deadline: Instant, progress: Arc<Progress>) -> ClientStats {
        let mut stats = ClientStats::new(self.kind);
        while Instant::now() < deadline {
            let started = Instant::now();
            let key_index = self.kind.has_keys().then(|| self.keys[self.sent % self.keys.len()]);
            let observation = self.send(key_index).await;
            progress.record(&observation);
            stats.record(&observation, started.elapsed(), key_index);
            self.sent += 1;
            tokio::time::sleep(self.kind.delay()).await;
        }
        stats
    }

    /// `key_index` is the key of the request, if this kind of client has keys.
    async fn send(&self, key_index: Option<usize>) -> Observation {
        if let Some(index) = key_index {
            return self.valid(&self.target.valid_keys[index].secret).await;
        }
        match self.kind {
            TrafficKind::Valid | TrafficKind::Https => unreachable!("such a client has keys"),
            TrafficKind::Unauthorized => self.unauthorized().await,
            TrafficKind::Paused => {
                let paused = &self.target.paused_keys;
                let secret = &paused[self.sent % paused.len()].secret;
                self.check(self.get("/api/v1/ip").bearer_auth(secret), 429, "rate_limit_exceeded").await
            }
            TrafficKind::Demo => self.check(self.get("/api/v1/ip/demo"), 200, "").await,
            TrafficKind::Preflight => {
                let url = self.target.lookup.url("/api/v1/ip");
                let preflight = self.http.request(reqwest::Method::OPTIONS, url);
                let preflight = preflight.header("Origin", "https://page.example");
                self.check(preflight.header("Access-Control-Request-Method", "GET"), 204, "").await
            }
            TrafficKind::Rejected => self.rejected().await,
            TrafficKind::Slow if self.number.is_multiple_of(2) => raw::slow(&self.target).await,
            TrafficKind::Slow => raw::endless(&self.target).await,
            TrafficKind::Flood => raw::flood(&self.target).await,
        }
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.http.get(self.target.lookup.url(path))
    }

    async fn valid(&self, secret: &str) -> Observation {
        // The clients of a kind start at different addresses of the list.
        let addresses = &self.target.addresses;
        let address = &addresses[(self.number * 1009 + self.sent) % addresses.len()];
        let path = "/api/v1/ip?scope=full";
        let url = match self.kind {
            TrafficKind::Https => self.target.https_url(path),
            _ => self.target.lookup.url(path),
        };
        let request = self.http.get(url).bearer_auth(secret).header("X-Forwarded-For", address);
        let field = if address.contains(':') { "ipv6" } else { "ip" };
        match fetch(request).await {
            Ok((200, body)) if body[field] == address.as_str() => Observation::Expected,
            Ok((200, _)) => Observation::Wrong("200 with the wrong client address".to_owned()),
            other => observe(other, 200, ""),
        }
    }

    async fn unauthorized(&self) -> Observation {
        let unknown = testkit::lookup::unknown_key();
        let request = self.get("/api/v1/ip");
        let (request, error) = match self.sent % 3 {
            0 => (request.bearer_auth(unknown), "invalid_api_key"),
            // Too short, so malformed.
            1 => (request.bearer_auth(&unknown[..41]), "invalid_api_key"),
            _ => (request, "missing_api_key"),
        };
        self.check(request, 401, error).await
    }

    async fn rejected(&self) -> Observation {
        let key = &self.target.valid_keys[0].secret;
        match self.sent % 4 {
            0 => self.check(self.get("/api/v1/ip?scope=all").bearer_auth(key), 400, "invalid_scope").await,
            1 => self.check(self.get("/api/v1/nowhere"), 404, "not_found").await,
            2 => {
                let post = self.http.post(self.target.lookup.url("/api/v1/ip")).bearer_auth(key);
                self.check(post, 405, "method_not_allowed").await
            }
            _ => raw::garbage(&self.target).await,
        }
    }

    /// Sends a request whose response must have this status and error code (empty for none).
    async fn check(&self, request: reqwest::RequestBuilder, status: u16, code: &str) -> Observation {
        observe(fetch(request).await, status, code)
    }
}

/// Status and body of a response, or the name of the error. The body is null if it is not JSON.
type FetchResult = Result<(u16, serde_json::Value), String>;

async fn fetch(request: reqwest::RequestBuilder) -> FetchResult {
    let response = async {
        let response = request.send().await?;
        let status = response.status().as_u16();
        response.bytes().await.map(|body| (status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    response.await.map_err(|error: reqwest::Error| match error {
        error if error.is_timeout() => "timeout".to_owned(),
        error if error.is_connect() => "connect".to_owned(),
        _ => "response cut off".to_owned(),
    })
}

/// Compares a response with the expected status and error code. A 500 with `internal_error` is
/// [`Observation::Error`], because the client may retry; any other unexpected response is [`Observation::Wrong`].
fn observe(result: FetchResult, expected_status: u16, expected_code: &str) -> Observation {
    match result {
        Err(name) => Observation::Error(name),
        Ok((status, body)) => match body["error"].as_str().unwrap_or_default() {
            code if status == expected_status && code == expected_code => Observation::Expected,
            code @ "internal_error" if status == 500 => Observation::Error(format!("500 {code}")),
            code => {
                Observation::Wrong(format!("{status} {code} instead of {expected_status} {expected_code}"))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retryable_failure_is_an_error_and_other_response_is_wrong() {
        let (empty, internal) = (json!(null), json!({"error": "internal_error"}));
        assert_eq!(observe(Ok((200, empty.clone())), 200, ""), Observation::Expected);
        assert!(matches!(observe(Ok((500, internal)), 200, ""), Observation::Error(_)));
        assert!(matches!(observe(Err("timeout".to_owned()), 200, ""), Observation::Error(_)));
        assert!(matches!(observe(Ok((500, empty.clone())), 200, ""), Observation::Wrong(_)));
        assert!(matches!(observe(Ok((200, empty)), 401, "invalid_api_key"), Observation::Wrong(_)));
    }
}
