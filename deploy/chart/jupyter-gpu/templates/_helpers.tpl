{{/* Labels of every object. */}}
{{- define "jupyter-gpu.labels" -}}
app.kubernetes.io/name: jupyter-gpu
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Labels by which the pods of one part are found. Takes a list: the context, the part. */}}
{{- define "jupyter-gpu.selector" -}}
app.kubernetes.io/name: jupyter-gpu
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* An image. Takes a list: the context, its name. */}}
{{- define "jupyter-gpu.image" -}}
{{- $context := index . 0 -}}
{{- $name := index . 1 -}}
{{- index $context.Values.image $name | default (printf "%s/%s:%s" $context.Values.image.repository $name ($context.Values.image.tag | default $context.Chart.AppVersion)) -}}
{{- end }}

{{/* Of a pod: how images are pulled with credentials. */}}
{{- define "jupyter-gpu.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What an ordinary container of ours may do: nothing. */}}
{{- define "jupyter-gpu.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "jupyter-gpu.serverSecret" -}}
{{- .Values.certificates.serverSecret | default "jupyter-gpu-extender" -}}
{{- end }}
{{- define "jupyter-gpu.clientSecret" -}}
{{- .Values.certificates.clientSecret | default "jupyter-gpu-extender-client" -}}
{{- end }}
{{- define "jupyter-gpu.extenderName" -}}
jupyter-gpu-scheduler.{{ .Release.Namespace }}.svc
{{- end }}

{{/*
Certificates between kube-scheduler and extender, as JSON: {server: {…}, client: {…}} of Secret data. Those that are in the
cluster are kept. Made at most once in a run, so that every template sees the same.
*/}}
{{- define "jupyter-gpu.certificates" -}}
{{- if not (hasKey .Values.certificates "made") -}}
  {{- $server := lookup "v1" "Secret" .Release.Namespace "jupyter-gpu-extender" -}}
  {{- $client := lookup "v1" "Secret" .Release.Namespace "jupyter-gpu-extender-client" -}}
  {{- if and $server $client -}}
    {{- $_ := set .Values.certificates "made" (dict "server" $server.data "client" $client.data) -}}
  {{- else -}}
    {{- $days := int .Values.certificates.days -}}
    {{- $name := include "jupyter-gpu.extenderName" . -}}
    {{- $names := list $name "jupyter-gpu-scheduler" (printf "jupyter-gpu-scheduler.%s" .Release.Namespace) (printf "%s.cluster.local" $name) -}}
    {{- $addresses := without (list .Values.scheduler.service.clusterIP) "" -}}
    {{- $ca := genCA "jupyter-gpu" $days -}}
    {{- $one := genSignedCert $name $addresses $names $days $ca -}}
    {{- $other := genSignedCert "jupyter-gpu-kube-scheduler" list list $days $ca -}}
    {{- $_ := set .Values.certificates "made" (dict
      "server" (dict "tls.crt" ($one.Cert | b64enc) "tls.key" ($one.Key | b64enc) "ca.crt" ($ca.Cert | b64enc))
      "client" (dict "tls.crt" ($other.Cert | b64enc) "tls.key" ($other.Key | b64enc) "ca.crt" ($ca.Cert | b64enc))) -}}
  {{- end -}}
{{- end -}}
{{- .Values.certificates.made | toJson -}}
{{- end }}

{{/* The scheduler's settings file. */}}
{{- define "jupyter-gpu.schedulerSettings" -}}
{{- $tls := "/etc/jupyter-gpu/tls" -}}
{{- $extender := dict "address" "0.0.0.0" "port" 8443 "certificate" (printf "%s/tls.crt" $tls) "key" (printf "%s/tls.key" $tls) "clientCa" (printf "%s/ca.crt" $tls) "clientNames" (list "jupyter-gpu-kube-scheduler") "endpointSlice" "jupyter-gpu-scheduler" -}}
{{- $settings := dict "policy" (dict "name" .Values.scheduler.policy.name "weights" .Values.scheduler.policy.weights) "extender" $extender "status" (dict "port" 8080) "namespaces" .Values.scheduler.namespaces -}}
{{- mergeOverwrite $settings (deepCopy .Values.scheduler.settings) | toJson -}}
{{- end }}

{{/* The node plugin's settings file. */}}
{{- define "jupyter-gpu.nodeSettings" -}}
{{- $settings := dict "slots" (int .Values.node.slots) "kubelet" .Values.node.kubeletDirectory "port" 8081 -}}
{{- if include "jupyter-gpu.simulated" . -}}
  {{- $_ := set $settings "simulated" .Values.node.simulated -}}
  {{- if include "jupyter-gpu.driver" . -}}
    {{- $_ := set $settings "driver" (dict "root" .Values.node.driver.root "seen" "/host/driver") -}}
  {{- end -}}
{{- else -}}
  {{- $_ := set $settings "driver" (dict "root" .Values.node.driver.root "seen" "/host/driver" "devices" "/host/dev") -}}
{{- end -}}
{{- $_ := set $settings "shares" .Values.node.shares -}}
{{- $_ := set $settings "managed" .Values.node.managed -}}
{{- mergeOverwrite $settings (deepCopy .Values.node.settings) | toJson -}}
{{- end }}

{{/* Whether there is a driver: not for simulated GPUs, unless a root of its own says where one that stands in for it lies. */}}
{{- define "jupyter-gpu.driver" -}}
{{- if or (not (include "jupyter-gpu.simulated" .)) (ne .Values.node.driver.root "/") }}true{{ end -}}
{{- end }}

{{/* Whether GPUs are simulated: on all nodes or on one of them. */}}
{{- define "jupyter-gpu.simulated" -}}
{{- if or .Values.node.simulated.count .Values.node.simulated.nodes }}true{{ end -}}
{{- end }}

{{/* The second kube-scheduler's configuration file. */}}
{{- define "jupyter-gpu.kubeSchedulerConfiguration" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: {{ gt (int .Values.kubeScheduler.replicas) 1 }}
  resourceName: jupyter-gpu-kube-scheduler
  resourceNamespace: {{ .Release.Namespace }}
# The extender must see every node that fits, not a sample of them.
percentageOfNodesToScore: 100
# A pod that waits for GPUs is tried as soon as there is room, however often it was tried before.
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
  - schedulerName: {{ .Values.kubeScheduler.schedulerName }}
extenders:
  {{- include "jupyter-gpu.extender" . | nindent 2 }}
{{- end }}

{{/* How a kube-scheduler is told of the extender. */}}
{{- define "jupyter-gpu.extender" -}}
- urlPrefix: https://{{ .Values.kubeScheduler.extenderAddress | default .Values.scheduler.service.clusterIP | default (include "jupyter-gpu.extenderName" .) }}
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: {{ .Values.kubeScheduler.extenderWeight }}
  bindVerb: bind
  enableHTTPS: true
  tlsConfig:
    serverName: {{ include "jupyter-gpu.extenderName" . }}
    caFile: /etc/jupyter-gpu/tls/ca.crt
    certFile: /etc/jupyter-gpu/tls/tls.crt
    keyFile: /etc/jupyter-gpu/tls/tls.key
  httpTimeout: {{ .Values.kubeScheduler.extenderTimeoutSeconds }}s
  nodeCacheCapable: true
  # Not ignorable: without the extender's word no pod with a slot is placed.
  ignorable: false
  managedResources:
    - name: jupyter-gpu.io/slot
      ignoredByScheduler: false
{{- end }}
