//! Renders the chart with helm and checks the objects, the errors for invalid values, NOTES.txt and
//! the README.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use e2e::chart::api_server::serve_objects;
use e2e::chart::{
    Chart, chart_dir, ci_values, copy_chart, helm, list, name, project_root, schemas, text, typed, venv_tool,
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
    for values in ["default", "full"] {
        let values = chart.join(format!("ci/{values}-values.yaml"));
        helm(&["lint", "--strict", chart.to_str().unwrap(), "--values", values.to_str().unwrap()]).unwrap();
    }
}

#[test]
fn objects_of_all_values_files_match_types_and_have_valid_flags_and_ports() {
    if !has_tools() {
        return;
    }
    let charts: Vec<_> = ci_values().iter().map(|values| Chart::render_values_file(values)).collect();
    for object in charts.iter().flat_map(|chart| &chart.objects) {
        typed::check(object).unwrap_or_else(|error| panic!("{}/{}: {error}", object["kind"], name(object)));
    }
    assert_eq!(schemas::validation_errors(&charts), "");
    charts.iter().for_each(check_ports_are_numbers);
    crate::processes::check_flags(&charts);
}

/// Several policy engines, and Kubernetes before 1.33, do not find the name of a native sidecar's port.
fn check_ports_are_numbers(chart: &Chart) {
    let policies = chart.of_kind("NetworkPolicy").flat_map(|policy| {
        let rules = list(&policy["spec"]["ingress"]).chain(list(&policy["spec"]["egress"]));
        rules.flat_map(|rule| list(&rule["ports"])).map(|port| &port["port"])
    });
    let services = chart.of_kind("Service").flat_map(|service| list(&service["spec"]["ports"]));
    for port in policies.chain(services.map(|port| &port["targetPort"])) {
        assert!(port.is_u64(), "{port} in {:?}", chart.names());
    }
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
        ("hosts.ipv4=localhost", "hosts.ipv4: Does not match pattern"),
        ("hosts.ipv6=dashboard.example.com", "hosts.ipv6 must differ"),
        ("hosts.ipv4=a.example,hosts.ipv6=a.example", "hosts.ipv6 must differ"),
        ("ingress.enabled=true,httpRoute.enabled=true", "enable only one"),
        ("ingress.enabled=true,edge.profile=envoy-gateway", "does not support Ingress"),
        ("httpRoute.enabled=true,edge.profile=nginx", "does not support HTTPRoute"),
        ("ingress.enabled=true,edge.profile=istio", "needs ingress.istioGateways"),
        ("httpRoute.enabled=true", "needs httpRoute.parentRefs"),
        ("edge.trustedProxies={10.0.0.1}", "edge.profile none trusts no proxy"),
        ("edge.trustedProxies={ten}", "edge.trustedProxies.0: Does not match pattern"),
        (
            "edge.profile=custom,edge.trustedProxies={10.0.0.0/33}",
            "10.0.0.0/33 is not an IP address or a CIDR",
        ),
        ("edge.profile=custom,edge.trustedProxies={10.0.0.256}", "10.0.0.256 is not an IP address or a CIDR"),
        ("edge.profile=custom,edge.trustedProxies={fe80:::1}", "fe80:::1 is not an IP address or a CIDR"),
        ("edge.profile=custom,edge.trustedProxies={::/129}", "::/129 is not an IP address or a CIDR"),
        ("edge.profile=custom,edge.trustedProxies={0.0.0.0/0}", "edge.trustedProxies covers every address"),
        ("edge.profile=custom,edge.trustedProxies={0.0.0.0/1,128.0.0.0/1}", "covers every address"),
        ("edge.profile=custom,edge.trustedProxies={::/0}", "edge.trustedProxies covers every address"),
        ("edge.profile=custom,edge.trustedProxies={::ffff:0:0/96}", "covers every address"),
        ("edge.profile=custom,edge.discover.service=proxy", "needs edge.discover.namespace"),
        ("networkPolicy.storeTo[0].ipBlock.cidr=10.0.0.0/40", "10.0.0.0/40 is not an IP address or a CIDR"),
        ("fullnameOverride=My_Release", "fullnameOverride: Does not match pattern"),
        ("nameOverride=a.b", "nameOverride: Does not match pattern"),
        ("valkey.existingSecret=My_Secret", "valkey.existingSecret: Does not match pattern"),
        ("hosts.api=a..example", "hosts.api: Does not match pattern"),
        ("valkey.persistence.size=lots", "valkey.persistence.size: Does not match pattern"),
        ("geo.volumeSize=lots", "geo.volumeSize: Does not match pattern"),
        ("lookup.resources.limits.memory=lots", "lookup.resources.limits.memory: Does not match pattern"),
        ("lookup.autoscaling.enabled=true,lookup.autoscaling.minReplicas=11", "above maxReplicas 10"),
        ("dashboard.autoscaling.enabled=true,dashboard.autoscaling.maxReplicas=1", "above maxReplicas 1"),
        ("service.externalTrafficPolicy=Local", "needs service.type LoadBalancer or NodePort"),
        ("service.loadBalancerIP=192.0.2.1", "service.loadBalancerIP needs service.type LoadBalancer"),
        (
            "service.type=LoadBalancer,service.api.type=NodePort,service.api.loadBalancerClass=a",
            "service.loadBalancerClass needs service.type LoadBalancer",
        ),
        ("service.api.port=81", "service.api: Additional property port is not allowed"),
        ("service.ipFamilies={IPv5}", "service.ipFamilies.0 must be one of"),
        ("quota.probes.readinessProbe.periodSeconds=1", "Additional property readinessProbe is not allowed"),
        ("valkey.image.tag=", "valkey.image.tag is empty"),
        ("valkey.maxMemory=1gb", "valkey.maxMemory 1gb must be below the memory limit 512Mi"),
        ("valkey.resources.limits.memory=268435456", "valkey.maxMemory 256mb must be below the memory limit"),
        ("log.level=verbose", "log.level must be one of"),
        ("log.level=warn;hyper", "log.level must be one of"),
        ("valkey.enabled=false", "no store configured"),
        (
            "firstAccount.existingSecret=first,dashboard.enabled=false",
            "firstAccount.existingSecret needs dashboard.enabled=true",
        ),
        ("externalRedis.url=redis://user:secret@r.example", "externalRedis.url: Does not match pattern"),
        ("geo.provider=maxmind", "geo.acceptLicense=true"),
        ("geo.provider=maxmind,geo.acceptLicense=true", "geo.existingSecret"),
        ("geo.provider=url", "needs geo.url"),
        ("geo.provider=existingClaim", "needs geo.existingClaim"),
        ("geo.shared.enabled=true", "geo.shared downloads databases, but geo.provider is none"),
        ("geo.provider=dbip-lite,geo.ca.secret=a,geo.ca.configMap=b", "set only one"),
        (
            "geo.provider=dbip-lite,lookup.resources.limits.memory=128Mi",
            "lookup.resources.limits.memory 128Mi is too small for a geo database",
        ),
        (
            "geo.provider=dbip-lite,geo.resources.limits.memory=64Mi",
            "geo.resources.limits.memory 64Mi is too small for a geo database",
        ),
        ("valkey.backup.enabled=true,quota.nativeSidecar=false", "valkey.backup needs quota.nativeSidecar"),
        ("colo.value=Frankfurt", "colo.value: Does not match pattern"),
        ("otel.env.LISTEN=0", "LISTEN"),
        ("lookup.image.digest=latest", "lookup.image.digest: Does not match pattern"),
        ("quota.burstLimit=65536", "quota.burstLimit: Must be less than or equal to 65535"),
        ("quota.dailyLimit=4294967296", "quota.dailyLimit: Must be less than or equal to"),
        ("quota.demoLimit=4294967296", "quota.demoLimit: Must be less than or equal to"),
        (
            r"commonLabels.app\.kubernetes\.io/instance=x",
            "must not contain app.kubernetes.io/instance: the chart sets it",
        ),
        (
            r"lookup.podLabels.app\.kubernetes\.io/name=x",
            "must not contain app.kubernetes.io/name: the chart sets it",
        ),
        (
            r"tests.pod.podLabels.app\.kubernetes\.io/component=x",
            "must not contain app.kubernetes.io/component",
        ),
        ("valkey.backup.schedule=@reboot", "valkey.backup.schedule: Does not match pattern"),
        ("valkey.backup.schedule=0 4 * *", "valkey.backup.schedule: Does not match pattern"),
        (
            "valkey.backup.enabled=true,valkey.backup.schedule=0 0 * * 7",
            r#""7" is not a valid day of the week (0 to 6)"#,
        ),
        (
            "geo.provider=dbip-lite,geo.shared.enabled=true,geo.shared.schedule=0 9-24 * * *",
            r#"geo.shared.schedule: "0 9-24 * * *" is not a valid schedule: "9-24" is not a valid hour"#,
        ),
    ] {
        let error = Chart::render(&["--set", values]).err();
        assert!(error.as_ref().is_some_and(|error| error.contains(reason)), "{values}: {error:?}");
    }
}

/// Kubernetes before 1.29 ignores `restartPolicy` of an init container, so the pod would wait for quota-svc to end.
#[test]
fn native_sidecar_is_rejected_before_kubernetes_1_29() {
    if !has_tools() {
        return;
    }
    let render = |version: &str, native: bool| {
        let values = format!("quota.nativeSidecar={native}");
        Chart::render(&["--kube-version", version, "--set", &values]).map(|_| ())
    };
    let error = render("1.28.3", true).unwrap_err();
    assert!(error.contains("this is v1.28.3") && error.contains("set quota.nativeSidecar=false"), "{error}");
    assert_eq!(render("1.28.3", false), Ok(()));
    assert_eq!(render("1.29.0-eks-1", true), Ok(()));
}

/// Services accept only names that start with a letter and have no dot; helm accepts others.
#[test]
fn release_name_that_services_reject_is_rejected() {
    if !has_tools() {
        return;
    }
    let chart = chart_dir();
    for release in ["1st", "my.release"] {
        let error = helm(&["template", release, chart.to_str().unwrap()]).unwrap_err();
        assert!(error.contains("can't be part of a Service's name"), "{release}: {error}");
    }
}

#[test]
fn unusual_but_valid_values_are_accepted() {
    if !has_tools() {
        return;
    }
    for values in [
        "edge.profile=custom,edge.trustedProxies={0.0.0.0/0},edge.insecureTrustAnyProxy=true",
        "edge.profile=custom,edge.trustedProxies={0.0.0.0/1,10.0.0.0/8,2001:db8::/32,::1,::ffff:10.0.0.0/104}",
        "edge.profile=custom,edge.trustedProxies={1:2:3:4:5:6:7:8,1::,::8,1:2::7:8/127}",
        "edge.profile=custom,edge.discover.service=proxy,edge.discover.namespace=edge",
        "service.type=NodePort,service.externalTrafficPolicy=Local",
        "valkey.image.tag=,valkey.image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000001",
        "valkey.resources.limits.memory=0.5Gi",
        "valkey.resources.limits.memory=null,valkey.maxMemory=9gb",
        "log.level=off",
        "log.level=warn\\,hyper=debug",
        "log.level=info\\,geo::reload=trace",
        "quota.burstLimit=65535,quota.dailyLimit=4294967295,quota.demoLimit=4294967295",
        "valkey.backup.enabled=true,valkey.backup.schedule=@midnight",
        "valkey.backup.enabled=true,valkey.backup.schedule=*/15\\,7 1-5/2 1\\,15 JAN-mar ?",
    ] {
        let error = Chart::render(&["--set", values]).err();
        assert_eq!(error, None, "{values}");
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
fn quota_sidecar_has_no_readiness_probe_and_is_killed_soon_if_it_hangs() {
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
            let liveness = |field: &str| quota["livenessProbe"][field].as_u64().unwrap();
            let until_killed = (liveness("periodSeconds") + liveness("timeoutSeconds"))
                * liveness("failureThreshold")
                + liveness("terminationGracePeriodSeconds");
            assert!(until_killed < 15, "a hung sidecar is killed after {until_killed} s");
            let probe = &pod["containers"][0]["readinessProbe"]["httpGet"];
            assert_eq!(*probe, json!({"path": "/readyz", "port": "admin"}), "the service's own readiness");
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
    notes_of(&["--set", values])
}

fn notes_of(arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let copy = copy_chart(dir.path());
    let notes = std::fs::read_to_string(copy.join("templates/NOTES.txt")).unwrap();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: the-notes}\ndata:\n  text: {{ include \"notes\" . | quote }}\n";
    write(&copy, "_notes.tpl", &format!("{{{{- define \"notes\" -}}}}{notes}{{{{- end -}}}}"));
    write(&copy, "notes.yaml", object);
    let chart = Chart::render_dir(&copy, arguments).unwrap();
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
    for part in ["helm test ipl", "account create", "key create", "NO TRUSTED PROXY", "COUNTRIES ONLY"] {
        assert!(plain.contains(part), "{part} is not in: {plain}");
    }
    assert!(!plain.contains("SIGN-UP IS OPEN") && !plain.contains("KEYS IN LOGS"), "{plain}");
    let open = notes("dashboard.signup=true,geo.provider=dbip-lite,edge.profile=traefik");
    for part in [
        "SIGN-UP IS OPEN",
        "KEYS IN LOGS",
        "IP Geolocation by DB-IP",
        "does not provide: http_protocol, tls_version, tls_cipher, rtt",
    ] {
        assert!(open.contains(part), "{part} is not in: {open}");
    }
    assert!(!open.contains("COUNTRIES ONLY") && !open.contains("NO TRUSTED PROXY"), "{open}");
    let aws = notes("edge.profile=aws-alb");
    assert!(aws.contains("NO TRUSTED PROXY") && aws.contains("to the subnets of the load balancer"), "{aws}");
    let trusted = notes("edge.profile=aws-alb,edge.trustedProxies={10.0.0.0/16}");
    assert!(!trusted.contains("NO TRUSTED PROXY") && !trusted.contains("to the subnets of"), "{trusted}");
    let ingress_nginx = notes("edge.profile=ingress-nginx");
    for part in [
        "proxy-set-headers: \"ip-lookup/ipl-ip-lookup-edge-headers\"",
        "can choose the request ID in the log",
    ] {
        assert!(ingress_nginx.contains(part), "{part} is not in: {ingress_nginx}");
    }
    assert!(notes("edge.profile=cloudflare").contains("and removes X-Request-Id and traceparent."));
}

#[test]
fn notes_explain_volumes_certificates_and_discovery() {
    if !has_tools() {
        return;
    }
    let shared = "geo.provider=dbip-lite,geo.shared.enabled=true";
    let mut rendered = BTreeMap::new();
    for (values, part) in [
        ("", "no default StorageClass"),
        ("", "delete pvc data-ipl-ip-lookup-valkey-0"),
        ("valkey.persistence.existingClaim=mine", "delete pvc mine"),
        ("valkey.backup.enabled=true", "Backups are in the PersistentVolumeClaim ipl-ip-lookup-backup"),
        ("valkey.backup.enabled=true", "create job restore-1 --from=cronjob/ipl-ip-lookup-restore"),
        ("", "logs job/ipl-ip-lookup-selftest"),
        ("edge.profile=traefik,ingress.enabled=true", "Traefik also serves plain HTTP"),
        ("edge.profile=traefik,ingress.enabled=true", "router.entrypoints=websecure in edge.annotations"),
        ("", "port-forward svc/ipl-ip-lookup-dashboard-api 8081:80"),
        ("", "open http://localhost:8081"),
        ("edge.profile=haproxy,ingress.enabled=true", "ipl-ip-lookup-api-tls (certificate and key of lookup"),
        ("edge.profile=haproxy,ingress.enabled=true", "ipl-ip-lookup-dashboard-tls"),
        ("edge.profile=haproxy,ingress.enabled=true", "set the annotation cert-manager.io/cluster-issuer"),
        ("edge.profile=contour,ingress.enabled=true", "create a Certificate for each"),
        ("edge.profile=haproxy", "service-name=haproxy-kubernetes-ingress"),
        ("geo.provider=dbip-lite", "logs deploy/ipl-ip-lookup-lookup-svc -c geo-refresh"),
        (shared, "app.kubernetes.io/component=geo-update"),
        ("edge.profile=traefik,edge.rttFromController=true", "tls_cipher, rtt. These fields are always null"),
        ("edge.profile=direct", "get svc ipl-ip-lookup-dashboard-api   (dashboard.example.com)"),
        ("edge.profile=direct", "ipl-ip-lookup-api-tls (certificate and key of lookup"),
        ("edge.profile=direct,edge.direct.issuer.name=ca", "describe certificate ipl-ip-lookup-api-tls"),
        ("hosts.ipv6=v6.example", "v6.example must have only an AAAA record"),
        ("edge.profile=direct,hosts.ipv4=v4.example", "key of lookup.example.com, v4.example)"),
        (
            "edge.profile=haproxy,ingress.enabled=true,hosts.ipv4=v4.example",
            "ipl-ip-lookup-api-ipv4-tls (certificate",
        ),
        (
            "edge.profile=direct,edge.direct.proxyProtocol=true,edge.trustedProxies={10.0.0.1}",
            "selftest --url https://lookup.example.com",
        ),
    ] {
        let notes = rendered.entry(values).or_insert_with(|| notes(values));
        assert!(notes.contains(part), "{part} is not in the notes for {values}: {notes}");
    }
    let direct = &rendered["edge.profile=direct"];
    for part in ["No Ingress", "NO TRUSTED PROXY", "KEYS IN LOGS", "port-forward"] {
        assert!(!direct.contains(part), "{part} is in: {direct}");
    }
    let external = notes("valkey.enabled=false,externalRedis.url=redis://r.example");
    assert!(!external.contains("StorageClass") && !external.contains("delete pvc"), "{external}");
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_warn_if_the_controllers_service_has_no_endpoints() {
    if !has_tools() {
        return;
    }
    let slice = |service: &str, ips: &[&str]| {
        let mut slice = testkit::kube_api::slice(service, "1", ips);
        slice["metadata"]["labels"] = json!({"kubernetes.io/service-name": service});
        slice
    };
    let other = slice("other", &["10.0.0.1"]);
    for (slices, found) in [
        (vec![other.clone()], false),
        (vec![other.clone(), slice("haproxy-kubernetes-ingress", &[])], false),
        (vec![other, slice("haproxy-kubernetes-ingress", &["10.0.0.2"])], true),
    ] {
        let api_server = serve_objects(&slices).await;
        let cluster = ["--dry-run=server", "--kube-apiserver", &api_server.url()];
        let notes = notes_of(&[&cluster, ["--set", "edge.profile=haproxy"].as_slice()].concat());
        assert_eq!(!notes.contains("NO PROXY FOUND"), found, "{notes}");
    }
}

/// `helm uninstall` leaves the objects of a failed test.
#[test]
fn failed_test_is_deleted_by_kubernetes() {
    if !has_tools() {
        return;
    }
    let chart = render("");
    let job = chart.object("Job", "-selftest");
    let annotations =
        json!({"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"});
    assert_eq!(job["metadata"]["annotations"], annotations, "a new test replaces the old one");
    let spec = &job["spec"];
    assert_eq!((&spec["ttlSecondsAfterFinished"], &spec["backoffLimit"]), (&json!(600), &json!(0)));
    assert_eq!(spec["activeDeadlineSeconds"], 300, "a pod that can't start ends, too");
}

#[test]
fn test_job_checks_discovery_through_the_admin_port() {
    if !has_tools() {
        return;
    }
    for (values, discovers) in [("edge.profile=haproxy", true), ("", false)] {
        let chart = render(values);
        let flags =
            chart.object("Job", "-selftest")["spec"]["template"]["spec"]["containers"][0]["args"].clone();
        let admin_url = "--admin-url=http://ipl-ip-lookup-lookup-svc-metrics:9080";
        assert_eq!(list(&flags).any(|flag| flag == admin_url), discovers, "{flags}");
        let rules =
            |name: &str, direction: &str| chart.object("NetworkPolicy", name)["spec"][direction].clone();
        let opens = |rules: &Value, peer: &str| {
            list(rules)
                .any(|rule| rule.to_string().contains(peer) && rule["ports"].to_string().contains("9080"))
        };
        assert_eq!(opens(&rules("-lookup-svc", "ingress"), "selftest"), discovers, "{values}");
        assert_eq!(opens(&rules("-selftest", "egress"), "lookup-svc"), discovers, "{values}");
    }
}

/// A rollback fails if a claim of the older revision exists, but not in the newer one. Without this, Kubernetes would also
/// delete the claim only after the last pod that uses it, and a rollback of a stuck upgrade would be impossible.
#[tokio::test(flavor = "multi_thread")]
async fn claim_stays_in_the_release_when_it_is_not_used_any_more() {
    if !has_tools() {
        return;
    }
    let used = "geo.provider=dbip-lite,geo.shared.enabled=true,geo.shared.size=7Gi,geo.shared.storageClass=nfs,valkey.backup.enabled=true";
    let before = render(used);
    let claims = |chart: &Chart| chart.of_kind("PersistentVolumeClaim").cloned().collect::<Vec<_>>();
    assert_eq!(claims(&before).len(), 2);
    assert_eq!(claims(&render("")), [Value::Null; 0], "a release that never had them has none");
    for (owner, kept) in [("ipl", 2), ("another-release", 0)] {
        let mut existing = claims(&before);
        for claim in &mut existing {
            claim["metadata"]["annotations"]["meta.helm.sh/release-name"] = owner.into();
            claim["spec"]["volumeName"] = "pv-1".into();
        }
        let api_server = serve_objects(&existing).await;
        let after = Chart::render(&["--dry-run=server", "--kube-apiserver", &api_server.url()]).unwrap();
        assert_eq!(claims(&after).len(), kept, "{:?}", after.names());
        for claim in claims(&after) {
            assert!(claims(&before).contains(&claim), "with the size and class that it has: {claim}");
        }
    }
}

#[test]
fn readme_explains_storage_certificates_and_escaping() {
    let readme = std::fs::read_to_string(chart_dir().join("README.md")).unwrap();
    for part in [
        "default StorageClass",
        "`helm uninstall` deletes everything except",
        "`{fullname}-api-tls`",
        "port-forward svc/ip-lookup-dashboard-api",
        r"--set 'log.level=warn\,hyper=debug'",
        "--cascade=orphan",
        "runAsUser: null",
        "stays trusted for 60 s",
        "| `none` | the TCP peer's | the TCP peer's | no | the TCP peer's |",
    ] {
        assert!(readme.contains(part), "{part}");
    }
}

#[test]
fn metrics_service_has_the_admin_ports_of_both_containers() {
    if !has_tools() {
        return;
    }
    let chart = render("");
    let metrics = chart.object("Service", "-lookup-svc-metrics")["spec"]["ports"].to_string();
    assert!(metrics.contains("\"targetPort\":9080") && metrics.contains("\"targetPort\":9082"), "{metrics}");
}

/// A changed label or annotation in a pod template restarts the pods; while the only Valkey restarts, lookups fail.
#[test]
fn new_chart_version_or_comment_restarts_no_pod() {
    if !has_tools() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let copy = copy_chart(dir.path());
    let replace = |file: &str, old: &str, new: &str| {
        let content = std::fs::read_to_string(copy.join(file)).unwrap();
        assert!(content.contains(old), "{old} is not in {file}");
        std::fs::write(copy.join(file), content.replace(old, new)).unwrap();
    };
    replace("Chart.yaml", "\nversion: ", "\nversion: 9.9.9+build # ");
    replace("templates/_valkey.tpl", "# Accounts and keys", "# Another comment.\n  # Accounts and keys");
    let pods = |chart: &Chart| -> Vec<(String, String)> {
        let templates = chart.of_kind("Deployment").chain(chart.of_kind("StatefulSet"));
        templates.map(|object| (name(object).to_owned(), object["spec"].to_string())).collect()
    };
    // Existing Secrets, because rendering without a cluster generates new ones each time.
    let secrets = chart_dir().join("ci/existing-secrets-values.yaml");
    let options =
        "commonLabels.team=edge,valkey.exporter.enabled=true,valkey.exporter.existingSecret=exporter";
    let values = ["--values", secrets.to_str().unwrap(), "--set", options];
    let before = Chart::render(&values).unwrap();
    let after = Chart::render_dir(&copy, &values).unwrap();
    let version = &after.object("StatefulSet", "-valkey")["metadata"]["labels"]["helm.sh/chart"];
    assert_eq!(version, "ip-lookup-9.9.9_build");
    assert_eq!(pods(&before), pods(&after));

    let valkey = &before.object("StatefulSet", "-valkey")["spec"];
    assert_eq!(valkey["template"]["metadata"]["labels"], valkey["selector"]["matchLabels"]);
    let checksum = |chart: &Chart| {
        let pod = &chart.object("StatefulSet", "-valkey")["spec"]["template"];
        pod["metadata"]["annotations"]["checksum/config"].clone()
    };
    assert_ne!(checksum(&before), checksum(&render("valkey.maxMemory=200mb")), "new settings need a restart");
    assert_ne!(checksum(&render("")), checksum(&render("quota.keyPrefix=x:")), "new permissions, too");
}

/// A cloud load balancer learns of a removed pod late.
#[test]
fn cloud_load_balancers_get_a_longer_drain() {
    if !has_tools() {
        return;
    }
    for (values, drain, termination) in [
        ("edge.profile=haproxy", "--drain-delay=5s", 40),
        ("edge.profile=gcp", "--drain-delay=30s", 65),
        ("edge.profile=direct", "--drain-delay=30s", 65),
        ("edge.profile=aws-alb", "--drain-delay=30s", 65),
        ("edge.profile=aws-alb,shutdown.drainSeconds=0", "--drain-delay=0s", 35),
    ] {
        let chart = render(values);
        for service in ["-lookup-svc", "-dashboard-api"] {
            let pod = &chart.object("Deployment", service)["spec"]["template"]["spec"];
            assert!(list(&pod["containers"][0]["args"]).any(|flag| flag == drain), "{values}: {pod}");
            assert_eq!(pod["terminationGracePeriodSeconds"], termination, "{values}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_secrets_stay_the_same_on_upgrade() {
    if !has_tools() {
        return;
    }
    let secrets = |chart: &Chart| chart.of_kind("Secret").cloned().collect::<Vec<_>>();
    let values = "valkey.exporter.enabled=true";
    let chart = render(values);
    let installed = secrets(&chart);
    assert_eq!(installed.len(), 4, "{installed:?}");
    assert_ne!(secrets(&render(values)), installed, "another installation gets different secrets");
    let api_server = serve_objects(&installed).await;
    let upgraded =
        Chart::render(&["--dry-run=server", "--kube-apiserver", &api_server.url(), "--set", values]).unwrap();
    assert_eq!(secrets(&upgraded), installed);
    assert_eq!(secret_checksums(&upgraded), secret_checksums(&chart), "an upgrade restarts no pod");
    assert_eq!(secret_checksums(&chart).len(), 4);
}

/// The checksum of the Secrets in each workload's pods, by name.
fn secret_checksums(chart: &Chart) -> BTreeMap<String, String> {
    let workloads = chart.objects.iter().filter_map(|object| {
        let checksum = object["spec"]["template"]["metadata"]["annotations"]["checksum/secrets"].as_str()?;
        Some((name(object).to_owned(), checksum.to_owned()))
    });
    workloads.collect()
}

#[test]
fn changed_password_restarts_the_pods_that_use_it() {
    if !has_tools() {
        return;
    }
    let checksums = |password: &str| {
        let values = format!("externalRedis.url=redis://r.example,externalRedis.password={password}");
        // The other Secrets are given, because rendering without a cluster generates new ones each time.
        let others =
            "quota.token.existingSecret=q,dashboard.session.existingSecret=s,valkey.existingSecret=v";
        secret_checksums(&render(&format!("{values},{others}")))
    };
    let (old, new) = (checksums("old"), checksums("new"));
    let changed: Vec<_> = old.iter().filter(|(name, checksum)| new[*name] != **checksum).collect();
    assert!(
        matches!(changed.as_slice(), [(dashboard, _), (lookup, _)]
            if dashboard.ends_with("-dashboard-api") && lookup.ends_with("-lookup-svc")),
        "all but Valkey: {changed:?}"
    );
    assert_eq!(checksums("old"), old);
}

#[test]
fn external_redis_next_to_valkey_is_used_by_all_pods_and_keeps_valkey() {
    if !has_tools() {
        return;
    }
    let bundled = render("networkPolicy.enabled=true");
    let both =
        render("networkPolicy.enabled=true,externalRedis.url=redis://r.example,externalRedis.password=p");
    let spec = |chart: &Chart, kind: &str, suffix: &str| chart.object(kind, suffix)["spec"].clone();
    for name in ["-lookup-svc", "-dashboard-api"] {
        let pod = spec(&both, "Deployment", name)["template"]["spec"].to_string();
        assert!(pod.contains("--redis-url=redis://r.example") && !pod.contains("-store\""), "{pod}");
        assert!(!spec(&both, "NetworkPolicy", name)["egress"].to_string().contains("valkey"));
    }
    let valkey = |chart: &Chart| spec(chart, "StatefulSet", "-valkey")["template"]["spec"].clone();
    assert_eq!(valkey(&both), valkey(&bundled), "Valkey is not restarted");
    assert_eq!(both.object("Secret", "-external-redis")["data"]["password"], "cA==");
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_keeps_a_password_and_adds_a_missing_one() {
    if !has_tools() {
        return;
    }
    let mut old = render("").object("Secret", "-store").clone();
    old["data"].as_object_mut().unwrap().retain(|entry, _| entry == "password");
    let api_server = serve_objects(std::slice::from_ref(&old)).await;
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
