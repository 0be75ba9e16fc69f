//! Certificates by ACME, from Pebble, the test server of Let's Encrypt, which validates the host names for real.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::http;
use testkit::pebble::Pebble;
use testkit::ports::ReservedPort;
use testkit::process::Service;
use testkit::tools::{faketime, require_tool};
use testkit::wait::{eventually, eventually_ok};

/// An order takes a second, and two retries after an unreachable CA take up to 25 s.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

const HOSTS: [&str; 4] = ["--api-host", "ip.test", "--dashboard-host", "keys.test"];

/// A machine with its data directory and the port on which the CA validates host names.
struct Machine {
    data: TempDir,
    port: ReservedPort,
}

impl Machine {
    /// `None` if Pebble is missing. The test must then return immediately.
    fn new() -> Option<Self> {
        require_tool("pebble").then(|| Self { data: tempfile::tempdir().unwrap(), port: ReservedPort::new() })
    }

    fn start(&self, pebble: &Pebble, flags: &[&str]) -> Service {
        self.start_under(&[], pebble, flags)
    }

    /// Starts it through a wrapper program.
    fn start_under(&self, wrapper: &[&str], pebble: &Pebble, flags: &[&str]) -> Service {
        let (data, listen, any) = (self.data.path().display(), self.port.addr(), "127.0.0.1:0");
        let (directory, ca) = (pebble.directory(), pebble.ca_file());
        let common = format!(
            "--data-dir {data} --log-level info --listen {listen} --dashboard-listen {any} --quota-listen {any} \
             --admin-listen {any} --redirect-listen {any} --base-url https://ip.test --public-url https://keys.test \
             --acme-email you@example.org --acme-directory {directory} --acme-ca-file {}",
            ca.display()
        );
        let flags = [&common.split(' ').collect::<Vec<_>>(), flags].concat();
        Service::spawn_under(wrapper, "ip-lookup", &flags, &[])
    }

    fn state(&self) -> Value {
        let file = self.data.path().join("acme/state.json");
        serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
    }

    /// The certificate that the API's port serves for a host name, if it is valid and issued under `root`.
    async fn certificate(&self, root: &str, host: &str) -> Result<Vec<u8>, String> {
        certificate(self.port.addr(), root, host).await
    }

    /// Waits for a valid certificate.
    async fn wait_certificate(&self, service: &Service, root: &str) -> Vec<u8> {
        eventually_ok(WAIT_TIMEOUT, "a valid certificate is served", async || {
            self.certificate(root, "ip.test").await.map_err(|error| format!("{error}\n{}", service.logs()))
        })
        .await
    }
}

async fn certificate(addr: SocketAddr, root: &str, host: &str) -> Result<Vec<u8>, String> {
    let root = reqwest::Certificate::from_pem(root.as_bytes()).unwrap();
    let client = http::builder().tls_certs_only([root]).tls_info(true).resolve(host, addr).build().unwrap();
    let response = client.get(format!("https://{host}:{}/openapi.json", addr.port())).send().await;
    let response = response.map_err(|error| format!("{error:?}"))?;
    assert_eq!(response.status(), 200);
    let info = response.extensions().get::<reqwest::tls::TlsInfo>().unwrap();
    Ok(info.peer_certificate().unwrap().to_owned())
}

/// Waits until the log has this text. Returns the log.
async fn wait_log(service: &mut Service, text: &str) -> String {
    eventually_ok(WAIT_TIMEOUT, format!("the log has {text:?}"), async || {
        let log = service.logs();
        assert!(service.is_running(), "{log}");
        if log.contains(text) { Ok(log) } else { Err(log) }
    })
    .await
}

/// Waits until `/readyz` has this status and says this about the certificate.
async fn wait_readiness(service: &mut Service, status: u16, text: &str) {
    let admin = service.listen_addr("admin").await;
    eventually_ok(WAIT_TIMEOUT, format!("/readyz has {status} and {text:?}"), async || {
        let response = http::client().get(format!("http://{admin}/readyz")).send().await.unwrap();
        let found = response.status();
        let report: Value = response.json().await.unwrap();
        let tls = report["checks"].as_object().unwrap().iter().filter(|(name, _)| name.ends_with("tls"));
        let is_said = tls.into_iter().any(|(_, check)| check["detail"].as_str().unwrap().contains(text));
        if found == status && is_said { Ok(()) } else { Err(report.to_string()) }
    })
    .await;
}

/// Waits until standard output has this text.
async fn wait_output(service: &Service, text: &str) {
    eventually(WAIT_TIMEOUT, format!("standard output has {text:?}"), async || {
        service.stdout().contains(text).then_some(())
    })
    .await;
}

async fn stop(mut service: Service) {
    service.term();
    assert!(service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", service.logs());
}

#[tokio::test]
async fn first_certificate_is_served_on_both_ports_and_survives_a_restart() {
    let Some(machine) = Machine::new() else { return };
    let pebble = Pebble::start(machine.port.number(), &[]).await;
    let mut service = machine.start(&pebble, &HOSTS);
    let first = machine.wait_certificate(&service, &pebble.root().await).await;
    let dashboard = service.listen_addr("dashboard").await;
    wait_readiness(&mut service, 200, "certificate.pem expires in ").await;
    let served = certificate(dashboard, &pebble.root().await, "keys.test").await;
    assert_eq!(served.as_ref(), Ok(&first), "one certificate for all names");
    let directory = pebble.directory();
    wait_output(&service, &format!("Waiting for a certificate for ip.test, keys.test from {directory}"))
        .await;
    wait_output(&service, "Certificate for ip.test, keys.test received").await;
    assert_eq!(pebble.orders(), 1);
    for file in ["certificate.pem", "state.json"] {
        let path = machine.data.path().join("acme").join(file);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
    }
    let account = machine.state()["account"].clone();
    let key = account["key_pkcs8"].as_str().unwrap();
    assert!(!service.logs().contains(key) && !service.logs().contains("PRIVATE KEY"));
    stop(service).await;

    let mut service = machine.start(&pebble, &HOSTS);
    let log = wait_log(&mut service, "the certificate is valid").await;
    assert!(!log.contains("ordering a certificate"), "{log}");
    assert_eq!(machine.certificate(&pebble.root().await, "ip.test").await, Ok(first));
    assert!(!service.stdout().contains("Waiting for a certificate"), "{}", service.stdout());
    assert_eq!((pebble.orders(), &machine.state()["account"]), (1, &account));
}

#[tokio::test]
async fn certificate_is_renewed_before_it_expires() {
    let Some(machine) = Machine::new() else { return };
    // The second order has nothing to validate.
    let env = [("PEBBLE_AUTHZREUSE", "100")];
    let mut pebble =
        Pebble::stopped(machine.port.number(), &env).with("certificateValidityPeriod", json!(15));
    pebble.restart().await;
    let service = machine.start(&pebble, &HOSTS);
    let root = pebble.root().await;
    let first = machine.wait_certificate(&service, &root).await;
    eventually_ok(WAIT_TIMEOUT, "a renewed certificate is served", async || {
        match machine.certificate(&root, "ip.test").await {
            Ok(served) if served != first => Ok(()),
            served => Err(format!("{served:?} {}", service.logs())),
        }
    })
    .await;
    eventually(WAIT_TIMEOUT, "the log has both certificates", async || {
        (service.logs().matches("certificate received").count() >= 2).then_some(())
    })
    .await;
    assert!(!service.logs().contains("\"WARN\""), "{}", service.logs());
}

#[tokio::test]
async fn unreachable_ca_is_retried_at_the_start_and_later() {
    let Some(machine) = Machine::new() else { return };
    let mut pebble = Pebble::stopped(machine.port.number(), &[]).with("certificateValidityPeriod", json!(15));
    let mut service = machine.start(&pebble, &HOSTS);
    wait_log(&mut service, "can't reach the CA").await;
    let waiting =
        format!("waiting for a certificate for ip.test, keys.test from {}: can't", pebble.directory());
    wait_readiness(&mut service, 503, &waiting).await;
    pebble.restart().await;
    let old_root = pebble.root().await;
    let first = machine.wait_certificate(&service, &old_root).await;
    wait_readiness(&mut service, 200, "certificate.pem expires in ").await;

    pebble.stop();
    wait_log(&mut service, "can't renew the certificate for ip.test, keys.test: can't reach the CA").await;
    wait_readiness(&mut service, 200, "can't renew the certificate").await;
    // The CA has a new root certificate and does not know the account any more.
    pebble.restart().await;
    let second = machine.wait_certificate(&service, &pebble.root().await).await;
    assert_ne!(second, first);
    assert!(service.logs().contains("the CA does not know the account any more"), "{}", service.logs());
}

#[tokio::test]
async fn failed_validation_backs_off_across_restarts_until_the_hosts_change() {
    let Some(machine) = Machine::new() else { return };
    let pebble = Pebble::start(machine.port.number(), &[]).await;
    // Nothing listens there.
    pebble.set_address("keys.test", "127.0.0.2".parse().unwrap()).await;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut service = machine.start(&pebble, &HOSTS);
    let started = now();
    let log = wait_log(&mut service, "keys.test could not be validated: ").await;
    assert!(!log.contains("ip.test could not be validated"), "{log}");
    wait_readiness(&mut service, 503, "keys.test could not be validated: ").await;
    let failures = eventually(WAIT_TIMEOUT, "the failure is stored", async || {
        let failures = machine.state()["failures"].clone();
        (failures["rejected"] == 1).then_some(failures)
    })
    .await;
    let retry_at = failures["retry_at"].as_u64().unwrap();
    assert!(retry_at >= started + 60, "{failures}");
    assert_eq!(pebble.orders(), 1);

    service.kill();
    let mut service = machine.start(&pebble, &HOSTS);
    wait_log(&mut service, "keys.test could not be validated: ").await;
    wait_readiness(&mut service, 503, "; next attempt at ").await;
    if now() < retry_at {
        assert_eq!(pebble.orders(), 1, "no order before its time");
    }
    assert_eq!(machine.state()["failures"], failures);
    stop(service).await;

    // The time has come: the second failure has twice the delay.
    let mut state = machine.state();
    state["failures"]["retry_at"] = json!(now());
    fs::write(machine.data.path().join("acme/state.json"), state.to_string()).unwrap();
    let started = now();
    let service = machine.start(&pebble, &HOSTS);
    eventually(WAIT_TIMEOUT, "the second failure is stored", async || {
        let failures = machine.state()["failures"].clone();
        (failures["rejected"] == 2 && failures["retry_at"].as_u64()? >= started + 120).then_some(())
    })
    .await;
    assert_eq!(pebble.orders(), 2);
    stop(service).await;

    let service = machine.start(&pebble, &["--api-host", "ip.test"]);
    machine.wait_certificate(&service, &pebble.root().await).await;
    wait_output(&service, "Certificate for ip.test received").await;
    assert_eq!(machine.state()["failures"], Value::Null);
}

#[tokio::test]
async fn crash_during_an_order_delays_the_next_one() {
    let Some(machine) = Machine::new() else { return };
    let pebble = Pebble::start(machine.port.number(), &[]).await;
    pebble.freeze();
    let mut service = machine.start(&pebble, &HOSTS);
    wait_log(&mut service, "ordering a certificate").await;
    eventually(WAIT_TIMEOUT, "the attempt is stored", async || {
        let file = machine.data.path().join("acme/state.json");
        fs::read_to_string(file).ok()?.contains("interrupted").then_some(())
    })
    .await;
    service.kill();
    let mut service = machine.start(&pebble, &HOSTS);
    wait_log(&mut service, "the last attempt was interrupted; next attempt at ").await;
    pebble.resume();
    machine.wait_certificate(&service, &pebble.root().await).await;
    assert_eq!(pebble.orders(), 1);
}

#[tokio::test]
async fn wrong_clock_does_not_cause_endless_orders() {
    let Some(machine) = Machine::new() else { return };
    let Some(clock) = faketime("+2h") else { return };
    let mut pebble =
        Pebble::stopped(machine.port.number(), &[]).with("certificateValidityPeriod", json!(3600));
    pebble.restart().await;
    let mut service = machine.start_under(&clock.each_ref().map(String::as_str), &pebble, &HOSTS);
    wait_log(&mut service, "check the clock of this machine; next attempt at ").await;
    wait_readiness(&mut service, 200, "check the clock of this machine").await;
    eventually(WAIT_TIMEOUT, "the failure is stored", async || {
        (machine.state()["failures"]["rejected"] == 1).then_some(())
    })
    .await;
    assert_eq!(pebble.orders(), 1);
    // It is used nevertheless: the clocks of the clients may be right.
    assert!(machine.certificate(&pebble.root().await, "ip.test").await.is_ok());
}

#[tokio::test]
async fn rejected_nonces_do_not_prevent_a_certificate() {
    let Some(machine) = Machine::new() else { return };
    let pebble = Pebble::start(machine.port.number(), &[("PEBBLE_WFE_NONCEREJECT", "25")]).await;
    let service = machine.start(&pebble, &HOSTS);
    machine.wait_certificate(&service, &pebble.root().await).await;
    wait_output(&service, "Certificate for ip.test, keys.test received").await;
    assert_eq!(machine.state()["failures"], Value::Null, "{}", service.logs());
}

#[tokio::test]
async fn other_ca_is_used_at_once_and_its_account_is_separate() {
    let Some(machine) = Machine::new() else { return };
    let (staging, production) =
        (Pebble::start(machine.port.number(), &[]).await, Pebble::start(machine.port.number(), &[]).await);
    let service = machine.start(&staging, &HOSTS);
    machine.wait_certificate(&service, &staging.root().await).await;
    stop(service).await;
    let service = machine.start(&production, &HOSTS);
    machine.wait_certificate(&service, &production.root().await).await;
    assert_eq!(machine.state()["directory"], production.directory());
    assert_eq!((staging.orders(), production.orders()), (1, 1));
}

#[tokio::test]
async fn external_account_binding_is_sent() {
    let Some(machine) = Machine::new() else { return };
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let mut pebble = Pebble::stopped(machine.port.number(), &[])
        .with("externalAccountBindingRequired", json!(true))
        .with("externalAccountMACKeys", json!({ "kid-1": key }));
    pebble.restart().await;
    let mut service = machine.start(&pebble, &HOSTS);
    wait_log(&mut service, "(externalAccountRequired)").await;
    stop(service).await;

    let machine = Machine { data: tempfile::tempdir().unwrap(), ..machine };
    let file = machine.data.path().join("eab-key");
    fs::write(&file, format!("{key}\n")).unwrap();
    let binding = ["--acme-eab-kid", "kid-1", "--acme-eab-key-file", file.to_str().unwrap()];
    let service = machine.start(&pebble, &[&HOSTS[..], &binding].concat());
    machine.wait_certificate(&service, &pebble.root().await).await;
}

#[tokio::test]
async fn email_without_host_names_is_rejected() {
    let Some(machine) = Machine::new() else { return };
    let pebble = Pebble::stopped(machine.port.number(), &[]);
    let mut service = machine.start(&pebble, &[]);
    assert!(!service.wait_exit(WAIT_TIMEOUT).await.success());
    assert!(service.logs().contains("--api-host"), "{}", service.logs());
    assert_eq!(fs::read_dir(machine.data.path()).unwrap().count(), 0, "nothing was created");
}
