//! A fake Kubernetes API for EndpointSlices and nodes, over real HTTP, with failures on demand.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use kube::runtime::utils::Backoff;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

type Body = BoxBody<Bytes, std::io::Error>;

/// A constant retry delay, short for a test but long enough to avoid a busy loop.
pub struct ShortDelay;

impl Iterator for ShortDelay {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(5))
    }
}

impl Backoff for ShortDelay {
    fn reset(&mut self) {}
}

/// Adds a timeout, so that a broken test fails instead of hanging.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| panic!("timed out waiting for {what}"))
}

/// An EndpointSlice with one serving endpoint per address.
pub fn slice(name: &str, version: &str, ips: &[&str]) -> Value {
    let endpoints: Vec<_> = ips
        .iter()
        .map(|ip| json!({"addresses": [ip], "conditions": {"ready": true, "serving": true, "terminating": false}}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "ingress", "resourceVersion": version},
        "endpoints": endpoints,
    })
}

/// A watch event, which is one line of the response.
pub fn event(kind: &str, object: Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

/// A bookmark event, which has only a resource version.
pub fn bookmark(version: &str) -> String {
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"resourceVersion": version, "creationTimestamp": null},
    });
    event("BOOKMARK", object)
}

/// The error event for an expired resource version.
pub fn expired() -> String {
    event("ERROR", status(410, "Expired"))
}

fn status(code: u16, reason: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": "requested by the test", "reason": reason, "code": code,
    })
}

/// Current behavior of the API.
#[derive(Clone)]
enum Behavior {
    /// Works, and responds to a list request with this list.
    List(Value),
    /// Responds to every request with this status.
    Status(u16),
    /// Closes every connection without a response.
    Close,
}

/// An open watch.
pub struct Watch {
    pub uri: String,
    lines: mpsc::UnboundedSender<Result<String, std::io::Error>>,
}

impl Watch {
    pub fn send(&self, line: String) {
        self.lines.send(Ok(line)).unwrap();
    }

    /// Ends the stream properly.
    pub fn end(self) {}

    /// Breaks the connection.
    pub fn abort(self) {
        self.lines.send(Err(std::io::Error::other("aborted"))).unwrap();
    }

    /// Waits until the client has closed the watch.
    pub async fn closed(&self) {
        self.lines.closed().await;
    }
}

pub struct FakeApi {
    port: u16,
    /// Present if the API uses TLS.
    certificate: Option<Vec<u8>>,
    behavior: Mutex<Behavior>,
    nodes: Mutex<HashMap<String, Value>>,
    /// URIs of the list requests so far.
    list_uris: Mutex<Vec<String>>,
    /// Watches with this query parameter are rejected with status 410.
    rejected_version: Mutex<Option<String>>,
    /// Number of failed requests.
    failures: watch::Sender<usize>,
    /// Sends each opened watch to `watches`, where the test receives it.
    opened: mpsc::UnboundedSender<Watch>,
    watches: AsyncMutex<mpsc::UnboundedReceiver<Watch>>,
}

impl FakeApi {
    pub async fn start() -> Arc<Self> {
        Self::serve(None).await
    }

    /// Uses TLS with a self-signed certificate, as in a cluster.
    pub async fn start_tls() -> Arc<Self> {
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let certificate = signed.cert.der().clone();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.clone()], key).unwrap();
        Self::serve(Some((TlsAcceptor::from(Arc::new(config)), certificate.to_vec()))).await
    }

    async fn serve(tls: Option<(TlsAcceptor, Vec<u8>)>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (opened, watches) = mpsc::unbounded_channel();
        let (acceptor, certificate) = tls.unzip();
        let api = Arc::new(Self {
            certificate,
            port: listener.local_addr().unwrap().port(),
            behavior: Mutex::new(Behavior::Status(500)),
            nodes: Mutex::default(),
            list_uris: Mutex::default(),
            rejected_version: Mutex::default(),
            failures: watch::Sender::new(0),
            opened,
            watches: AsyncMutex::new(watches),
        });
        tokio::spawn(accept(listener, acceptor, Arc::clone(&api)));
        api
    }

    pub fn client(&self) -> kube::Client {
        edge::client_from(self.config()).unwrap()
    }

    pub fn config(&self) -> kube::Config {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://127.0.0.1:{}", self.port).parse().unwrap();
        let mut config = kube::Config::new(url);
        config.root_cert = self.certificate.clone().map(|der| vec![der]);
        config
    }

    /// Makes the API respond to list requests with these slices.
    pub fn list(&self, version: &str, slices: &[Value]) {
        let list = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
            "metadata": {"resourceVersion": version}, "items": slices,
        });
        *self.behavior.lock().unwrap() = Behavior::List(list);
    }

    /// Makes the API respond to every request with this status.
    pub fn respond_with(&self, code: u16) {
        *self.behavior.lock().unwrap() = Behavior::Status(code);
    }

    /// Makes the API close every connection without a response.
    pub fn close_connections(&self) {
        *self.behavior.lock().unwrap() = Behavior::Close;
    }

    /// Makes the API reject watches that start at this resource version with status 410.
    pub fn reject_watches_from(&self, version: &str) {
        *self.rejected_version.lock().unwrap() = Some(format!("resourceVersion={version}"));
    }

    /// Adds a node and makes the API respond normally, with an empty list of slices.
    pub fn node(&self, name: &str, labels: &[(&str, &str)]) {
        let labels: HashMap<_, _> = labels.iter().copied().collect();
        let node = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "labels": labels},
        });
        self.nodes.lock().unwrap().insert(name.to_owned(), node);
        self.list("1", &[]);
    }

    /// Waits until `count` more requests have failed.
    pub async fn wait_for_failures(&self, count: usize) {
        let mut failures = self.failures.subscribe();
        let goal = *failures.borrow() + count;
        let _ = within("failed requests", failures.wait_for(|failed| *failed >= goal)).await.unwrap();
    }

    pub async fn next_watch(&self) -> Watch {
        within("a watch", async { self.watches.lock().await.recv().await.unwrap() }).await
    }

    pub fn first_list_uri(&self) -> String {
        self.list_uris.lock().unwrap().first().unwrap().clone()
    }

    fn respond(&self, uri: String) -> Result<Response<Body>, std::io::Error> {
        let behavior = self.behavior.lock().unwrap().clone();
        let list = match behavior {
            Behavior::List(list) => list,
            Behavior::Status(code) => return Ok(self.fail(code, "InternalError")),
            Behavior::Close => {
                self.failures.send_modify(|count| *count += 1);
                return Err(std::io::Error::other("connection closed"));
            }
        };
        if let Some(node) = uri.strip_prefix("/api/v1/nodes/") {
            let node = self.nodes.lock().unwrap().get(node.trim_end_matches('?')).cloned();
            return Ok(node.map_or_else(|| self.fail(404, "NotFound"), |node| json_body(200, &node)));
        }
        if uri.contains("watch=true") {
            return Ok(self.open(uri));
        }
        self.list_uris.lock().unwrap().push(uri);
        Ok(json_body(200, &list))
    }

    fn open(&self, uri: String) -> Response<Body> {
        let rejected_version = self.rejected_version.lock().unwrap().clone();
        if rejected_version.is_some_and(|version| uri.split('&').any(|part| part == version)) {
            return self.fail(410, "Expired");
        }
        let (lines, received) = mpsc::unbounded_channel();
        let frames = futures_util::stream::unfold(received, |mut received| async {
            let line: Result<String, _> = received.recv().await?;
            Some((line.map(|line| Frame::data(Bytes::from(line))), received))
        });
        self.opened.send(Watch { uri, lines }).unwrap();
        Response::new(BodyExt::boxed(StreamBody::new(frames)))
    }

    fn fail(&self, code: u16, reason: &str) -> Response<Body> {
        self.failures.send_modify(|count| *count += 1);
        json_body(code, &status(code, reason))
    }
}

fn json_body(code: u16, value: &Value) -> Response<Body> {
    let body = Full::from(value.to_string()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(BodyExt::boxed(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, api: Arc<FakeApi>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (api, tls) = (Arc::clone(&api), tls.clone());
        tokio::spawn(async move {
            match tls {
                Some(tls) => serve_connection(tls.accept(stream).await.unwrap(), api).await,
                None => serve_connection(stream, api).await,
            }
        });
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, api: Arc<FakeApi>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let response = api.respond(request.uri().to_string());
        async move { response }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    // Returns an error if the test closes the connection, which is expected.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}
