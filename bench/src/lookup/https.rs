//! HTTPS beside plain HTTP: requests on open connections, new connections, and the memory of idle connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use quota_client::wire::Limits;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use testkit::tls::TlsFiles;
use tokio_rustls::TlsConnector;

use super::chain::Chain;
use super::client::{connect, exchange, open_idle};
use super::report::{self, Measurement};
use super::servers::Server;
use super::wrk::AddressFile;
use super::{CONNECTIONS, KEYS, Options, Variant, locations, measure_all};
use crate::gate::Gate;
use crate::stats::{median, percentile};
use crate::usage::{self, MachineTime};

/// Idle connections during the memory measurement.
const IDLE_CONNECTIONS: usize = 2000;

/// How many clients open connections at the same time.
const CLIENTS: usize = 64;

/// How clients connect.
struct Transport {
    name: &'static str,
    addr: SocketAddr,
    /// `None` for plain HTTP.
    tls: Option<ClientConfig>,
    resumes_sessions: bool,
}

impl Transport {
    /// A connector for one new client, without sessions. Clients do not share one, because rustls keeps at most eight
    /// tickets per server name.
    fn connector(&self) -> Option<TlsConnector> {
        let mut config = self.tls.clone()?;
        config.resumption =
            if self.resumes_sessions { Resumption::default() } else { Resumption::disabled() };
        Some(Arc::new(config).into())
    }
}

/// What one client measured.
#[derive(Default)]
struct Connections {
    micros: Vec<f64>,
    resumed: usize,
}

/// Measures everything with the same quota-svc and Redis. There are no required bounds.
pub(super) async fn compare(options: &Options) -> anyhow::Result<Vec<Gate>> {
    let dir = tempfile::tempdir()?;
    let files = TlsFiles::create(dir.path());
    let flags = ["--tls-cert", &files.cert.to_string_lossy(), "--tls-key", &files.key.to_string_lossy()]
        .map(str::to_owned);
    let flags = flags.each_ref().map(String::as_str);
    let chain = Chain::start(KEYS, KEYS, options.programs(), &Limits::default()).await?;
    let https = chain.start_lookup(&flags).await?;
    let addresses = AddressFile::write(locations::SAMPLE)?;

    let secure = chain.variant(report::HTTPS, &https, &addresses);
    let secure = Variant { urls: vec![secure.urls[0].replacen("http:", "https:", 1)], ..secure };
    let variants = [chain.variant(report::HTTP, chain.lookup(), &addresses), secure];
    let open = measure_all(options, &variants, &CONNECTIONS).await?;

    let keys = chain.keys().read()?;
    let tls = Some(client_config(&files)?);
    let http =
        Transport { name: report::NEW_HTTP, addr: chain.lookup().addr(), tls: None, resumes_sessions: false };
    let full = Transport { name: report::NEW_HTTPS, addr: https.addr(), tls: tls.clone(), ..http };
    let resumed = Transport { name: report::RESUMED, tls, resumes_sessions: true, ..full };
    let transports = [http, full, resumed];
    let pids =
        |transport: &Transport| if transport.tls.is_some() { https.pid() } else { chain.lookup().pid() };
    let mut new = Vec::new();
    for transport in &transports {
        open_connections(transport, CLIENTS, Duration::from_secs(1), &keys).await?;
    }
    for round in 1..=options.rounds {
        for transport in &transports {
            let duration = Duration::from_secs(options.seconds);
            let (measurement, resumed) = measure_new(transport, pids(transport), duration, &keys).await?;
            println!("round {round} of {}: {measurement}, {:.0}% resumed", options.rounds, resumed * 100.0);
            new.push(measurement);
        }
    }

    report::print(&open, &[report::HTTP, report::HTTPS]);
    println!("new connections, one request each; rps is connections per second, CPU that of lookup-svc:");
    report::print(&new, &transports.each_ref().map(|transport| transport.name));
    for (name, flags, tls) in
        [(report::HTTP, &[][..], None), (report::HTTPS, &flags[..], transports[1].connector())]
    {
        // A new process: the memory of closed connections would be reused.
        let kib = idle_memory(&chain.start_lookup(flags).await?, tls, &keys).await?;
        println!("memory of lookup-svc per idle connection, {name}: {kib:.1} KiB");
    }
    Ok(Vec::new())
}

fn client_config(files: &TlsFiles) -> anyhow::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&files.ca)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Opens connections as fast as possible, each for one request. Also returns the share of resumed TLS sessions.
async fn measure_new(
    transport: &Transport,
    pid: u32,
    duration: Duration,
    keys: &[String],
) -> anyhow::Result<(Measurement, f64)> {
    let (started, cpu, machine) = (Instant::now(), usage::cpu_micros(pid)?, MachineTime::now()?);
    let Connections { mut micros, resumed } = open_connections(transport, CLIENTS, duration, keys).await?;
    let (elapsed, cpu, machine_after) =
        (started.elapsed(), usage::cpu_micros(pid)? - cpu, MachineTime::now()?);
    ensure!(!micros.is_empty(), "no connection was opened");
    micros.sort_by(f64::total_cmp);
    let count = micros.len() as f64;
    let measurement = Measurement {
        variant: transport.name,
        connections: CLIENTS,
        rps: count / elapsed.as_secs_f64(),
        p50: median(micros.iter().copied()),
        p99: percentile(&micros, 99.0),
        cpu: vec![cpu / count],
        steal: machine_after.steal_since(machine),
    };
    Ok((measurement, resumed as f64 / count))
}

async fn open_connections(
    transport: &Transport,
    clients: usize,
    duration: Duration,
    keys: &[String],
) -> anyhow::Result<Connections> {
    let end = Instant::now() + duration;
    let client = async |first: usize| {
        let (mut connections, tls) = (Connections::default(), transport.connector());
        // Each client has its own share of the keys, so that none exceeds its burst limit.
        let mut keys = keys.iter().skip(first).step_by(clients).cycle();
        while Instant::now() < end {
            let (started, key) = (Instant::now(), keys.next().context("no keys")?);
            let (mut stream, kind) = connect(transport.addr, tls.as_ref()).await?;
            exchange(&mut stream, key, "close").await?;
            connections.micros.push(started.elapsed().as_secs_f64() * 1e6);
            connections.resumed += usize::from(kind == Some(HandshakeKind::Resumed));
        }
        anyhow::Ok(connections)
    };
    let mut all = Connections::default();
    for connections in futures_util::future::try_join_all((0..clients).map(client)).await? {
        all.micros.extend(connections.micros);
        all.resumed += connections.resumed;
    }
    Ok(all)
}

/// Memory in KiB per connection that has had one request and is now idle.
async fn idle_memory(lookup: &Server, tls: Option<TlsConnector>, keys: &[String]) -> anyhow::Result<f64> {
    // What the first connections need once is not counted.
    let (first, counted) = keys.split_at_checked(100).context("too few keys")?;
    let counted = counted.get(..IDLE_CONNECTIONS).context("too few keys")?;
    let _first = open_idle(lookup.addr(), tls.as_ref(), first).await?;
    let before = usage::rss_mib(lookup.pid())?;
    let _idle = open_idle(lookup.addr(), tls.as_ref(), counted).await?;
    let after = usage::rss_mib(lookup.pid())?;
    Ok((after - before) * 1024.0 / IDLE_CONNECTIONS as f64)
}
