//! The request to explain, from the command line or as JSON.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

/// Explain how a request would be handled: which proxy is trusted, which header is used, which database has which field
///
/// Append it to the command line of the service, because it uses the flags and environment variables of the service: those
/// for trusted proxies, headers and geo data. It needs no running service.
#[derive(clap::Args, Clone, Debug)]
pub struct ExplainArgs {
    /// Address of the peer that connects to this service: your proxy, or the client if there is no proxy
    #[arg(long, value_name = "ADDR", value_parser = parse_peer)]
    pub peer: IpAddr,

    /// Header that the peer sends, such as "X-Forwarded-For: 203.0.113.7". Repeat it for several
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", value_parser = parse_header)]
    pub headers: Vec<(HeaderName, HeaderValue)>,

    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

impl ExplainArgs {
    pub fn into_request(self) -> ExplainRequest {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            headers.append(name, value);
        }
        ExplainRequest { peer: self.peer, headers }
    }
}

/// A request as the service would receive it.
#[derive(Clone, Debug)]
pub struct ExplainRequest {
    pub peer: IpAddr,
    pub headers: HeaderMap,
}

/// What is wrong with a request, for its sender.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidRequest {
    #[error(
        "The body must be JSON such as {{\"peer\": \"10.0.0.1\", \"headers\": [[\"X-Forwarded-For\", \"203.0.113.7\"]]}}: {0}."
    )]
    Json(String),
    #[error("`peer` must be an IP address.")]
    Peer,
    #[error("Header {0} must have a valid name and value.")]
    Header(
        /// Counted from 1.
        usize,
    ),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    peer: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

impl ExplainRequest {
    pub fn from_json(json: &[u8]) -> Result<Self, InvalidRequest> {
        let body: Body =
            serde_json::from_slice(json).map_err(|error| InvalidRequest::Json(error.to_string()))?;
        let peer = parse_peer(&body.peer).map_err(|_| InvalidRequest::Peer)?;
        let mut headers = HeaderMap::new();
        for (index, (name, value)) in body.headers.iter().enumerate() {
            let invalid = InvalidRequest::Header(index + 1);
            let Some((name, value)) = header(name, value) else { return Err(invalid) };
            headers.try_append(name, value).map_err(|_| invalid)?;
        }
        Ok(Self { peer, headers })
    }
}

fn parse_peer(text: &str) -> Result<IpAddr, &'static str> {
    let with_port = || text.parse().map(|addr: SocketAddr| addr.ip());
    text.parse().or_else(|_| with_port()).map_err(|_| "expected an IP address, such as 10.0.0.1")
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let header = text.split_once(':').and_then(|(name, value)| header(name.trim(), value));
    header.ok_or("expected NAME: VALUE, such as \"X-Forwarded-For: 203.0.113.7\"")
}

fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, HeaderValue::from_bytes(value.trim().as_bytes()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_flags_give_the_same_request() {
        let json = r#"{"peer": "[::1]:4242", "headers": [["X-Forwarded-For", "192.0.2.1"], ["x-forwarded-for", "192.0.2.2"]]}"#;
        let from_json = ExplainRequest::from_json(json.as_bytes()).expect("valid");
        let lines = ["X-Forwarded-For: 192.0.2.1", "x-forwarded-for:192.0.2.2"];
        let headers = lines.map(|line| parse_header(line).expect("valid")).into();
        let peer = parse_peer("::1").expect("valid");
        let from_flags = ExplainArgs { peer, headers, json: false }.into_request();
        assert_eq!((from_json.peer, from_json.headers), (from_flags.peer, from_flags.headers));
    }

    #[test]
    fn invalid_requests_are_rejected() {
        for (json, expected) in [
            (r#"{"peer": "proxy.example"}"#, InvalidRequest::Peer),
            (r#"{"peer": "::1", "headers": [["a", "b"], ["a b", "c"]]}"#, InvalidRequest::Header(2)),
            (r#"{"peer": "::1", "headers": [["a", "b\nc"]]}"#, InvalidRequest::Header(1)),
        ] {
            assert_eq!(ExplainRequest::from_json(json.as_bytes()).expect_err(json), expected);
        }
        for json in
            ["", "[]", "{}", r#"{"peer": "::1", "header": []}"#, r#"{"peer": "::1", "headers": {"a": "b"}}"#]
        {
            let error = ExplainRequest::from_json(json.as_bytes()).expect_err(json);
            assert!(matches!(error, InvalidRequest::Json(_)), "{error}");
        }
        for line in ["X-Forwarded-For", ": x", "a b: c", "a: b\u{7f}c"] {
            assert!(parse_header(line).is_err(), "{line:?}");
        }
        assert!(parse_peer("proxy.example").is_err());
    }
}
