//! HTTPS: protocol versions, certificates, slow handshakes and shutdown.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use poem::{Endpoint, EndpointExt, Request, endpoint::make_sync};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use service_kit::{ConnectionInfo, Kit, Lifecycle, ServeArgs, Server, Tls, TlsArgs, serve::TlsVersion};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    harness::{DOCS, TIMEOUT, TestServer, args},
    shutdown::gated,
};

/// A certificate authority and a folder with its certificates.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("key");
        let root = params.self_signed(&key).expect("certificate");
        let folder = TempDir::new().expect("folder");
        fs::write(folder.path().join("ca.pem"), root.pem()).expect("write");
        Self { folder, root: root.der().clone(), issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for `name` and 127.0.0.1, with its key, to `FILE.crt` and `FILE.key`. Returns it.
    fn issue(&self, file: &str, name: &str) -> CertificateDer<'static> {
        let names = [name.to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("valid names");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("key");
        let certificate = params.signed_by(&key, &self.issuer).expect("certificate");
        // Each file is replaced in one step; between the two, the pair does not match.
        for (extension, text) in [("crt", certificate.pem()), ("key", key.serialize_pem())] {
            let (path, new) = (self.path(file, extension), self.path(file, "new"));
            fs::write(&new, text).expect("write");
            fs::rename(new, path).expect("rename");
        }
        certificate.der().clone()
    }

    fn path(&self, file: &str, extension: &str) -> std::path::PathBuf {
        self.folder.path().join(file).with_extension(extension)
    }

    fn args(&self, files: &[&str]) -> TlsArgs {
        TlsArgs {
            tls_cert: files.iter().map(|file| self.path(file, "crt")).collect(),
            tls_key: files.iter().map(|file| self.path(file, "key")).collect(),
            ..TlsArgs::default()
        }
    }

    /// Runs curl for `https://a.example`. Returns standard output, or the error.
    async fn curl(&self, addr: SocketAddr, flags: &[&str]) -> Result<String, String> {
        let (port, ca) = (addr.port(), self.folder.path().join("ca.pem"));
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "10", "--resolve", &format!("a.example:{port}:127.0.0.1")])
            .arg("--cacert")
            .arg(ca)
            .args(flags)
            .arg(format!("https://a.example:{port}/"))
            .output()
            .await
            .expect("curl is installed");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    async fn connect(&self, addr: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        handshake(self.connector(), TcpStream::connect(addr).await?).await
    }

    fn connector(&self) -> TlsConnector {
        service_kit::tls::install_crypto_provider();
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("valid root");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}

async fn handshake(connector: TlsConnector, socket: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    connector.connect(ServerName::try_from("127.0.0.1").expect("valid name"), socket).await
}

async fn serve(args: &ServeArgs, tls: &TlsArgs, endpoint: impl Endpoint + 'static) -> (TestServer, Tls) {
    let tls = Tls::load(tls).expect("valid certificates").expect("there are certificates");
    let server = Server::bind("test", ([127, 0, 0, 1], 0).into(), args).await.expect("bind");
    let (addr, lifecycle) = (server.local_addr(), Lifecycle::new(args));
    let server = server.docs_url(DOCS).tls(Some(tls.clone()));
    let task = tokio::spawn(server.serve(endpoint.map_to_response().boxed(), lifecycle.clone()));
    (TestServer { addr, lifecycle, task }, tls)
}

/// Responds with the facts of the connection.
fn facts() -> impl Endpoint {
    make_sync(|request: Request| {
        let info = ConnectionInfo::current().expect("inside a handler");
        let tls = info.tls.expect("TLS");
        let rtt = info.round_trip_time().is_some();
        let (version, cipher) = (tls.version.unwrap_or("-"), tls.cipher.unwrap_or("-"));
        format!("{version} {cipher} {:?} {} rtt={rtt}", request.version(), request.scheme())
    })
}

async fn get(stream: &mut TlsStream<TcpStream>) -> std::io::Result<String> {
    send(stream).await?;
    read_response(stream).await
}

/// Sends a request. Without the flush, it may stay in the buffer of TLS.
async fn send(stream: &mut TlsStream<TcpStream>) -> std::io::Result<()> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").await?;
    stream.flush().await
}

/// Reads the head of a response, and the body "hello".
async fn read_response(stream: &mut TlsStream<TcpStream>) -> std::io::Result<String> {
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\nhello") && !response.ends_with(b"\r\n\r\ndone") {
        response.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(response).expect("UTF-8"))
}

fn hello() -> impl Endpoint {
    make_sync(|_| "hello")
}

#[tokio::test]
async fn versions_ciphers_and_protocols_are_negotiated_and_reported() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), facts()).await;
    for (flags, want) in [
        ("--http2 --tlsv1.3", "TLSv1.3 TLS_AES_256_GCM_SHA384 HTTP/2.0 https rtt=true"),
        ("--http1.1 --tlsv1.3", "TLSv1.3 TLS_AES_256_GCM_SHA384 HTTP/1.1 https rtt=true"),
        ("--no-alpn", "TLSv1.3 TLS_AES_256_GCM_SHA384 HTTP/1.1 https rtt=true"),
        (
            "--http1.1 --tls13-ciphers TLS_AES_128_GCM_SHA256",
            "TLSv1.3 TLS_AES_128_GCM_SHA256 HTTP/1.1 https rtt=true",
        ),
        (
            "--http1.1 --tls13-ciphers TLS_CHACHA20_POLY1305_SHA256",
            "TLSv1.3 TLS_CHACHA20_POLY1305_SHA256 HTTP/1.1 https rtt=true",
        ),
        (
            "--http2 --tls-max 1.2 --ciphers ECDHE-ECDSA-AES128-GCM-SHA256",
            "TLSv1.2 TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 HTTP/2.0 https rtt=true",
        ),
        (
            "--http1.1 --tls-max 1.2 --ciphers ECDHE-ECDSA-CHACHA20-POLY1305",
            "TLSv1.2 TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 HTTP/1.1 https rtt=true",
        ),
    ] {
        let flags: Vec<_> = flags.split(' ').collect();
        assert_eq!(authority.curl(server.addr, &flags).await.as_deref(), Ok(want), "{flags:?}");
    }
}

#[tokio::test]
async fn rsa_certificate_has_rsa_ciphers() {
    let authority = Authority::new();
    let output = Command::new("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=a.example".split(' '))
        .args(["-addext", "subjectAltName=DNS:a.example", "-keyout"])
        .arg(authority.path("rsa", "key"))
        .arg("-out")
        .arg(authority.path("rsa", "crt"))
        .output();
    let output = output.await.expect("openssl is installed");
    assert!(output.status.success(), "{output:?}");
    let (server, _) = serve(&args(), &authority.args(&["rsa"]), facts()).await;
    for (cipher, want) in [
        ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
        ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ] {
        let facts = authority.curl(server.addr, &["-k", "--tls-max", "1.2", "--ciphers", cipher]).await;
        let want = format!("TLSv1.2 {want} HTTP/2.0 https rtt=true");
        assert_eq!(facts, Ok(want));
    }
}

#[tokio::test]
async fn minimum_version_rejects_older_clients() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let tls = TlsArgs { tls_min_version: TlsVersion::V1_3, ..authority.args(&["a"]) };
    let (server, _) = serve(&args(), &tls, facts()).await;
    let old = authority.curl(server.addr, &["--tls-max", "1.2"]).await.expect_err("too old");
    assert!(old.contains("protocol version"), "{old}");
    assert!(authority.curl(server.addr, &[]).await.is_ok_and(|facts| facts.starts_with("TLSv1.3")));
}

#[tokio::test]
async fn certificate_is_selected_by_name_and_defaults_to_the_first() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    authority.issue("b", "*.b.example");
    let (server, _) = serve(&args(), &authority.args(&["a", "b"]), hello()).await;
    for (flags, want) in [
        ("-servername a.example", "CN = a.example"),
        ("-servername x.b.example", "CN = *.b.example"),
        ("-servername unknown.example", "CN = a.example"),
        ("-noservername", "CN = a.example"),
    ] {
        let output = Command::new("openssl")
            .args(["s_client", "-connect", &server.addr.to_string()])
            .args(flags.split(' '))
            .stdin(std::process::Stdio::null())
            .output();
        let output = timeout(TIMEOUT, output).await.expect("in time").expect("openssl is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("subject={want}\n")), "{flags}: {text}");
    }
}

#[tokio::test]
async fn stalled_handshakes_take_no_connection_and_are_closed_in_time() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let args = ServeArgs { max_connections: 1, header_timeout: Duration::from_millis(500), ..args() };
    let (server, _) = serve(&args, &authority.args(&["a"]), hello()).await;
    let (mut silent, mut partial) = (server.connect().await, server.connect().await);
    // The start of a TLS record that says it has 256 bytes.
    partial.send([0x16, 3, 1, 1, 0]).await;
    let mut client = authority.connect(server.addr).await.expect("handshake");
    assert!(get(&mut client).await.expect("response").starts_with("HTTP/1.1 200"));
    for stalled in [&mut silent, &mut partial] {
        let elapsed = stalled.wait_closed().await;
        assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    }
}

#[tokio::test]
async fn plain_http_request_is_closed_and_others_are_served() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), hello()).await;
    let mut plain = server.connect().await;
    plain.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    let mut alert = Vec::new();
    let _ = timeout(TIMEOUT, plain.0.read_to_end(&mut alert)).await.expect("closed in time");
    assert!(!alert.starts_with(b"HTTP"), "{alert:?}");
    assert!(authority.connect(server.addr).await.is_ok());
}

/// Sends requests on new connections until stopped. Returns their number. Fails with the first request that fails.
fn load(authority: &Authority, addr: SocketAddr, stop: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (connector, stop) = (authority.connector(), stop.clone());
    tokio::spawn(async move {
        let mut requests = 0;
        while !stop.load(Relaxed) {
            let socket = TcpStream::connect(addr).await.expect("connect");
            let mut client = handshake(connector.clone(), socket).await.expect("handshake");
            for _ in 0..2 {
                get(&mut client).await.expect("response");
                requests += 1;
            }
        }
        requests
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_concurrent_handshakes_and_requests_all_succeed() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), hello()).await;
    let (stop, addr) = (Arc::new(AtomicBool::new(false)), server.addr);
    let mut keep_alive = authority.connect(addr).await.expect("handshake");
    let normal = load(&authority, addr, &stop);
    let done = Arc::new(AtomicUsize::new(0));
    let mut handshakes = JoinSet::new();
    for _ in 0..200 {
        let (connector, done) = (authority.connector(), done.clone());
        handshakes.spawn(async move {
            let socket = TcpStream::connect(addr).await.expect("connect");
            let mut client = handshake(connector, socket).await.expect("handshake");
            get(&mut client).await.expect("response");
            done.fetch_add(1, Relaxed);
        });
    }
    while !handshakes.is_empty() {
        get(&mut keep_alive).await.expect("response");
        let _ = timeout(Duration::from_millis(10), handshakes.join_next()).await;
    }
    stop.store(true, Relaxed);
    assert!(normal.await.expect("no failed request") > 0);
    assert_eq!(done.load(Relaxed), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_replaced_certificates_fail_no_request() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, tls) = serve(&args(), &authority.args(&["a"]), hello()).await;
    let kit = Kit::for_tests(&args());
    let condition = kit.readiness.condition("tls");
    let follow = tokio::spawn(tls.follow_files(Duration::from_millis(5), condition));
    let stop = Arc::new(AtomicBool::new(false));
    let loads = [load(&authority, server.addr, &stop), load(&authority, server.addr, &stop)];
    for _ in 0..50 {
        let new = authority.issue("a", "a.example");
        let started = Instant::now();
        loop {
            let client = authority.connect(server.addr).await.expect("handshake");
            if client.get_ref().1.peer_certificates().is_some_and(|chain| chain[0] == new) {
                break;
            }
            assert!(started.elapsed() < TIMEOUT, "the new certificate is used in time");
        }
    }
    stop.store(true, Relaxed);
    for load in loads {
        assert!(load.await.expect("no failed request") > 0);
    }
    follow.abort();
}

#[tokio::test]
async fn expired_certificate_is_reported_but_keeps_the_service_ready() {
    let folder = TempDir::new().expect("folder");
    let mut params = CertificateParams::new(["a.example".to_owned()]).expect("valid name");
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = KeyPair::generate().expect("key");
    let (certificate_file, key_file) = (folder.path().join("old.crt"), folder.path().join("old.key"));
    fs::write(&certificate_file, params.self_signed(&key).expect("certificate").pem()).expect("write");
    fs::write(&key_file, key.serialize_pem()).expect("write");
    let args =
        TlsArgs { tls_cert: vec![certificate_file.clone()], tls_key: vec![key_file], ..TlsArgs::default() };
    let tls = Tls::load(&args).expect("expired certificates are accepted").expect("certificate");
    let kit = Kit::for_tests(&ServeArgs::default());
    tls.publish(&kit.telemetry.meter());
    let follow = tokio::spawn(tls.follow_files(Duration::from_secs(3600), kit.readiness.condition("tls")));
    while !kit.readiness.report().checks["tls"].detail.contains("has EXPIRED (2020-01-01)") {
        tokio::task::yield_now().await;
    }
    assert!(kit.readiness.is_ready());
    let metrics = kit.telemetry.prometheus_text();
    let line = metrics.lines().find(|line| line.starts_with("tls_certificate_expiry_timestamp_seconds{"));
    let line = line.expect("the metric exists");
    let path = |path: &Path| format!("certificate=\"{}\"", path.display());
    assert!(line.contains(&path(&certificate_file)) && line.ends_with(" 1577836800"), "{line}");
    follow.abort();
}

#[tokio::test]
async fn shutdown_completes_requests_and_pending_handshakes() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (endpoint, gate) = gated();
    let (server, _) = serve(&args(), &authority.args(&["a"]), endpoint).await;
    let mut busy = authority.connect(server.addr).await.expect("handshake");
    send(&mut busy).await.expect("send");
    gate.entered().await;
    let mut idle = authority.connect(server.addr).await.expect("handshake");
    let mut stalled = server.connect().await;
    let late = TcpStream::connect(server.addr).await.expect("connect");
    server.lifecycle.begin_shutdown();
    // Closed, though without TLS's end of stream, because there was no request yet.
    assert!(idle.read(&mut [0; 1]).await.map_or(true, |read| read == 0));
    // The handshake of this connection begins after the port was closed.
    let mut late = handshake(authority.connector(), late).await.expect("handshake");
    send(&mut late).await.expect("send");
    gate.entered().await;
    gate.open();
    for client in [&mut busy, &mut late] {
        let response = timeout(TIMEOUT, read_response(client)).await.expect("in time").expect("response");
        assert!(response.starts_with("HTTP/1.1 200") && response.contains("connection: close"), "{response}");
        // Without TLS's end of stream this would be an error.
        assert_eq!(client.read(&mut [0; 1]).await.expect("orderly close"), 0);
    }
    stalled.wait_closed().await;
    server.wait_stopped().await;
}

#[tokio::test]
async fn unspecified_ipv6_address_serves_both_families() {
    let args = args();
    let addr: SocketAddr = "[::]:0".parse().expect("valid address");
    let server = Server::bind("test", addr, &args).await.expect("bind");
    let port = server.local_addr().port();
    let peer = make_sync(|_| ConnectionInfo::current().expect("inside a handler").peer.ip().to_string());
    let lifecycle = Lifecycle::new(&args);
    let task = tokio::spawn(server.serve(peer.map_to_response().boxed(), lifecycle.clone()));
    for ip in ["127.0.0.1", "::1"] {
        let addr = SocketAddr::new(ip.parse().expect("valid address"), port);
        let server = TestServer { addr, lifecycle: lifecycle.clone(), task: tokio::spawn(async {}) };
        assert_eq!(server.connect().await.get("/").await.body, ip);
    }
    lifecycle.begin_shutdown();
    timeout(TIMEOUT, task).await.expect("stops in time").expect("no panic");
}
