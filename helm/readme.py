#!/usr/bin/env python3
"""Generates the chart's README.md from values.yaml: `python3 helm/readme.py`.
With --check, it writes nothing and fails if README.md is out of date.

Descriptions come from "# --" comments, headings from "# @section" comments. A value without a description, or
missing from values.schema.json, is an error.
"""

import json
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).parent / "ip-lookup"
HEAD = """# ip-lookup

A self-hosted IP lookup API with scoped API keys, a daily quota and a burst limit, behind any ingress.

There are no published images yet. Build them, and push them and Valkey's image to a registry that your cluster can reach:

```sh
REGISTRY=registry.example.org
for name in lookup-svc quota-svc dashboard-api; do
  docker build --target $name --tag $REGISTRY/ip-lookup/$name:0.1.0 . && docker push $REGISTRY/ip-lookup/$name:0.1.0
done
docker pull VALKEY_IMAGE && docker tag VALKEY_IMAGE $REGISTRY/VALKEY_IMAGE && docker push $REGISTRY/VALKEY_IMAGE
```

Then install it:

```sh
helm install ip-lookup helm/ip-lookup --namespace ip-lookup --create-namespace \\
  --set global.imageRegistry=$REGISTRY \\
  --set hosts.api=ip.example.org,hosts.dashboard=keys.example.org \\
  --set edge.profile=haproxy,ingress.enabled=true \\
  --set geo.provider=dbip-lite
```

`ci/` has a values file for each common setup. `helm install` prints the commands that create the first account and API
key. Or let the chart create them:

```sh
kubectl create namespace ip-lookup
kubectl -n ip-lookup create secret generic first-account --from-literal=login=you@example.org \\
  --from-literal=password=… --from-literal=api-key="$(docker run --rm $REGISTRY/ip-lookup/quota-svc:0.1.0 key generate you@example.org)"
helm install … --set firstAccount.existingSecret=first-account
```

- The bundled Valkey needs a default StorageClass (`kubectl get storageclass`) or `valkey.persistence.storageClass`;
  without either, its pod stays Pending.
- In `--set`, escape a comma that is part of a value: `--set 'log.level=warn\\,hyper=debug'`.
- The chart creates Secrets once and reuses them. For tools that render without a cluster (Argo CD, `helm template | kubectl apply`), set `valkey.existingSecret`, `quota.token.existingSecret`,
  `dashboard.session.existingSecret` and, with the exporter, `valkey.exporter.existingSecret`.

## Edge profiles

`edge.profile` names the ingress controller or load balancer in front of the services. It sets that controller's
annotations or objects, the flags of the services, and the trusted proxies: the controller's own pods. A connection fact
that the controller does not provide is null; a client can't forge it.

| Profile | Client address | HTTP version | TLS version and cipher | Round-trip time | Also requires |
|---|---|---|---|---|---|
| `haproxy` (haproxytech/kubernetes-ingress), `haproxy-ingress` (haproxy-ingress.github.io) | yes | yes | yes | yes | |
| `nginx` (F5) | yes | yes | yes | with a snippet | its VirtualServer objects |
| `ingress-nginx` (retired) | yes | yes | yes | yes | `proxy-set-headers` in the controller's ConfigMap |
| `envoy-gateway`, `istio` | yes | yes | yes | Envoy 1.40 or newer | |
| `contour` | yes | yes | yes | no | |
| `traefik` | yes | no | no | no | |
| `cloudflare` | yes | yes | yes | yes | `edge.trustedProxies` or `edge.discover`, a Transform Rule, and an origin that only Cloudflare can reach |
| `aws-alb` | yes | no | yes | no | `edge.trustedProxies`: the load balancer's subnets |
| `gcp` | yes | yes | yes | yes | |
| `custom` | configurable | configurable | configurable | configurable | `edge.trustedProxies` or `edge.discover` |
| `direct` | yes | yes | yes | yes, without PROXY protocol | certificates in Secrets, see [below](#without-a-proxy) |
| `none` | the TCP peer's | the TCP peer's | no | the TCP peer's | |

A discovered pod that is removed stays trusted for 60 s, because its last requests are still in flight. A pod that gets its
address within that time can forge client addresses: `networkPolicy` admits only pods of the controller's namespace.

The services also use the `X-Request-Id` and the `traceparent` of trusted proxies, so a client's must not get through:

- Most profiles remove or replace both headers.
- `ingress-nginx` without `proxy-set-headers`, and `aws-alb`, which can't remove headers, pass them on: a client can then
  choose the request ID in the log and whether its requests are traced.
- `cloudflare`: the Transform Rule must remove both. `custom`: your proxy must set or remove both.

## TLS

With `ingress.enabled` and `ingress.tls.enabled`, the routes need two Secrets of type `kubernetes.io/tls`:
`{fullname}-api-tls` and `{fullname}-dashboard-tls`, or those of `ingress.tls.apiSecret` and
`ingress.tls.dashboardSecret`. `{fullname}` is `ip-lookup` for a release of that name. From certificate files (create the
namespace first, and the second Secret likewise), or by cert-manager with its annotation:

```sh
kubectl -n ip-lookup create secret tls ip-lookup-api-tls --cert=api.pem --key=api.key
helm upgrade … --set 'edge.annotations.cert-manager\\.io/cluster-issuer=letsencrypt'
```

It reads the annotation from an Ingress only: for `nginx` and `contour`, create a Certificate. With `istio` and with
HTTPRoutes, the Gateway has the certificates; with `aws-alb`, AWS Certificate Manager.

## Without a proxy

With `edge.profile=direct`, the services serve HTTPS themselves, and all connection facts are known:

```sh
helm install ip-lookup helm/ip-lookup --namespace ip-lookup --create-namespace \\
  --set global.imageRegistry=$REGISTRY \\
  --set hosts.api=ip.example.org,hosts.dashboard=keys.example.org \\
  --set edge.profile=direct,edge.direct.issuer.kind=ClusterIssuer,edge.direct.issuer.name=letsencrypt
```

- The API and the dashboard each have a Service of type LoadBalancer with `externalTrafficPolicy: Local`, which preserves
  the client's address: only nodes with a pod get connections, so run several pods. The load balancer must forward TCP.
- With `edge.direct.issuer`, cert-manager creates and renews the certificates; port 80 is taken, so the issuer must use
  DNS-01. Without it, create the Secrets above. The pods wait for them, and use renewed certificates without a restart.
- `helm test` checks the certificate. If its authority is private, set `edge.direct.caKey`.
- For load balancers that send the client's address in a PROXY protocol header, set `edge.direct.proxyProtocol=true`,
  `edge.trustedProxies` to their addresses, and the annotation that turns the header on.

## Both addresses on the home page

With `hosts.ipv4` and `hosts.ipv6`, further names of the API, the home page shows a visitor's address of the other
family, too. With `ingress.tls.enabled`, each has a Secret, `{fullname}-api-ipv4-tls` and `{fullname}-api-ipv6-tls`, unless
`ingress.tls.apiSecret` names one for all. With `edge.profile=direct`, the API's certificate must have all three names.

Create an A record for `hosts.ipv4` and an AAAA record for `hosts.ipv6`, and exclude both from ExternalDNS where it would
create others. Clients must reach the services by IPv6 (`service.ipFamilyPolicy`).

## Without an Ingress

```sh
kubectl -n ip-lookup port-forward svc/ip-lookup-lookup-svc 8080:80      # http://localhost:8080/api/v1/ip
kubectl -n ip-lookup port-forward svc/ip-lookup-dashboard-api 8081:80   # http://localhost:8081
```

Chrome and Firefox accept the dashboard's https cookies on `http://localhost`; for other browsers, set
`urls.dashboard=http://localhost:8081`.

## Geo data

Pods start with the built-in data. The container `geo-refresh` downloads the databases in the background. Databases that
would not fit the memory limits, by default those above 213 MiB, are rejected: raise `lookup.resources.limits.memory` and
`geo.resources.limits.memory`.

Each pod downloads its own copy. With `geo.shared.enabled=true`, a CronJob downloads once into a volume that all pods
read; its storage class must support `ReadWriteMany`. If you turn it off again, the volume stays, so that `helm rollback`
can return to it; delete it with `kubectl delete pvc {fullname}-geo`.

The CronJob writes as user and group 65532 (`fsGroup`). Most volumes are given to that group when they are mounted; NFS
and `hostPath` are not: if geo-update reports "Permission denied", change the directory's owner on the server or, unless
the server maps root to another user, in the CronJob:

```yaml
geo:
  shared:
    pod:
      extraInitContainers:
        - name: own
          image: VALKEY_IMAGE
          command: [chown, "65532:65532", /var/lib/geo]
          securityContext: {runAsUser: 0, runAsNonRoot: false, capabilities: {drop: [ALL], add: [CHOWN]}}
          volumeMounts: [{name: geo, mountPath: /var/lib/geo}]
```

## OpenShift

OpenShift assigns the user and group of each pod. Remove the chart's, and allow DNS on OpenShift's port:

```yaml
podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
containerSecurityContext: {runAsUser: null, runAsGroup: null}
networkPolicy:
  dnsTo: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: openshift-dns}}}]
  dnsPorts: [5353]
  prometheusNamespace: openshift-monitoring
```

## Grow the volume

`helm upgrade` with another `valkey.persistence.size` fails: a StatefulSet can't change it. If the storage class allows
expansion, enlarge the claim, then replace the StatefulSet without deleting its pod:

```sh
kubectl -n ip-lookup patch pvc data-ip-lookup-valkey-0 -p '{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}'
kubectl -n ip-lookup delete statefulset ip-lookup-valkey --cascade=orphan
helm upgrade … --set valkey.persistence.size=5Gi
```

The same applies to `valkey.persistence.existingClaim` and `storageClass`, except that the data does not move: run
`quota-svc export` before and `quota-svc import` after it.

## Test

`helm test` checks that the API responds, through quota-svc and the store, and that discovery has found a proxy. For 10
minutes, or until the next one, `kubectl logs job/{fullname}-selftest` says why it has failed (`helm test --logs` finds no
logs: it expects a pod).

## Uninstall

`helm uninstall` deletes everything except the volumes with data: `data-{fullname}-valkey-0`, and `{fullname}-backup` if
backups are enabled. A release with the same name and namespace uses them again; all sessions end. To
delete the data: `kubectl delete pvc data-{fullname}-valkey-0`.

## Backup

With `valkey.backup.enabled=true`, a CronJob runs `quota-svc export` and keeps the last `valkey.backup.keep` files in the
volume `{fullname}-backup`: `latest.jsonl`, and older ones named by their time. They contain password hashes: protect the
volume like the store.

A restore adds what is missing in the store and changes nothing that exists. The suspended CronJob `{fullname}-restore` is
its template:

```sh
kubectl -n ip-lookup create job restore-1 --from=cronjob/ip-lookup-restore
kubectl -n ip-lookup logs -f job/restore-1 -c import
```

For an older backup, set `valkey.backup.restoreFile` first; the log of the last backup lists the files. To import a file
from your machine, use the dashboard's sidecar:

```sh
kubectl -n ip-lookup logs -l app.kubernetes.io/component=backup --all-containers
helm upgrade … --set valkey.backup.restoreFile=20260101T032300Z.jsonl
kubectl -n ip-lookup exec -i deploy/ip-lookup-dashboard-api -c quota-svc -- quota-svc import - < backup.jsonl
```

## Move to your own Redis

With `externalRedis.url`, the pods use your Redis, and `valkey.enabled=true` (the default) keeps the bundled Valkey running,
so that `helm rollback` can return to it. Copy the data right before the upgrade, with the image `ip-lookup`, built and
pushed as above with `--target ip-lookup`:

```sh
kubectl -n ip-lookup exec deploy/ip-lookup-dashboard-api -c quota-svc -- quota-svc export > export.jsonl
kubectl -n ip-lookup run import --rm -i --restart=Never --image=$REGISTRY/ip-lookup/ip-lookup:0.1.0 \\
  --env=IP_LOOKUP_REDIS_URL=redis://redis.example:6379 -- import - < export.jsonl
helm upgrade … --set externalRedis.url=redis://redis.example:6379     # the pods use it now
helm upgrade … --set valkey.enabled=false                             # later: deletes Valkey, keeps its volume
```

What changes after the export is not copied. Before you repeat an import, empty the new store: it only adds what is
missing. With another `quota.keyPrefix` than the default, this command can't be used.

## Values

<!-- Generated by helm/readme.py from values.yaml. -->

`helm show values` has all values. The tables leave out the usual options of Kubernetes objects: images, replicas,
scheduling, security contexts, labels, existing volumes, additional containers and the like, and the names of entries in Secrets.
"""

# Texts at the top of a section.
INTRODUCTIONS = {
    "Store": """
The bundled Valkey is a single pod. While it restarts, lookups get 500 for 8 to 10 seconds, or longer if its volume can't
be attached at once. To avoid that, use your own with automatic failover (Sentinel or Cluster):

```sh
helm install … --set valkey.enabled=false --set externalRedis.existingSecret=redis \\
  --set 'externalRedis.url=redis+sentinel://sentinel-0.redis\\,sentinel-1.redis\\,sentinel-2.redis/main'
helm install … --set valkey.enabled=false --set externalRedis.existingSecret=redis \\
  --set 'externalRedis.url=redis+cluster://node-0.redis\\,node-1.redis\\,node-2.redis'
```
""",
}


# The usual options of Kubernetes objects: in values.yaml, but not in the README.
USUAL = re.compile(
    r"(^|\.)(image\..*|(quota|dashboard|exporter)\.resources|replicaCount|autoscaling\..*|podDisruptionBudget\..*"
    r"|topologySpreadConstraints|podAnnotations|podLabels|nodeSelector|tolerations|affinity|priorityClassName|extra[A-Z].*|pod"
    r"|strategy|probes|relabelings|metricRelabelings|scrapeTimeout|labels|nameOverride|fullnameOverride|imagePull[A-Z].*|dnsPolicy|dnsConfig|hostAliases|interval|serviceAccount\..*"
    r"|podSecurityContext|containerSecurityContext|service\.(annotations|loadBalancerClass|loadBalancerSourceRanges|ipFamilies)|(valkey|geo)\.[a-z]+\.existingClaim"
    r"|key|passwordKey|caKey|chargesKey|fullKey|secretKeys|storageClass|subPath|accessModes)$"
)


def parse(text):
    """Yields (section, path, default, description) for each documented value."""
    section, stack, comment = "", [], None
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := re.match(r"# @section (.+)", line):
            section = match[1]
        elif match := re.match(r" *# -- (.+)", line):
            comment = match[1]
        elif match := re.match(r"( *)([A-Za-z0-9]+):(?: (.*))?$", line):
            depth = len(match[1]) // 2
            del stack[depth:]
            if None in stack:
                continue
            path = ".".join([*stack, match[2]])
            if comment is not None:
                yield section, path, default(lines, number, match), comment
                stack.append(None)  # Marks this value as documented: its nested entries need no comment.
                comment = None
            elif match[3] is None:
                stack.append(match[2])
            else:
                sys.exit(f"values.yaml:{number + 1}: {path} has no '# --' comment")


def default(lines, number, match):
    """Returns the default as written; a block is joined into one line."""
    if match[3] is not None:
        return match[3]
    indent = len(match[1])
    block = []
    for line in lines[number + 1 :]:
        if len(line) - len(line.lstrip()) <= indent:
            break
        block.append(line.strip())
    return "{" + ", ".join(block) + "}"


def schema_paths(schema, definitions, prefix=""):
    """Yields the path of every value in values.schema.json."""
    for name, child in schema.get("properties", {}).items():
        child = definitions[child["$ref"].rsplit("/", 1)[1]] if "$ref" in child else child
        path = f"{prefix}{name}"
        yield path
        yield from schema_paths(child, definitions, f"{path}.")


def render():
    rows = list(parse((CHART / "values.yaml").read_text()))
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = set(schema_paths(schema, schema["definitions"]))
    documented = {path for _, path, _, _ in rows}
    nested = {path for path in known if any(path.startswith(f"{value}.") for value in documented)}
    groups = {path for path in known if any(value.startswith(f"{path}.") for value in documented)}
    if difference := (known - nested - groups) ^ documented:
        sys.exit(f"values.yaml and values.schema.json differ in: {', '.join(sorted(difference))}")
    values = {path: value.strip('"') for _, path, value, _ in rows}
    image = f"{values['valkey.image.repository']}:{values['valkey.image.tag']}"
    out, section = [HEAD.replace("VALKEY_IMAGE", image)], None
    for heading, path, value, description in (row for row in rows if not USUAL.search(row[1])):
        if heading != section:
            section = heading
            out.append(f"\n## {section}\n{INTRODUCTIONS.get(section, '')}\n| Value | Default | Description |\n|---|---|---|\n")
        shown = "" if value in ['""', "{}", "[]"] else f"`{value}` "
        description = description.replace("|", "\\|")
        out.append(f"| `{path}` | {shown}| {description} |\n")
    return "".join(out)


def main():
    readme, text = CHART / "README.md", render()
    if sys.argv[1:] == ["--check"]:
        if not readme.exists() or readme.read_text() != text:
            sys.exit("helm/ip-lookup/README.md is out of date: run `python3 helm/readme.py`")
    else:
        readme.write_text(text)


if __name__ == "__main__":
    main()
