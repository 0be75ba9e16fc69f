//! The examples in docs/guides work: nginx runs with the guide's configuration, the flags for Cloudflare read its headers,
//! the commands for a backup restore it, the client in Python stops when it should, and the table of fields is complete.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use e2e::documents::{blocks_of, read};
use e2e::edge_proxy::{CLIENT, FORGED_HEADERS, system_tool};
use quota_client::wire::Scope;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::lookup::{JsonResponse, Stack};
use testkit::ports::ReservedPort;
use testkit::process::{Service, binary};
use testkit::spawner::ChildGuard;
use testkit::tls::TlsFiles;
use testkit::tools::{project_root, require_tool};
use testkit::wait::eventually_ok;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// `ip-lookup` in a directory of its own, where commands find its data.
struct Machine {
    dir: TempDir,
    service: Service,
    banner: String,
}

impl Machine {
    async fn start(flags: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let service = spawn(dir.path(), flags);
        let mut machine = Self { dir, service, banner: String::new() };
        machine.wait_for_banner().await;
        machine
    }

    /// Stops the service and starts it again with other flags.
    async fn restart(&mut self, flags: &[&str]) {
        self.service.term();
        assert!(self.service.wait_exit(WAIT_TIMEOUT).await.success(), "{}", self.service.logs());
        self.service = spawn(self.dir.path(), flags);
        self.wait_for_banner().await;
    }

    async fn wait_for_banner(&mut self) {
        let service = &self.service;
        let banner = eventually_ok(WAIT_TIMEOUT, "the banner", async || match service.stdout() {
            printed if printed.contains("Press Ctrl-C to stop.") => Ok(printed),
            _ => Err(service.logs()),
        });
        self.banner = banner.await;
    }

    /// A value of the banner: `API key`, `Password`.
    fn shown(&self, title: &str) -> String {
        let rest = self.banner.lines().find_map(|line| line.trim().strip_prefix(title));
        rest.unwrap_or_else(|| panic!("no {title} in {}", self.banner)).trim().to_owned()
    }

    /// Runs commands in the directory of the service. `ip-lookup` is in the PATH.
    fn shell(&self, script: &str) -> String {
        let bin_dir = binary("ip-lookup").parent().unwrap().display().to_string();
        let path = format!("{bin_dir}:{}", std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-euc", script]).current_dir(self.dir.path()).env("PATH", path);
        text(&shell.output().unwrap())
    }
}

fn spawn(dir: &Path, flags: &[&str]) -> Service {
    let any = "127.0.0.1:0";
    let ports = ["--listen", any, "--dashboard-listen", any, "--admin-listen", any, "--quota-listen", any];
    // The listen addresses are in the log.
    let flags = [&["--log-level", "info"], flags].concat();
    let wrapper = ["env", "-C", dir.to_str().unwrap()];
    Service::spawn_under(&wrapper, "ip-lookup", &[&ports, &flags[..]].concat(), &[])
}

/// The standard output of a command that must succeed.
fn text(output: &Output) -> String {
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}{errors}");
    printed.into_owned()
}

/// nginx with the guide's configuration, on free ports.
struct Nginx {
    _process: ChildGuard,
    tls: ReservedPort,
    plain: ReservedPort,
    ca: String,
}

impl Nginx {
    async fn start(program: &Path, machine: &mut Machine) -> Self {
        let (tls, plain) = (ReservedPort::new(), ReservedPort::new());
        let files = TlsFiles::create_for(machine.dir.path(), &["ip.example.org", "keys.example.org"]);
        let api = machine.service.listen_addr("lookup").await;
        let dashboard = machine.service.listen_addr("dashboard").await;
        let mut site = blocks_of("docs/guides/behind-nginx.md", "nginx").concat();
        // Every replacement must apply, or the test would use something of this machine.
        for (documented, here) in [
            ("    listen [::]:443 ssl http2;\n", String::new()),
            ("    listen [::]:80;\n", String::new()),
            ("listen 443 ", format!("listen {} ", tls.addr())),
            ("listen 80;", format!("listen {};", plain.addr())),
            ("http://127.0.0.1:8080;", format!("http://{api};")),
            ("http://127.0.0.1:8081;", format!("http://{dashboard};")),
            ("/etc/ssl/ip.example.org.pem", files.cert.display().to_string()),
            ("/etc/ssl/ip.example.org.key", files.key.display().to_string()),
            ("/etc/ssl/keys.example.org.pem", files.cert.display().to_string()),
            ("/etc/ssl/keys.example.org.key", files.key.display().to_string()),
        ] {
            assert!(site.contains(documented), "no {documented:?} in {site}");
            site = site.replace(documented, &here);
        }
        let dir = machine.dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr;
             events {{}}
             http {{
               access_log off;
               client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
               uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
               {site}
             }}"
        );
        let file = machine.dir.path().join("nginx.conf");
        fs::write(&file, config).unwrap();
        let process = ChildGuard::spawn(program.to_str().unwrap(), |command| {
            command.args(["-e", "stderr", "-c"]).arg(file).stdin(Stdio::null());
        });
        let nginx = Self { _process: process, tls, plain, ca: files.ca.display().to_string() };
        eventually_ok(WAIT_TIMEOUT, "nginx accepts connections", async || {
            tokio::net::TcpStream::connect(nginx.tls.addr()).await.map(drop)
        })
        .await;
        nginx
    }

    /// Sends a request from [`CLIENT`] to one of the guide's host names and returns the output of curl.
    fn curl(&self, arguments: &[&str]) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "20", "--interface", CLIENT]);
        curl.args(["--cacert", &self.ca]);
        for host in ["ip.example.org", "keys.example.org"] {
            for (port, addr) in [(443, self.tls.addr()), (80, self.plain.addr())] {
                curl.args(["--connect-to", &format!("{host}:{port}:{addr}")]);
            }
        }
        text(&curl.args(arguments).output().unwrap())
    }
}

#[tokio::test]
async fn nginx_guide_passes_facts_and_ignores_forged_headers() {
    let Some(nginx) = require_tool("curl").then(|| system_tool("nginx")).flatten() else { return };
    let commands = blocks_of("docs/guides/behind-nginx.md", "text");
    let flags: Vec<_> = commands[0].split_whitespace().skip(1).collect();
    let mut machine = Machine::start(&flags).await;
    let nginx = Nginx::start(&nginx, &mut machine).await;
    let authorization = format!("Authorization: Bearer {}", machine.shown("API key"));
    let forged: Vec<_> = FORGED_HEADERS.iter().flat_map(|header| ["--header", header]).collect();
    for extra in [&[], forged.as_slice()] {
        for (version, tls, protocol) in
            [("--http2", "1.3", "HTTP/2"), ("--http2", "1.2", "HTTP/2"), ("--http1.1", "1.3", "HTTP/1.1")]
        {
            let arguments =
                [version, "--tls-max", tls, "--header", &authorization, "https://ip.example.org/api/v1/ip"];
            let response: Value = serde_json::from_str(&nginx.curl(&[&arguments, extra].concat())).unwrap();
            let facts = ["ip", "http_protocol", "tls_version", "colo"].map(|field| &response[field]);
            assert_eq!(json!(facts), json!([CLIENT, protocol, format!("TLSv{tls}"), null]), "{response}");
            assert!(response["tls_cipher"].as_str().is_some_and(|cipher| cipher.starts_with("TLS_")));
            // On loopback it is less than a millisecond, which the guide's `map` turns into an empty header. The forged
            // value is 59999.
            assert!(response["rtt"].as_u64().is_none_or(|rtt| rtt < 1000), "{response}");
        }
    }
    for url in ["https://ip.example.org/docs", "https://keys.example.org/"] {
        let response = nginx.curl(&["--head", "--header", "X-Request-Id: of-the-client", url]).to_lowercase();
        assert!(response.contains("x-request-id: ") && !response.contains("of-the-client"), "{response}");
    }
    let redirect = nginx.curl(&["--include", "http://ip.example.org/docs?a=1"]);
    assert!(redirect.contains("308 Permanent Redirect"), "{redirect}");
    assert!(redirect.contains("Location: https://ip.example.org/docs?a=1\r\n"), "{redirect}");
    let login = json!({"login": "admin", "password": machine.shown("Password")}).to_string();
    let headers = ["Origin: https://keys.example.org", "X-CSRF-Token: 1", "Content-Type: application/json"];
    let headers: Vec<_> = headers.iter().flat_map(|header| ["--header", header]).collect();
    let sign_in = ["--include", "--data", &login, "https://keys.example.org/api/v1/session"];
    let signed_in = nginx.curl(&[&headers, sign_in.as_slice()].concat());
    assert!(signed_in.contains("__Host-ipl_session="), "{signed_in}");
}

/// Cloudflare can't run here, so the test sends the headers that it documents, and a forged address.
#[tokio::test]
async fn cloudflare_guide_flags_read_its_headers() {
    let guide = "docs/guides/behind-cloudflare.md";
    let commands = blocks_of(guide, "text");
    let flags = |program: &str| {
        let command = commands.iter().find_map(|block| block.strip_prefix(program)).unwrap();
        command.replace("\\\n", " ").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let headers = [
        ("CF-Connecting-IP", "198.51.100.7"),
        ("X-Forwarded-For", "203.0.113.9, 198.51.100.7"),
        ("Cf-Ray", "230b030023ae2822-SJC"),
        ("X-Edge-HTTP-Protocol", "HTTP/3"),
        ("X-Edge-TLS-Version", "TLSv1.3"),
        ("X-Edge-TLS-Cipher", "AEAD-AES128-GCM-SHA256"),
        ("X-Edge-RTT", "0"),
        ("X-Edge-RTT-Quic", "31"),
    ];
    let send = async |mut request: reqwest::RequestBuilder| {
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = JsonResponse::fetch(request).await.body;
        let fields = ["ip", "http_protocol", "tls_version", "tls_cipher", "rtt", "colo"];
        json!(fields.map(|field| &body[field]))
    };
    let lookup_flags = flags("lookup-svc ");
    let stack = Stack::start(&[], &lookup_flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let key = stack.key_with_scope(Scope::Full).await.secret;
    let tls = ["TLSv1.3", "TLS_AES_128_GCM_SHA256"];
    let expected = json!(["198.51.100.7", "HTTP/3", tls[0], tls[1], 31, "SJC"]);
    assert_eq!(send(stack.lookup.get_ip(&key)).await, expected);

    let flags = flags("ip-lookup ");
    let mut machine = Machine::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let url = format!("http://{}/api/v1/ip", machine.service.listen_addr("lookup").await);
    let request = testkit::http::client().get(url).bearer_auth(machine.shown("API key"));
    let expected = json!(["198.51.100.7", "HTTP/3", tls[0], tls[1], null, null]);
    assert_eq!(send(request).await, expected);
}

/// A header that a guide forgets would be forwarded from any client, by a proxy that is trusted.
#[test]
fn proxy_guides_set_or_remove_every_trusted_header() {
    let headers =
        ["HTTP-Protocol", "TLS-Version", "TLS-Cipher", "RTT", "Colo"].map(|name| format!("X-Edge-{name}"));
    let fields = read("docs/fields.md");
    let nginx = blocks_of("docs/guides/behind-nginx.md", "nginx").concat();
    let caddy = blocks_of("docs/guides/behind-nginx.md", "text").concat();
    let cloudflare = read("docs/guides/behind-cloudflare.md");
    for header in headers {
        assert!(fields.contains(&format!("`{header}`")), "docs/fields.md lists {header}");
        assert!(nginx.contains(&format!("proxy_set_header {header} ")), "nginx: {header}");
        let is_in_caddy = ["", "-"].iter().any(|sign| caddy.contains(&format!("header_up {sign}{header}")));
        assert!(is_in_caddy, "Caddy: {header}");
        let (_, rule) = cloudflare.split_once("## Send the connection facts").unwrap();
        assert!(rule.contains(&format!("`{header}`")), "Cloudflare: {header}");
    }
    // The request ID is needed for both host names.
    assert_eq!(nginx.matches("proxy_set_header X-Request-Id $request_id;").count(), 2);
    assert_eq!(caddy.matches("header_up X-Request-Id {http.request.uuid}").count(), 2);
    assert!(cloudflare.contains("`X-Request-Id`"));
}

/// A client could choose the request ID in the log, and force the export of traces.
#[test]
fn proxy_guides_remove_the_trace_of_a_client() {
    let guide = read("docs/guides/behind-nginx.md");
    let count = |text: &str| guide.matches(text).count();
    assert_eq!(count("proxy_set_header traceparent \"\";"), count("proxy_pass http://127"), "nginx");
    assert_eq!(count("header_up -traceparent\n"), count("reverse_proxy 127"), "Caddy");
    let cloudflare = read("docs/guides/behind-cloudflare.md");
    let removed = cloudflare.lines().find(|line| line.starts_with("Add a \"Remove\" of")).unwrap();
    assert!(removed.contains("`traceparent`") && removed.contains("`X-Request-Id`"), "{removed}");
}

#[tokio::test]
async fn backup_guide_restores_a_working_key() {
    let mut machine = Machine::start(&[]).await;
    let key = machine.shown("API key");
    let commands = blocks_of("docs/guides/backup-and-restore.md", "sh");
    let printed: Vec<_> = commands.iter().map(|block| machine.shell(block)).collect();
    let listed = printed.last().unwrap();
    assert!(listed.contains("first key") && listed.contains(&key[..8]), "{printed:?}");
    machine.restart(&["--data-dir", "restored"]).await;
    assert!(!machine.banner.contains("First start"), "the restored account is used: {}", machine.banner);
    let url = format!("http://{}/api/v1/ip", machine.service.listen_addr("lookup").await);
    let response = testkit::http::client().get(url).bearer_auth(key).send().await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn troubleshooting_guide_explains_the_address() {
    let guide = "docs/guides/troubleshooting.md";
    let machine = Machine::start(&[]).await;
    let [commands] = blocks_of(guide, "sh").try_into().unwrap();
    let printed = machine.shell(&commands);
    assert_eq!(printed.matches("Client address: 8.8.8.8 ").count(), 2, "{printed}");
    let shown = blocks_of(guide, "text").into_iter().find(|block| block.contains("Client address"));
    assert!(printed.contains(&shown.unwrap()), "the guide shows another output: {printed}");
}

#[tokio::test]
async fn python_example_returns_an_address_and_raises_denials() {
    let mut machine = Machine::start(&["--burst-limit", "1"]).await;
    let url = format!("http://{}", machine.service.listen_addr("lookup").await);
    let [example] = blocks_of("docs/guides/clients-and-retries.md", "python").try_into().unwrap();
    let run = || {
        let mut python = Command::new("python3");
        python.args(["-c", &example]).env("LOOKUP_URL", &url).env("API_KEY", machine.shown("API key"));
        python.output().unwrap()
    };
    assert_eq!(text(&run()).trim(), "127.0.0.1");
    let denied = run();
    let error = String::from_utf8_lossy(&denied.stderr);
    assert!(!denied.status.success() && error.contains("LookupDenied: (429, 'burst', "), "{error}");
    assert!(error.contains("rate_limit_exceeded"), "{error}");
}

#[test]
fn table_for_paid_apis_has_every_response_field() {
    let document = fs::read_to_string(project_root().join("openapi/lookup-svc.json")).unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    let fields = document["components"]["schemas"]["IpResponse"]["properties"].as_object().unwrap();
    assert_eq!(fields.len(), 26);
    let guide = read("docs/guides/coming-from-a-paid-api.md");
    let missing: Vec<_> = fields.keys().filter(|field| !guide.contains(&format!("\n| `{field}`"))).collect();
    assert!(missing.is_empty(), "the guide does not list {missing:?}");
}
