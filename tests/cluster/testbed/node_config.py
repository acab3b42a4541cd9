"""Configuration of the programs of a node: text, made from the node's facts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAUSE_IMAGE = "docker.io/library/pause:1"


@dataclass(frozen=True)
class Facts:
    """The facts that differ between nodes."""

    name: str
    address: str
    pods: tuple[str, str]
    range: str
    gateway: str
    cgroup: str
    folder: Path
    socket: Path
    """Socket of containerd. The shims have it among their arguments."""
    certificate: Path
    key: Path
    authority: Path
    snapshotter: str
    plugins: Path
    """Folder of the CNI plugins."""


def containerd(facts: Facts) -> str:
    """The file config.toml of containerd, in the version that 1.6, 1.7 and 2.x read."""
    words = {name: json.dumps(str(value)) for name, value in vars(facts).items()}
    state, root = (json.dumps(str(facts.folder / name)) for name in ("run/containerd", "containerd"))
    return f"""\
version = 2
root = {root}
state = {state}
[grpc]
  address = {words["socket"]}
[ttrpc]
  address = {json.dumps(f"{facts.socket}.ttrpc")}
[plugins."io.containerd.internal.v1.opt"]
  path = {json.dumps(str(facts.folder / "containerd/opt"))}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {json.dumps(PAUSE_IMAGE)}
  restrict_oom_score_adj = true  # machines without CAP_SYS_RESOURCE
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {words["plugins"]}
    conf_dir = {json.dumps(str(facts.folder / "cni"))}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = {words["snapshotter"]}
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"""


def cni(facts: Facts) -> str:
    """Pods are ports of the node's bridge; this machine is their gateway."""
    first, last = facts.pods
    addresses = {"subnet": facts.range, "rangeStart": first, "rangeEnd": last, "gateway": facts.gateway}
    plugin = {
        "type": "bridge",
        "bridge": "cni0",
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[addresses]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "testbed", "plugins": [plugin]}, indent=2)


def kubelet(facts: Facts) -> str:
    """The configuration of the kubelet; JSON is what it reads too."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": facts.address,
        "healthzBindAddress": facts.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(facts.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(facts.certificate),
        "tlsPrivateKeyFile": str(facts.key),
        "containerRuntimeEndpoint": f"unix://{facts.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": facts.cgroup,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        "resolvConf": "",
        "clusterDNS": ["127.0.0.1"],  # there is none: asking fails at once
        "clusterDomain": "cluster.local",
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # a disk that is nearly full is this machine's matter; nothing of the tests is evicted or collected for it
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "nodeStatusUpdateFrequency": "2s",
        "singleProcessOOMKill": True,  # as with version 1 of control groups
        # tests end programs on purpose, again and again: the wait before they are started anew stays short
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }
    return json.dumps(config, indent=2)
