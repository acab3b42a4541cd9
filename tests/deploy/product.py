"""Installs the product on a test cluster from its own images and chart, with simulated GPUs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.testbed import Cluster, Existing, borrowed, existing, temporary_cluster
from tests.deploy.archives import together
from tests.devices import first_of_cluster
from tests.gate.building import build_driver

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart" / "jupyter-gpu"
NAMESPACE = existing.PRODUCT
RELEASE = existing.PRODUCT
KEPT = "JUPYTER_GPU_TEST_CLUSTER"
"""Name of a cluster of `scripts/cluster up` that tests use in place of one that they make."""
NOTEBOOKS = "jupyter-gpu-test-notebooks"
"""Namespace of pods that may ask with their own tokens."""
SCHEDULER = "jupyter-gpu-scheduler"
"""`schedulerName` of pods that ask for a slot."""
STAND_IN = "/var/lib/jupyter-gpu-test/driver"
"""On each node, what stands in for the NVIDIA driver."""
BOARDS = "/var/lib/jupyter-gpu-test/boards"
"""On each node, what its simulated GPUs did: pods that use one through the stand-in mount it."""
PROGRAMS = ("node", "scheduler", "kube-scheduler")
GPUS = 4
"""Simulated ones on each node."""
FIRST_MINOR = int(os.environ.get("JUPYTER_GPU_FIRST_MINOR") or first_of_cluster())
"""First number of the devices of node1; node2 has the next ones, as all nodes share this machine's devices."""


@dataclass(frozen=True)
class Image:
    """One of the product's container images, as a docker-archive."""

    reference: str
    archive: Path


@contextmanager
def some_cluster() -> Iterator[Cluster]:
    """Return a cluster with two nodes: one that exists, where that is allowed; or a kept one; or a new one."""
    if existing.choice().context:
        with borrowed() as cluster:
            yield cluster
    elif kept := os.environ.get(KEPT):
        yield Cluster.create(kept, nodes=2)
    else:
        with temporary_cluster(nodes=2) as cluster:
            yield cluster


@cache
def images(*names: str) -> Mapping[str, Image]:
    """Return these images (node, scheduler, notebook, kube-scheduler) of this working tree, and build missing ones."""
    if not (ROOT / "jupyter_gpu" / "labextension" / "package.json").is_file():
        raise RuntimeError("The JupyterLab extension is not built. Run scripts/images once.")
    words = [sys.executable, "-m", "scripts.lib.images", *names]
    done = subprocess.run(words, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"scripts/images {' '.join(names)} failed:\n{done.stderr[-4000:]}")
    found = (line.split() for line in done.stdout.splitlines())
    return {name: Image(reference, Path(archive)) for name, reference, archive in found}


def load(cluster: Cluster, *names: str, node: str | None = None) -> Mapping[str, Image]:
    """Load the images on one node of the cluster, or on all."""
    if isinstance(cluster, Existing) and (place := os.environ.get(existing.IMAGES)):
        folder, _, tag = place.rpartition(":")
        return {name: Image(f"{folder}/{name}:{tag}", Path()) for name in names}  # its nodes pull them from there
    found = images(*names)
    nodes = (node,) if node else cluster.node_names
    if not all(cluster.has_image(image.reference, each) for image in found.values() for each in nodes):
        cluster.load_image(together([image.archive for image in found.values()]), node)
    return found


def stand_in(cluster: Cluster) -> None:
    """Put a driver for the simulated GPUs on each node, and the folder of their boards."""
    with tempfile.TemporaryDirectory() as folder:
        build_driver(Path(folder))
        for node in cluster.nodes:
            library, boards = node.path(STAND_IN) / "usr" / "lib64" / "libcuda.so.1", node.path(BOARDS)
            for made in (library.parent, boards):
                made.mkdir(parents=True, exist_ok=True)
            boards.chmod(0o1777)
            if not library.exists():  # containers have mapped it
                shutil.copy(Path(folder) / "libcuda.so.1", library)
                (library.parent / "libcuda.so").symlink_to("libcuda.so.1")


def values(cluster: Cluster, found: Mapping[str, Image]) -> dict[str, Any]:
    """Return the values of the chart on a test cluster."""
    minors = {name: {"firstMinor": FIRST_MINOR + GPUS * index} for index, name in enumerate(cluster.node_names)}
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(minors)}]}
    driver = {} if isinstance(cluster, Existing) else {"driver": {"root": STAND_IN}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    return {
        "image": {
            **{name: found[name].reference for name in ("node", "scheduler", "hub") if name in found},
            "pullPolicy": "IfNotPresent",
        },
        "kubeScheduler": {"image": found["kube-scheduler"].reference},
        "scheduler": {"service": {"clusterIP": cluster.service_ip(200)}},
        "node": {"simulated": {"count": GPUS, "nodes": minors}, "affinity": {"nodeAffinity": required}, **driver},
        "policies": {"allowedHostPaths": [BOARDS]},
        "notebooks": {"namespaces": [{"namespace": "default"}]},
    }


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge values key by key, as helm does; `over` wins."""
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        result[key] = merged(known, value) if isinstance(value, Mapping) and isinstance(known, Mapping) else value
    return result


def programs(more: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the images that the chart needs with these values beyond those for a test cluster."""
    return (*PROGRAMS, "hub") if more.get("hub", {}).get("apiUrl") else PROGRAMS


def install(cluster: Cluster, *, wait: bool = True, flags: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """Build and load the images and install the chart, or upgrade it, with these values.

    `more` are values beyond those for a test cluster, such as `scheduler={"replicas": 2}`. Returns all of them.
    """
    if isinstance(cluster, Existing):
        cluster.namespace(NAMESPACE)  # so that it is known as the tests' own
    else:
        stand_in(cluster)
    wanted = merged(values(cluster, load(cluster, *programs(more))), more)
    words = [
        "upgrade",
        "--install",
        RELEASE,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--create-namespace",
        "--values",
        "-",
    ]
    cluster.helm(*words, *(["--wait", "--timeout", "3m"] if wait else []), *flags, stdin=json.dumps(wanted))
    return wanted


def uninstall(cluster: Cluster) -> None:
    """Uninstall the chart and wait until everything is gone."""
    cluster.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
