//! Configuration of each edge proxy, as its ingress controller generates it from the header rules of the edge profile.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::EdgeSetup;
use super::profile::HeaderRules;
use testkit::tools::project_root;

/// Writes the configuration of HAProxy and returns its arguments. Both ingress controllers that use HAProxy turn each
/// header of the profile into `http-request set-header`.
#[must_use]
pub fn haproxy(setup: &EdgeSetup, headers: &HeaderRules) -> Vec<String> {
    let mut rules = String::new();
    for (name, value) in &headers.set {
        let _ = writeln!(rules, "    http-request set-header {name} \"{value}\"");
    }
    haproxy_with_rules(setup, &rules)
}

/// Like [`haproxy`], with the header rules of the HTTPS port in `deploy/compose/haproxy.cfg`.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn compose_haproxy(setup: &EdgeSetup) -> Vec<String> {
    let file = project_root().join("deploy/compose/haproxy.cfg");
    let text = std::fs::read_to_string(file).expect("readable file");
    let frontend = text.split("\nfrontend https\n").nth(1).expect("HTTPS port").split("\n\n").next();
    let is_rule = |line: &&str| line.trim_start().starts_with("http-request ");
    let rules: Vec<_> = frontend.unwrap_or_default().lines().filter(is_rule).collect();
    assert!(!rules.is_empty(), "no header rules in {text}");
    haproxy_with_rules(setup, &format!("{}\n", rules.join("\n")))
}

fn haproxy_with_rules(setup: &EdgeSetup, rules: &str) -> Vec<String> {
    let pem = [&setup.files.cert, &setup.files.key]
        .map(|file| std::fs::read_to_string(file).expect("readable file"));
    let pem = setup.write("server.pem", &pem.concat());
    let frontend = |name: &str, bind: String| {
        format!("frontend {name}\n    bind {bind}\n{rules}    default_backend lookup\n")
    };
    let (tls, plain, proxied) = (setup.tls.addr(), setup.plain.addr(), setup.proxy_protocol.addr());
    let config = [
        "defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n"
            .to_owned(),
        frontend("tls", format!("{tls} ssl crt {pem} alpn h2,http/1.1 ssl-min-ver TLSv1.2")),
        frontend("plain", plain.to_string()),
        frontend("proxied", format!("{proxied} accept-proxy")),
        format!("backend lookup\n    server lookup {}\n", setup.upstream),
    ];
    // -db: run in the foreground as one process.
    vec!["-db".to_owned(), "-f".to_owned(), setup.write("haproxy.cfg", &config.concat())]
}

/// The nginx controllers, which set some headers in addition to those of the profile.
#[derive(Debug, Clone, Copy)]
pub enum NginxController {
    /// kubernetes/ingress-nginx: replaces the client address headers, removes `Proxy` and passes on the client's request
    /// ID. Headers of the profile do not replace those that it sets itself: nginx sends both.
    IngressNginx,
    /// F5's controller: appends to X-Forwarded-For.
    F5,
}

/// Writes the configuration of nginx and returns its arguments.
#[must_use]
pub fn nginx(setup: &EdgeSetup, headers: &HeaderRules, controller: NginxController) -> Vec<String> {
    let (forwarded, extra) = match controller {
        NginxController::IngressNginx => {
            ("$remote_addr", "proxy_set_header Proxy \"\"; proxy_set_header X-Request-ID $req_id;")
        }
        NginxController::F5 => ("$proxy_add_x_forwarded_for", ""),
    };
    let mut rules = format!(
        "proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; \
         proxy_set_header X-Forwarded-For {forwarded}; {extra}\n"
    );
    for (name, value) in &headers.set {
        let _ = writeln!(rules, "proxy_set_header {name} \"{value}\";");
    }
    let (dir, upstream) = (setup.dir.path().display(), setup.upstream);
    let location = format!("location / {{ proxy_pass http://{upstream}; proxy_http_version 1.1; {rules} }}");
    let (cert, key) = (setup.files.cert.display(), setup.files.key.display());
    let config = format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr;
         events {{}}
         http {{
           access_log off;
           map $http_x_request_id $req_id {{ default $http_x_request_id; \"\" $request_id; }}
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
           uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
           ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {cert}; ssl_certificate_key {key};
           server {{ listen {tls} ssl http2; {location} }}
           server {{ listen {plain}; {location} }}
           server {{ listen {proxied} proxy_protocol; set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol; {location} }}
         }}",
        tls = setup.tls.addr(),
        plain = setup.plain.addr(),
        proxied = setup.proxy_protocol.addr(),
    );
    vec!["-e".to_owned(), "stderr".to_owned(), "-c".to_owned(), setup.write("nginx.conf", &config)]
}

/// Writes the configuration of Envoy and returns its arguments. Envoy Gateway, Contour and Istio turn the rules
/// into header lists of the route. Envoy removes headers before it sets others.
#[must_use]
pub fn envoy(setup: &EdgeSetup, headers: &HeaderRules) -> Vec<String> {
    let set: Vec<_> = headers
        .set
        .iter()
        .map(|(key, value)| json!({"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}))
        .collect();
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "use_remote_address": true,
        // As Contour does. Envoy Gateway and Istio do not, but Envoy always keeps the ID of a client with a private address.
        "preserve_external_request_id": true,
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{
            "match": {"prefix": "/"}, "route": {"cluster": "lookup"},
            "request_headers_to_remove": headers.remove, "request_headers_to_add": set}]}]},
    });
    let chain = json!({"filters": [{"name": "http", "typed_config": manager}]});
    let mut encrypted = chain.clone();
    encrypted["transport_socket"] = tls_socket(setup);
    let mut proxied = listener(&setup.proxy_protocol, &chain);
    proxied["listener_filters"] = json!([{"name": "proxy", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"}}]);
    let bootstrap = json!({"static_resources": {
        "listeners": [listener(&setup.tls, &encrypted), listener(&setup.plain, &chain), proxied],
        "clusters": [{"name": "lookup", "connect_timeout": "5s", "load_assignment": {"cluster_name": "lookup",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(setup.upstream)}}]}]}}],
    }});
    let file = setup.write("envoy.json", &bootstrap.to_string());
    ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"]
        .map(str::to_owned)
        .into_iter()
        .chain([file])
        .collect()
}

fn listener(port: &testkit::ports::ReservedPort, chain: &Value) -> Value {
    json!({"name": port.number().to_string(), "address": address(port.addr()), "filter_chains": [chain]})
}

fn address(addr: std::net::SocketAddr) -> Value {
    json!({"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}})
}

fn tls_socket(setup: &EdgeSetup) -> Value {
    json!({"name": "tls", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
            "tls_certificates": [{"certificate_chain": {"filename": setup.files.cert},
                "private_key": {"filename": setup.files.key}}]}}})
}

/// Writes the configuration of Traefik and returns its arguments. The headers of the chart's
/// Middleware object become a middleware in the configuration file.
#[must_use]
pub fn traefik(setup: &EdgeSetup, headers: &HeaderRules) -> Vec<String> {
    let custom: serde_json::Map<_, _> =
        headers.set.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
    let router = |tls: bool| {
        let mut router = json!({"rule": "PathPrefix(`/`)", "service": "lookup", "middlewares": ["edge"]});
        router["entryPoints"] = if tls { json!(["tls"]) } else { json!(["plain", "proxied"]) };
        if tls {
            router["tls"] = json!({});
        }
        router
    };
    let dynamic = json!({
        "http": {
            "routers": {"tls": router(true), "plain": router(false)},
            "middlewares": {"edge": {"headers": {"customRequestHeaders": custom}}},
            "services": {"lookup": {"loadBalancer": {"servers": [{"url": format!("http://{}", setup.upstream)}]}}},
        },
        "tls": {"certificates": [{"certFile": setup.files.cert, "keyFile": setup.files.key}]},
    });
    // JSON is valid YAML. The file provider detects the format by the extension.
    let file = setup.write("dynamic.yaml", &dynamic.to_string());
    vec![
        format!("--entrypoints.tls.address={}", setup.tls.addr()),
        format!("--entrypoints.plain.address={}", setup.plain.addr()),
        format!("--entrypoints.proxied.address={}", setup.proxy_protocol.addr()),
        "--entrypoints.proxied.proxyprotocol.trustedips=127.0.0.1/32".to_owned(),
        format!("--providers.file.filename={file}"),
        "--log.level=WARN".to_owned(),
        "--global.checknewversion=false".to_owned(),
        "--global.sendanonymoususage=false".to_owned(),
    ]
}
