//! The chart's optional parts: how geo data is downloaded, the options of every pod, and those of Valkey.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::process::Command;

use e2e::chart::{Chart, chart_dir, list, name, project_root, text, venv_tool};
use serde_json::{Value, json};

fn has_helm() -> bool {
    venv_tool("helm").is_some()
}

fn render(values: &str) -> Chart {
    Chart::render(&["--set", values]).unwrap()
}

fn render_file(name: &str) -> Chart {
    Chart::render_values_file(&chart_dir().join("ci").join(name))
}

fn pod<'a>(chart: &'a Chart, kind: &str, name: &str) -> &'a Value {
    &chart.object(kind, name)["spec"]["template"]["spec"]
}

fn named<'a>(items: &'a Value, name: &str) -> &'a Value {
    list(items).find(|item| item["name"] == name).unwrap_or_else(|| panic!("{name} is not in {items}"))
}

/// The Job that fills the shared volume for the first time.
fn first_download(chart: &Chart) -> Option<&Value> {
    chart.of_kind("Job").find(|job| name(job).contains("-geo-update-"))
}

#[test]
fn rate_limit_headers_are_a_value_of_the_chart() {
    if !has_helm() {
        return;
    }
    let flags = |chart: &Chart| {
        named(&pod(chart, "Deployment", "-lookup-svc")["containers"], "lookup-svc")["args"].clone()
    };
    let with_draft = flags(&render("lookup.ratelimitHeaders=true"));
    assert!(list(&with_draft).any(|arg| *arg == "--ratelimit-headers"), "{with_draft}");
    let default = flags(&render("lookup.ratelimitHeaders=false"));
    assert!(!default.to_string().contains("--ratelimit-headers"), "{default}");
}

/// A third party's outage must not keep pods from starting or take them out of the Service.
#[test]
fn geo_updater_neither_delays_nor_fails_a_pod() {
    if !has_helm() {
        return;
    }
    for native in [true, false] {
        let values = "geo.provider=maxmind,geo.acceptLicense=true,geo.existingSecret=maxmind";
        let chart = render(&format!("{values},quota.nativeSidecar={native}"));
        let pod = pod(&chart, "Deployment", "-lookup-svc");
        let init: Vec<_> = list(&pod["initContainers"]).map(|container| text(&container["name"])).collect();
        assert_eq!(
            init,
            if native { vec!["quota-svc"] } else { vec![] },
            "nothing else must finish or start first"
        );
        let updater = named(&pod["containers"], "geo-refresh");
        assert!(list(&updater["args"]).any(|flag| flag == "--every=24h"), "it never ends: {updater}");
        for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
            assert!(updater[probe].is_null(), "{updater}");
        }
        assert_eq!(named(&pod["volumes"], "geo-credentials")["secret"]["optional"], true);
        assert!(named(&pod["volumes"], "geo")["emptyDir"].is_object());
    }
}

#[test]
fn geo_updater_rejects_databases_that_exceed_memory_or_volume() {
    if !has_helm() {
        return;
    }
    const MIB: u64 = 1 << 20;
    let without_limits = "lookup.resources.limits.memory=null,geo.resources.limits.memory=null";
    for (values, max_size) in [
        ("", (768 - 128) * MIB / 3),
        ("lookup.resources.limits.memory=1Gi", (512 - 64) * MIB / 2),
        ("lookup.resources.limits.memory=null", (512 - 64) * MIB / 2),
        ("lookup.resources.limits.memory=300000000", (300_000_000 - 128 * MIB) / 3),
        ("geo.volumeSize=400Mi", 100 * MIB),
        (without_limits, 512 * MIB),
        (&format!("{without_limits},geo.shared.enabled=true"), 2048 * MIB),
    ] {
        let chart = render(&format!("geo.provider=dbip-lite,{values}"));
        let updaters: Vec<_> = match first_download(&chart) {
            Some(job) => list(&job["spec"]["template"]["spec"]["containers"]).collect(),
            None => vec![named(&pod(&chart, "Deployment", "-lookup-svc")["containers"], "geo-refresh")],
        };
        let flag = format!("--max-size={max_size}");
        for updater in updaters {
            assert!(list(&updater["args"]).any(|arg| *arg == flag), "{values}: {flag} in {updater}");
        }
    }
}

#[test]
fn shared_geo_volume_is_filled_by_a_cron_job() {
    if !has_helm() {
        return;
    }
    let chart = render_file("geo-shared-values.yaml");
    let claim = chart.object("PersistentVolumeClaim", "-geo");
    assert_eq!(
        claim["spec"],
        json!({"accessModes": ["ReadWriteMany"], "storageClassName": "nfs", "resources": {"requests": {"storage": "3Gi"}}})
    );
    let cron = &chart.object("CronJob", "-geo-update")["spec"];
    assert_eq!((&cron["schedule"], &cron["concurrencyPolicy"]), (&json!("@daily"), &json!("Forbid")));
    let job = first_download(&chart).unwrap();
    assert_eq!(job["spec"], cron["jobTemplate"]["spec"], "the first download is the same");
    assert!(name(job).starts_with("ipl-ip-lookup-geo-update-"), "{}", name(job));

    let updater = &job["spec"]["template"]["spec"]["containers"][0];
    assert!(!updater["args"].to_string().contains("--every"), "it downloads once: {updater}");
    assert!(named(&updater["volumeMounts"], "geo")["readOnly"].is_null());
    let reader = pod(&chart, "Deployment", "-lookup-svc");
    assert!(!reader.to_string().contains("geo-refresh") && !reader.to_string().contains("geo-credentials"));
    let volume = &named(&reader["volumes"], "geo")["persistentVolumeClaim"];
    assert_eq!(*volume, json!({"claimName": "ipl-ip-lookup-geo", "readOnly": true}));

    let egress = |name: &str| chart.object("NetworkPolicy", name)["spec"]["egress"].to_string();
    assert!(egress("-geo-update").contains("3128"), "the proxy's port");
    assert!(!egress("-lookup-svc").contains("3128") && !egress("-lookup-svc").contains("443"));

    let mine = render("geo.provider=dbip-lite,geo.shared.enabled=true,geo.shared.existingClaim=mine");
    assert_eq!(mine.of_kind("PersistentVolumeClaim").count(), 0);
    let volumes = &pod(&mine, "Deployment", "-lookup-svc")["volumes"];
    assert_eq!(named(volumes, "geo")["persistentVolumeClaim"]["claimName"], "mine");
}

#[test]
fn geo_updater_uses_the_proxy_and_private_ca() {
    if !has_helm() {
        return;
    }
    let shared = render_file("geo-shared-values.yaml");
    let each = Chart::render(&[
        "--set",
        "geo.provider=dbip-lite,geo.proxy.https=http://proxy.example.org:3128,geo.proxy.http=http://proxy.example.org:3128",
        "--set",
        "geo.proxy.exceptions={localhost,10.0.0.0/8},geo.ca.configMap=corporate-ca,geo.ca.key=bundle.pem",
    ])
    .unwrap();
    let job = &first_download(&shared).unwrap()["spec"]["template"]["spec"];
    for (pod, container) in [(job, "geo-update"), (pod(&each, "Deployment", "-lookup-svc"), "geo-refresh")] {
        let container = named(&pod["containers"], container);
        for (variable, value) in [
            ("HTTPS_PROXY", "http://proxy.example.org:3128"),
            ("HTTP_PROXY", "http://proxy.example.org:3128"),
            ("NO_PROXY", "localhost,10.0.0.0/8"),
            ("SSL_CERT_FILE", "/run/secrets/geo-ca/ca.crt"),
        ] {
            assert_eq!(named(&container["env"], variable)["value"], value);
        }
        assert_eq!(named(&container["volumeMounts"], "geo-ca")["mountPath"], "/run/secrets/geo-ca");
        let source = json!({
            "name": "corporate-ca", "optional": true, "defaultMode": 0o440,
            "items": [{"key": "bundle.pem", "path": "ca.crt"}],
        });
        assert_eq!(named(&pod["volumes"], "geo-ca")["configMap"], source);
    }
    let egress = each.object("NetworkPolicy", "-lookup-svc")["spec"]["egress"].to_string();
    assert!(egress.contains("3128") && !egress.contains("443"), "{egress}");
    let secret = render_file("geo-proxy-values.yaml");
    let volumes = &pod(&secret, "Deployment", "-lookup-svc")["volumes"];
    assert_eq!(named(volumes, "geo-ca")["secret"]["secretName"], "corporate-ca");
}

/// The dashboard shows the chart's text, `/docs` that of lookup-svc.
#[test]
fn attributions_are_those_of_lookup_svc() {
    if !has_helm() {
        return;
    }
    let source = fs::read_to_string(project_root().join("crates/geo/src/provider.rs")).unwrap();
    let accepted = "geo.acceptLicense=true,geo.existingSecret=credentials";
    for (values, part) in [
        ("geo.provider=dbip-lite".to_owned(), "DB-IP"),
        (format!("geo.provider=maxmind,{accepted}"), "GeoLite Data"),
        (
            format!("geo.provider=maxmind,geo.editions={{GeoIP2-City,GeoLite2-ASN}},{accepted}"),
            "GeoLite Data",
        ),
        (format!("geo.provider=maxmind,geo.editions={{GeoIP2-City}},{accepted}"), "MaxMind GeoIP"),
        (format!("geo.provider=ipinfo,{accepted}"), "IPinfo"),
    ] {
        let chart = render(&values);
        let arguments = &pod(&chart, "Deployment", "-dashboard-api")["containers"][0]["args"];
        let flag = list(arguments).find_map(|flag| text(flag).strip_prefix("--attribution=")).unwrap();
        let (text, url) = flag.split_once('=').unwrap();
        assert!(text.contains(part), "{values}: {text}");
        assert!(source.contains(&format!("\"{text}\"")) && source.contains(&format!("\"{url}\"")), "{flag}");
    }
}

#[test]
fn options_apply_to_every_pod() {
    if !has_helm() {
        return;
    }
    let chart = render_file("pod-options-values.yaml");
    let pods: Vec<_> = chart.pods().collect();
    // lookup-svc, dashboard-api, valkey, its exporter, backup and restore, geo-update as CronJob and Job, selftest.
    assert_eq!(pods.len(), 9, "{:?}", chart.names());
    for (workload, template) in pods {
        let (metadata, spec) = (&template["metadata"], &template["spec"]);
        assert_eq!(metadata["labels"]["example.org/option"], "label", "{workload}");
        assert_eq!(metadata["annotations"]["example.org/option"], "annotation", "{workload}");
        assert_eq!(spec["dnsPolicy"], "None", "{workload}");
        assert_eq!(spec["dnsConfig"]["nameservers"], json!(["192.0.2.53"]), "{workload}");
        assert_eq!(spec["hostAliases"][0]["ip"], "192.0.2.1", "{workload}");
        assert_eq!(spec["nodeSelector"]["kubernetes.io/os"], "linux", "{workload}");
        assert_eq!(spec["tolerations"][0]["key"], "example.org/option", "{workload}");
        assert!(spec["affinity"]["nodeAffinity"].is_object(), "{workload}");
        assert_eq!(spec["priorityClassName"], "system-cluster-critical", "{workload}");
        assert!(!template.to_string().contains("securityContext"), "{workload}");
        assert_eq!(named(&spec["initContainers"], "extra-init")["image"], "example/extra:1", "{workload}");
        assert_eq!(named(&spec["containers"], "extra")["image"], "example/extra:1", "{workload}");
        assert!(named(&spec["volumes"], "extra")["emptyDir"].is_object(), "{workload}");
        let main = &spec["containers"][0];
        assert_eq!(named(&main["env"], "OTEL_EXAMPLE_OPTION")["value"], "1", "{workload}");
        assert_eq!(named(&main["volumeMounts"], "extra")["mountPath"], "/extra", "{workload}");
        if let Some(quota) = list(&spec["initContainers"]).find(|container| container["name"] == "quota-svc")
        {
            assert_eq!(named(&quota["env"], "OTEL_EXAMPLE_OPTION")["value"], "1", "{workload}");
            assert_eq!(named(&quota["volumeMounts"], "extra")["mountPath"], "/extra", "{workload}");
        }
    }
}

/// OpenShift assigns the users. Everything else of the security contexts stays.
#[test]
fn single_fields_of_security_contexts_can_be_removed() {
    if !has_helm() {
        return;
    }
    let chart = render_file("openshift-values.yaml");
    let pods: Vec<_> = chart.pods().collect();
    // lookup-svc, dashboard-api, valkey, selftest.
    assert_eq!(pods.len(), 4, "{:?}", chart.names());
    for (workload, template) in pods {
        let text = template.to_string();
        // With its quote, because `fsGroupChangePolicy` stays.
        for field in ["runAsUser", "runAsGroup", "fsGroup\""] {
            assert!(!text.contains(field), "{workload}: {field}");
        }
        assert_eq!(template["spec"]["securityContext"]["runAsNonRoot"], true, "{workload}");
        let containers = ["containers", "initContainers"].map(|kind| &template["spec"][kind]);
        for container in containers.into_iter().flat_map(list) {
            assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}), "{workload}");
        }
    }
    let dns = &chart.object("NetworkPolicy", "-lookup-svc")["spec"]["egress"][0];
    assert_eq!(dns["ports"], json!([{"port": 5353, "protocol": "UDP"}, {"port": 5353, "protocol": "TCP"}]));
}

#[test]
fn mail_server_gets_flags_its_password_and_egress_to_its_port() {
    if !has_helm() {
        return;
    }
    let egress =
        |chart: &Chart| chart.object("NetworkPolicy", "-dashboard-api")["spec"]["egress"].to_string();
    let chart = render_file("full-values.yaml");
    let pod = chart.object("Deployment", "-dashboard-api").to_string();
    for part in [
        "--smtp-url=smtp://mailer@mail.example.org:2525",
        "--mail-from=IP Lookup <noreply@example.org>",
        "--smtp-password-file=/run/secrets/mail/password",
        r#""secretName":"mail""#,
    ] {
        assert!(pod.contains(part), "{part}: {pod}");
    }
    assert!(egress(&chart).contains("2525"), "{}", egress(&chart));
    for (url, port) in [("smtp://mail.example.org", "587"), ("smtps://mail.example.org", "465")] {
        let chart = render(&format!("dashboard.mail.smtpUrl={url},dashboard.mail.from=a@example.org"));
        assert!(egress(&chart).contains(port), "{}", egress(&chart));
    }
    let without = egress(&render(""));
    assert!(!without.contains("587") && !without.contains("465"), "{without}");
}

/// A node-local DNS cache runs on the node's network, which no selector matches.
#[test]
fn node_local_dns_caches_can_be_reached() {
    if !has_helm() {
        return;
    }
    let chart = render_file("full-values.yaml");
    let policies = chart.of_kind("NetworkPolicy").filter(|policy| !name(policy).ends_with("-valkey"));
    let policies: Vec<_> = policies.collect();
    // lookup-svc, dashboard-api, selftest.
    assert_eq!(policies.len(), 3, "{:?}", chart.names());
    for policy in policies {
        let dns = &policy["spec"]["egress"][0]["to"];
        assert_eq!(dns[1], json!({"ipBlock": {"cidr": "169.254.20.10/32"}}), "{}", name(policy));
    }
}

#[test]
fn both_services_can_be_scaled_with_a_behavior() {
    if !has_helm() {
        return;
    }
    for (service, values) in [("lookup-svc", "lookup"), ("dashboard-api", "dashboard")] {
        let chart = render(&format!(
            "{values}.autoscaling.enabled=true,{values}.autoscaling.behavior.scaleDown.stabilizationWindowSeconds=600"
        ));
        let scaler = &chart.object("HorizontalPodAutoscaler", service)["spec"];
        assert_eq!(scaler["behavior"], json!({"scaleDown": {"stabilizationWindowSeconds": 600}}));
        assert_eq!(scaler["metrics"][0]["containerResource"]["container"], service);
        let deployment = chart.object("Deployment", service);
        assert_eq!(deployment["spec"]["replicas"], 2, "without a number, Kubernetes would start one pod");
    }
}

#[test]
fn valkey_uses_extra_configuration_and_existing_claim() {
    if !has_helm() {
        return;
    }
    let chart = render_file("valkey-options-values.yaml");
    let config = text(&chart.object("ConfigMap", "-valkey")["data"]["valkey.conf"]);
    assert!(config.ends_with("io-threads 2\nslowlog-max-len 16\n"), "{config}");
    let set = &chart.object("StatefulSet", "-valkey")["spec"];
    assert!(set["volumeClaimTemplates"].is_null());
    let volume = named(&set["template"]["spec"]["volumes"], "data");
    assert_eq!(volume["persistentVolumeClaim"]["claimName"], "valkey-data");
}

/// In Valkey's pod, a failing exporter would make Valkey unready.
#[test]
fn exporter_runs_outside_of_valkeys_pod() {
    if !has_helm() {
        return;
    }
    let chart = render_file("valkey-options-values.yaml");
    assert_eq!(list(&pod(&chart, "StatefulSet", "-valkey")["containers"]).count(), 1);
    let exporter = pod(&chart, "Deployment", "-valkey-exporter").to_string();
    assert!(exporter.contains("/run/secrets/exporter/passwords.json"), "{exporter}");
    let monitor = chart.object("ServiceMonitor", "-valkey-exporter");
    assert_eq!(monitor["spec"]["endpoints"][0]["port"], "metrics");
    let clients = chart.object("NetworkPolicy", "-valkey")["spec"]["ingress"][0]["from"].to_string();
    for client in ["lookup-svc", "dashboard-api", "valkey-exporter", "backup"] {
        assert!(clients.contains(&format!("\"{client}\"")), "{client} is not in {clients}");
    }
}

#[test]
fn backup_job_exports_through_its_own_sidecar() {
    if !has_helm() {
        return;
    }
    let chart = render_file("valkey-options-values.yaml");
    let claim = chart.object("PersistentVolumeClaim", "-backup");
    assert_eq!(claim["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let spec = &chart.object("CronJob", "-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let sidecar = named(&spec["initContainers"], "quota-svc");
    assert_eq!(sidecar["restartPolicy"], "Always", "a native sidecar ends with the Job");
    assert!(list(&sidecar["args"]).any(|flag| flag == "--serve=all"), "{sidecar}");
    let args = json!(["export", "--quota-url=http://127.0.0.1:8082", "--to=/backup/latest.jsonl"]);
    assert_eq!(spec["containers"][0]["args"], args);
}

#[test]
fn restore_job_never_runs_by_itself_and_imports_the_chosen_file() {
    if !has_helm() {
        return;
    }
    let chart = render("valkey.backup.enabled=true,valkey.backup.restoreFile=20260101T000000Z.jsonl");
    let cron = &chart.object("CronJob", "-restore")["spec"];
    assert_eq!(cron["suspend"], true);
    let spec = &cron["jobTemplate"]["spec"]["template"]["spec"];
    let args = json!(["import", "--quota-url=http://127.0.0.1:8082", "/backup/20260101T000000Z.jsonl"]);
    assert_eq!(spec["containers"][0]["args"], args);
    assert_eq!(named(&spec["containers"][0]["volumeMounts"], "backup")["readOnly"], true);
    let names: Vec<_> = list(&spec["initContainers"]).map(|container| text(&container["name"])).collect();
    assert_eq!(names, ["quota-svc"], "no backup is rotated");
}

#[test]
fn services_of_api_and_dashboard_have_their_own_settings() {
    if !has_helm() {
        return;
    }
    let chart = Chart::render(&[
        "--set",
        "service.type=LoadBalancer,service.loadBalancerClass=example.org/nlb,service.annotations.both=yes",
        "--set",
        "service.ipFamilyPolicy=PreferDualStack,service.ipFamilies={IPv6,IPv4}",
        "--set",
        "service.api.annotations.own=api,service.api.loadBalancerIP=192.0.2.10,service.api.loadBalancerSourceRanges={192.0.2.0/24}",
        "--set",
        "service.dashboard.type=ClusterIP,service.dashboard.ipFamilies={IPv4},service.dashboard.ipFamilyPolicy=SingleStack",
    ])
    .unwrap();
    let settings = |name: &str| {
        let service = chart.object("Service", name);
        let mut spec = service["spec"].clone();
        spec.as_object_mut().unwrap().retain(|field, _| field != "ports" && field != "selector");
        (service["metadata"]["annotations"].clone(), spec)
    };
    let api = json!({
        "type": "LoadBalancer", "loadBalancerClass": "example.org/nlb", "loadBalancerIP": "192.0.2.10",
        "loadBalancerSourceRanges": ["192.0.2.0/24"], "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"],
    });
    assert_eq!(settings("-lookup-svc"), (json!({"both": "yes", "own": "api"}), api));
    let dashboard = json!({"type": "ClusterIP", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
    assert_eq!(settings("-dashboard-api"), (json!({"both": "yes"}), dashboard));
}

#[test]
fn probes_strategy_disruption_budget_and_scraping_can_be_changed() {
    if !has_helm() {
        return;
    }
    let (default, changed) = (render("valkey.backup.enabled=true"), render_file("availability-values.yaml"));
    for (name, container) in [("-lookup-svc", "lookup-svc"), ("-dashboard-api", "dashboard-api")] {
        let deployment = |chart: &Chart| chart.object("Deployment", name)["spec"].clone();
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}});
        assert_eq!(deployment(&default)["strategy"], rolling);
        let probes = |chart: &Chart| {
            let spec = &deployment(chart)["template"]["spec"];
            let (main, quota) =
                (named(&spec["containers"], container), named(&spec["initContainers"], "quota-svc"));
            [&main["livenessProbe"], &main["readinessProbe"], &quota["startupProbe"]].map(Value::clone)
        };
        let mut expected = probes(&default);
        expected[0]["timeoutSeconds"] = 9.into();
        expected[1]["periodSeconds"] = 3.into();
        expected[2]["failureThreshold"] = 120.into();
        assert_eq!(probes(&changed), expected, "all other settings stay");
        let budget = |chart: &Chart| chart.object("PodDisruptionBudget", name)["spec"].clone();
        assert_eq!(
            (&budget(&default)["maxUnavailable"], &budget(&default)["minAvailable"]),
            (&json!(1), &Value::Null)
        );
        assert!(budget(&changed)["maxUnavailable"].is_null());
        let monitor = &changed.object("ServiceMonitor", name)["spec"]["endpoints"];
        assert_eq!(list(monitor).count(), 2);
        for endpoint in list(monitor) {
            assert_eq!((&endpoint["interval"], &endpoint["scrapeTimeout"]), (&json!("30s"), &json!("5s")));
            assert_eq!(endpoint["relabelings"], json!([{"targetLabel": "zone", "replacement": "a"}]));
            assert_eq!(endpoint["metricRelabelings"], json!([{"action": "drop", "sourceLabels": ["le"]}]));
        }
    }
    let spec = |kind: &str, name: &str| changed.object(kind, name)["spec"].clone();
    assert_eq!(spec("Deployment", "-lookup-svc")["strategy"], json!({"type": "Recreate"}));
    let surge = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "50%"}});
    assert_eq!(spec("Deployment", "-dashboard-api")["strategy"], surge);
    assert_eq!(spec("PodDisruptionBudget", "-lookup-svc")["minAvailable"], "50%");
    assert_eq!(spec("PodDisruptionBudget", "-dashboard-api")["minAvailable"], 0);
    let valkey =
        named(&pod(&changed, "StatefulSet", "-valkey")["containers"], "valkey")["startupProbe"].clone();
    assert_eq!((&valkey["failureThreshold"], &valkey["periodSeconds"]), (&json!(900), &json!(1)));
}

/// NFS ignores `fsGroup`, so a directory of root must be given to the updater's user.
#[test]
fn documented_init_container_gives_the_shared_volume_to_the_updaters_user() {
    if !has_helm() {
        return;
    }
    let readme = fs::read_to_string(chart_dir().join("README.md")).unwrap();
    let block = readme.split("```yaml\n").find(|block| block.starts_with("geo:\n")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let values = dir.path().join("values.yaml");
    fs::write(&values, block.split("```").next().unwrap()).unwrap();
    let shared = "geo.provider=dbip-lite,geo.shared.enabled=true";
    let chart = Chart::render(&["--values", values.to_str().unwrap(), "--set", shared]).unwrap();
    let jobs = chart.pods().filter(|(name, _)| name.contains("geo-update"));
    let jobs: Vec<_> = jobs.map(|(_, template)| &template["spec"]).collect();
    assert_eq!(jobs.len(), 2, "the CronJob and the first download: {:?}", chart.names());
    for spec in jobs {
        let (own, updater) = (&spec["initContainers"][0], named(&spec["containers"], "geo-update"));
        let (user, group) =
            (&updater["securityContext"]["runAsUser"], &updater["securityContext"]["runAsGroup"]);
        let target = named(&updater["volumeMounts"], "geo")["mountPath"].clone();
        assert_eq!(own["command"], json!(["chown", format!("{user}:{group}"), target]));
        assert_eq!(named(&own["volumeMounts"], "geo")["mountPath"], target);
        assert_eq!(own["securityContext"]["runAsUser"], 0);
        assert_eq!(spec["securityContext"]["fsGroup"], *group, "for volumes that support it");
    }
}

#[test]
fn backup_rotation_keeps_the_newest_files() {
    if !has_helm() {
        return;
    }
    let chart = render("valkey.backup.enabled=true,valkey.backup.keep=3");
    let spec = &chart.object("CronJob", "-backup")["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let dir = tempfile::tempdir().unwrap();
    let script = text(&named(&spec["initContainers"], "rotate")["args"][0]);
    let script = script.replace("/backup", dir.path().to_str().unwrap());
    let rotate = || {
        let output = Command::new("sh").args(["-euc", &script]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut files: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    };
    assert_eq!(rotate(), Vec::<String>::new(), "the first run has nothing to rotate");
    for file in [
        "20260101T000000Z.jsonl",
        "20260102T000000Z.jsonl",
        "20260103T000000Z.jsonl",
        "latest.jsonl",
        "other",
    ] {
        fs::write(dir.path().join(file), file).unwrap();
    }
    let rotated = rotate();
    // keep=3: two old backups stay, the next export is the third. Unrelated files are left alone.
    let [kept, renamed, other] = rotated.as_slice() else { panic!("{rotated:?}") };
    assert_eq!((kept.as_str(), other.as_str()), ("20260103T000000Z.jsonl", "other"));
    assert_eq!(fs::read_to_string(dir.path().join(renamed)).unwrap(), "latest.jsonl");
    assert_eq!(rotate(), rotated, "a run after a failed export deletes nothing");
}

#[test]
fn http_route_behind_another_proxy_keeps_its_connection_facts() {
    if !has_helm() {
        return;
    }
    let filters = |profile: &str| {
        let route = "httpRoute.enabled=true,httpRoute.parentRefs[0].name=public";
        let chart = render(&format!("edge.profile={profile},edge.trustedProxies={{192.0.2.1}},{route}"));
        chart.object("HTTPRoute", "-api")["spec"]["rules"][0]["filters"].clone()
    };
    // Cloudflare sets neither, so these would be the client's.
    let removed = json!({"remove": ["X-Request-Id", "traceparent"]});
    assert_eq!(filters("cloudflare")[0]["requestHeaderModifier"], removed);
    assert_eq!(filters("custom"), Value::Null);
}

#[test]
fn hosts_of_one_family_are_routed_to_the_api() {
    if !has_helm() {
        return;
    }
    let hosts = "hosts.ipv4=ipv4.lookup.example.com,hosts.ipv6=ipv6.lookup.example.com";
    let plain = render("edge.profile=haproxy,ingress.enabled=true");
    let flags = |chart: &Chart| {
        named(&pod(chart, "Deployment", "-lookup-svc")["containers"], "lookup-svc")["args"].clone()
    };
    assert!(!flags(&plain).to_string().contains("ipv4-host"), "{}", flags(&plain));

    let chart = render(&format!("edge.profile=haproxy,ingress.enabled=true,{hosts}"));
    for (family, host) in [("ipv4", "ipv4.lookup.example.com"), ("ipv6", "ipv6.lookup.example.com")] {
        assert!(
            list(&flags(&chart)).any(|flag| flag == &format!("--{family}-host={host}")),
            "{}",
            flags(&chart)
        );
        let ingress = &chart.object("Ingress", &format!("-api-{family}"))["spec"];
        assert_eq!(ingress["rules"][0]["host"], host);
        let service = &ingress["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"];
        assert_eq!(service, "ipl-ip-lookup-lookup-svc");
        // cert-manager creates one certificate per Ingress, so two must not share a Secret.
        assert_eq!(ingress["tls"][0]["secretName"], format!("ipl-ip-lookup-api-{family}-tls"));
    }
    let shared =
        render(&format!("edge.profile=haproxy,ingress.enabled=true,ingress.tls.apiSecret=mine,{hosts}"));
    assert_eq!(shared.object("Ingress", "-api-ipv6")["spec"]["tls"][0]["secretName"], "mine");

    for (values, kind) in [
        (
            "edge.profile=envoy-gateway,httpRoute.enabled=true,httpRoute.parentRefs[0].name=public",
            "HTTPRoute",
        ),
        ("edge.profile=nginx,ingress.enabled=true", "VirtualServer"),
        ("edge.profile=contour,ingress.enabled=true", "HTTPProxy"),
        ("edge.profile=istio,ingress.enabled=true,ingress.istioGateways={edge/public}", "VirtualService"),
    ] {
        let route = render(&format!("{values},{hosts}")).object(kind, "-api-ipv4")["spec"].to_string();
        assert!(route.contains("ipv4.lookup.example.com"), "{kind}: {route}");
    }

    let direct = render(&format!("edge.profile=direct,edge.direct.issuer.name=ca,{hosts}"));
    let names = &direct.object("Certificate", "-api-tls")["spec"]["dnsNames"];
    let names: Vec<_> = list(names).collect();
    assert_eq!(names, ["lookup.example.com", "ipv4.lookup.example.com", "ipv6.lookup.example.com"]);
    let names = &direct.object("Certificate", "-dashboard-tls")["spec"]["dnsNames"];
    assert_eq!(list(names).count(), 1, "{names}");
}
