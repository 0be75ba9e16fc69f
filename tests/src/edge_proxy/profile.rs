//! The header rules of an ingress controller, read from the objects that the chart renders for an edge profile.

use serde_json::Value;

use crate::chart::{Chart, chart_dir, list, text};

/// The headers that the edge proxy removes, and those that it then sets.
#[derive(Debug, Clone, Default)]
pub struct HeaderRules {
    /// Names of client headers to remove.
    pub remove: Vec<String>,
    /// Name and value, in the syntax of the edge proxy.
    pub set: Vec<(String, String)>,
}

/// An edge profile, rendered by the chart.
#[derive(Debug)]
pub struct Profile {
    /// What the controller does with headers.
    pub headers: HeaderRules,
    /// The flags of lookup-svc that define how it reads these headers.
    pub flags: Vec<String>,
}

impl Profile {
    /// Renders `ci/edge-NAME-values.yaml` with extra values such as `edge.rttFromController=true`.
    #[must_use]
    pub fn render(name: &str, values: &str) -> Self {
        let file = chart_dir().join(format!("ci/edge-{name}-values.yaml"));
        let file = file.to_str().expect("UTF-8 path");
        let chart =
            Chart::render(&["--values", file, "--set", values]).unwrap_or_else(|error| panic!("{error}"));
        Self { headers: headers(name, &chart), flags: flags(&chart) }
    }

    /// The flags for [`testkit::lookup::Stack::start`].
    #[must_use]
    pub fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }
}

/// lookup-svc's flags about reading headers. Its flags about trusted proxies are left out: in a cluster they name a
/// Service, in the test 127.0.0.1.
fn flags(chart: &Chart) -> Vec<String> {
    let pod = &chart.object("Deployment", "-lookup-svc")["spec"]["template"]["spec"];
    let service = list(&pod["containers"]).find(|container| container["name"] == "lookup-svc");
    let service = service.expect("pod has a lookup-svc container");
    let is_edge_flag = |flag: &&str| flag.starts_with("--edge-") || flag.starts_with("--client-ip-from=");
    let flags: Vec<_> = list(&service["args"]).map(text).filter(is_edge_flag).map(str::to_owned).collect();
    assert_eq!(flags.len(), 7, "{flags:?}");
    flags
}

fn headers(profile: &str, chart: &Chart) -> HeaderRules {
    match profile {
        "haproxy" => from_lines(chart, "haproxy.org/request-set-header", " "),
        "haproxy-ingress" => from_lines(chart, "haproxy-ingress.github.io/headers", ": "),
        "ingress-nginx" => from_map(&chart.object("ConfigMap", "-edge-headers")["data"]),
        "traefik" => {
            from_map(&chart.object("Middleware", "-edge")["spec"]["headers"]["customRequestHeaders"])
        }
        "nginx" => {
            let route = &chart.object("VirtualServer", "-api")["spec"]["routes"][0];
            from_pairs(&route["action"]["proxy"]["requestHeaders"], "set", "remove")
        }
        "envoy-gateway" => {
            let filter = &chart.object("HTTPRoute", "-api")["spec"]["rules"][0]["filters"][0];
            from_pairs(&filter["requestHeaderModifier"], "set", "remove")
        }
        "contour" => {
            let route = &chart.object("HTTPProxy", "-api")["spec"]["routes"][0];
            from_pairs(&route["requestHeadersPolicy"], "set", "remove")
        }
        "istio" => {
            let request = &chart.object("VirtualService", "-api")["spec"]["http"][0]["headers"]["request"];
            HeaderRules { remove: names(&request["remove"]), ..from_map(&request["set"]) }
        }
        "gcp" => {
            let headers =
                &chart.object("BackendConfig", "-lookup-svc")["spec"]["customRequestHeaders"]["headers"];
            let pair = |line: &Value| {
                let (name, value) = text(line).split_once(':').expect("NAME:VALUE");
                (name.to_owned(), value.to_owned())
            };
            HeaderRules { set: list(headers).map(pair).collect(), ..HeaderRules::default() }
        }
        // The chart has no header rules for these.
        "aws-alb" | "cloudflare" => HeaderRules::default(),
        other => panic!("unknown profile {other}"),
    }
}

/// Parses an annotation with one header per line.
fn from_lines(chart: &Chart, annotation: &str, separator: &str) -> HeaderRules {
    let lines = text(&chart.object("Ingress", "-api")["metadata"]["annotations"][annotation]);
    let pair =
        |line: &str| line.split_once(separator).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let set =
        lines.lines().map(|line| pair(line).unwrap_or_else(|| panic!("invalid header: {line:?}"))).collect();
    HeaderRules { set, ..HeaderRules::default() }
}

fn from_map(map: &Value) -> HeaderRules {
    let set = map.as_object().expect("map of headers").iter();
    HeaderRules {
        set: set.map(|(name, value)| (name.clone(), text(value).to_owned())).collect(),
        ..HeaderRules::default()
    }
}

fn from_pairs(lists: &Value, set: &str, remove: &str) -> HeaderRules {
    let pair = |pair: &Value| (text(&pair["name"]).to_owned(), text(&pair["value"]).to_owned());
    HeaderRules { remove: names(&lists[remove]), set: list(&lists[set]).map(pair).collect() }
}

fn names(value: &Value) -> Vec<String> {
    list(value).map(|name| text(name).to_owned()).collect()
}
