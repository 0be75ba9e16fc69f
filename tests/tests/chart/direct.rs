//! The chart's profile `direct`: the services serve HTTPS behind network load balancers, without a proxy.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::SocketAddr;

use e2e::chart::pod::Pod;
use e2e::chart::release::{create_key, get, render_without_proxy, start_store};
use e2e::chart::{Chart, chart_dir, list, text, venv_tool};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use testkit::http;
use testkit::lookup::WAIT_TIMEOUT;
use testkit::tls::TlsFiles;
use testkit::tools::{require_tool, require_valkey};
use tokio::io::AsyncWriteExt;

fn has_helm() -> bool {
    venv_tool("helm").is_some()
}

fn render(values: &str) -> Chart {
    Chart::render(&["--set", &format!("edge.profile=direct,{values}")]).unwrap()
}

fn pod<'a>(chart: &'a Chart, deployment: &str) -> &'a Value {
    &chart.object("Deployment", deployment)["spec"]["template"]["spec"]
}

/// The flags of the pod's service.
fn flags<'a>(chart: &'a Chart, deployment: &str) -> Vec<&'a str> {
    list(&pod(chart, deployment)["containers"][0]["args"]).map(text).collect()
}

fn named<'a>(items: &'a Value, name: &str) -> &'a Value {
    list(items).find(|item| item["name"] == name).unwrap_or_else(|| panic!("{name} is not in {items}"))
}

#[test]
fn each_service_has_a_load_balancer_and_its_own_certificate() {
    if !has_helm() {
        return;
    }
    let chart = Chart::render_values_file(&chart_dir().join("ci/edge-direct-values.yaml"));
    for (name, port, host, secret) in [
        ("-lookup-svc", 8080, "lookup.example.com", "ipl-ip-lookup-api-tls"),
        ("-dashboard-api", 8081, "dashboard.example.com", "ipl-ip-lookup-dashboard-tls"),
    ] {
        let service = chart.object("Service", name);
        let spec = &service["spec"];
        // With `Cluster`, a node that forwards a connection to another one replaces the client's address.
        assert_eq!(
            (&spec["type"], &spec["externalTrafficPolicy"]),
            (&json!("LoadBalancer"), &json!("Local"))
        );
        let ports = json!([
            {"name": "https", "port": 443, "targetPort": port, "protocol": "TCP"},
            {"name": "http", "port": 80, "targetPort": port + 10, "protocol": "TCP"},
        ]);
        assert_eq!(spec["ports"], ports);
        assert_eq!(service["metadata"]["annotations"]["external-dns.alpha.kubernetes.io/hostname"], host);

        let flags = flags(&chart, name);
        for flag in [
            format!("--listen=[::]:{port}"),
            format!("--redirect-listen=[::]:{}", port + 10),
            "--tls-cert=/run/secrets/tls/tls.crt".to_owned(),
            "--tls-key=/run/secrets/tls/tls.key".to_owned(),
        ] {
            assert!(flags.contains(&flag.as_str()), "{flag} is not in {flags:?}");
        }
        assert!(
            !flags.iter().any(|flag| flag.contains("proxies") || flag.contains("client-ip")),
            "{flags:?}"
        );
        let pod = pod(&chart, name);
        assert_eq!(named(&pod["volumes"], "tls")["secret"]["secretName"], secret);
        let mount = named(&pod["containers"][0]["volumeMounts"], "tls");
        // kubelet never replaces the files of a mount with a subPath.
        assert_eq!(*mount, json!({"name": "tls", "mountPath": "/run/secrets/tls", "readOnly": true}));

        let certificate = &chart.object("Certificate", secret)["spec"];
        assert_eq!((&certificate["secretName"], &certificate["dnsNames"]), (&json!(secret), &json!([host])));
        let issuer = json!({"name": "letsencrypt", "kind": "ClusterIssuer", "group": "cert-manager.io"});
        assert_eq!(certificate["issuerRef"], issuer);

        let rule = &chart.object("NetworkPolicy", name)["spec"]["ingress"][0];
        assert!(rule["from"].is_null(), "clients may have any address: {rule}");
        assert!(rule["ports"].to_string().contains(&(port + 10).to_string()), "{rule}");
    }
    assert_eq!(chart.of_kind("Ingress").count() + chart.of_kind("HTTPRoute").count(), 0);
}

#[test]
fn probes_use_the_plain_admin_port_and_readiness_lasts_as_long_as_the_drain() {
    if !has_helm() {
        return;
    }
    for (values, failures) in [("", 16), ("shutdown.drainSeconds=8", 5), ("shutdown.drainSeconds=0", 1)] {
        let chart = render(values);
        for name in ["-lookup-svc", "-dashboard-api"] {
            let container = &pod(&chart, name)["containers"][0];
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let get = &container[probe]["httpGet"];
                assert!(get["port"] == "admin" && get["scheme"].is_null(), "{probe}: {get}");
            }
            assert_eq!(container["readinessProbe"]["failureThreshold"], failures, "{values}");
        }
    }
    let other = Chart::render(&["--set", "edge.profile=gcp"]).unwrap();
    assert_eq!(pod(&other, "-lookup-svc")["containers"][0]["readinessProbe"]["failureThreshold"], 1);
}

#[test]
fn ports_and_type_of_the_services_can_be_chosen() {
    if !has_helm() {
        return;
    }
    let chart = render(
        "edge.direct.port=8443,edge.direct.redirect=false,service.loadBalancerClass=example.org/nlb,\
         edge.direct.apiSecret=mine,edge.direct.caKey=ca.crt,edge.direct.minTLSVersion=1.3",
    );
    let spec = &chart.object("Service", "-lookup-svc")["spec"];
    assert_eq!(
        spec["ports"],
        json!([{"name": "https", "port": 8443, "targetPort": 8080, "protocol": "TCP"}])
    );
    assert_eq!(spec["loadBalancerClass"], "example.org/nlb");
    let flags = flags(&chart, "-lookup-svc");
    for flag in [
        "--listen=[::]:8080",
        "--tls-min-version=1.3",
        "--base-url=https://lookup.example.com:8443",
        "--dashboard-url=https://dashboard.example.com:8443",
    ] {
        assert!(flags.contains(&flag), "{flag} is not in {flags:?}");
    }
    let all = serde_json::to_string(&chart.objects).unwrap();
    assert!(!all.contains("redirect") && !all.contains("8090") && !all.contains("cert-manager"), "{all}");
    assert_eq!(named(&pod(&chart, "-lookup-svc")["volumes"], "tls")["secret"]["secretName"], "mine");
    let test = &chart.object("Job", "-selftest")["spec"]["template"]["spec"];
    assert_eq!(
        test["containers"][0]["args"],
        json!([
            "selftest",
            "--url=https://lookup.example.com:8443",
            "--connect-to=ipl-ip-lookup-lookup-svc:8443",
            "--ca-file=/run/secrets/ca/ca.crt",
        ])
    );
    let volume = &named(&test["volumes"], "ca")["secret"];
    assert_eq!(volume["items"], json!([{"key": "ca.crt", "path": "ca.crt"}]), "without the private key");

    let node_port = render("service.type=NodePort");
    let spec = &node_port.object("Service", "-lookup-svc")["spec"];
    assert_eq!((&spec["type"], &spec["externalTrafficPolicy"]), (&json!("NodePort"), &json!("Local")));
    let cluster_ip = render("service.type=ClusterIP");
    assert!(cluster_ip.object("Service", "-lookup-svc")["spec"]["externalTrafficPolicy"].is_null());
}

/// The pods of an IPv6-only cluster have no IPv4 address but loopback, where their own quota-svc listens.
#[test]
fn pods_listen_on_both_families_or_loopback() {
    if !has_helm() {
        return;
    }
    let direct = Chart::render_values_file(&chart_dir().join("ci/edge-direct-values.yaml"));
    for chart in [Chart::render(&[]).unwrap(), direct] {
        let pods = serde_json::to_string(&chart.objects).unwrap();
        let listens: Vec<_> = pods.split("listen=").skip(1).collect();
        assert!(listens.len() >= 8, "{pods}");
        for listen in listens {
            assert!(listen.starts_with("[::]:") || listen.starts_with("127.0.0.1:8082"), "{listen:.30}");
        }
        assert!(pods.contains(r"bind * -::*"), "Valkey: {pods}");
    }
}

#[test]
fn proxy_protocol_is_accepted_from_the_load_balancer_only() {
    if !has_helm() {
        return;
    }
    let chart = Chart::render_values_file(&chart_dir().join("ci/edge-direct-proxy-protocol-values.yaml"));
    for name in ["-lookup-svc", "-dashboard-api"] {
        let flags = flags(&chart, name);
        assert!(flags.contains(&"--proxy-protocol"), "{flags:?}");
        assert!(flags.contains(&"--trusted-proxies=10.0.1.0/24,10.0.2.0/24"), "{flags:?}");
        let from = &chart.object("NetworkPolicy", name)["spec"]["ingress"][0]["from"];
        let networks: Vec<_> = list(from).map(|peer| text(&peer["ipBlock"]["cidr"])).collect();
        assert_eq!(networks, ["10.0.1.0/24", "10.0.2.0/24"]);
    }
    // The pod's connections would be closed: they have no header.
    assert!(!chart.names().iter().any(|name| name.contains("selftest")), "{:?}", chart.names());
    let plain = serde_json::to_string(&render("").objects).unwrap();
    assert!(!plain.contains("--proxy-protocol") && plain.contains("selftest"), "off by default");
}

#[test]
fn values_that_need_a_proxy_are_rejected() {
    if !has_helm() {
        return;
    }
    for (values, reason) in [
        ("edge.profile=direct,ingress.enabled=true", "edge.profile direct has no proxy"),
        ("edge.profile=direct,httpRoute.enabled=true", "edge.profile direct has no proxy"),
        ("edge.profile=direct,edge.trustedProxies={10.0.0.1}", "edge.profile direct trusts no proxy"),
        ("edge.profile=direct,edge.direct.proxyProtocol=true", "proxyProtocol needs edge.trustedProxies"),
        ("edge.profile=nginx,edge.direct.proxyProtocol=true", "needs edge.profile direct"),
        (
            "edge.profile=direct,urls.api=http://a.example",
            "must start with https://, but one is http://a.example",
        ),
        ("edge.profile=direct,edge.direct.minTLSVersion=1.1", "edge.direct.minTLSVersion must be one of"),
        ("edge.profile=direct,edge.direct.issuer.kind=Issuer", "edge.direct.issuer needs a name"),
    ] {
        let error = Chart::render(&["--set", values]).err();
        assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{values}: {error:?}");
    }
}

/// The Secrets that cert-manager would create, and the certificate authority.
fn certificates(dir: &std::path::Path) -> (Vec<Value>, reqwest::Certificate) {
    let files = TlsFiles::create_for(dir, &["lookup.example.com", "dashboard.example.com"]);
    let read = |file: &std::path::Path| ByteString(std::fs::read(file).unwrap());
    let data = json!({"tls.crt": read(&files.cert), "tls.key": read(&files.key), "ca.crt": read(&files.ca)});
    let secrets = ["ipl-ip-lookup-api-tls", "ipl-ip-lookup-dashboard-tls"].map(|name| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": name}, "data": data})
    });
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&files.ca).unwrap()).unwrap();
    (secrets.to_vec(), ca)
}

#[tokio::test]
async fn release_serves_https_passes_its_probes_and_helm_test() {
    if !has_helm() || !require_tool("redis-cli") || require_valkey().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (secrets, ca) = certificates(dir.path());
    let chart = render_without_proxy(&[
        "--set",
        "edge.profile=direct,edge.direct.caKey=ca.crt,metrics.prometheusRule.enabled=true",
        "--set-json",
        &format!("extraObjects={}", json!(secrets)),
    ]);
    let (_valkey, mut services) = start_store(&chart).await;
    // Both wait until the probes pass.
    let mut lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    let mut dashboard = Pod::start(&chart, chart.object("Deployment", "-dashboard-api"), &services).await;
    let key = create_key(&dashboard);
    let addr = |pod: &Pod, port| pod.addr(port).parse::<SocketAddr>().unwrap();
    let client = http::builder()
        .tls_certs_only([ca])
        .resolve("lookup.example.com", addr(&lookup, 8080))
        .resolve("dashboard.example.com", addr(&dashboard, 8081))
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();

    let request = client.get("https://lookup.example.com/api/v1/ip").bearer_auth(&key);
    let body: Value =
        request.header("X-Forwarded-For", "198.51.100.7").send().await.unwrap().json().await.unwrap();
    assert_eq!((&body["ip"], &body["tls_version"]), (&json!("127.0.0.1"), &json!("TLSv1.3")), "{body}");
    assert!(body["tls_cipher"].is_string() && body["rtt"].is_number(), "{body}");
    let page = client.get("https://dashboard.example.com/").send().await.unwrap();
    assert_eq!(page.status(), 200);
    assert_eq!(page.headers()["strict-transport-security"], "max-age=31536000");
    for (pod, port, url) in [
        (&lookup, 8090, "https://lookup.example.com/docs?a"),
        (&dashboard, 8091, "https://dashboard.example.com/docs?a"),
    ] {
        let response = client.get(format!("http://{}/docs?a", pod.addr(port))).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (308, &url.parse().unwrap())
        );
    }

    services.insert("ipl-ip-lookup-lookup-svc:443".to_owned(), lookup.addr(8080));
    let (status, log) =
        Pod::run(&chart, &chart.object("Job", "-selftest")["spec"]["template"], &services).await;
    assert!(status.success() && log.contains("ok: https://lookup.example.com/api/v1/ip/demo"), "{log}");

    let rules = chart.object("PrometheusRule", "")["spec"].to_string();
    let expression =
        "(tls_certificate_expiry_timestamp_seconds{namespace=~\\\"ip-lookup|\\\"}) - time() < 14 * 86400";
    assert!(rules.contains(expression), "{rules}");
    for (pod, port) in [(&lookup, 9080), (&dashboard, 9081)] {
        let metrics = get(format!("http://{}/metrics", pod.addr(port))).await.1;
        let exported = text(&metrics).lines().any(|line| {
            line.starts_with("tls_certificate_expiry_timestamp_seconds{") && line.contains("tls.crt")
        });
        assert!(exported, "{metrics}");
    }
    lookup.stop(WAIT_TIMEOUT).await;
    dashboard.stop(WAIT_TIMEOUT).await;
}

/// A load balancer that sends this before the bytes of each connection. Returns its address.
async fn balancer(to: String, header: &'static str) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = tokio::net::TcpStream::connect(&to).await.unwrap();
            server.write_all(header.as_bytes()).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    addr
}

#[tokio::test]
async fn release_behind_proxy_protocol_knows_the_client_but_not_its_round_trip_time() {
    if !has_helm() || !require_tool("redis-cli") || require_valkey().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (secrets, ca) = certificates(dir.path());
    let chart = render_without_proxy(&[
        "--set",
        "edge.profile=direct,edge.direct.proxyProtocol=true,edge.trustedProxies={127.0.0.1}",
        "--set-json",
        &format!("extraObjects={}", json!(secrets)),
    ]);
    let (_valkey, services) = start_store(&chart).await;
    let lookup = Pod::start(&chart, chart.object("Deployment", "-lookup-svc"), &services).await;
    let get = async |header: &'static str| {
        let addr = balancer(lookup.addr(8080), header).await;
        let client = http::builder().tls_certs_only([ca.clone()]).resolve("lookup.example.com", addr);
        let request = client.build().unwrap().get("https://lookup.example.com/api/v1/ip/demo");
        // Forged by the client, whose address is not trusted.
        request.header("X-Forwarded-For", "203.0.113.9").send().await
    };
    let response = get("PROXY TCP4 198.51.100.7 192.0.2.2 50000 443\r\n").await.unwrap();
    let body: Value = response.json().await.unwrap();
    assert_eq!((&body["ip"], &body["rtt"]), (&json!("198.51.100.7"), &Value::Null), "{body}");
    assert!(get("").await.is_err(), "a connection without a header is closed");
}
