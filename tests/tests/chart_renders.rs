//! Renders the chart with helm and checks the objects, the errors for invalid values, NOTES.txt and
//! the README.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use e2e::chart::api_server::serve_secrets;
use e2e::chart::{
    Chart, chart_dir, ci_values, helm, list, name, project_root, schemas, text, typed, venv_tool,
};
use serde_json::{Value, json};

fn has_tools() -> bool {
    venv_tool("helm").is_some() && venv_tool("kubernetes-validate").is_some()
}

fn render(values: &str) -> Chart {
    Chart::render(&["--set", values]).unwrap()
}

#[test]
fn helm_lint_reports_no_problems() {
    if !has_tools() {
        return;
    }
    let chart = chart_dir();
    for values in ci_values() {
        helm(&["lint", "--strict", chart.to_str().unwrap(), "--values", values.to_str().unwrap()]).unwrap();
    }
}

#[test]
fn objects_of_all_values_files_match_kubernetes_types() {
    if !has_tools() {
        return;
    }
    let charts: Vec<_> = ci_values().iter().map(|values| Chart::render_values_file(values)).collect();
    for object in charts.iter().flat_map(|chart| &chart.objects) {
        typed::check(object).unwrap_or_else(|error| panic!("{}/{}: {error}", object["kind"], name(object)));
    }
    assert_eq!(schemas::validation_errors(&charts), "");
}

#[test]
fn misspelled_field_fails_type_and_schema_checks() {
    if !has_tools() {
        return;
    }
    let mut chart = render("");
    let deployment = chart.objects.iter_mut().find(|object| object["kind"] == "Deployment").unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = json!({});
    assert!(typed::check(deployment).is_err());
    assert!(schemas::validation_errors(&[chart]).contains("livenesProbe"));
}

#[test]
fn every_profile_has_a_values_file() {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(chart_dir().join("values.schema.json")).unwrap())
            .unwrap();
    for profile in list(&schema["properties"]["edge"]["properties"]["profile"]["enum"]) {
        let file = chart_dir().join(format!("ci/edge-{}-values.yaml", text(profile)));
        assert!(file.is_file(), "{} is missing", file.display());
    }
}

#[test]
fn invalid_values_are_rejected_with_a_reason() {
    if !has_tools() {
        return;
    }
    for (values, reason) in [
        ("edge.profil=nginx", "edge: Additional property profil is not allowed"),
        ("edge.profile=apache", "edge.profile must be one of"),
        ("lookup.replicaCount=two", "lookup.replicaCount: Invalid type"),
        ("hosts.api=localhost", "hosts.api: Does not match pattern"),
        ("hosts.api=a.example,hosts.dashboard=a.example", "must differ"),
        ("hosts.dashboard=", "hosts.dashboard: Does not match pattern"),
        ("ingress.enabled=true,httpRoute.enabled=true", "enable only one"),
        ("ingress.enabled=true,edge.profile=envoy-gateway", "does not support Ingress"),
        ("httpRoute.enabled=true,edge.profile=nginx", "does not support HTTPRoute"),
        ("ingress.enabled=true,edge.profile=istio", "needs ingress.istioGateways"),
        ("httpRoute.enabled=true", "needs httpRoute.parentRefs"),
        ("edge.trustedProxies={10.0.0.1}", "edge.profile none trusts no proxy"),
        ("edge.trustedProxies={ten}", "edge.trustedProxies.0: Does not match pattern"),
        ("valkey.enabled=false", "no store configured"),
        ("externalRedis.url=redis://r.example", "set valkey.enabled=false"),
        ("externalRedis.url=redis://user:secret@r.example", "externalRedis.url: Does not match pattern"),
        ("geo.provider=maxmind", "geo.acceptLicense=true"),
        ("geo.provider=maxmind,geo.acceptLicense=true", "geo.existingSecret"),
        ("geo.provider=url", "needs geo.url"),
        ("geo.provider=existingClaim", "needs geo.existingClaim"),
        ("colo.value=Frankfurt", "colo.value: Does not match pattern"),
        ("otel.env.LISTEN=0", "LISTEN"),
        ("lookup.image.digest=latest", "lookup.image.digest: Does not match pattern"),
    ] {
        let error = Chart::render(&["--set", values]).err();
        assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{values}: {error:?}");
    }
}

#[test]
fn chart_readme_matches_values_yaml() {
    let script = project_root().join("helm/readme.py");
    let output = Command::new("python3").arg(script).arg("--check").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// With a readiness probe on the sidecar, a store outage would remove every pod from the Service.
#[test]
fn monthly_geo_data_and_built_in_data_trigger_no_alert() {
    if !has_tools() {
        return;
    }
    let chart = render("metrics.prometheusRule.enabled=true");
    let rules = chart.object("PrometheusRule", "")["spec"].to_string();
    assert!(rules.contains(r#"database!~\"built-in.*\"}) > 40 * 86400"#), "{rules}");
}

#[test]
fn quota_sidecar_has_no_readiness_probe() {
    if !has_tools() {
        return;
    }
    for native in [true, false] {
        let chart = render(&format!("quota.nativeSidecar={native}"));
        for (deployment, serve) in [("-lookup-svc", "--serve=charges"), ("-dashboard-api", "--serve=all")] {
            let pod = &chart.object("Deployment", deployment)["spec"]["template"]["spec"];
            let field = if native { "initContainers" } else { "containers" };
            let quota = list(&pod[field]).find(|container| container["name"] == "quota-svc").unwrap();
            assert_eq!(quota["restartPolicy"] == "Always", native);
            assert!(quota["readinessProbe"].is_null() && quota["startupProbe"].is_object());
            assert!(
                list(&quota["args"]).any(|flag| flag == serve)
                    && list(&quota["args"]).any(|flag| flag == "--listen=127.0.0.1:8082")
            );
        }
    }
    let alone = render("dashboard.enabled=false");
    let pod = alone.object("Deployment", "-lookup-svc")["spec"]["template"].to_string();
    assert!(pod.contains("--serve=all"), "without a dashboard, operator commands go to lookup-svc's sidecar");
}

#[test]
fn api_token_is_mounted_only_if_kubernetes_api_is_used() {
    if !has_tools() {
        return;
    }
    let none = render("");
    assert!(!none.objects.iter().any(|object| object.to_string().contains("serviceAccountToken")));
    assert_eq!(none.of_kind("Role").count() + none.of_kind("ClusterRole").count(), 0);
    let discovering = Chart::render_values_file(&chart_dir().join("ci/edge-haproxy-values.yaml"));
    let role = discovering.object("Role", "-proxies");
    assert_eq!(role["metadata"]["namespace"], "haproxy-controller");
    let rules = json!([{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]);
    assert_eq!(role["rules"], rules);
    for deployment in discovering.of_kind("Deployment") {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        let has_token = |container: &&Value| container["volumeMounts"].to_string().contains("kube-api");
        let with_token: Vec<_> =
            list(&pod["initContainers"]).chain(list(&pod["containers"])).filter(has_token).collect();
        assert!(matches!(with_token.as_slice(), [one] if one["name"] != "quota-svc"), "{with_token:?}");
    }
    assert_eq!(discovering.of_kind("ClusterRole").count(), 0);
    let by_label = render("colo.nodeLabel=example.org/iata");
    assert_eq!(
        by_label.object("ClusterRole", "-node")["rules"],
        json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}])
    );
}

#[test]
fn secrets_are_not_in_arguments_or_environment() {
    if !has_tools() {
        return;
    }
    let chart = Chart::render(&[
        "--set",
        "valkey.enabled=false,externalRedis.url=redis://r.example,externalRedis.password=hunter2",
    ])
    .unwrap();
    let exposed: Vec<_> =
        chart.objects.iter().filter(|object| object.to_string().contains("hunter2")).collect();
    assert!(exposed.is_empty(), "the password appears only in the Secret, as base64: {exposed:?}");
    for object in &chart.objects {
        assert!(!object.to_string().contains("secretKeyRef"), "{}", name(object));
    }
}

#[test]
fn network_policy_admits_only_ingress_prometheus_and_test_pod() {
    if !has_tools() {
        return;
    }
    let chart = Chart::render_values_file(&chart_dir().join("ci/edge-haproxy-values.yaml"));
    let policy = &chart.object("NetworkPolicy", "-lookup-svc")["spec"];
    let from: Vec<_> = list(&policy["ingress"]).map(|rule| rule["from"].to_string()).collect();
    assert_eq!(from.len(), 3, "{from:?}");
    for (rule, part) in from.iter().zip(["haproxy-controller", "monitoring", "selftest"]) {
        assert!(rule.contains(part), "{rule}");
    }
    let ports: BTreeSet<_> = list(&policy["egress"])
        .flat_map(|rule| list(&rule["ports"]))
        .map(|port| port["port"].to_string())
        .collect();
    assert_eq!(ports.iter().map(String::as_str).collect::<Vec<_>>(), ["443", "53", "6379", "6443"]);
    let cloud = Chart::render_values_file(&chart_dir().join("ci/edge-aws-alb-values.yaml"));
    let rule = cloud.object("NetworkPolicy", "-lookup-svc")["spec"]["ingress"][0].to_string();
    assert!(rule.contains("10.0.1.0/24") && !rule.contains("namespaceSelector"), "{rule}");
    let geo = render("geo.provider=dbip-lite");
    let allows_https =
        |name: &str| geo.object("NetworkPolicy", name)["spec"]["egress"].to_string().contains("443");
    assert!(
        allows_https("-lookup-svc") && !allows_https("-dashboard-api"),
        "only the pod with the geo updater may connect to the provider"
    );
}

/// Renders NOTES.txt. Only `helm install` prints it, and that needs a cluster. So this function copies the chart, adds
/// a ConfigMap that contains the notes, and renders the copy.
fn notes(values: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("ip-lookup");
    let copied = Command::new("cp").arg("-r").arg(chart_dir()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let notes = std::fs::read_to_string(copy.join("templates/NOTES.txt")).unwrap();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: the-notes}\ndata:\n  text: {{ include \"notes\" . | quote }}\n";
    write(&copy, "_notes.tpl", &format!("{{{{- define \"notes\" -}}}}{notes}{{{{- end -}}}}"));
    write(&copy, "notes.yaml", object);
    let chart = Chart::render_dir(&copy, &["--set", values]).unwrap();
    text(&chart.object("ConfigMap", "the-notes")["data"]["text"]).to_owned()
}

fn write(chart: &Path, template: &str, content: &str) {
    std::fs::write(chart.join("templates").join(template), content).unwrap();
}

#[test]
fn notes_show_warnings_and_next_commands() {
    if !has_tools() {
        return;
    }
    let plain = notes("");
    for part in
        ["helm test ipl", "account create", "key create", "NO TRUSTED PROXY", "COUNTRIES ONLY", "access log"]
    {
        assert!(plain.contains(part), "{part} is not in: {plain}");
    }
    assert!(!plain.contains("SIGN-UP IS OPEN"));
    let open = notes("dashboard.signup=true,geo.provider=dbip-lite,edge.profile=traefik");
    for part in [
        "SIGN-UP IS OPEN",
        "IP Geolocation by DB-IP",
        "does not provide: http_protocol, tls_version, tls_cipher, rtt",
    ] {
        assert!(open.contains(part), "{part} is not in: {open}");
    }
    assert!(!open.contains("COUNTRIES ONLY") && !open.contains("NO TRUSTED PROXY"), "{open}");
    assert!(notes("edge.profile=aws-alb").contains("NO TRUSTED PROXY"));
    assert!(
        notes("edge.profile=ingress-nginx")
            .contains("proxy-set-headers: \"ip-lookup/ipl-ip-lookup-edge-headers\"")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_secrets_stay_the_same_on_upgrade() {
    if !has_tools() {
        return;
    }
    let secrets = |chart: &Chart| chart.of_kind("Secret").cloned().collect::<Vec<_>>();
    let installed = secrets(&render(""));
    assert_eq!(installed.len(), 3, "{installed:?}");
    assert_ne!(secrets(&render("")), installed, "another installation gets different secrets");
    let api_server = serve_secrets(&installed).await;
    let upgraded = Chart::render(&["--dry-run=server", "--kube-apiserver", &api_server.url()]).unwrap();
    assert_eq!(secrets(&upgraded), installed);
}

/// An earlier version of the chart created a Secret with one password.
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_keeps_the_password_and_adds_the_lookup_password() {
    if !has_tools() {
        return;
    }
    let mut old = render("").object("Secret", "-store").clone();
    old["data"].as_object_mut().unwrap().retain(|entry, _| entry == "password");
    let api_server = serve_secrets(std::slice::from_ref(&old)).await;
    let upgraded = Chart::render(&["--dry-run=server", "--kube-apiserver", &api_server.url()]).unwrap();
    let data = &upgraded.object("Secret", "-store")["data"];
    assert_eq!(data["password"], old["data"]["password"]);
    assert!(
        text(&data["lookup-password"]).len() > 40 && data["lookup-password"] != data["password"],
        "{data}"
    );
}

/// Mounting an entry that an existing Secret does not have would keep the pods from starting.
#[test]
fn existing_secret_with_one_password_serves_all_pods() {
    if !has_tools() {
        return;
    }
    let chart = render("valkey.existingSecret=store");
    let objects = serde_json::to_string(&chart.objects).unwrap();
    assert!(!objects.contains("lookup-password") && !objects.contains("--redis-username"), "{objects}");
    let chart = render("valkey.existingSecret=store,valkey.lookupPasswordKey=second");
    let sidecar = |name: &str| chart.object("Deployment", name)["spec"]["template"]["spec"].to_string();
    assert!(sidecar("-lookup-svc").contains("--redis-username=lookup"));
    assert!(!sidecar("-dashboard-api").contains("--redis-username"));
    assert!(!sidecar("-dashboard-api").contains("second"), "each pod has only its own password");
}
