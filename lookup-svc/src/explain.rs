//! The command `explain`: how a request would be handled. Which proxy is trusted and why, which headers are used, and where
//! each field of the response comes from. The command `lookup` prints the response for an address alone.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use edge::{ClientInfo, ConnectionFacts, Decision, Edge, EdgeArgs};
use geo::{DatabaseInfo, Geo, GeoArgs, LocationJson};
use http::{HeaderMap, HeaderName, HeaderValue};
use quota_client::wire::Scope;
use serde::Serialize;
use serde_json::{Map, Value};
use service_kit::command_line::{self, Output};

use crate::fields::{self, FieldSet, STATUS};
use crate::lookup::{special_use, unix_now};

/// How long to wait for the proxies that Kubernetes lists.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);

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
}

fn parse_peer(text: &str) -> Result<IpAddr, &'static str> {
    let with_port = || text.parse().map(|addr: SocketAddr| addr.ip());
    text.parse().or_else(|_| with_port()).map_err(|_| "expected an IP address, such as 10.0.0.1")
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), &'static str> {
    let header = text.split_once(':').and_then(|(name, value)| {
        Some((name.trim().parse().ok()?, HeaderValue::from_bytes(value.trim().as_bytes()).ok()?))
    });
    header.ok_or("expected NAME: VALUE, such as \"X-Forwarded-For: 203.0.113.7\"")
}

#[derive(Serialize)]
struct Report {
    /// The flags that decide about addresses and headers.
    policy: String,
    /// Sentences about the client's address.
    steps: Vec<String>,
    ip: IpAddr,
    /// The label of the metric `lookup_client_ip_decisions_total`.
    decision: &'static str,
    /// The fields of a response with the scope `full`.
    fields: Vec<ReportedField>,
    /// In order of precedence.
    databases: Vec<String>,
}

#[derive(Serialize)]
struct ReportedField {
    name: &'static str,
    /// `null` also for what only a connection has.
    value: Value,
    source: String,
}

/// Runs the command with the flags of the service. With `proxy_protocol`, the peer's address is that in the PROXY header.
pub async fn run(
    edge: &EdgeArgs,
    geo: &GeoArgs,
    proxy_protocol: bool,
    args: ExplainArgs,
    output: Output,
) -> anyhow::Result<()> {
    let edge = Edge::start(edge).await.context("can't set up client address detection")?;
    // After the timeout, the report says that the proxies are not known.
    let mut status = edge.status();
    let _ = tokio::time::timeout(DISCOVERY_TIMEOUT, status.wait_for(|status| status.is_ready())).await;
    let geo = Geo::open(geo).context("can't load the geo data")?;
    let report = explain(&edge, &geo, proxy_protocol, &args);
    output.show(&report, || text(&report))
}

/// Prints the JSON that a client with this address would get with the scope `full`. There is no connection, so its facts
/// are null.
pub fn print_lookup(geo: &GeoArgs, ip: IpAddr) -> anyhow::Result<()> {
    let geo = Geo::open(geo).context("can't load the geo data")?;
    let client = ClientInfo { ip, decision: Decision::Peer, facts: ConnectionFacts::default() };
    let json =
        geo.lookup_json(ip, unix_now(), |location| FieldSet::Scope(Scope::Full).to_json(&client, location));
    command_line::print(&String::from_utf8(json)?)
}

fn explain(edge: &Edge, geo: &Geo, proxy_protocol: bool, args: &ExplainArgs) -> Report {
    let headers: HeaderMap = args.headers.iter().cloned().collect();
    // There is no connection, so its facts are unknown.
    let own = ConnectionFacts { rtt_from_socket: !proxy_protocol, ..ConnectionFacts::default() };
    let (client, explained) = edge.explain(args.peer, &headers, own);
    let texts = |field: &str| -> Vec<String> {
        explained.iter().filter(|(of, _)| *of == field).map(|(_, text)| text.clone()).collect()
    };
    let (body, sources) = geo.explain(client.ip, unix_now(), |location, sources| {
        (FieldSet::Scope(Scope::Full).to_json(&client, &LocationJson::new(location)), sources)
    });
    let values: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
    let proxy_header = "With --proxy-protocol, the peer is the client in the PROXY header, and connections without such a \
                        header are closed.";
    let has_country = values.get("country").is_some_and(Value::is_string);
    let kind = special_use(client.ip).filter(|_| !has_country);
    let no_location = kind.map(|kind| format!("{} is {kind}. It has no location.", client.ip));
    let steps =
        proxy_protocol.then(|| proxy_header.to_owned()).into_iter().chain(texts("ip")).chain(no_location);
    let source = |name: &str, value: &Value| match name {
        "ip" | "ipv6" if value.is_null() => "the client's address is of the other family".to_owned(),
        "ip" | "ipv6" => format!("the client's address (decision: {})", client.decision.as_str()),
        _ => match sources.iter().find(|(field, _)| *field == name) {
            Some((_, source)) if !value.is_null() => source.clone(),
            _ if texts(name).is_empty() => "no database has it".to_owned(),
            _ => texts(name).join("; "),
        },
    };
    let field = |name| {
        let value = values.get(name).cloned().unwrap_or_default();
        ReportedField { name, source: source(name, &value), value }
    };
    let database = |database: DatabaseInfo| {
        let built = database.date().map_or("at an unknown date".to_owned(), |date| date.to_string());
        format!("{} ({}), built {built}", database.name, database.kind.as_str())
    };
    Report {
        policy: edge.policy().to_string(),
        steps: steps.collect(),
        ip: client.ip,
        decision: client.decision.as_str(),
        fields: fields::all().map(|field| field.name).filter(|name| *name != STATUS).map(field).collect(),
        databases: geo.databases().into_iter().map(database).collect(),
    }
}

fn text(report: &Report) -> String {
    let steps = report.steps.iter().enumerate().map(|(index, step)| format!("{:>2}. {step}\n", index + 1));
    // A database may have control characters.
    let value = |value: &Value| value.to_string().replace(char::is_control, "\u{fffd}");
    let row =
        |field: &ReportedField| format!("{:16} {:32} {}\n", field.name, value(&field.value), field.source);
    format!(
        "Flags: {}.\n\n{}\nClient address: {} (decision: {})\n\n{:16} {:32} Source\n{}\nDatabases, in order of \
         precedence:\n  {}",
        report.policy,
        steps.collect::<String>(),
        report.ip,
        report.decision,
        "Field",
        "Value",
        report.fields.iter().map(row).collect::<String>(),
        report.databases.join("\n  "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_peers_and_headers_are_rejected() {
        assert_eq!(parse_peer("[::1]:4242"), parse_peer("::1"));
        assert!(parse_peer("proxy.example").is_err());
        assert_eq!(parse_header("x-forwarded-for:192.0.2.2"), parse_header("X-Forwarded-For: 192.0.2.2"));
        for line in ["X-Forwarded-For", ": x", "a b: c", "a: b\u{7f}c"] {
            assert!(parse_header(line).is_err(), "{line:?}");
        }
    }
}
