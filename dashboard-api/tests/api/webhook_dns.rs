//! Host names of webhooks whose addresses change: nothing is ever sent to an internal address. Runs in a network namespace
//! with its own addresses and a real name server.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::namespace::Namespace;
use testkit::wait::eventually;
use testkit::webhook::{OK, Receiver};
use tokio::net::UdpSocket;

use crate::harness::Harness;
use crate::webhook::{WAIT, pause_key, set_webhook};

const TEST: &str = "webhook_dns::as_root_changing_addresses_never_lead_to_an_internal_one";
/// An address with a receiver, and one without. Public, because others are rejected; nothing leaves the namespace.
const PUBLIC: &str = "81.2.68.1";
const CLOSED: &str = "81.2.68.2";
const INTERNAL: [&str; 3] = ["127.0.0.1", "10.0.0.5", "::1"];
const A: u16 = 1;
const AAAA: u16 = 28;

/// A name server that gives the first addresses of a name once, and the others from then on.
#[derive(Clone)]
struct NameServer {
    names: HashMap<String, [Vec<IpAddr>; 2]>,
    /// The questions so far: name and type.
    questions: Arc<Mutex<Vec<(String, u16)>>>,
}

impl NameServer {
    async fn start(names: HashMap<String, [Vec<IpAddr>; 2]>) -> Self {
        let server = Self { names, questions: Arc::default() };
        let (socket, task) = (UdpSocket::bind("127.0.0.1:53").await.unwrap(), server.clone());
        tokio::spawn(async move {
            let mut packet = [0; 512];
            while let Ok((length, client)) = socket.recv_from(&mut packet).await {
                socket.send_to(&task.answer(&packet[..length]), client).await.unwrap();
            }
        });
        server
    }

    fn questions(&self, name: &str, kind: u16) -> usize {
        self.questions.lock().unwrap().iter().filter(|asked| **asked == (name.to_owned(), kind)).count()
    }

    /// The response to a query with one question (RFC 1035, section 4).
    fn answer(&self, query: &[u8]) -> Vec<u8> {
        let (mut labels, mut end) = (Vec::new(), 12);
        while query[end] > 0 {
            let next = end + 1 + usize::from(query[end]);
            labels.push(String::from_utf8_lossy(&query[end + 1..next]).to_lowercase());
            end = next;
        }
        let (name, kind) = (labels.join("."), u16::from_be_bytes([query[end + 1], query[end + 2]]));
        let later = usize::from(self.questions(&name, kind) > 0);
        let addresses = self.names.get(&name).map_or(&[][..], |answers| &answers[later]);
        self.questions.lock().unwrap().push((name, kind));
        let records = addresses.iter().filter(|ip| ip.is_ipv4() == (kind == A) && [A, AAAA].contains(&kind));
        let records: Vec<Vec<u8>> = records
            .map(|ip| match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            })
            .collect();
        // A response without an error, to a query with recursion.
        let mut response = [&query[..2], &[0x81, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]].concat();
        response.extend(&query[12..end + 5]);
        for address in records {
            // The name of the question, its type, class IN, and no caching.
            response.extend([0xc0, 12, 0, kind as u8, 0, 1, 0, 0, 0, 0, 0, address.len() as u8]);
            response.extend(address);
        }
        response
    }
}

#[tokio::test]
async fn as_root_changing_addresses_never_lead_to_an_internal_one() {
    let files = [
        ("resolv.conf", "nameserver 127.0.0.1\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
        ("hosts", "127.0.0.1 localhost\n"),
    ];
    let Some(namespace) = Namespace::enter(TEST, &[PUBLIC, CLOSED, INTERNAL[1]], &files) else { return };
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let all = [&INTERNAL[..], &[PUBLIC]].concat();
    let names = [
        ("turns-internal", [&[PUBLIC][..], &INTERNAL]),
        ("turns-public", [&INTERNAL, &[PUBLIC]]),
        ("both", [&all, &all]),
        ("closed", [&[CLOSED, INTERNAL[0]], &INTERNAL]),
    ];
    let names = names.map(|(name, answers)| (format!("{name}.example"), answers.map(addresses)));
    let server = NameServer::start(names.into()).await;
    let receiver = Receiver::start_on(&format!("{PUBLIC}:80"), OK).await;
    let traps = INTERNAL.map(|ip| {
        let trap = TcpListener::bind((ip, 80)).unwrap();
        trap.set_nonblocking(true).unwrap();
        trap
    });
    let harness = Harness::start_with(&["--webhook-allow-http"]).await;
    let not_public = json!("the webhook's host is not a public address");
    let mut browsers = HashMap::new();
    for (name, error, received) in [
        ("turns-internal", Value::Null, 1),
        ("turns-public", not_public.clone(), 0),
        ("both", Value::Null, 1),
        ("closed", json!("the connection failed"), 0),
    ] {
        let browser = harness.sign_up(name).await;
        set_webhook(&browser, &format!("http://{name}.example/")).await;
        let tested = browser.post("/account/webhook/test", json!({})).await;
        assert_eq!(tested.body["error"], error, "{name}");
        assert_eq!(receiver.take().len(), received, "{name}");
        assert_eq!(server.questions(&format!("{name}.example"), A), 1, "{name}: resolved once");
        browsers.insert(name, browser);
    }
    // The name had a public address when the owner tested it, but has none when a notice is delivered.
    let browser = &browsers["turns-internal"];
    pause_key(&harness, browser).await;
    let error = eventually(WAIT, "the error is shown", async || {
        let status = browser.get("/account/webhook").await.body;
        Some(status["last_delivery"]["error"].clone()).filter(Value::is_string)
    });
    assert_eq!(error.await, not_public);
    assert_eq!(receiver.take().len(), 0);
    for trap in &traps {
        assert_eq!(trap.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "no connection: {trap:?}");
    }
    namespace.finish();
}
