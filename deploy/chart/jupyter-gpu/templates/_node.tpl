{{/* What the node plugin's pods and those that clean a node up have in common: the pod, volumes
last. */}}
{{- define "jupyter-gpu.nodePod" -}}
{{- with .Values.node.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.node.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- include "jupyter-gpu.pullSecrets" . }}
# To prove that no process has a GPU open it looks at the open files of every process of the node: a descriptor can be given
# to any process over a socket.
hostPID: true
terminationGracePeriodSeconds: 10
securityContext:
  runAsUser: 0
  runAsGroup: 0
  seccompProfile: {type: RuntimeDefault}
  {{- with .Values.node.seLinuxOptions | default (.Values.openShift.enabled | ternary (dict "type" "spc_t") dict) }}
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  # AppArmor's default profile forbids to look at processes outside it.
  appArmorProfile: {type: Unconfined}
tolerations:
  {{- toYaml .Values.node.tolerations | nindent 2 }}
volumes:
  - {name: device-plugins, hostPath: {path: {{ .Values.node.kubeletDirectory }}/device-plugins, type: Directory}}
  - {name: pod-resources, hostPath: {path: {{ .Values.node.kubeletDirectory }}/pod-resources, type: Directory}}
  - {name: cgroup, hostPath: {path: /sys/fs/cgroup, type: Directory}}
  {{- if not .Values.node.withoutPins }}
  - {name: bpf, hostPath: {path: /sys/fs/bpf, type: Directory}}
  {{- end }}
  - {name: state, hostPath: {path: /var/lib/jupyter-gpu, type: DirectoryOrCreate}}
  - {name: run, hostPath: {path: /run/jupyter-gpu, type: DirectoryOrCreate}}
  {{- if not (include "jupyter-gpu.simulated" .) }}
  - {name: dev, hostPath: {path: /dev, type: Directory}}
  {{- end }}
  {{- if include "jupyter-gpu.driver" . }}
  - {name: driver, hostPath: {path: {{ .Values.node.driver.root }}, type: Directory}}
  {{- end }}
{{- end }}

{{/* And the container, but for what it runs. */}}
{{- define "jupyter-gpu.nodeContainer" -}}
image: {{ include "jupyter-gpu.image" (list . "node") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  {{- with .Values.node.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if not (include "jupyter-gpu.simulated" .) }}
  # For the NVIDIA container runtime: NVML, but nothing to compute with.
  - {name: NVIDIA_VISIBLE_DEVICES, value: all}
  - {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
  {{- end }}
resources:
  {{- toYaml .Values.node.resources | nindent 2 }}
securityContext:
  readOnlyRootFilesystem: true
  {{- if .Values.node.privileged }}
  privileged: true
  {{- else }}
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
    add:
      # Load device programs, attach them to the cgroups of pods, find them again by their pins.
      - BPF
      - NET_ADMIN
      # Look at the open files of processes of other users, and at their mappings, which outlive descriptors.
      - SYS_PTRACE
      - DAC_READ_SEARCH
      - CHECKPOINT_RESTORE
      # End a process that has a GPU open which its pod was not given, stop one that does not keep to its turns on a shared GPU.
      - KILL
      {{- if include "jupyter-gpu.simulated" . }}
      # Make the devices of simulated GPUs.
      - MKNOD
      {{- end }}
      {{- if .Values.node.withoutPins }}
      # Find programs without pins.
      - SYS_ADMIN
      {{- end }}
  {{- end }}
volumeMounts:
  - {name: settings, mountPath: /etc/jupyter-gpu/settings, readOnly: true}
  - {name: device-plugins, mountPath: {{ .Values.node.kubeletDirectory }}/device-plugins}
  - {name: pod-resources, mountPath: {{ .Values.node.kubeletDirectory }}/pod-resources}
  # Writable to freeze a pod for the milliseconds of a proof.
  - {name: cgroup, mountPath: /sys/fs/cgroup}
  {{- if not .Values.node.withoutPins }}
  - {name: bpf, mountPath: /sys/fs/bpf, mountPropagation: HostToContainer}
  {{- end }}
  - {name: state, mountPath: /var/lib/jupyter-gpu}
  - {name: run, mountPath: /run/jupyter-gpu}
  {{- if not (include "jupyter-gpu.simulated" .) }}
  - {name: dev, mountPath: /host/dev, readOnly: true}
  {{- end }}
  {{- if include "jupyter-gpu.driver" . }}
  - {name: driver, mountPath: /host/driver, readOnly: true, mountPropagation: HostToContainer}
  {{- end }}
{{- end }}

{{/* A pod that removes from one node what the plugin left there. It needs nothing of the API server. */}}
{{- define "jupyter-gpu.cleaner" -}}
apiVersion: v1
kind: Pod
metadata:
  generateName: jupyter-gpu-clean-
  {{- include "jupyter-gpu.podMetadata" (list . "cleaner" .Values.node dict) | nindent 2 }}
spec:
  {{- include "jupyter-gpu.nodePod" . | nindent 2 }}
    - {name: settings, configMap: {name: jupyter-gpu-hook}}
  automountServiceAccountToken: false
  restartPolicy: Never
  containers:
    - name: cleaner
      command: [python, -m, jupyter_gpu_node.uninstall, --settings, /etc/jupyter-gpu/settings/settings.json]
      {{- include "jupyter-gpu.nodeContainer" . | nindent 6 }}
{{- end }}

{{/*
What the node plugin's pods need on OpenShift. Takes a list: the context, its name, the service account that may use it, its
annotations as JSON. Must name what nodePod and nodeContainer ask for.
*/}}
{{- define "jupyter-gpu.securityContextConstraints" -}}
{{- $context := index . 0 -}}
{{- $capabilities := (include "jupyter-gpu.nodeContainer" $context | fromYaml).securityContext.capabilities | default dict }}
---
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata:
  name: {{ index . 1 }}
  labels:
    {{- include "jupyter-gpu.labels" $context | nindent 4 }}
  annotations: {{ index . 3 }}
users: ["system:serviceaccount:{{ $context.Release.Namespace }}:{{ index . 2 }}"]
groups: []
allowHostPID: true
allowHostNetwork: false
allowHostIPC: false
allowHostPorts: false
allowHostDirVolumePlugin: true
allowPrivilegedContainer: {{ $context.Values.node.privileged }}
allowPrivilegeEscalation: {{ $context.Values.node.privileged }}
readOnlyRootFilesystem: true
allowedCapabilities: {{ $capabilities.add | default list | toJson }}
requiredDropCapabilities: []
defaultAddCapabilities: []
seccompProfiles: [runtime/default]
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
fsGroup: {type: RunAsAny}
supplementalGroups: {type: RunAsAny}
volumes: [configMap, hostPath, projected]
{{- end }}
