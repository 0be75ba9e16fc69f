//! An OpenTelemetry collector that stores every request body.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use prost::Message as _;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A collector on its own port; stopped when dropped.
#[derive(Debug)]
pub struct Collector {
    addr: SocketAddr,
    bodies: Bodies,
    accepting: JoinHandle<()>,
}

/// Path and body of each request.
type Bodies = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// A received span.
#[derive(Debug, Clone)]
pub struct Span {
    /// Name of the sending service.
    pub service: String,
    pub name: String,
    /// Trace ID in hex.
    pub trace: String,
    /// Span ID in hex.
    pub id: String,
    /// Span ID of the parent in hex; empty without a parent.
    pub parent: String,
    /// Trace ID and span ID of each linked span, in hex.
    pub links: Vec<(String, String)>,
    /// Version of the sending service.
    pub version: String,
    attributes: Vec<(String, String)>,
    numbers: Vec<(String, i64)>,
}

impl Span {
    /// An attribute as text; empty if it is absent.
    #[must_use]
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// An attribute that is exported as a number; `None` if it is absent or a string.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        self.numbers.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

impl Collector {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
        let addr = listener.local_addr().expect("bound socket has an address");
        let bodies = Bodies::default();
        let accepting = tokio::spawn(accept_all(listener, bodies.clone()));
        Self { addr, bodies, accepting }
    }

    /// Value for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The bodies of all requests to `path` (such as `/v1/traces`).
    #[must_use]
    pub fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.iter().filter(|(to, _)| to == path).map(|(_, body)| body.clone()).collect()
    }

    /// All received spans.
    #[must_use]
    pub fn spans(&self) -> Vec<Span> {
        self.bodies("/v1/traces").iter().flat_map(|body| spans_in(body)).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept_all(listener: TcpListener, bodies: Bodies) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(receive(socket, bodies.clone()));
    }
}

/// Handles requests until the exporter closes the connection. Closes it on unexpected input.
async fn receive(socket: TcpStream, bodies: Bodies) -> Option<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let (mut path, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            socket.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.ok()?;
        bodies.lock().unwrap_or_else(PoisonError::into_inner).push((path?, body));
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.ok()?;
    }
}

fn spans_in(body: &[u8]) -> Vec<Span> {
    let export = ExportTraceServiceRequest::decode(body).expect("valid trace export");
    let of_resource = |spans: opentelemetry_proto::tonic::trace::v1::ResourceSpans| {
        let attributes = spans.resource.map(|resource| to_texts(&resource.attributes)).unwrap_or_default();
        let value = |name: &str| {
            attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans
            .map(|span| read_span(value("service.name"), value("service.version"), &span))
            .collect::<Vec<_>>()
    };
    export.resource_spans.into_iter().flat_map(of_resource).collect()
}

fn read_span(service: String, version: String, span: &opentelemetry_proto::tonic::trace::v1::Span) -> Span {
    let number = |attribute: &KeyValue| match attribute.value.as_ref()?.value.as_ref()? {
        any_value::Value::IntValue(number) => Some((attribute.key.clone(), *number)),
        _ => None,
    };
    Span {
        service,
        name: span.name.clone(),
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        version,
        attributes: to_texts(&span.attributes),
        numbers: span.attributes.iter().filter_map(number).collect(),
    }
}

fn to_texts(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let text = |attribute: &KeyValue| {
        let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(any_value::Value::StringValue(text)) => text.clone(),
            Some(any_value::Value::IntValue(number)) => number.to_string(),
            other => format!("{other:?}"),
        };
        (attribute.key.clone(), value)
    };
    attributes.iter().map(text).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
