//! A fake Kubernetes API server, over real HTTP or HTTPS: EndpointSlices with watches that the test controls, other
//! objects by path, and failures on demand.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::wait::within;

mod discovery;

pub use discovery::{DiscoveryApi, SERVICE};

type Body = BoxBody<Bytes, std::io::Error>;

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
        self.lines.send(Ok(line)).expect("the watch is open");
    }

    /// Ends the stream properly.
    pub fn end(self) {}

    /// Breaks the connection.
    pub fn abort(self) {
        self.lines.send(Err(std::io::Error::other("aborted"))).expect("the watch is open");
    }

    /// Waits until the client has closed the watch.
    pub async fn closed(&self) {
        self.lines.closed().await;
    }
}

/// A fake API server on its own port. Responds to every request with status 500 until the test configures it.
pub struct KubeApi {
    addr: SocketAddr,
    /// Present if the API uses TLS.
    certificate: Option<Vec<u8>>,
    behavior: Mutex<Behavior>,
    /// Objects by path.
    objects: Mutex<HashMap<String, Value>>,
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

impl KubeApi {
    pub async fn start() -> Arc<Self> {
        Self::serve(None).await
    }

    /// Uses TLS with a self-signed certificate, as in a cluster.
    pub async fn start_tls() -> Arc<Self> {
        let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("valid name");
        let key = PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("valid key");
        let certificate = signed.cert.der().clone();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.clone()], key).expect("key of the certificate");
        Self::serve(Some((TlsAcceptor::from(Arc::new(config)), certificate.to_vec()))).await
    }

    async fn serve(tls: Option<(TlsAcceptor, Vec<u8>)>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
        let (opened, watches) = mpsc::unbounded_channel();
        let (acceptor, certificate) = tls.unzip();
        let api = Arc::new(Self {
            certificate,
            addr: listener.local_addr().expect("bound socket has an address"),
            behavior: Mutex::new(Behavior::Status(500)),
            objects: Mutex::default(),
            list_uris: Mutex::default(),
            rejected_version: Mutex::default(),
            failures: watch::Sender::new(0),
            opened,
            watches: AsyncMutex::new(watches),
        });
        tokio::spawn(accept(listener, acceptor, Arc::clone(&api)));
        api
    }

    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The base URL.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.certificate.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addr)
    }

    /// The certificate in DER, if the API uses TLS.
    #[must_use]
    pub fn certificate(&self) -> Option<Vec<u8>> {
        self.certificate.clone()
    }

    /// Makes the API respond to list requests with these slices.
    pub fn list(&self, version: &str, slices: &[Value]) {
        let list = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
            "metadata": {"resourceVersion": version}, "items": slices,
        });
        *lock(&self.behavior) = Behavior::List(list);
    }

    /// Makes the API respond to every request with this status.
    pub fn respond_with(&self, code: u16) {
        *lock(&self.behavior) = Behavior::Status(code);
    }

    /// Makes the API close every connection without a response.
    pub fn close_connections(&self) {
        *lock(&self.behavior) = Behavior::Close;
    }

    /// Makes the API reject watches that start at this resource version with status 410.
    pub fn reject_watches_from(&self, version: &str) {
        *lock(&self.rejected_version) = Some(format!("resourceVersion={version}"));
    }

    /// Adds an object and makes the API respond normally, with an empty list of slices.
    pub fn put(&self, path: &str, object: Value) {
        lock(&self.objects).insert(path.to_owned(), object);
        self.list("1", &[]);
    }

    /// Waits until `count` more requests have failed.
    pub async fn wait_for_failures(&self, count: usize) {
        let mut failures = self.failures.subscribe();
        let goal = *failures.borrow() + count;
        let _ = within("failed requests", failures.wait_for(|failed| *failed >= goal))
            .await
            .expect("`self` holds the sender");
    }

    /// Returns the next watch that a client opens.
    ///
    /// # Panics
    /// No client opens one in time.
    pub async fn next_watch(&self) -> Watch {
        within("a watch", self.opened_watch()).await
    }

    async fn opened_watch(&self) -> Watch {
        self.watches.lock().await.recv().await.expect("`self` holds the sender")
    }

    /// # Panics
    /// There was no list request yet.
    #[must_use]
    pub fn first_list_uri(&self) -> String {
        lock(&self.list_uris).first().expect("a list request").clone()
    }

    fn respond(&self, uri: String) -> Result<Response<Body>, std::io::Error> {
        let behavior = lock(&self.behavior).clone();
        let list = match behavior {
            Behavior::List(list) => list,
            Behavior::Status(code) => return Ok(self.fail(code, "InternalError")),
            Behavior::Close => {
                self.failures.send_modify(|count| *count += 1);
                return Err(std::io::Error::other("connection closed"));
            }
        };
        let path = uri.split('?').next().unwrap_or_default();
        if let Some(object) = lock(&self.objects).get(path) {
            return Ok(json_body(200, object));
        }
        if !path.ends_with("/endpointslices") {
            return Ok(self.fail(404, "NotFound"));
        }
        if uri.contains("watch=true") {
            return Ok(self.open(uri));
        }
        lock(&self.list_uris).push(uri);
        Ok(json_body(200, &list))
    }

    fn open(&self, uri: String) -> Response<Body> {
        let rejected_version = lock(&self.rejected_version).clone();
        if rejected_version.is_some_and(|version| uri.split('&').any(|part| part == version)) {
            return self.fail(410, "Expired");
        }
        let (lines, received) = mpsc::unbounded_channel();
        let frames = futures_util::stream::unfold(received, |mut received| async {
            let line: Result<String, _> = received.recv().await?;
            Some((line.map(|line| Frame::data(Bytes::from(line))), received))
        });
        self.opened.send(Watch { uri, lines }).expect("`self` holds the receiver");
        Response::new(BodyExt::boxed(StreamBody::new(frames)))
    }

    fn fail(&self, code: u16, reason: &str) -> Response<Body> {
        self.failures.send_modify(|count| *count += 1);
        json_body(code, &status(code, reason))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn json_body(code: u16, value: &Value) -> Response<Body> {
    let body = Full::from(value.to_string()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(BodyExt::boxed(body));
    *response.status_mut() = StatusCode::from_u16(code).expect("valid status");
    response
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, api: Arc<KubeApi>) {
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        let (api, tls) = (Arc::clone(&api), tls.clone());
        tokio::spawn(async move {
            match tls {
                Some(tls) => serve_connection(tls.accept(stream).await.expect("TLS handshake"), api).await,
                None => serve_connection(stream, api).await,
            }
        });
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send, api: Arc<KubeApi>) {
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let response = api.respond(request.uri().to_string());
        async move { response }
    });
    let connection = hyper::server::conn::http1::Builder::new();
    // Returns an error if the test closes the connection, which is expected.
    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
}
