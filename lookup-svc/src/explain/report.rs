//! The explanation of a request, as JSON and as text.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use edge::{
    ConnectionFacts, Decision, DiscoveryStatus, Edge, Explanation, Fact, FactHeader, FactSource, Step,
    parse_entry,
};
use geo::{FieldSource, Geo, LocationJson};
use http::{HeaderMap, HeaderName};
use quota_client::wire::Scope;
use serde::Serialize;
use serde_json::{Map, Value};

use super::ExplainRequest;
use crate::body::LookupBody;
use crate::fields::{FIELDS, FieldSet, STATUS};

/// How a request would be handled.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The flags that decide about addresses and headers.
    policy: String,
    /// One sentence per step.
    steps: Vec<String>,
    client: Client,
    /// The fields of a response with the scope `full`.
    fields: Vec<ReportedField>,
    databases: Vec<ReportedDatabase>,
}

#[derive(Clone, Debug, Serialize)]
struct Client {
    ip: IpAddr,
    /// The label of the metric `lookup_client_ip_decisions_total`.
    decision: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct ReportedField {
    name: &'static str,
    /// `null` also for what only a connection has.
    value: Value,
    source: String,
}

#[derive(Clone, Debug, Serialize)]
struct ReportedDatabase {
    name: String,
    kind: &'static str,
    /// The day of the build.
    built: Option<String>,
}

impl Report {
    pub(super) fn new(
        edge: &Edge,
        geo: &Geo,
        request: &ExplainRequest,
        explanation: &Explanation<'_>,
        proxy_protocol: bool,
        now: i64,
    ) -> Self {
        let client = &explanation.client;
        let full = FieldSet::Scope(Scope::Full);
        let (body, sources) = geo.explain(client.ip, now, |location, sources| {
            let location = LocationJson::new(location);
            (LookupBody { field_set: full, client, location: &location }.to_json(), sources)
        });
        let values: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
        let facts = FactSources { edge, steps: &explanation.steps, facts: &client.facts };
        let field = |name: &'static str| ReportedField {
            name,
            value: values.get(name).cloned().unwrap_or_default(),
            source: match Fact::ALL.into_iter().find(|fact| fact.field() == name) {
                Some(fact) => facts.source(fact),
                None => source(name, client.ip, client.decision, &sources),
            },
        };
        let databases = geo.databases().into_iter().map(|database| ReportedDatabase {
            built: database.date().map(|date| date.to_string()),
            kind: database.kind.as_str(),
            name: database.name,
        });
        Self {
            policy: edge.policy().to_string(),
            steps: sentences(edge, request, explanation, proxy_protocol),
            client: Client { ip: client.ip, decision: client.decision.label() },
            fields: FIELDS.iter().map(|field| field.name).filter(|name| *name != STATUS).map(field).collect(),
            databases: databases.collect(),
        }
    }
}

/// The source of an address or of a field of the location.
fn source(name: &str, ip: IpAddr, decision: Decision, sources: &[FieldSource]) -> String {
    let is_address_of_family = match name {
        "ip" => Some(ip.is_ipv4()),
        "ipv6" => Some(ip.is_ipv6()),
        _ => None,
    };
    match (is_address_of_family, sources.iter().find(|source| source.field == name)) {
        (Some(true), _) => match decision {
            Decision::PeerUntrusted | Decision::Peer | Decision::Missing => "the peer".to_owned(),
            Decision::Xff | Decision::XffAllTrusted => "X-Forwarded-For".to_owned(),
            Decision::Header => "the header of --client-ip-from".to_owned(),
            Decision::Fallback => "the last trusted address".to_owned(),
        },
        (Some(false), _) => "the client's address is of the other family".to_owned(),
        (None, Some(source)) => source.source.to_string(),
        (None, None) => "no database has it".to_owned(),
    }
}

/// The steps as sentences. The source of each fact, and headers with facts that were not sent, are left to the table of
/// fields.
fn sentences(
    edge: &Edge,
    request: &ExplainRequest,
    explanation: &Explanation<'_>,
    proxy_protocol: bool,
) -> Vec<String> {
    let mut sentences = Vec::new();
    match *edge.status().borrow() {
        DiscoveryStatus::Off => {}
        DiscoveryStatus::Waiting => sentences.push(
            "The proxies of --discover-proxies are not known yet, so none of them is trusted. Check the access to the \
             Kubernetes API."
                .to_owned(),
        ),
        DiscoveryStatus::Following { proxies } | DiscoveryStatus::Stale { proxies } => {
            sentences.push(format!("--discover-proxies has found this number of proxies: {proxies}."));
        }
    }
    if proxy_protocol {
        sentences.push(
            "With --proxy-protocol, the peer is the client in the PROXY header, and connections without such a header are \
             closed."
                .to_owned(),
        );
    }
    let is_in_table = |step: &Step| {
        matches!(
            step,
            Step::FactSource { .. } | Step::FactHeader { value: FactHeader::Missing | FactHeader::Valid, .. }
        )
    };
    sentences.extend(explanation.steps.iter().filter(|step| !is_in_table(step)).map(ToString::to_string));
    if !explanation.ignored.is_empty() {
        sentences.push(format!("Ignored, because the peer is not trusted: {}.", names(&explanation.ignored)));
    }
    if !explanation.unknown.is_empty() {
        sentences.push(format!(
            "Not used for the address or the connection facts: {}.",
            names(&explanation.unknown)
        ));
    }
    let has_address = |name: &&HeaderName| is_address(&request.headers, name);
    if let (Decision::Missing, Some(name)) =
        (explanation.client.decision, explanation.unknown.iter().find(has_address))
    {
        sentences.push(format!(
            "{name} has an address. If your proxy always replaces this header, use --client-ip-from header:{name}."
        ));
    }
    if is_local(explanation.client.ip) {
        sentences.push(format!(
            "{} is an address of a local network, so it has no location.",
            explanation.client.ip
        ));
    }
    sentences
}

fn names(names: &[HeaderName]) -> String {
    names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ")
}

fn is_address(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get(name).is_some_and(|value| parse_entry(value.as_bytes()).is_some())
}

fn is_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Describes where connection facts come from.
struct FactSources<'a> {
    edge: &'a Edge,
    steps: &'a [Step],
    facts: &'a ConnectionFacts<'a>,
}

impl FactSources<'_> {
    fn source(&self, fact: Fact) -> String {
        let source = self.steps.iter().find_map(|step| match step {
            Step::FactSource { fact: of, source } if *of == fact => Some(*source),
            _ => None,
        });
        match source {
            Some(FactSource::Header) => self.header(fact),
            Some(FactSource::Connection) if fact == Fact::RoundTripTime && !self.facts.rtt_from_socket => {
                "not known behind a load balancer".to_owned()
            }
            Some(FactSource::Connection) => {
                "the connection to this service, not part of this explanation".to_owned()
            }
            Some(FactSource::NodeLabel) => "the label of this node (--colo-node-label)".to_owned(),
            Some(FactSource::Flags) => "--node-zone and --colo-map, or --colo".to_owned(),
            Some(FactSource::Unknown) | None => match self.headers(fact).as_slice() {
                [] => "neither a header nor a flag of this service has it".to_owned(),
                reasons => reasons.join("; "),
            },
        }
    }

    /// The header that has the fact, or why none has it.
    fn header(&self, fact: Fact) -> String {
        match self.headers(fact).as_slice() {
            [] => format!("the peer sent no header {}", names(self.edge.fact_headers(fact))),
            reasons => reasons.join("; "),
        }
    }

    /// What was sent in each header of a fact.
    fn headers(&self, fact: Fact) -> Vec<String> {
        let headers = self.steps.iter().filter_map(|step| match step {
            Step::FactHeader { fact: of, name, value } if *of == fact => Some(match value {
                FactHeader::Valid => format!("header {name}"),
                FactHeader::Missing => format!("the peer sent no header {name}"),
                FactHeader::Repeated => format!("header {name} was sent more than once"),
                FactHeader::Invalid { .. } => format!("header {name} has an invalid value"),
            }),
            _ => None,
        });
        headers.collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Flags: {}.\n", self.policy)?;
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>2}. {step}", index + 1)?;
        }
        writeln!(f, "\nClient address: {} (decision: {})\n", self.client.ip, self.client.decision)?;
        let rows =
            self.fields.iter().map(|field| [field.name.to_owned(), text(&field.value), field.source.clone()]);
        let rows: Vec<_> =
            [["Field", "Value", "Source"].map(str::to_owned)].into_iter().chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        for [name, value, source] in &rows {
            writeln!(f, "{name:first$}  {value:second$}  {source}")?;
        }
        let mut databases = String::new();
        for database in &self.databases {
            let built = database.built.as_deref().unwrap_or("unknown");
            write!(databases, "\n  {} ({}), built {built}", database.name, database.kind)?;
        }
        write!(f, "\nDatabases, in order of precedence:{databases}")
    }
}

/// A value as text. Control characters, which a database may have, are escaped.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.chars().flat_map(escaped).collect(),
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

fn escaped(c: char) -> impl Iterator<Item = char> {
    let (plain, escape) = if c.is_control() { (None, Some(c.escape_default())) } else { (Some(c), None) };
    plain.into_iter().chain(escape.into_iter().flatten())
}
