//! The home page: the values of a lookup, without a charge, readable only by our own origins.

use http_server::TlsArgs;
use lookup_svc::config::Config;
use quota_client::wire::Scope;
use reqwest::Method;
use testkit::mmdb::sample;
use testkit::tls::TlsFiles;

use super::harness::{Harness, TestResponse, allowed};

/// What browsers send for a page.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// The page as the client with this address sees it, through a trusted proxy.
async fn visit(harness: &Harness, client: &str, headers: &[(&str, &str)]) -> TestResponse {
    let request =
        harness.request(Method::GET, "/").header("accept", BROWSER).header("x-forwarded-for", client);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    TestResponse::send(request).await
}

fn set_hosts(config: &mut Config) {
    config.ipv4_host = Some("v4.ip.example".to_owned());
    config.ipv6_host = Some("v6.ip.example".to_owned());
}

#[tokio::test]
async fn page_shows_the_values_of_a_lookup_without_a_charge() {
    let sample = sample::file();
    let harness = Harness::start_with(|config| config.geo.geo_db = vec![sample.path().to_owned()]).await;
    let key = harness.create_key(allowed(Scope::Full));
    let facts = [
        ("x-edge-http-protocol", "HTTP/3.0"),
        ("x-edge-tls-version", "TLSv1.3"),
        ("x-edge-tls-cipher", "TLS_AES_128_GCM_SHA256"),
        ("x-edge-rtt", "23"),
        ("x-edge-colo", "FRA"),
    ];
    for client in ["216.160.83.7", "89.160.20.9", "8.8.8.8", "2a02:cf40::1"] {
        let request = harness.request(Method::GET, "/api/v1/ip").bearer_auth(&key);
        let request = request.header("x-forwarded-for", client);
        let request = facts.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let lookup = TestResponse::send(request).await.json();
        let charges = harness.quota.charge_count();

        let page = visit(&harness, client, &facts).await;
        assert_eq!(page.status, 200);
        assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert!(page.text.contains(&format!(">{client}</code>")), "{}", page.text);
        for field in ["city", "region", "country_name", "postal_code", "timezone", "currency", "org"] {
            if let Some(value) = lookup[field].as_str() {
                assert!(page.text.contains(value), "{client}: {field} {value} is missing in {}", page.text);
            }
        }
        for value in ["HTTP/3", "TLSv1.3", "TLS_<wbr>AES_<wbr>128_<wbr>GCM_<wbr>SHA256", "23 ms", "FRA"] {
            assert!(page.text.contains(&format!("<dd>{value}</dd>")), "{value}: {}", page.text);
        }
        assert!(!page.text.contains("{{"), "every slot is filled");
        assert_eq!(harness.quota.charge_count(), charges, "no charge");
    }
    let head = TestResponse::send(harness.request(Method::HEAD, "/")).await;
    assert_eq!((head.status, &*head.text), (200, ""));
    assert_eq!(head.header("cache-control"), Some("no-store"));
    let metrics = harness.kit.telemetry.prometheus_text();
    assert!(
        metrics.contains(r#"lookup_requests_total{operation="get_ip",outcome="success"} 4"#),
        "{metrics}"
    );
    assert!(metrics.contains(r#"lookup_client_ip_decisions_total{decision="xff"} 4"#), "{metrics}");
}

#[tokio::test]
async fn map_has_a_dot_or_marks_the_country() {
    let sample = sample::file();
    let harness = Harness::start_with(|config| config.geo.geo_db = vec![sample.path().to_owned()]).await;
    let city = visit(&harness, "216.160.83.7", &[]).await;
    assert!(city.text.contains("<circle class=\"dot\""), "{}", city.text);
    let harness = Harness::start().await;
    let country = visit(&harness, "8.8.8.8", &[]).await;
    assert!(country.text.contains("<circle class=\"area\""), "{}", country.text);
    assert!(country.text.contains("This service has no data about cities."), "{}", country.text);
    let map = harness.get("/world-map.svg").await;
    assert_eq!((map.status, map.header("content-type")), (200, Some("image/svg+xml")));
    assert!(map.text.len() < 30_000);
}

#[tokio::test]
async fn address_without_a_location_is_explained() {
    let harness = Harness::start_with(|config| config.edge.trusted_proxies = Vec::new()).await;
    let page = visit(&harness, "8.8.8.8", &[]).await;
    assert!(page.text.contains("You are on the same machine as this service."), "{}", page.text);
    assert!(page.text.contains("<code>127.0.0.1</code> is a loopback address"), "{}", page.text);
    assert!(page.text.contains("It has no location.") && !page.text.contains("class=\"map\""));
    assert!(page.text.contains("Only over HTTPS"), "{}", page.text);
}

#[tokio::test]
async fn address_is_text_unless_accept_names_html() {
    let harness = Harness::start().await;
    let get = async |path: &str, accept: Option<&str>| {
        let request = harness.request(Method::GET, path).header("x-forwarded-for", "2001:4860:4860::8888");
        let request = accept.into_iter().fold(request, |request, accept| request.header("accept", accept));
        TestResponse::send(request).await
    };
    for (client, accept, is_page) in [
        ("curl and wget", Some("*/*"), false),
        ("httpie", Some("application/json, */*;q=0.5"), false),
        ("a script without the header", None, false),
        ("a JSON client", Some("application/json"), false),
        ("a text client", Some("text/plain"), false),
        ("a browser", Some(BROWSER), true),
        ("an upper-case browser", Some("TEXT/HTML;q=0.9"), true),
        ("another type", Some("text/htmlx"), false),
    ] {
        let response = get("/", accept).await;
        let page = response.header("content-type") == Some("text/html; charset=utf-8");
        assert_eq!((response.status, page), (200, is_page), "{client}");
        assert_eq!(response.header("vary"), Some("Accept, Origin"), "{client}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{client}");
        if !is_page {
            assert_eq!(response.text, "2001:4860:4860::8888\n", "{client}");
            assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"), "{client}");
        }
        assert_eq!(get("/ip", accept).await.text, "2001:4860:4860::8888\n", "{client}");
    }
    assert_eq!(harness.quota.charge_count(), 0);
}

#[tokio::test]
async fn example_page_shows_a_fixed_address() {
    let harness = Harness::start().await;
    let request = harness.request(Method::GET, "/example?ip=9.9.9.9").header("accept", BROWSER);
    let page = TestResponse::send(request.header("x-forwarded-for", "10.1.2.3")).await;
    assert!(
        page.text.contains("<code>8.8.8.8</code>") && page.text.contains("United States"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("9.9.9.9") && !page.text.contains("10.1.2.3"), "{}", page.text);
}

#[tokio::test]
async fn unknown_path_gets_a_page_only_in_browsers() {
    let harness = Harness::start().await;
    let page = TestResponse::send(harness.request(Method::GET, "/none").header("accept", BROWSER)).await;
    assert_eq!((page.status, page.header("content-type")), (404, Some("text/html; charset=utf-8")));
    assert!(page.text.contains("<a href=\"/\">home page</a>"), "{}", page.text);
    let json = TestResponse::send(harness.request(Method::GET, "/none").header("accept", "*/*")).await;
    assert_eq!((json.status, json.json()["error"].as_str()), (404, Some("not_found")));
    let api =
        TestResponse::send(harness.request(Method::GET, "/api/v1/none").header("accept", BROWSER)).await;
    assert_eq!((api.status, api.json()["error"].as_str()), (404, Some("not_found")));
    let missing_key = harness.get("/api/v1/ip").await;
    for text in [json.text, api.text, missing_key.text] {
        assert!(text.ends_with("}\n"), "{text:?}");
    }
    assert_eq!(harness.get("/favicon.ico").await.header("content-type"), Some("image/svg+xml"));
    assert!(harness.get("/robots.txt").await.text.contains("Disallow: /api/"));
}

#[tokio::test]
async fn hostile_headers_are_not_reflected() {
    let harness = Harness::start_with(set_hosts).await;
    let hostile = "\"><script>alert(1)</script>";
    let headers: Vec<_> =
        ["origin", "referer", "user-agent", "x-edge-tls-cipher", "x-edge-colo", "x-edge-http-protocol"]
            .map(|name| (name, hostile))
            .into();
    for client in [hostile, "<b>, 8.8.8.8", "8.8.8.8"] {
        let page = visit(&harness, client, &headers).await;
        assert_eq!(page.status, 200);
        assert!(!page.text.contains("alert(1)") && !page.text.contains("<b>"), "{client}");
        let all = format!("{:?}", page.headers);
        assert!(!all.contains("alert(1)"), "{all}");
    }
}

#[tokio::test]
async fn other_family_is_linked_if_its_host_is_known() {
    let harness = Harness::start_with(set_hosts).await;
    let (v4, v6) = ("data-family=\"ipv4\" data-url=", "data-family=\"ipv6\" data-url=");
    let page = visit(&harness, "8.8.8.8", &[]).await;
    assert!(page.text.contains("<code id=\"own\" data-family=\"ipv4\">8.8.8.8</code>"), "{}", page.text);
    assert!(page.text.contains(&format!("{v6}\"https://v6.ip.example/\"")), "{}", page.text);
    assert!(page.text.contains("<a href=\"https://v6.ip.example/\">Show my IPv6 address</a>"));
    assert!(!page.text.contains(v4), "{}", page.text);
    let page = visit(&harness, "2001:4860:4860::8888", &[]).await;
    assert!(page.text.contains("<code id=\"own\" data-family=\"ipv6\">2001:4860:4860::8888</code>"));
    assert!(page.text.contains(&format!("{v4}\"https://v4.ip.example/\"")), "{}", page.text);

    let harness = Harness::start().await;
    let page = visit(&harness, "8.8.8.8", &[]).await;
    assert!(!page.text.contains("data-url=") && !page.text.contains("IPv6 address"), "{}", page.text);
}

#[tokio::test]
async fn only_our_origins_may_read_the_page() {
    let harness = Harness::start_with(set_hosts).await;
    for ours in ["https://ip.example", "https://v4.ip.example", "https://v6.ip.example"] {
        let page = visit(&harness, "8.8.8.8", &[("origin", ours)]).await;
        assert_eq!(page.header("access-control-allow-origin"), Some(ours));
        assert_eq!(page.header("vary"), Some("Accept, Origin"));
        assert!(
            page.header("content-security-policy").unwrap().contains(
                "connect-src 'self' https://ip.example https://v4.ip.example https://v6.ip.example;"
            )
        );
    }
    for other in
        ["https://evil.example", "http://v4.ip.example", "null", "https://v4.ip.example.evil.example"]
    {
        let page = visit(&harness, "8.8.8.8", &[("origin", other)]).await;
        assert_eq!(page.header("access-control-allow-origin"), Some("https://ip.example"), "{other}");
    }
}

#[tokio::test]
async fn links_are_below_the_path_of_the_base_url() {
    let harness =
        Harness::start_with(|config| config.base_url = "https://example.org/lookup".to_owned()).await;
    let page = visit(&harness, "8.8.8.8", &[]).await;
    for link in
        ["\"/lookup/docs\"", "\"/lookup/swagger\"", "\"/lookup/world-map.svg\"", "\"/lookup/api/v1/ip/demo\""]
    {
        assert!(page.text.contains(link), "{link}: {}", page.text);
    }
    assert!(page.text.contains("curl https://example.org/lookup/api/v1/ip/demo"));
}

#[tokio::test]
async fn connection_for_another_host_gets_421() {
    let dir = tempfile::tempdir().unwrap();
    let files = TlsFiles::create_for(dir.path(), &["ip.example", "v4.ip.example", "v6.ip.example"]);
    let harness = Harness::start_with(|config| {
        set_hosts(config);
        config.service.tls = TlsArgs {
            tls_cert: vec![files.cert.clone()],
            tls_key: vec![files.key.clone()],
            ..TlsArgs::default()
        };
    })
    .await;
    let addr: std::net::SocketAddr = harness.url.strip_prefix("http://").unwrap().parse().unwrap();
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&files.ca).unwrap()).unwrap();
    let client = testkit::http::builder().tls_certs_only([ca]).http1_only();
    let client = client.resolve("ip.example", addr).resolve("v4.ip.example", addr).build().unwrap();
    // reqwest sends the host of the URL in the TLS handshake.
    for (server_name, host, status) in [
        ("ip.example", "ip.example", 200),
        ("v4.ip.example", "V4.ip.example", 200),
        ("ip.example", "v4.ip.example", 421),
        ("v4.ip.example", "v6.ip.example", 421),
        ("ip.example", "other.example", 200),
    ] {
        let request = client.get(format!("https://{server_name}:{}/", addr.port())).header("host", host);
        let request = request.header("accept", BROWSER);
        let response = TestResponse::send(request).await;
        assert_eq!(response.status, status, "{server_name} {host}");
        assert_eq!(response.header("cache-control"), Some("no-store"));
        if status == 421 {
            assert_eq!(response.json()["error"], "wrong_host");
        } else {
            assert!(response.text.contains("<dd>TLSv1.3</dd>"), "{}", response.text);
        }
    }
}
