//! What the chart tells a controller to do with headers, read from the objects that it renders for a profile.

use serde_json::Value;

use crate::chart::{Chart, folder, list, text};

/// Headers that the edge removes and sets, in that order.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// Removed from what the client sent.
    pub remove: Vec<String>,
    /// Name and value, in the language of the edge.
    pub set: Vec<(String, String)>,
}

/// A profile as the chart renders it.
#[derive(Debug)]
pub struct Profile {
    /// What the controller does.
    pub headers: Headers,
    /// The flags of lookup-svc that say how to read it.
    pub flags: Vec<String>,
}

impl Profile {
    /// Renders `ci/edge-NAME-values.yaml` with these further values (`edge.rttFromController=true`).
    ///
    /// # Panics
    /// When helm refuses or the objects are not as expected.
    #[must_use]
    pub fn render(name: &str, values: &str) -> Self {
        let file = folder().join(format!("ci/edge-{name}-values.yaml"));
        let file = file.to_str().expect("a readable path");
        let chart =
            Chart::render(&["--values", file, "--set", values]).unwrap_or_else(|error| panic!("{error}"));
        Self { headers: headers(name, &chart), flags: flags(&chart) }
    }

    /// The flags as [`crate::lookup::Stack::start`] takes them.
    #[must_use]
    pub fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }
}

/// Only how to read headers: whom to believe is this machine here, and a cluster's Service there.
fn flags(chart: &Chart) -> Vec<String> {
    let pod = &chart.object("Deployment", "-lookup-svc")["spec"]["template"]["spec"];
    let service = list(&pod["containers"]).find(|container| container["name"] == "lookup-svc");
    let service = service.expect("the pod has lookup-svc");
    let of_edge = |flag: &&str| flag.starts_with("--edge-") || flag.starts_with("--client-ip-from=");
    let flags: Vec<_> = list(&service["args"]).map(text).filter(of_edge).map(str::to_owned).collect();
    assert_eq!(flags.len(), 7, "{flags:?}");
    flags
}

fn headers(profile: &str, chart: &Chart) -> Headers {
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
            Headers { remove: names(&request["remove"]), ..from_map(&request["set"]) }
        }
        // What is outside the cluster is not configured by objects that a test could run.
        "aws-alb" | "gcp" | "cloudflare" => Headers::default(),
        other => panic!("{other} is no profile"),
    }
}

/// An annotation with one header a line.
fn from_lines(chart: &Chart, annotation: &str, separator: &str) -> Headers {
    let lines = text(&chart.object("Ingress", "-api")["metadata"]["annotations"][annotation]);
    let pair =
        |line: &str| line.split_once(separator).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let set = lines.lines().map(|line| pair(line).unwrap_or_else(|| panic!("no header: {line:?}"))).collect();
    Headers { set, ..Headers::default() }
}

fn from_map(map: &Value) -> Headers {
    let set = map.as_object().expect("headers").iter();
    Headers {
        set: set.map(|(name, value)| (name.clone(), text(value).to_owned())).collect(),
        ..Headers::default()
    }
}

fn from_pairs(lists: &Value, set: &str, remove: &str) -> Headers {
    let pair = |pair: &Value| (text(&pair["name"]).to_owned(), text(&pair["value"]).to_owned());
    Headers { remove: names(&lists[remove]), set: list(&lists[set]).map(pair).collect() }
}

fn names(value: &Value) -> Vec<String> {
    list(value).map(|name| text(name).to_owned()).collect()
}
