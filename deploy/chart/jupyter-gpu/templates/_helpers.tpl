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

{{/*
Labels, and annotations if there are any, of pods. Takes a list: the context, the part, its values, annotations of ours.
*/}}
{{- define "jupyter-gpu.podMetadata" -}}
{{- $values := index . 2 -}}
labels:
  {{- merge (include "jupyter-gpu.selector" . | fromYaml) $values.podLabels | toYaml | nindent 2 }}
{{- with merge (index . 3) $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
Of a pod: how important it is and where it runs. Takes a list: the context, the part, its values. What the values of a part
leave empty is as for the scheduler.
*/}}
{{- define "jupyter-gpu.placement" -}}
{{- $scheduler := (index . 0).Values.scheduler -}}
{{- $values := index . 2 -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector | default $scheduler.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat ($values.tolerations | default $scheduler.tolerations) (include "jupyter-gpu.shortly" $values | fromYamlArray) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Tolerations: for how long a pod stays on a node of which nothing is heard. Takes the values of a part. */}}
{{- define "jupyter-gpu.shortly" -}}
{{- if hasKey . "unreachableSeconds" }}
{{- range list "not-ready" "unreachable" }}
- {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: {{ $.unreachableSeconds }}}
{{- end }}
{{- end }}
{{- end }}

{{/* Of a pod: how its replicas are spread. Takes a list: the context, the part, its values. */}}
{{- define "jupyter-gpu.spread" -}}
{{- $values := index . 2 -}}
affinity:
  {{- if $values.affinity }}
  {{- toYaml $values.affinity | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "jupyter-gpu.selector" . | nindent 14 }}
  {{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $ours := dict "matchLabels" (include "jupyter-gpu.selector" $ | fromYaml) }}
  {{- range . }}
  - {{ set (deepCopy .) "labelSelector" (.labelSelector | default $ours) | toJson }}
  {{- end }}
{{- end }}
{{- end }}

{{/* A PodDisruptionBudget. Takes a list: the context, the part, its values. */}}
{{- define "jupyter-gpu.disruptionBudget" -}}
{{- $context := index . 0 -}}
{{- with (index . 2).podDisruptionBudget }}
{{- if .enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: jupyter-gpu-{{ index $ 1 }}
  namespace: {{ $context.Release.Namespace }}
  labels:
    {{- include "jupyter-gpu.labels" $context | nindent 4 }}
spec:
  maxUnavailable: {{ .maxUnavailable }}
  # One that is not ready protects nothing, and must not keep a node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "jupyter-gpu.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end }}

{{/* An image. Takes a list: the context, its name. */}}
{{- define "jupyter-gpu.image" -}}
{{- $context := index . 0 -}}
{{- $name := index . 1 -}}
{{- index $context.Values.image $name | default (printf "%s/%s:%s" $context.Values.image.repository $name ($context.Values.image.tag | default $context.Chart.AppVersion)) -}}
{{- end }}

{{/* The second kube-scheduler's image: Kubernetes' own, whose tags know nothing of a vendor's suffix (v1.31.4-gke.1, v1.31.4+k3s1). */}}
{{- define "jupyter-gpu.kubeSchedulerImage" -}}
{{- $version := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{- .Values.kubeScheduler.image | default (printf "registry.k8s.io/kube-scheduler:%s" $version) -}}
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
{{- $settings := dict "policy" (deepCopy .Values.scheduler.policy) "extender" $extender "status" (dict "port" 8080 "metrics" .Values.metrics.enabled "users" .Values.metrics.users) "namespaces" .Values.scheduler.namespaces -}}
{{- $limits := dict "jobKinds" .Values.limits.jobKinds -}}
{{- with .Values.limits.timeZone }}{{ $_ := set $limits "timeZone" . }}{{ end -}}
{{- $_ := set $settings "limits" $limits -}}
{{- if .Values.workers.enabled -}}
  {{- $asks := .Values.workers.pod.resources.requests -}}
  {{- $_ := set $settings "workers" (dict "namespaces" .Values.workers.namespaces "perPod" (int .Values.workers.perPod) "graceSeconds" .Values.workers.graceSeconds "cpu" (toString $asks.cpu) "memory" (toString $asks.memory)) -}}
{{- end -}}
{{- mergeOverwrite $settings (deepCopy .Values.scheduler.settings) | toJson -}}
{{- end }}

{{/* Whether the right to create a pod includes its first request: where limits are used, unless values say otherwise. */}}
{{- define "jupyter-gpu.askAtCreation" -}}
{{- $default := or .Values.limits.objects .Values.hub.enabled -}}
{{- if kindIs "bool" .Values.limits.askAtCreation | ternary .Values.limits.askAtCreation $default }}true{{ end -}}
{{- end }}

{{/* The name of the hub of the service of limits. */}}
{{- define "jupyter-gpu.hubName" -}}
{{- .Values.hub.name | default .Release.Namespace -}}
{{- end }}

{{/* The namespaces of the pods of that hub's users, as a list in JSON: those of the entry in `hubs` with its name, and of an entry
without a name the one that is called like the hub, as the namespace is the hub's name there; `["*"]` stands for all. */}}
{{- define "jupyter-gpu.hubNamespaces" -}}
{{- $name := include "jupyter-gpu.hubName" . -}}
{{- $found := list -}}
{{- range $hub := .Values.hubs -}}
  {{- range $namespace := $hub.notebookNamespaces | default (list $hub.namespace) -}}
    {{- if eq ($hub.name | default $namespace) $name }}{{ $found = append $found $namespace }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if not $found -}}
  {{- fail (printf "hub.write: true needs an entry in hubs with the namespaces of the pods of hub %q (hub.name)" $name) -}}
{{- end -}}
{{- has "*" $found | ternary (list "*") ($found | uniq) | toJson -}}
{{- end }}

{{/* Kind and metadata of the binding of a role in a namespace, or in all of them ("*"). */}}
{{- define "jupyter-gpu.boundIn" }}
{{- $name := index . 0 }}
{{- $namespace := index . 1 }}
{{- $everywhere := eq $namespace "*" }}
kind: {{ $everywhere | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata: {name: {{ $name }}, {{ if not $everywhere }}namespace: {{ $namespace }}, {{ end }}labels: {{ index . 2 }}}
{{- end }}

{{/* The kube-scheduler of worker pods. */}}
{{- define "jupyter-gpu.workerScheduler" -}}
{{- .Values.kubeScheduler.enabled | ternary .Values.kubeScheduler.schedulerName "default-scheduler" -}}
{{- end }}

{{/* The worker controller's settings file. */}}
{{- define "jupyter-gpu.workerSettings" -}}
{{- $pod := .Values.workers.pod -}}
{{- $template := dict "python" $pod.python "home" $pod.home "environment" $pod.environment "homeSize" $pod.storage.home "temporarySize" $pod.storage.tmp "sharedMemory" $pod.storage.shm "schedulerName" (include "jupyter-gpu.workerScheduler" .) "priorityClass" $pod.priorityClassName -}}
{{- range $part, $amounts := $pod.resources -}}
  {{- $_ := set $template $part (dict "cpu" (toString $amounts.cpu) "memory" (toString $amounts.memory)) -}}
{{- end -}}
{{- $bounds := dict "perPod" (int .Values.workers.perPod) "perOwner" (int .Values.workers.perOwner) -}}
{{- dict "namespaces" .Values.workers.namespaces "template" $template "bounds" $bounds "status" (dict "port" 8080 "metrics" .Values.metrics.enabled) | toJson -}}
{{- end }}

{{/* The node plugin's settings file. */}}
{{- define "jupyter-gpu.nodeSettings" -}}
{{- $settings := dict "slots" (int .Values.node.slots) "kubelet" .Values.node.kubeletDirectory "port" 8081 "metrics" .Values.metrics.enabled -}}
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

{{/* The entry of the extender in the configuration of a kube-scheduler. */}}
{{- define "jupyter-gpu.extender" -}}
- urlPrefix: https://{{ .Values.kubeScheduler.extenderAddress | default .Values.scheduler.service.clusterIP | default (include "jupyter-gpu.extenderName" .) }}
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: {{ .Values.kubeScheduler.extenderWeight }}
  bindVerb: bind
  # No pod is ended for one that would not get its GPUs by that.
  preemptVerb: preempt
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

{{/* Writes parts of GPUs as text, which a GpuLimit needs: a list of an object and the names of its fields. Prints nothing. */}}
{{- define "jupyter-gpu.quantities" -}}
{{- $object := first . -}}
{{- range rest . -}}
{{- $value := get $object . -}}
{{- if and (kindIs "float64" $value) (ne (floor $value) $value) }}{{ $_ := set $object . (toString $value) }}{{ end -}}
{{- end -}}
{{- end }}
