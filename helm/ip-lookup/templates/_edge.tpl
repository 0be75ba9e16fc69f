{{/* Edge settings: the selected profile with the user's overrides, and the resulting flags. */}}

{{/* The effective profile, as YAML: .namespace .service .discover .kube .className .clientIPFrom .rttUnit .trusted .headers
.routes .unsupported. `discover` is the Service to watch (NAMESPACE/NAME), `trusted` the CIDRs of trusted proxies, and `kube`
whether the services need the Kubernetes API. */}}
{{- define "ip-lookup.edge" -}}
{{- $values := .Values.edge -}}
{{- $profile := index (.Files.Get "files/edge-profiles.yaml" | fromYaml) $values.profile -}}
{{- if and (eq $values.profile "none") (or $values.trustedProxies $values.discover.service) -}}
{{- fail "edge.profile none trusts no proxy: to use edge.trustedProxies or edge.discover.service, set edge.profile to your ingress controller or to custom" -}}
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
{{- $discover := and $values.discover.enabled $namespace $service (ne $values.profile "none") -}}
namespace: {{ $namespace | quote }}
service: {{ $service | quote }}
discover: {{ if $discover }}{{ printf "%s/%s" $namespace $service | quote }}{{ else }}""{{ end }}
kube: {{ if or $discover .Values.colo.nodeLabel }}true{{ else }}false{{ end }}
className: {{ coalesce .Values.ingress.className $profile.className "" | quote }}
clientIPFrom: {{ coalesce $values.clientIPFrom $profile.clientIPFrom "xff" | quote }}
rttUnit: {{ coalesce $values.rttUnit $profile.rttUnit "ms" | quote }}
trusted: {{ concat (default list $profile.trustedProxies) $values.trustedProxies | toJson }}
headers: {{ toJson $headers }}
routes: {{ toJson $profile.routes }}
unsupported: {{ toJson $profile.unsupported }}
{{- end -}}

{{/* Edge flags of lookup-svc and dashboard-api. */}}
{{- define "ip-lookup.edgeArgs" -}}
{{- $edge := include "ip-lookup.edge" . | fromYaml -}}
{{- if ne .Values.edge.profile "none" }}
- {{ printf "--client-ip-from=%v" ($edge.clientIPFrom) | quote }}
- {{ printf "--edge-http-protocol-header=%v" ($edge.headers.httpProtocol) | quote }}
- {{ printf "--edge-tls-version-header=%v" ($edge.headers.tlsVersion) | quote }}
- {{ printf "--edge-tls-cipher-header=%v" ($edge.headers.tlsCipher) | quote }}
- {{ printf "--edge-rtt-header=%v" ($edge.headers.rtt) | quote }}
- {{ printf "--edge-rtt-unit=%v" ($edge.rttUnit) | quote }}
- {{ printf "--edge-colo-header=%v" ($edge.headers.colo) | quote }}
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
{{- with .Values.colo.nodeLabel }}
- {{ printf "--colo-node-label=%v" (.) | quote }}
{{- end }}
{{- end -}}

{{/* Environment variables from the downward API. */}}
{{- define "ip-lookup.edgeEnv" -}}
{{- if .Values.colo.fromNodeZone }}
- name: NODE_ZONE
  valueFrom:
    fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}
{{- end }}
{{- if .Values.colo.nodeLabel }}
- name: NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
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

{{/* All headers with facts about the client. They are removed from incoming requests before the proxy sets its own. */}}
{{- define "ip-lookup.edgeHeaderNames" -}}
[X-Edge-Client-IP, X-Edge-HTTP-Protocol, X-Edge-TLS-Version, X-Edge-TLS-Cipher, X-Edge-RTT, X-Edge-Colo]
{{- end -}}

{{/* Headers set by HAProxy, one per line: name, separator, value. X-Edge-Colo is set to "-" (null) so that clients
can't set it. Argument: the separator */}}
{{- define "ip-lookup.haproxyHeaders" -}}
X-Edge-Client-IP{{ . }}%[src]
X-Edge-HTTP-Protocol{{ . }}HTTP/%[req.ver]
X-Edge-TLS-Version{{ . }}%[ssl_fc_protocol]
X-Edge-TLS-Cipher{{ . }}%[ssl_fc_cipher]
X-Edge-RTT{{ . }}%[fc_rtt(us)]
X-Edge-Colo{{ . }}-
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

{{/* The public services, as YAML. All kinds of routes are generated from this list. */}}
{{- define "ip-lookup.sites" -}}
{{- $fullname := include "ip-lookup.fullname" . -}}
sites:
  - {name: api, host: {{ .Values.hosts.api | quote }}, service: {{ $fullname }}-lookup-svc, component: lookup-svc, adminPort: 9080, tlsSecret: {{ default (printf "%s-api-tls" $fullname) .Values.ingress.tls.apiSecret }}}
  {{- if .Values.dashboard.enabled }}
  - {name: dashboard, host: {{ .Values.hosts.dashboard | quote }}, service: {{ $fullname }}-dashboard-api, component: dashboard-api, adminPort: 9081, tlsSecret: {{ default (printf "%s-dashboard-tls" $fullname) .Values.ingress.tls.dashboardSecret }}}
  {{- end }}
{{- end -}}
