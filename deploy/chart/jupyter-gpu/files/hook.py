"""The chart's hook: puts policies into force before the chart grants anything, and cleans up after the chart is gone.

`apply`: the definitions of our own kinds and the admission policies are applied in place; this ends when the API server
enforces each policy in its new version. If policies were missing, anybody could have written what they guard: all of it
is removed. `remove`: nodes are cleaned of what the node plugin left, and the policies are deleted; the definitions, and
with them limits and accounts, only where that is asked for. Standard library only; talks to the API server with the
token of the hook's service account.
"""

import contextlib
import json
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

HERE = Path(__file__).parent
ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
NAMESPACE = os.environ.get("POD_NAMESPACE", "default")
SECONDS = float(os.environ.get("WAIT_SECONDS", "60"))
SETTLE = 2.0
"""A policy must be seen in force for so long: behind a load balancer other API servers may be later."""
PREFIX = "jupyter-gpu.io/"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
GUARDS = ("jupyter-gpu-bindings", "jupyter-gpu-nodes", "jupyter-gpu-pods")
"""The policies without which anybody could write our records."""
OF_WORKERS = "jupyter-gpu-workers"
"""The policy without which anybody could write that a pod is a worker; it is younger than the others."""
WORKER_RECORDS = (PREFIX + "worker", PREFIX + "worker-status")
UNCHECKED = PREFIX + "unchecked"
"""Annotation of policies that were not in force all the time since what they guard was taken away last."""
SWITCHED = ("jupyter-gpu-visible-devices",)
"""Policies that a value of the chart switches off."""
USERNAME = "hub.jupyter.org/username"
"""Annotation with the user whose pod it is, by KubeSpawner. Our policies guard it on pods that ask for a slot."""
SLOT = PREFIX + "slot"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
KEEP_DEFINITIONS = os.environ.get("KEEP_DEFINITIONS", "true") == "true"
"""Whether limits and accounts outlive an uninstallation."""
PAGE = 500
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Refused(Exception):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Gone(Refused):
    """There is no such object."""


def call(
    method: str, path: str, body: Any = None, kind: str = "application/json", accept: str = "application/json"
) -> Any:
    """Make one request. Raises Refused, and OSError while the API server cannot be reached."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    data = body.encode() if isinstance(body, str) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server + path, data=data, method=method)  # noqa: S310
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
    request.add_header("Content-Type", kind)
    request.add_header("Accept", accept)
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    try:
        with urllib.request.urlopen(request, timeout=30, context=trust) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        with contextlib.suppress(ValueError, KeyError):
            text = json.loads(text)["message"]
        raise (Gone if error.code == 404 else Refused)(error.code, text) from None


def patiently(what: str, done: Callable[[], bool]) -> None:
    """Try again until it succeeds; end the hook with a sentence if it never does."""
    deadline = time.monotonic() + SECONDS
    trouble = ""
    while time.monotonic() < deadline:
        try:
            if done():
                return
        except (OSError, Refused) as error:
            trouble = f" Last: {error}"
        time.sleep(0.2)
    raise SystemExit(f"{what} did not happen within {SECONDS:.0f} s.{trouble}")


def objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return path and content of what is to be applied: policies, then their bindings."""
    for file in sorted(HERE.glob("validatingadmission*.yaml")):
        resource, name, _ = file.name.split(".")
        yield f"{ADMISSION}/{resource}/{name}", json.loads(file.read_text())


def definitions() -> Iterator[tuple[str, dict[str, Any]]]:
    """Return path and content of the definitions of our own kinds."""
    for file in sorted(HERE.glob("definition.*.yaml")):
        body = json.loads(file.read_text())
        yield f"{DEFINITIONS}/{body['metadata']['name']}", body


def apply() -> None:
    """Put the policies into force. If this is killed at any point, the next attempt ends in the same state."""
    define()
    unchecked = unguarded()
    put(unchecked)
    drop()
    enforce()
    if unchecked:
        forget(all_records=unchecked != {OF_WORKERS})
        put(set())


def define() -> None:
    """Apply the definitions of our kinds, and wait until they are established."""
    for path, body in definitions():

        def defined(path: str = path, body: Any = body) -> bool:
            now = call("PATCH", f"{path}?fieldManager=jupyter-gpu&force=true", body, "application/apply-patch+yaml")
            if "deletionTimestamp" in now["metadata"]:  # by an uninstallation whose objects are not all gone yet
                return False
            conditions = now["status"].get("conditions") or []  # null where there are none
            return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

        patiently(f"Establishing {path}", defined)
        print("defined", path, flush=True)


def unguarded() -> set[str]:
    """Return the policies to be marked as unchecked: all if anybody could write our records, or only that of workers.

    One was away if it is missing, or comes from an interrupted attempt.
    """
    found: set[str] = set()

    def looked() -> bool:
        found.update(body["metadata"]["name"] for path, body in objects() if _unchecked(path))
        return True

    patiently("A look at the policies", looked)
    if found & set(GUARDS):
        return {body["metadata"]["name"] for _, body in objects()}
    return found & {OF_WORKERS}


def _unchecked(path: str) -> bool:
    try:
        return UNCHECKED in (call("GET", path)["metadata"].get("annotations") or {})
    except Gone:
        return True


def put(unchecked: set[str]) -> None:
    """Apply the policies, and mark exactly these as unchecked."""
    for path, body in objects():
        body["metadata"]["annotations"] = {UNCHECKED: "true"} if body["metadata"]["name"] in unchecked else {}

        def applied(path: str = path, body: Any = body) -> bool:
            call("PATCH", f"{path}?fieldManager=jupyter-gpu&force=true", body, "application/apply-patch+yaml")
            return True

        patiently(f"Applying {path}", applied)
        print("applied", path, flush=True)


def drop() -> None:
    """Delete policies that are switched off."""
    wanted = {path for path, _ in objects()}
    for name in SWITCHED:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            if (path := f"{ADMISSION}/{kind}/{name}") not in wanted:
                delete(path)


def enforce() -> None:
    """Wait until the policies are in force."""
    since: list[float] = []

    def enforced() -> bool:
        if not all(mark in tried(*PROBES[name]) for name, mark in marks().items()):
            since.clear()
            return False
        since.append(time.monotonic())
        return since[-1] - since[0] >= SETTLE

    patiently("Enforcement of the policies", enforced)
    print("in force", flush=True)


def marks() -> dict[str, str]:
    """Return by policy the words with which this very version refuses a trial."""
    found = {}
    for _, body in objects():
        if match := re.search(r"jupyter-gpu policy \S+ is in force", json.dumps(body)):
            found[body["metadata"]["name"]] = match[0]
    return found


def forget(*, all_records: bool) -> None:
    """Remove our records from all pods and nodes, or only those of workers; who has the right writes them anew.

    With all records go the names of users on pods that ask for a slot, which nothing writes again: such a pod counts
    for its namespace.
    """
    taken = {"pods": 0, "nodes": 0}
    for what, part, accept in (("pods", "/status", "application/json"), ("nodes", "", METADATA)):
        for metadata, guarded in list(everything(f"/api/v1/{what}", accept)):
            patch = removal(metadata, guarded=guarded) if all_records else removal_of_workers(metadata)
            if patch is None:
                continue
            inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            strip(f"/api/v1{inside}/{what}/{metadata['name']}{part}", {**patch, "uid": metadata["uid"]})
            taken[what] += 1
    print(f"records from before were taken from {taken['pods']} pods and {taken['nodes']} nodes", flush=True)


def everything(path: str, accept: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield the metadata of all objects, page by page, and whether each is a pod that asks for a slot."""
    following = ""
    while True:
        page: dict[str, Any] = {}

        def got(page: dict[str, Any] = page, more: str = following) -> bool:
            page.update(call("GET", f"{path}?limit={PAGE}&continue={quote(more)}", accept=accept))
            return True

        patiently(f"Listing {path}", got)
        yield from ((item["metadata"], asks_slot(item)) for item in page["items"] or ())  # null where there are none
        following = page["metadata"].get("continue", "")
        if not following:
            return


def asks_slot(item: dict[str, Any]) -> bool:
    """Return whether this is a pod of which our policies guard whose it is."""
    spec = item.get("spec", {})
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    asked = [each.get("resources", {}) for each in containers]
    return any(SLOT in each.get(part, {}) for each in asked for part in ("requests", "limits"))


def removal(metadata: dict[str, Any], *, guarded: bool = False) -> dict[str, Any] | None:
    """Return what to merge into the metadata so that nothing of ours is left; None: nothing is there.

    Of guarded pods the user's name is taken, too: anybody may have written it.
    """
    annotations = [
        key for key in metadata.get("annotations") or {} if key.startswith(PREFIX) or (guarded and key == USERNAME)
    ]
    labels = [key for key in metadata.get("labels") or {} if key.startswith(PREFIX + "gpu.")]
    if "namespace" in metadata:  # labels of pods are no record
        labels = []
    if not annotations and not labels:
        return None
    return {"annotations": dict.fromkeys(annotations), "labels": dict.fromkeys(labels)}


def removal_of_workers(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """Return what to merge into the metadata so that no record of a worker is left; None: none is there."""
    annotations = [key for key in metadata.get("annotations") or {} if key in WORKER_RECORDS]
    return {"annotations": dict.fromkeys(annotations)} if annotations else None


def strip(path: str, metadata: dict[str, Any]) -> None:
    """Merge this into an object, unless it is gone."""

    def stripped() -> bool:
        try:
            call("PATCH", path, {"metadata": metadata}, "application/merge-patch+json")
        except Gone:
            return True
        except Refused as error:
            if "metadata.uid" not in str(error):  # else another one of that name was made while the policies held
                raise
        return True

    patiently(f"Taking our annotations from {path}", stripped)


def probe(kind: str, annotation: str, **more: Any) -> dict[str, Any]:
    """Return an object for a trial."""
    metadata = {"name": "jupyter-gpu-probe", "annotations": {PREFIX + annotation: "1"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


OF_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SPEC = {"containers": [{"name": "none", "image": "none"}]}
VERSION = "jupyter-gpu.io/v1alpha1"
OF_LIMITS = f"/apis/{VERSION}"
PROBES: dict[str, tuple[str, Any]] = {
    "jupyter-gpu-bindings": (
        f"/api/v1/namespaces/{NAMESPACE}/bindings",
        probe("Binding", "probe", target={"kind": "Node", "name": "none"}),
    ),
    "jupyter-gpu-nodes": ("/api/v1/nodes", probe("Node", "probe")),
    "jupyter-gpu-pods": (OF_PODS, probe("Pod", "probe", spec=SPEC)),
    "jupyter-gpu-jobs": (OF_PODS, probe("Pod", "probe-jobs", spec=SPEC)),
    OF_WORKERS: (OF_PODS, probe("Pod", "probe-workers", spec=SPEC)),
    "jupyter-gpu-visible-devices": (OF_PODS, probe("Pod", "probe-visible-devices", spec=SPEC)),
    "jupyter-gpu-limits": (
        f"{OF_LIMITS}/gpulimits",
        probe("GpuLimit", "probe", apiVersion=VERSION, spec={"subject": {"kind": "Default"}}),
    ),
    "jupyter-gpu-accounts": (
        f"{OF_LIMITS}/gpuaccounts",
        probe("GpuAccount", "probe", apiVersion=VERSION, spec={"owner": {"kind": "Namespace", "name": "none"}}),
    ),
}
"""One for each policy. They are tried without effect."""


def tried(path: str, body: Any) -> str:
    """Return the words with which the API server refuses it; empty: it does not."""
    try:
        call("POST", f"{path}?dryRun=All", body)
    except Refused as error:
        return str(error)
    return ""


PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
OURS = "?labelSelector=app.kubernetes.io/name%3Djupyter-gpu,app.kubernetes.io/component%3D"


def remove() -> None:
    """Remove everything, except on nodes that do not answer: those are named, and not waited for longer than others."""
    busy = ended()
    for path, _ in reversed(list(objects())):
        delete(path)
    undefine()
    for lease in ("jupyter-gpu-scheduler", "jupyter-gpu-kube-scheduler", "jupyter-gpu-workers"):
        delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}")
    for left in call("GET", f"{PODS}{OURS}cleaner")["items"]:  # by an attempt that did not come to its end
        delete(f"{PODS}/{left['metadata']['name']}?gracePeriodSeconds=0")
    outcomes = {}
    cleaners = {}
    for node in call("GET", "/api/v1/nodes")["items"]:
        name = node["metadata"]["name"]
        if PREFIX + "inventory" not in node["metadata"].get("annotations", {}):
            continue
        strip(f"/api/v1/nodes/{name}", removal(node["metadata"]) or {})  # the policy holds for a second more
        if not ready(node):
            outcomes[name] = "not cleaned, as it is not ready"
        elif name in busy:
            outcomes[name] = "not cleaned, as the node plugin has not ended there"
        else:
            outcomes[name] = f"not cleaned within {SECONDS:.0f} s"
            try:
                cleaners[cleaner(name)] = name
            except Refused as error:
                outcomes[name] = f"not cleaned: {error}"
    outcomes |= cleaned(cleaners)
    for name, outcome in outcomes.items():
        print(f"node {name}: {outcome}", flush=True)
    if any(outcome != CLEANED for outcome in outcomes.values()):
        print("What is left there harms nobody: docs/cluster-guide.md, Upgrade, uninstall.", flush=True)


def undefine() -> None:
    """Delete the definitions, and with them all limits and accounts, where that is asked for."""
    if not KEEP_DEFINITIONS:
        for path, _ in definitions():
            delete(path)


CLEANED = "cleaned"


def ready(node: Any) -> bool:
    """Return whether the node's kubelet answers: pods on other nodes never end, and none starts there."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def ended() -> set[str]:
    """Wait until the node plugins have ended, except on lost nodes; return the nodes where one has not."""
    deadline = time.monotonic() + SECONDS
    while True:
        there = {pod["spec"].get("nodeName", "") for pod in call("GET", f"{PODS}{OURS}node")["items"]}
        if not there:
            return there
        there &= {node["metadata"]["name"] for node in call("GET", "/api/v1/nodes")["items"] if ready(node)}
        if not there or time.monotonic() >= deadline:
            return there
        time.sleep(0.5)


def cleaner(node: str) -> str:
    """Start the pod that cleans a node, and return its name."""
    template = json.loads((HERE / "cleaner.json").read_text())
    template["spec"]["nodeName"] = node
    name: str = call("POST", PODS, template)["metadata"]["name"]
    return name


def cleaned(cleaners: dict[str, str]) -> dict[str, str]:
    """Wait for all of these pods together, by name; return by node what became of those that ended."""
    deadline = time.monotonic() + SECONDS
    outcomes = {}
    waiting = dict(cleaners)
    while waiting and time.monotonic() < deadline:
        time.sleep(0.5)
        for pod in call("GET", f"{PODS}{OURS}cleaner")["items"]:
            phase = pod.get("status", {}).get("phase", "")
            if phase in ("Succeeded", "Failed") and (node := waiting.pop(pod["metadata"]["name"], "")):
                outcomes[node] = CLEANED if phase == "Succeeded" else "not cleaned: its pod failed"
    for name in cleaners:
        delete(f"{PODS}/{name}?gracePeriodSeconds=0")
    return outcomes


def delete(path: str) -> None:
    """Delete an object, unless it is gone."""
    with contextlib.suppress(Gone):
        call("DELETE", path)


if __name__ == "__main__":
    {"apply": apply, "remove": remove}[sys.argv[1]]()
