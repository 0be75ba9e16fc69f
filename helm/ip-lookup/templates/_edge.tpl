{{/* Edge settings: the selected profile with the user's overrides, and the resulting flags. */}}

{{/* The effective profile, as YAML: .namespace .service .discover .className .clientIPFrom .rttUnit .trusted .headers
.routes .unsupported .drainSeconds. `discover` is the Service to watch (NAMESPACE/NAME), and `trusted` the CIDRs of trusted
proxies. */}}
{{- define "ip-lookup.edge" -}}
{{- $values := .Values.edge -}}
{{- $profile := index (.Files.Get "files/edge-profiles.yaml" | fromYaml) $values.profile -}}
{{- if and (eq $values.profile "none") (or $values.trustedProxies $values.discover.service) -}}
{{- fail "edge.profile none trusts no proxy: to use edge.trustedProxies or edge.discover.service, set edge.profile to your ingress controller or to custom" -}}
{{- end -}}
{{- if eq $values.profile "direct" -}}
{{- include "ip-lookup.directCheck" . -}}
{{- else if $values.direct.proxyProtocol -}}
{{- fail "edge.direct.proxyProtocol needs edge.profile direct" -}}
{{- end -}}
{{- $unwritable := "" -}}
{{- if and (eq $values.profile "ingress-nginx") (not $values.ingressNginxHeaders) -}}{{- $unwritable = required "the profile must name a header that clients can't set" $profile.unwritable -}}{{- end -}}
{{- $headers := dict -}}
{{- $defaultNames := dict "httpProtocol" "X-Edge-HTTP-Protocol" "tlsVersion" "X-Edge-TLS-Version" "tlsCipher" "X-Edge-TLS-Cipher" "rtt" "X-Edge-RTT" "colo" "X-Edge-Colo" -}}
{{- range $fact, $name := $defaultNames -}}
{{- $_ := set $headers $fact (coalesce (index $values.headers $fact) $unwritable (dig $fact "" (default dict $profile.headers)) $name) -}}
{{- end -}}
{{- $service := coalesce $values.discover.service $profile.service "" -}}
{{- if and (eq $values.profile "envoy-gateway") (not $service) $.Values.httpRoute.parentRefs -}}
{{- /* Envoy Gateway names a Gateway's Service after the Gateway, plus the first digits of the name's SHA-256. */ -}}
{{- $gateway := first $.Values.httpRoute.parentRefs -}}
{{- $namespace := default .Release.Namespace $gateway.namespace -}}
{{- $hash := printf "%s/%s" $namespace $gateway.name | sha256sum | trunc 8 -}}
{{- $service = printf "envoy-%s-%s" (printf "%s-%s" $namespace $gateway.name | trunc 48) $hash -}}
{{- end -}}
{{- $namespace := coalesce $values.discover.namespace $profile.namespace "" -}}
{{- if and $values.discover.enabled $values.discover.service (not $namespace) -}}
{{- fail (printf "edge.discover.service needs edge.discover.namespace: edge.profile %s has no default namespace" $values.profile) -}}
{{- end -}}
{{- include "ip-lookup.cidrCheck" (list "edge.trustedProxies" $values.trustedProxies) -}}
{{- if not $values.insecureTrustAnyProxy -}}{{- include "ip-lookup.trustedCheck" $values.trustedProxies -}}{{- end -}}
{{- $discover := and $values.discover.enabled $namespace $service (ne $values.profile "none") -}}
namespace: {{ $namespace | quote }}
service: {{ $service | quote }}
discover: {{ if $discover }}{{ printf "%s/%s" $namespace $service | quote }}{{ else }}""{{ end }}
className: {{ coalesce .Values.ingress.className $profile.className "" | quote }}
clientIPFrom: {{ coalesce $values.clientIPFrom $profile.clientIPFrom "xff" | quote }}
rttUnit: {{ coalesce $values.rttUnit $profile.rttUnit "ms" | quote }}
trusted: {{ concat (default list $profile.trustedProxies) $values.trustedProxies | toJson }}
headers: {{ toJson $headers }}
routes: {{ toJson $profile.routes }}
unsupported: {{ toJson $profile.unsupported }}
drainSeconds: {{ default 5 $profile.drainSeconds }}
{{- end -}}

{{/* Rejects values that make no sense without a proxy. */}}
{{- define "ip-lookup.directCheck" -}}
{{- $values := .Values.edge -}}
{{- if or .Values.ingress.enabled .Values.httpRoute.enabled -}}
{{- fail "edge.profile direct has no proxy: disable ingress.enabled and httpRoute.enabled, or set edge.profile to your ingress controller" -}}
{{- end -}}
{{- if and $values.direct.proxyProtocol (not (or $values.trustedProxies $values.discover.service)) -}}
{{- fail "edge.direct.proxyProtocol needs edge.trustedProxies or edge.discover.service: the load balancer that sends the header" -}}
{{- end -}}
{{- if and (not $values.direct.proxyProtocol) (or $values.trustedProxies $values.discover.service) -}}
{{- fail "edge.profile direct trusts no proxy: edge.trustedProxies and edge.discover.service need edge.direct.proxyProtocol" -}}
{{- end -}}
{{- range list (include "ip-lookup.apiUrl" .) (include "ip-lookup.dashboardUrl" .) -}}
{{- if not (hasPrefix "https://" .) -}}{{- fail (printf "edge.profile direct serves HTTPS: urls.api and urls.dashboard must start with https://, but one is %s" .) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of an https URL of the profile direct, as ":PORT"; empty for 443 and for all other profiles. */}}
{{- define "ip-lookup.portSuffix" -}}
{{- if and (eq .Values.edge.profile "direct") (ne (int .Values.edge.direct.port) 443) -}}:{{ int .Values.edge.direct.port }}{{- end -}}
{{- end -}}

{{/* Port of the Services of the API and the dashboard. */}}
{{- define "ip-lookup.servicePort" -}}
{{- ternary .Values.edge.direct.port .Values.service.port (eq .Values.edge.profile "direct") | int -}}
{{- end -}}

{{/* Flags for HTTPS in the services themselves. Argument: (list $ redirect-port) */}}
{{- define "ip-lookup.tlsArgs" -}}
{{- $root := index . 0 -}}{{- $direct := $root.Values.edge.direct -}}
{{- if eq $root.Values.edge.profile "direct" }}
- --tls-cert=/run/secrets/tls/tls.crt
- --tls-key=/run/secrets/tls/tls.key
- {{ printf "--tls-min-version=%v" $direct.minTLSVersion | quote }}
{{- if $direct.redirect }}
- {{ printf "--redirect-listen=[::]:%v" (index . 1) | quote }}
{{- end }}
{{- if $direct.proxyProtocol }}
- --proxy-protocol
{{- end }}
{{- end }}
{{- end -}}

{{/* Volume with the certificate, as a directory: kubelet replaces its files when cert-manager renews the certificate.
Argument: (list $ "secret") */}}
{{- define "ip-lookup.tlsVolume" -}}
{{- if eq (index . 0).Values.edge.profile "direct" }}
- name: tls
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]
{{- end }}
{{- end -}}

{{- define "ip-lookup.tlsMount" -}}
{{- if eq .Values.edge.profile "direct" }}
- {name: tls, mountPath: /run/secrets/tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Whether there is a Job for `helm test`. It can't send a PROXY protocol header as the load balancer. */}}
{{- define "ip-lookup.testsEnabled" -}}
{{- if and .Values.tests.enabled (not .Values.edge.direct.proxyProtocol) -}}true{{- end -}}
{{- end -}}

{{/* Rejects what is neither an IP address nor a CIDR. Argument: (list "the value's name" list) */}}
{{- define "ip-lookup.cidrCheck" -}}
{{- $name := index . 0 -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])" -}}
{{- $v4 := printf "%s(\\.%s){3}" $octet $octet -}}
{{- /* IPv6: eight groups, or fewer with one "::" before, between or after them. */ -}}
{{- $v6 := "([0-9a-fA-F]{1,4}:){7}([0-9a-fA-F]{1,4}|:)|::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,6})?" -}}
{{- range $more := until 6 -}}
{{- $v6 = printf "%s|[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){%d}::([0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4}){0,%d})?" $v6 $more (sub 5 $more) -}}
{{- end -}}
{{- $pattern := printf "^(%s(/(3[0-2]|[12]?[0-9]))?|(%s|::[fF]{4}:%s)(/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))?)$" $v4 $v6 $v4 -}}
{{- range index . 1 -}}
{{- if not (regexMatch $pattern .) -}}{{- fail (printf "%s: %s is not an IP address or a CIDR such as 10.1.2.0/24" $name .) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Rejects networks that together cover every address: their sizes add up to that of the address space. Counts in units of
one address for IPv4, and of 2^66 addresses for IPv6. Argument: the list of networks */}}
{{- define "ip-lookup.trustedCheck" -}}
{{- $covered := dict "4" 0 "6" 0 -}}
{{- range uniq . -}}
{{- $parts := splitList "/" . -}}
{{- $family := ternary "6" "4" (contains ":" .) -}}
{{- $bits := ternary 62 32 (eq $family "6") -}}
{{- $prefix := ternary 128 32 (eq $family "6") -}}
{{- if gt (len $parts) 1 -}}{{- $prefix = index $parts 1 | int -}}{{- end -}}
{{- if and (hasPrefix "::ffff:" (lower .)) (ge $prefix 96) -}}{{- $family = "4" -}}{{- $bits = 32 -}}{{- $prefix = sub $prefix 96 | int -}}{{- end -}}
{{- if le $prefix $bits -}}
{{- $size := 1 -}}
{{- range until (sub $bits $prefix | int) -}}{{- $size = mul $size 2 -}}{{- end -}}
{{- $_ := set $covered $family (add (get $covered $family) $size) -}}
{{- end -}}
{{- end -}}
{{- if or (ge (get $covered "4" | int64) 4294967296) (ge (get $covered "6" | int64) 4611686018427387904) -}}
{{- fail "edge.trustedProxies covers every address: any client could forge its address. List only the networks of your proxies, or set edge.insecureTrustAnyProxy=true if only proxies can reach the pods" -}}
{{- end -}}
{{- end -}}

{{/* Edge flags of lookup-svc and dashboard-api. */}}
{{- define "ip-lookup.edgeArgs" -}}
{{- $edge := include "ip-lookup.edge" . | fromYaml -}}
{{- if not (has .Values.edge.profile (list "none" "direct")) }}
- {{ printf "--client-ip-from=%v" ($edge.clientIPFrom) | quote }}
- {{ printf "--edge-http-protocol-header=%v" ($edge.headers.httpProtocol) | quote }}
- {{ printf "--edge-tls-version-header=%v" ($edge.headers.tlsVersion) | quote }}
- {{ printf "--edge-tls-cipher-header=%v" ($edge.headers.tlsCipher) | quote }}
- {{ printf "--edge-rtt-header=%v" ($edge.headers.rtt) | quote }}
- {{ printf "--edge-rtt-unit=%v" ($edge.rttUnit) | quote }}
- {{ printf "--edge-colo-header=%v" ($edge.headers.colo) | quote }}
{{- end }}
{{- if ne .Values.edge.profile "none" }}
{{- with $edge.trusted }}
- {{ printf "--trusted-proxies=%v" (join "," .) | quote }}
{{- end }}
{{- if .Values.edge.insecureTrustAnyProxy }}
- --insecure-trust-any-proxy
{{- end }}
{{- with $edge.discover }}
- {{ printf "--discover-proxies=%v" (.) | quote }}
{{- end }}
{{- end }}
{{- with .Values.colo.value }}
- {{ printf "--colo=%v" (.) | quote }}
{{- end }}
{{- $map := list }}
{{- range $zone, $code := .Values.colo.map }}{{ $map = append $map (printf "%s=%s" $zone $code) }}{{ end }}
{{- with $map }}
- {{ printf "--colo-map=%v" (join "," .) | quote }}
{{- end }}
{{- end -}}

{{/* Environment variables from the downward API. */}}
{{- define "ip-lookup.edgeEnv" -}}
{{- if .Values.colo.fromNodeZone }}
- name: IP_LOOKUP_NODE_ZONE
  valueFrom:
    fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}
{{- end }}
{{- end -}}

{{/* Volume with a Kubernetes API token, mounted only in the container that needs it. */}}
{{- define "ip-lookup.kubeVolume" -}}
- name: kube-api
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
      - downwardAPI:
          items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}

{{- define "ip-lookup.kubeMount" -}}
- name: kube-api
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{/* The request ID and the trace of a request. The services use those of trusted proxies, so a client's must not get through. */}}
{{- define "ip-lookup.requestIDNames" -}}
X-Request-Id, traceparent
{{- end -}}

{{/* All headers that the services trust. They are removed from incoming requests before the proxy sets its own. X-Request-Id is
removed even where Envoy has just set it: Contour configures Envoy to keep a client's ID, and by default Envoy keeps that of
clients with private addresses. */}}
{{- define "ip-lookup.edgeHeaderNames" -}}
[X-Edge-Client-IP, X-Edge-HTTP-Protocol, X-Edge-TLS-Version, X-Edge-TLS-Cipher, X-Edge-RTT, X-Edge-Colo, {{ include "ip-lookup.requestIDNames" . }}]
{{- end -}}

{{/* Headers set by HAProxy, one per line: name, separator, value. X-Edge-Colo and traceparent are set to "-", which
counts as missing: the annotations of the controllers can't delete a header. Argument: the separator */}}
{{- define "ip-lookup.haproxyHeaders" -}}
X-Edge-Client-IP{{ . }}%[src]
X-Edge-HTTP-Protocol{{ . }}HTTP/%[req.ver]
X-Edge-TLS-Version{{ . }}%[ssl_fc_protocol]
X-Edge-TLS-Cipher{{ . }}%[ssl_fc_cipher]
X-Edge-RTT{{ . }}%[fc_rtt(us)]
X-Edge-Colo{{ . }}-
X-Request-Id{{ . }}%[uuid()]
traceparent{{ . }}-
{{- end -}}

{{/* Headers set by Envoy, as name/value pairs. Envoy must also remove these headers first: it skips a header whose
value is empty (TLS facts of a plain connection), and the client's own header would remain. */}}
{{- define "ip-lookup.envoyHeaders" -}}
- {name: X-Edge-Client-IP, value: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"}
- {name: X-Edge-HTTP-Protocol, value: "%PROTOCOL%"}
- {name: X-Edge-TLS-Version, value: "%DOWNSTREAM_TLS_VERSION%"}
- {name: X-Edge-TLS-Cipher, value: "%DOWNSTREAM_TLS_CIPHER%"}
{{- if and .Values.edge.rttFromController (ne .Values.edge.profile "contour") }}
- {name: X-Edge-RTT, value: "%DOWNSTREAM_CX_RTT%"}
{{- end }}
{{- end -}}

{{/* Route annotations, as a YAML map. Argument: (list $ admin-port) */}}
{{- define "ip-lookup.routeAnnotations" -}}
{{- $root := index . 0 -}}
{{- $profile := $root.Values.edge.profile -}}
{{- if eq $profile "haproxy" }}
haproxy.org/forwarded-for: "false"
haproxy.org/request-set-header: |
  X-Forwarded-For %[src]
  {{- include "ip-lookup.haproxyHeaders" " " | nindent 2 }}
{{- else if eq $profile "haproxy-ingress" }}
haproxy-ingress.github.io/headers: |
  {{- include "ip-lookup.haproxyHeaders" ": " | nindent 2 }}
{{- else if eq $profile "traefik" }}
traefik.ingress.kubernetes.io/router.middlewares: {{ printf "%s-%s-edge@kubernetescrd" $root.Release.Namespace (include "ip-lookup.fullname" $root) }}
{{- else if eq $profile "aws-alb" }}
alb.ingress.kubernetes.io/group.name: {{ include "ip-lookup.fullname" $root }}
alb.ingress.kubernetes.io/target-type: ip
alb.ingress.kubernetes.io/listen-ports: '[{"HTTP":80},{"HTTPS":443}]'
alb.ingress.kubernetes.io/ssl-redirect: "443"
alb.ingress.kubernetes.io/healthcheck-port: {{ index . 1 | quote }}
alb.ingress.kubernetes.io/healthcheck-path: /readyz
alb.ingress.kubernetes.io/load-balancer-attributes: routing.http.x_amzn_tls_version_and_cipher_suite.enabled=true,routing.http.xff_header_processing.mode=append,routing.http.drop_invalid_header_fields.enabled=true
{{- end }}
{{- with $root.Values.edge.annotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The public services, as YAML. */}}
{{- define "ip-lookup.sites" -}}
{{- $fullname := include "ip-lookup.fullname" . -}}
{{- $tls := ternary .Values.edge.direct .Values.ingress.tls (eq .Values.edge.profile "direct") -}}
sites:
  - {name: api, host: {{ .Values.hosts.api | quote }}, service: {{ $fullname }}-lookup-svc, component: lookup-svc, port: 8080, adminPort: 9080, redirectPort: 8090, tlsSecret: {{ default (printf "%s-api-tls" $fullname) $tls.apiSecret }}}
  {{- if .Values.dashboard.enabled }}
  - {name: dashboard, host: {{ .Values.hosts.dashboard | quote }}, service: {{ $fullname }}-dashboard-api, component: dashboard-api, port: 8081, adminPort: 9081, redirectPort: 8091, tlsSecret: {{ default (printf "%s-dashboard-tls" $fullname) $tls.dashboardSecret }}}
  {{- end }}
{{- end -}}

{{/* The API's host names with addresses of one family, as YAML: {ipv4: …, ipv6: …}. */}}
{{- define "ip-lookup.familyHosts" -}}
{{- $names := list .Values.hosts.api .Values.hosts.dashboard -}}
{{- $hosts := dict -}}
{{- range $family := list "ipv4" "ipv6" -}}
{{- with index $.Values.hosts $family -}}
{{- if has . $names -}}
{{- fail (printf "hosts.%s must differ from the other host names: only a name of its own can have addresses of one family" $family) -}}
{{- end -}}
{{- $names = append $names . -}}
{{- $_ := set $hosts $family . -}}
{{- end -}}
{{- end -}}
{{- toYaml $hosts -}}
{{- end -}}

{{/* The host names of all services, as YAML. All kinds of routes are generated from this list: a name with addresses of one
family is another route to the API, with a certificate of its own unless ingress.tls.apiSecret is set. */}}
{{- define "ip-lookup.routes" -}}
{{- $fullname := include "ip-lookup.fullname" . -}}
{{- $sites := (include "ip-lookup.sites" . | fromYaml).sites -}}
{{- $routes := $sites -}}
{{- range $family, $host := include "ip-lookup.familyHosts" . | fromYaml -}}
{{- $name := printf "api-%s" $family -}}
{{- $secret := default (printf "%s-%s-tls" $fullname $name) $.Values.ingress.tls.apiSecret -}}
{{- $routes = append $routes (merge (dict "name" $name "host" $host "tlsSecret" $secret) (first $sites)) -}}
{{- end -}}
{{- dict "routes" $routes | toYaml -}}
{{- end -}}
