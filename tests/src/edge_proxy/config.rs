//! Configuration of each edge, as its controller would write it from the profile's headers.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::Site;
use super::profile::Headers;

/// HAProxy: arguments. Both HAProxy controllers turn each header into `http-request set-header`.
///
/// # Panics
/// When the files can't be written.
#[must_use]
pub fn haproxy(site: &Site, headers: &Headers) -> Vec<String> {
    let pem =
        [&site.files.cert, &site.files.key].map(|file| std::fs::read_to_string(file).expect("our own file"));
    let pem = site.write("server.pem", &pem.concat());
    let mut rules = String::new();
    for (name, value) in &headers.set {
        let _ = writeln!(rules, "    http-request set-header {name} \"{value}\"");
    }
    let frontend = |name: &str, bind: String| {
        format!("frontend {name}\n    bind {bind}\n{rules}    default_backend lookup\n")
    };
    let (tls, plain, proxied) = (site.tls.addr(), site.plain.addr(), site.proxied.addr());
    let config = [
        "defaults\n    mode http\n    timeout connect 5s\n    timeout client 30s\n    timeout server 30s\n"
            .to_owned(),
        frontend("tls", format!("{tls} ssl crt {pem} alpn h2,http/1.1 ssl-min-ver TLSv1.2")),
        frontend("plain", plain.to_string()),
        frontend("proxied", format!("{proxied} accept-proxy")),
        format!("backend lookup\n    server lookup {}\n", site.upstream),
    ];
    // In the foreground, as one process.
    vec!["-db".to_owned(), "-f".to_owned(), site.write("haproxy.cfg", &config.concat())]
}

/// What both nginx controllers set by themselves, beside the profile's headers.
#[derive(Debug, Clone, Copy)]
pub enum Nginx {
    /// kubernetes/ingress-nginx: replaces what says who the client is, and drops `Proxy`.
    Retired,
    /// F5's: appends to X-Forwarded-For.
    F5,
}

/// nginx: arguments.
#[must_use]
pub fn nginx(site: &Site, headers: &Headers, controller: Nginx) -> Vec<String> {
    let (forwarded, more) = match controller {
        Nginx::Retired => ("$remote_addr", "proxy_set_header Proxy \"\";"),
        Nginx::F5 => ("$proxy_add_x_forwarded_for", ""),
    };
    let mut rules = format!(
        "proxy_set_header Host $host; proxy_set_header X-Real-IP $remote_addr; \
         proxy_set_header X-Forwarded-For {forwarded}; {more}\n"
    );
    for (name, value) in &headers.set {
        let _ = writeln!(rules, "proxy_set_header {name} \"{value}\";");
    }
    let (dir, upstream) = (site.dir.path().display(), site.upstream);
    let location = format!("location / {{ proxy_pass http://{upstream}; proxy_http_version 1.1; {rules} }}");
    let (cert, key) = (site.files.cert.display(), site.files.key.display());
    let config = format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log stderr;
         events {{}}
         http {{
           access_log off;
           client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy; fastcgi_temp_path {dir}/fastcgi;
           uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;
           ssl_protocols TLSv1.2 TLSv1.3; ssl_certificate {cert}; ssl_certificate_key {key};
           server {{ listen {tls} ssl http2; {location} }}
           server {{ listen {plain}; {location} }}
           server {{ listen {proxied} proxy_protocol; set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol; {location} }}
         }}",
        tls = site.tls.addr(),
        plain = site.plain.addr(),
        proxied = site.proxied.addr(),
    );
    vec!["-e".to_owned(), "stderr".to_owned(), "-c".to_owned(), site.write("nginx.conf", &config)]
}

/// Envoy: arguments. All three controllers make header lists of the route; it removes first and sets then.
#[must_use]
pub fn envoy(site: &Site, headers: &Headers) -> Vec<String> {
    let set: Vec<_> = headers
        .set
        .iter()
        .map(|(key, value)| json!({"header": {"key": key, "value": value}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}))
        .collect();
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "edge",
        "use_remote_address": true,
        "http_filters": [{"name": "router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{
            "match": {"prefix": "/"}, "route": {"cluster": "lookup"},
            "request_headers_to_remove": headers.remove, "request_headers_to_add": set}]}]},
    });
    let chain = json!({"filters": [{"name": "http", "typed_config": manager}]});
    let mut encrypted = chain.clone();
    encrypted["transport_socket"] = tls_socket(site);
    let mut proxied = listener(&site.proxied, &chain);
    proxied["listener_filters"] = json!([{"name": "proxy", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"}}]);
    let bootstrap = json!({"static_resources": {
        "listeners": [listener(&site.tls, &encrypted), listener(&site.plain, &chain), proxied],
        "clusters": [{"name": "lookup", "connect_timeout": "5s", "load_assignment": {"cluster_name": "lookup",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(site.upstream)}}]}]}}],
    }});
    let file = site.write("envoy.json", &bootstrap.to_string());
    ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"]
        .map(str::to_owned)
        .into_iter()
        .chain([file])
        .collect()
}

fn listener(port: &crate::ports::ReservedPort, chain: &Value) -> Value {
    json!({"name": port.number().to_string(), "address": address(port.addr()), "filter_chains": [chain]})
}

fn address(addr: std::net::SocketAddr) -> Value {
    json!({"socket_address": {"address": addr.ip().to_string(), "port_value": addr.port()}})
}

fn tls_socket(site: &Site) -> Value {
    json!({"name": "tls", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
            "tls_certificates": [{"certificate_chain": {"filename": site.files.cert},
                "private_key": {"filename": site.files.key}}]}}})
}

/// Traefik: arguments. The Middleware's headers become the file provider's.
#[must_use]
pub fn traefik(site: &Site, headers: &Headers) -> Vec<String> {
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
            "services": {"lookup": {"loadBalancer": {"servers": [{"url": format!("http://{}", site.upstream)}]}}},
        },
        "tls": {"certificates": [{"certFile": site.files.cert, "keyFile": site.files.key}]},
    });
    // JSON is YAML, and the file provider goes by the name's end.
    let file = site.write("dynamic.yaml", &dynamic.to_string());
    vec![
        format!("--entrypoints.tls.address={}", site.tls.addr()),
        format!("--entrypoints.plain.address={}", site.plain.addr()),
        format!("--entrypoints.proxied.address={}", site.proxied.addr()),
        "--entrypoints.proxied.proxyprotocol.trustedips=127.0.0.1/32".to_owned(),
        format!("--providers.file.filename={file}"),
        "--log.level=WARN".to_owned(),
        "--global.checknewversion=false".to_owned(),
        "--global.sendanonymoususage=false".to_owned(),
    ]
}
