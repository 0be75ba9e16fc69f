//! On the first request of a connection, `rtt` is the round-trip time between the client and the service, as ping measures
//! it. Later it may include delayed acknowledgments.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use e2e::delayed_network::{CLIENT, DelayedNetwork, SERVER, lowest};
use serde_json::Value;
use testkit::process::Service;
use testkit::tls::TlsFiles;
use testkit::tools::require_tool;
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections for each delay and protocol, and pings before and after them. Only the lowest times are compared: that of
/// the pings, and those of the first, second and third requests of the connections.
const CONNECTIONS: usize = 4;

/// Linux delays an acknowledgment by up to this many milliseconds if the client has nothing to send, for example after TLS
/// session tickets. The smoothed time includes this.
const DELAYED_ACKNOWLEDGMENT: f64 = 40.0;

/// `ip-lookup` in the server's namespace, and the client's curl.
struct Setup {
    network: DelayedNetwork,
    // Running until the end of the test.
    _service: Service,
    curl: Vec<String>,
    url: String,
}

impl Setup {
    async fn start(folder: &std::path::Path) -> Option<Self> {
        let network = DelayedNetwork::start().await.filter(|_| require_tool("curl"))?;
        let files = TlsFiles::create(folder);
        let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().unwrap());
        let (data, listen, local) = (folder.join("data"), format!("{SERVER}:0"), "127.0.0.1:0");
        let flags = ["--data-dir", data.to_str().unwrap(), "--log-level", "info", "--listen", &listen];
        let ports = ["--dashboard-listen", local, "--quota-listen", local, "--admin-listen", local];
        let tls = ["--tls-cert", cert, "--tls-key", key];
        let wrapper = network.in_server();
        let wrapper = wrapper.each_ref().map(String::as_str);
        let mut service =
            Service::spawn_under(&wrapper, "ip-lookup", &[&flags[..], &ports, &tls].concat(), &[]);
        let port = service.listen_addr("lookup").await.port();
        let banner = eventually_ok(WAIT_TIMEOUT, "banner is printed", async || {
            let text = service.stdout();
            if text.contains("Press Ctrl-C to stop") { Ok(text) } else { Err(service.logs()) }
        });
        let api_key = banner
            .await
            .lines()
            .find_map(|line| line.trim().strip_prefix("API key"))
            .unwrap()
            .trim()
            .to_owned();
        let curl = [
            "curl -sS --fail --max-time 20 --cacert".split(' ').map(str::to_owned).collect::<Vec<_>>(),
            vec![
                files.ca.to_str().unwrap().to_owned(),
                "--resolve".to_owned(),
                format!("localhost:{port}:{SERVER}"),
            ],
            vec!["--header".to_owned(), format!("Authorization: Bearer {api_key}")],
        ];
        let url = format!("https://localhost:{port}/api/v1/ip?scope=full");
        Some(Self { network, _service: service, curl: curl.concat(), url })
    }

    /// Sends three requests over one connection and returns their `rtt`.
    fn round_trip_times(&self, protocol: &str) -> Vec<f64> {
        let curl: Vec<&str> = self.curl.iter().map(String::as_str).collect();
        let line =
            [&curl[..], &["--write-out", "\n%{num_connects}\n", protocol], &[self.url.as_str(); 3]].concat();
        let text = self.network.run_in_client(&line);
        let (bodies, connects): (Vec<_>, Vec<_>) =
            text.lines().filter(|line| !line.is_empty()).partition(|line| line.starts_with('{'));
        assert_eq!(connects, ["1", "0", "0"], "one connection: {text}");
        let rtt = |body: &&str| {
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["ip"], CLIENT, "{body}");
            body["rtt"].as_f64().unwrap_or_else(|| panic!("no rtt: {body}"))
        };
        bodies.iter().map(rtt).collect()
    }
}

#[tokio::test]
async fn as_root_rtt_across_a_delayed_link_is_that_of_ping() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut setup) = Setup::start(folder.path()).await else { return };
    for delay in [20, 40, 200] {
        setup.network.set_round_trip_time(delay);
        for protocol in ["--http1.1", "--http2"] {
            let mut pings = vec![setup.network.ping(CONNECTIONS)];
            let mut requests = [const { Vec::new() }; 3];
            for _ in 0..CONNECTIONS {
                for (times, rtt) in requests.iter_mut().zip(setup.round_trip_times(protocol)) {
                    times.push(rtt);
                }
            }
            pings.push(setup.network.ping(CONNECTIONS));
            let (ping, requests) = (lowest(pings), requests.map(lowest));
            let case = format!("{protocol}, delay {delay} ms, ping {ping:.1} ms, rtt {requests:?} ms");
            println!("{case}");
            assert!(ping >= f64::from(delay), "ping is faster than the link: {case}");
            let tolerance = (ping * 0.2).max(4.0);
            let [first, later @ ..] = requests;
            assert!((first - ping).abs() <= tolerance, "{case}");
            for rtt in later {
                let range = ping - tolerance..=ping + tolerance + DELAYED_ACKNOWLEDGMENT;
                assert!(range.contains(&rtt), "{case}");
            }
        }
    }
}
