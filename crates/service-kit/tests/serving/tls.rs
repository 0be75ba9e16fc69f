//! HTTPS: protocol versions, certificates, slow handshakes and shutdown.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http_server::{Lifecycle, RequestOrigin, ServeArgs, Server, Tls, TlsArgs, TlsVersion};
use poem::{Endpoint, EndpointExt, Request, endpoint::make_sync};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, HandshakeKind, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use service_kit::Kit;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    sync::Barrier,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    harness::{CapturedLog, TIMEOUT, TestServer, args, errors},
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

    /// Runs `openssl s_client` for a.example and sends `input`. Returns everything that it prints.
    async fn openssl(&self, addr: SocketAddr, flags: &[&str], input: &str) -> String {
        let mut client = Command::new("openssl")
            .args(["s_client", "-connect", &addr.to_string(), "-servername", "a.example", "-CAfile"])
            .arg(self.folder.path().join("ca.pem"))
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("openssl is installed");
        let mut stdin = client.stdin.take().expect("stdin is piped");
        // Fails if the handshake has failed.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = timeout(TIMEOUT, client.wait_with_output()).await.expect("in time").expect("output");
        String::from_utf8_lossy(&[output.stderr, output.stdout].concat()).into_owned()
    }

    async fn connect(&self, addr: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        handshake(self.connector(), TcpStream::connect(addr).await?).await
    }

    fn connector(&self) -> TlsConnector {
        self.connector_for(&[])
    }

    /// A client that offers these protocols (ALPN).
    fn connector_for(&self, protocols: &[&[u8]]) -> TlsConnector {
        service_kit::runtime::install_crypto_provider();
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).expect("valid root");
        let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
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
    let server = server.errors(errors()).tls(Some(tls.clone()));
    let task = tokio::spawn(server.serve(endpoint.map_to_response().boxed(), lifecycle.clone()));
    (TestServer { addr, lifecycle, task }, tls)
}

/// Responds with the facts of the connection.
fn facts() -> impl Endpoint {
    make_sync(|request: Request| {
        let info = &RequestOrigin::of(&request).expect("served").connection;
        let tls = info.tls.as_ref().expect("TLS");
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

/// The suites of TLS 1.3: OpenSSL has the IANA names.
const TLS_1_3: [&str; 3] =
    ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The ciphers of TLS 1.2 suites with the kind of key `KEY`: OpenSSL's name and the end of the IANA name.
const TLS_1_2: [(&str, &str); 3] = [
    ("ECDHE-KEY-AES128-GCM-SHA256", "TLS_ECDHE_KEY_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-KEY-AES256-GCM-SHA384", "TLS_ECDHE_KEY_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-KEY-CHACHA20-POLY1305", "TLS_ECDHE_KEY_WITH_CHACHA20_POLY1305_SHA256"),
];

/// Checks every version, suite and protocol with both curl and openssl. `key` is `ECDSA` or `RSA`.
async fn check_suites(authority: &Authority, addr: SocketAddr, key: &str) {
    let new = TLS_1_3.map(|suite| ("1.3", suite.to_owned(), suite.to_owned()));
    let old = TLS_1_2.map(|(name, suite)| ("1.2", name.replace("KEY", key), suite.replace("KEY", key)));
    for (version, name, suite) in new.into_iter().chain(old) {
        let ciphers = if version == "1.3" { "--tls13-ciphers" } else { "--ciphers" };
        for (flag, protocol) in
            [("--http2", "HTTP/2.0"), ("--http1.1", "HTTP/1.1"), ("--no-alpn", "HTTP/1.1")]
        {
            let facts = authority.curl(addr, &[flag, "--tls-max", version, ciphers, &name]).await;
            assert_eq!(facts, Ok(format!("TLSv{version} {suite} {protocol} https rtt=true")), "curl {flag}");
        }
        let ciphers = if version == "1.3" { "-ciphersuites" } else { "-cipher" };
        let version_flag = if version == "1.3" { "-tls1_3" } else { "-tls1_2" };
        for alpn in ["h2", "http/1.1"] {
            let session = authority.openssl(addr, &[version_flag, ciphers, &name, "-alpn", alpn], "").await;
            for line in [&format!("Cipher is {name}"), &format!("ALPN protocol: {alpn}")] {
                assert!(session.contains(line), "no line {line:?}: {session}");
            }
            assert!(session.contains("Verify return code: 0 (ok)"), "{session}");
        }
        let request = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
        let response = authority.openssl(addr, &[version_flag, ciphers, &name, "-quiet"], request).await;
        let facts = format!("TLSv{version} {suite} HTTP/1.1 https rtt=true");
        assert!(response.ends_with(&facts), "{response}");
    }
}

#[tokio::test]
async fn server_name_is_known_if_the_client_sends_it() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let name = make_sync(|request: Request| {
        let info = &RequestOrigin::of(&request).expect("served").connection;
        info.tls.as_ref().expect("TLS").server_name.as_deref().unwrap_or("hello").to_owned()
    });
    let (server, _) = serve(&args(), &authority.args(&["a"]), name).await;
    assert_eq!(authority.curl(server.addr, &[]).await.as_deref(), Ok("a.example"));
    // No name is sent for an address.
    let mut stream = authority.connect(server.addr).await.expect("connect");
    assert!(get(&mut stream).await.expect("a response").ends_with("hello"));
}

#[tokio::test]
async fn every_version_suite_and_protocol_works_with_ecdsa_certificate() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), facts()).await;
    check_suites(&authority, server.addr, "ECDSA").await;
    // No choice by the client: the strongest cipher.
    let facts = authority.curl(server.addr, &[]).await;
    assert_eq!(facts.as_deref(), Ok("TLSv1.3 TLS_AES_256_GCM_SHA384 HTTP/2.0 https rtt=true"));
}

#[tokio::test]
async fn every_version_suite_and_protocol_works_with_rsa_certificate() {
    let authority = Authority::new();
    let params = CertificateParams::new(["a.example".to_owned()]).expect("valid name");
    let key = Command::new("openssl").args(["genpkey", "-algorithm", "RSA"]).output().await;
    let key = String::from_utf8(key.expect("openssl is installed").stdout).expect("PEM");
    let pair = KeyPair::from_pem(&key).expect("RSA key");
    let certificate = params.signed_by(&pair, &authority.issuer).expect("certificate");
    fs::write(authority.path("rsa", "crt"), certificate.pem()).expect("write");
    fs::write(authority.path("rsa", "key"), key).expect("write");
    let (server, _) = serve(&args(), &authority.args(&["rsa"]), facts()).await;
    check_suites(&authority, server.addr, "RSA").await;
}

#[tokio::test]
async fn weak_versions_and_suites_are_rejected() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), facts()).await;
    // Security level 0, or openssl itself would refuse some of these.
    for flags in [
        "-tls1_1 -cipher ALL@SECLEVEL=0",
        "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA@SECLEVEL=0",
        "-tls1_2 -cipher ECDHE-ECDSA-AES128-SHA256@SECLEVEL=0",
        "-tls1_2 -cipher AES128-GCM-SHA256@SECLEVEL=0",
        "-tls1_2 -cipher DHE-RSA-AES128-GCM-SHA256@SECLEVEL=0",
        "-tls1_3 -ciphersuites TLS_AES_128_CCM_SHA256",
    ] {
        let session = authority.openssl(server.addr, &flags.split(' ').collect::<Vec<_>>(), "").await;
        assert!(session.contains("Cipher is (NONE)"), "{flags}: {session}");
        assert!(
            session.contains("alert handshake failure") || session.contains("alert protocol version"),
            "{session}"
        );
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
            .stdin(Stdio::null())
            .output();
        let output = timeout(TIMEOUT, output).await.expect("in time").expect("openssl is installed");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&format!("subject={want}\n")), "{flags}: {text}");
    }
}

#[tokio::test]
async fn sessions_of_many_clients_are_resumed() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), hello()).await;
    // More than fit into the default session cache of the TLS library, with two tickets for each client.
    let clients: Vec<_> = (0..300).map(|_| authority.connector()).collect();
    for kind in [HandshakeKind::Full, HandshakeKind::Resumed] {
        for client in &clients {
            let socket = TcpStream::connect(server.addr).await.expect("connect");
            let mut stream = handshake(client.clone(), socket).await.expect("handshake");
            // The tickets arrive before the response.
            get(&mut stream).await.expect("a response");
            assert_eq!(stream.get_ref().1.handshake_kind(), Some(kind));
        }
    }
}

#[tokio::test]
async fn short_request_gets_response_though_client_ends_without_close_notify() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), hello()).await;
    let mut client = authority.connect(server.addr).await.expect("handshake");
    // Shorter than the preface of HTTP/2.
    client.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("send");
    client.flush().await.expect("send");
    client.get_mut().0.shutdown().await.expect("half-close");
    let mut response = Vec::new();
    // The end of the session may be an error, because the client's own end was.
    let _ = timeout(TIMEOUT, client.read_to_end(&mut response)).await.expect("server closes in time");
    assert!(response.starts_with(b"HTTP/1.0 "), "{}", String::from_utf8_lossy(&response));
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
async fn thousand_concurrent_handshakes_and_normal_requests_all_succeed() {
    const HANDSHAKES: usize = 1000;
    let authority = Authority::new();
    authority.issue("a", "a.example");
    // A busy machine needs several seconds for all of them.
    let args = ServeArgs { header_timeout: Duration::from_secs(60), ..args() };
    let (server, _) = serve(&args, &authority.args(&["a"]), hello()).await;
    let (stop, addr) = (Arc::new(AtomicBool::new(false)), server.addr);
    let mut keep_alive = authority.connect(addr).await.expect("handshake");
    let normal = load(&authority, addr, &stop);
    // All are connected before the first handshake begins.
    let (connected, connector) = (Arc::new(Barrier::new(HANDSHAKES)), authority.connector());
    let mut clients = JoinSet::new();
    for n in 0..HANDSHAKES {
        let (connector, connected) = (connector.clone(), connected.clone());
        // Of five networks: each may have 256 handshakes at a time.
        let socket = server.connect_from([127, 0, 1, (n % 5) as u8].into()).await.0;
        clients.spawn(async move {
            connected.wait().await;
            let mut client = handshake(connector, socket).await.expect("handshake");
            get(&mut client).await.expect("response");
            // Keeps the connection open.
            client
        });
    }
    let (started, mut requests, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    let mut open = Vec::new();
    while !clients.is_empty() {
        let sent = Instant::now();
        get(&mut keep_alive).await.expect("response");
        (requests, slowest) = (requests + 1, slowest.max(sent.elapsed()));
        while let Some(client) = clients.try_join_next() {
            open.push(client.expect("handshake and response"));
        }
    }
    let elapsed = started.elapsed();
    stop.store(true, Relaxed);
    let normal = normal.await.expect("no failed request");
    println!("{elapsed:?}: {requests} requests (slowest {slowest:?}), {normal} on new connections");
    assert!(normal > 0 && requests > 0);
    assert_eq!(open.len(), HANDSHAKES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_replaced_certificates_fail_no_request() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, tls) = serve(&args(), &authority.args(&["a"]), hello()).await;
    let follow = tokio::spawn(tls.follow_files(Duration::from_millis(5), |_| {}));
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
    let kit = Kit::detached(&ServeArgs::default());
    let follow = tokio::spawn(kit.reload_certificates(&tls, "tls"));
    while !kit.readiness.report().checks["tls"].detail.contains("has EXPIRED (2020-01-01)") {
        tokio::task::yield_now().await;
    }
    assert!(kit.readiness.report().ready);
    let metrics = kit.telemetry.prometheus_text();
    let line = metrics.lines().find(|line| line.starts_with("tls_certificate_expiry_timestamp_seconds{"));
    let line = line.expect("the metric exists");
    let path = |path: &Path| format!("certificate=\"{}\"", path.display());
    assert!(line.contains(&path(&certificate_file)) && line.ends_with(" 1577836800"), "{line}");
    follow.abort();
}

#[tokio::test]
async fn failed_handshakes_are_logged_with_the_reason_and_without_addresses() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let timeouts = ServeArgs { header_timeout: Duration::from_millis(100), ..args() };
    for (sent, reason) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "received corrupt message"),
        // Half of a record.
        (b"\x16\x03\x01", "timed out"),
    ] {
        let log = CapturedLog::start();
        let (server, _) = serve(&timeouts, &authority.args(&["a"]), hello()).await;
        let mut client = TcpStream::connect(server.addr).await.expect("connect");
        client.write_all(sent).await.expect("send");
        // An alert may precede the end, or the reset.
        let _ = timeout(TIMEOUT, client.read_to_end(&mut Vec::new())).await.expect("closed in time");
        let line = log.line("TLS handshake failed");
        assert!(line.contains(reason) && line.contains("server=\"test\""), "{line}");
        assert!(!line.contains("127.0.0.1"), "{line}");
    }
}

#[tokio::test]
async fn idle_connection_is_closed_with_the_end_of_the_tls_session() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let timeouts = ServeArgs {
        idle_timeout: Duration::from_millis(300),
        header_timeout: Duration::from_millis(300),
        ..args()
    };
    let (server, _) = serve(&timeouts, &authority.args(&["a"]), hello()).await;
    let mut unused = authority.connect(server.addr).await.expect("handshake");
    let mut idle = authority.connect(server.addr).await.expect("handshake");
    get(&mut idle).await.expect("response");
    for client in [&mut unused, &mut idle] {
        let end = timeout(TIMEOUT, client.read(&mut [0; 1])).await.expect("closed in time");
        // Without TLS's end of stream this would be an error.
        assert_eq!(end.expect("orderly close"), 0);
    }
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
    assert_eq!(idle.read(&mut [0; 1]).await.expect("orderly close before the first request"), 0);
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
    let peer =
        |request: Request| RequestOrigin::of(&request).expect("served").connection.peer.ip().to_string();
    let peer = make_sync(peer);
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

#[tokio::test]
async fn delayed_handshake_survives_a_flood_of_silent_connections() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    // At most 50 handshakes at a time.
    let args = ServeArgs { max_connections: 200, ..args() };
    let (server, _) = serve(&args, &authority.args(&["a"]), hello()).await;
    let honest = server.connect_from([127, 0, 0, 9].into()).await;
    let mut silent = Vec::new();
    for _ in 0..1_000 {
        silent.push(server.connect_from([127, 0, 0, 66].into()).await);
    }
    // Until the server has accepted all of them.
    silent[0].wait_closed().await;
    let mut stream = handshake(authority.connector(), honest.0).await.expect("handshake");
    assert!(get(&mut stream).await.expect("a response").ends_with("hello"));
}

#[tokio::test]
async fn only_the_negotiated_protocol_is_served() {
    let authority = Authority::new();
    authority.issue("a", "a.example");
    let (server, _) = serve(&args(), &authority.args(&["a"]), hello()).await;
    for (protocol, request) in [
        (&b"h2"[..], &b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"[..]),
        (b"http/1.1", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ] {
        let socket = server.connect().await.0;
        let mut stream = handshake(authority.connector_for(&[protocol]), socket).await.expect("handshake");
        stream.write_all(request).await.expect("send");
        let mut response = Vec::new();
        // A reset counts as the end.
        let _ = timeout(TIMEOUT, stream.read_to_end(&mut response)).await.expect("closed in time");
        let text = String::from_utf8_lossy(&response);
        assert!(!text.contains("200 OK") && !text.contains("hello"), "{text}");
    }
}
