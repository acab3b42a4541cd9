"""The table of attempts: identity, route, and the outcome that is required."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.admission.api import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, Api
from tests.admission.world import FOREIGN, NOTEBOOKS, ONE, PODS, PREFIX, TWO, World, binding, plain_pod, slot_pod

Change = Mapping[str, str | None]
"""Annotations by their short names; None removes."""


class Wanted(StrEnum):
    """The required outcome of an attempt."""

    DONE = "done"
    DENIED = "denied by a policy"
    REFUSED = "refused before a policy is asked"
    NOTHING = "accepted, without effect on annotations"


DONE, DENIED, REFUSED, NOTHING = Wanted


@dataclass(frozen=True)
class Case:
    """One attempt."""

    who: str
    route: str
    target: str
    wanted: Wanted
    change: Change = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    """More of the spec of a pod that is created, and under `container` of its container."""
    note: str = ""

    def __str__(self) -> str:
        what = self.note or ",".join(f"{key}{'-' if value is None else ''}" for key, value in self.change.items())
        return f"{self.who}: {self.route} {self.target} {what} -> {self.wanted.name.lower()}"

    def attempt(self, world: World) -> Answer:
        """Tries it, without lasting effect."""
        return ROUTES[self.route](world, self)

    def outcome(self, answer: Answer) -> Wanted:
        """The outcome."""
        if answer.ok:
            now = answer.annotations
            written = all(now.get(PREFIX + key) == value for key, value in self.change.items())
            return DONE if written or answer.body.get("kind") == "Status" else NOTHING
        return DENIED if "ValidatingAdmissionPolicy" in answer.message and answer.status == 403 else REFUSED


def full(change: Change) -> dict[str, str | None]:
    """Return the annotations with their full names."""
    return {PREFIX + key: value for key, value in change.items()}


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two changes."""
    found = dict(one)
    for key, value in other.items():
        known = found.get(key)
        found[key] = together(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return found


def where(case: Case) -> str:
    """Path of the pod."""
    namespace = FOREIGN if case.target == "stranger" else NOTEBOOKS
    return f"/api/v1/namespaces/{namespace}/pods/{case.target}"


def patching(suffix: str = "", kind: str = MERGE) -> Callable[[World, Case], Answer]:
    """A patch of annotations, or (`spec`) of more, on a pod or a part of it."""

    def route(world: World, case: Case) -> Answer:
        body: Any = together({"metadata": {"annotations": full(case.change)}}, case.spec)
        flags = ""
        if kind == JSON_PATCH:
            body = [
                {"op": "add", "path": f"/metadata/annotations/jupyter-gpu.io~1{key}", "value": value}
                if value is not None
                else {"op": "remove", "path": f"/metadata/annotations/jupyter-gpu.io~1{key}"}
                for key, value in case.change.items()
            ]
        if kind == APPLY:
            body = {"apiVersion": "v1", "kind": "Pod", **body}
            flags = "&fieldManager=forger&force=true"
        return api(world, case)("PATCH", f"{where(case)}{suffix}?dryRun=All{flags}", body, kind)

    return route


def replacing(suffix: str = "") -> Callable[[World, Case], Answer]:
    """The whole object is written back with other annotations."""

    def route(world: World, case: Case) -> Answer:
        body = world.admin.need("GET", where(case))
        annotations = {**body["metadata"].get("annotations", {}), **full(case.change)}
        body["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        return api(world, case)("PUT", f"{where(case)}{suffix}?dryRun=All", body)

    return route


def creating(make: Callable[..., dict[str, Any]]) -> Callable[[World, Case], Answer]:
    """A new pod."""

    def route(world: World, case: Case) -> Answer:
        spec = dict(case.spec)
        container, metadata = spec.pop("container", {}), spec.pop("metadata", {})
        body = make("new", annotations=case.change, container=container, spec=spec, metadata=metadata)
        return api(world, case)("POST", f"{PODS}?dryRun=All", body)

    return route


def binding_to(path: str) -> Callable[[World, Case], Answer]:
    """A waiting pod gets its node."""

    def route(world: World, case: Case) -> Answer:
        body = together(binding(case.target, ONE, case.change), case.spec)
        return api(world, case)("POST", f"{path.format(pod=case.target)}?dryRun=All", body)

    return route


def node_patch(suffix: str = "") -> Callable[[World, Case], Answer]:
    """Annotations, or (`spec`) more, of a node."""

    def route(world: World, case: Case) -> Answer:
        body = together({"metadata": {"annotations": full(case.change)}}, case.spec)
        return api(world, case)("PATCH", f"/api/v1/nodes/{case.target}{suffix}?dryRun=All", body, MERGE)

    return route


def new_node(world: World, case: Case) -> Answer:
    """A node that is registered."""
    metadata = {"name": case.target, "annotations": full(case.change)}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
    return api(world, case)("POST", "/api/v1/nodes?dryRun=All", body)


def api(world: World, case: Case) -> Api:
    """Return the client of an identity."""
    return world.identities[case.who]


ROUTES: dict[str, Callable[[World, Case], Answer]] = {
    "patch pod": patching(),
    "patch pod (strategic)": patching("", STRATEGIC),
    "patch pod (json)": patching("", JSON_PATCH),
    "apply pod": patching("", APPLY),
    "put pod": replacing(),
    "patch pods/status": patching("/status"),
    "patch pods/status (json)": patching("/status", JSON_PATCH),
    "put pods/status": replacing("/status"),
    "patch pods/ephemeralcontainers": patching("/ephemeralcontainers", STRATEGIC),
    "patch pods/resize": patching("/resize", STRATEGIC),
    "create slot pod": creating(slot_pod),
    "create plain pod": creating(plain_pod),
    "create pods/binding": binding_to(f"{PODS}/{{pod}}/binding"),
    "create bindings": binding_to(f"/api/v1/namespaces/{NOTEBOOKS}/bindings"),
    "patch node": node_patch(),
    "patch nodes/status": node_patch("/status"),
    "create node": new_node,
}

FORGED = '{"observedGeneration":9,"shares":[{"uuid":"GPU-2","milli":1000}]}'
WISH: Change = {"requested": "2"}
FORGERY: Change = {"allocated": FORGED}
REPORT: Change = {"attached": FORGED}
STOCK: Change = {"inventory": '[{"uuid":"GPU-9"}]'}


def _wishes() -> Iterator[Case]:
    """`requested` may be written by the pod itself, and by an account that was given that right."""
    for route in ("patch pods/status", "patch pods/status (json)"):
        yield Case("notebook", route, "lab", DONE, WISH)
        yield Case("notebook", route, "lab", DONE, {"requested": None})
        yield Case("notebook", route, "other", DENIED, WISH)
    for target in (
        "other",
        "plain",
    ):  # the answer to a change of nothing would show that pod to a client that may not read it
        yield Case("notebook", "patch pods/status", target, DENIED, note="nothing")
    yield Case("notebook", "patch pods/status", "far", DENIED, WISH)
    yield Case("notebook", "patch pods/status", "waiting", DENIED, WISH)
    yield Case("notebook", "patch pods/status", "other", DENIED, {"requested": None})
    yield Case("notebook", "patch pods/status", "plain", DENIED, WISH)
    yield Case("notebook", "patch pods/status", "stranger", REFUSED, WISH)
    yield Case("notebook", "patch pod", "lab", REFUSED, WISH)
    yield Case("notebook", "create slot pod", "", REFUSED, WISH)
    yield Case("greedy notebook", "patch pod", "greedy", DONE, WISH)
    yield Case("greedy notebook", "patch pod", "lab", DENIED, WISH)
    yield Case("greedy notebook", "put pod", "lab", DENIED, WISH)
    yield Case("greedy notebook", "put pods/status", "lab", DENIED, WISH)
    yield Case("greedy notebook", "create slot pod", "", DENIED, WISH)
    yield Case("notebook of a deleted pod", "patch pods/status", "again", DENIED, WISH)
    yield Case("account of notebooks", "patch pods/status", "lab", DENIED, WISH)
    yield Case("foreign notebook", "patch pods/status", "lab", REFUSED, WISH)
    yield Case("foreign notebook", "patch pods/status", "stranger", REFUSED, WISH)
    for target in ("lab", "other", "waiting"):
        yield Case("hub", "patch pods/status", target, DONE, WISH)
    yield Case("hub", "patch pod", "lab", DONE, WISH)
    yield Case("hub", "create slot pod", "", DONE, WISH)
    yield Case("hub", "patch pods/status", "stranger", REFUSED, WISH)
    yield Case("editor", "patch pod", "lab", DENIED, WISH)
    yield Case("editor", "patch pod (strategic)", "lab", DENIED, {"requested": None})
    yield Case("editor", "apply pod", "blank", DENIED, WISH)
    yield Case("editor", "create slot pod", "", DENIED, WISH)
    yield Case("cluster-admin", "patch pod", "lab", DONE, WISH)
    yield Case("masters", "patch pod", "lab", DONE, WISH)
    yield Case("scheduler", "patch pods/status", "lab", DENIED, WISH)
    yield Case("plugin", "patch pods/status", "lab", DENIED, WISH)
    yield Case("kubelet", "patch pods/status", "lab", DENIED, WISH)


def _decisions() -> Iterator[Case]:
    """`allocated` and `service`: the scheduler."""
    for change in (FORGERY, {"allocated": None}, {"service": "{}"}):
        yield Case("scheduler", "patch pods/status", "lab", DONE, change)
        yield Case("notebook", "patch pods/status", "lab", DENIED, change)
        yield Case("greedy notebook", "patch pod", "greedy", DENIED, change)
        yield Case("hub", "patch pods/status", "lab", DENIED, change)
        yield Case("plugin", "patch pods/status", "lab", DENIED, change)
        yield Case("kubelet", "patch pods/status", "lab", DENIED, change)
        yield Case("cluster-admin", "patch pod", "lab", DENIED, change)
        yield Case("break-glass", "patch pod", "lab", DONE, change)
    for route in ("patch pod", "patch pod (strategic)", "patch pod (json)", "apply pod", "put pod", "put pods/status"):
        yield Case("editor", route, "lab", DENIED, FORGERY)
    yield Case("masters", "patch pods/status", "lab", DENIED, FORGERY)
    yield Case("editor", "patch pod", "blank", DENIED, FORGERY)
    yield Case("greedy notebook", "create slot pod", "", DENIED, FORGERY)
    yield Case("editor", "create plain pod", "", DENIED, FORGERY)
    yield Case("hub", "create slot pod", "", DENIED, FORGERY)
    yield Case("hub", "create slot pod", "", DENIED, {"service": "{}"})
    yield Case("cluster-admin", "create slot pod", "", DENIED, FORGERY)
    yield Case("notebook of a deleted pod", "patch pods/status", "again", DENIED, FORGERY)
    yield Case("scheduler", "patch pod", "lab", REFUSED, FORGERY)
    for who in ("editor", "greedy notebook"):
        yield Case(who, "patch pods/ephemeralcontainers", "lab", NOTHING, FORGERY)
        yield Case(who, "patch pods/resize", "lab", NOTHING, FORGERY)


def _reports() -> Iterator[Case]:
    """`attached`: the plugin of the pod's own node."""
    for change in (REPORT, {"attached": None}):
        yield Case("plugin", "patch pods/status", "lab", DONE, change)
        yield Case("plugin", "patch pods/status", "far", DENIED, change)
        yield Case("plugin of node2", "patch pods/status", "lab", DENIED, change)
        yield Case("account of plugins", "patch pods/status", "lab", DENIED, change)
        yield Case("scheduler", "patch pods/status", "lab", DENIED, change)
        yield Case("notebook", "patch pods/status", "lab", DENIED, change)
        yield Case("kubelet", "patch pods/status", "lab", DENIED, change)
        yield Case("cluster-admin", "patch pod", "lab", DENIED, change)
    yield Case("plugin of node2", "patch pods/status", "far", DONE, REPORT)
    yield Case("plugin", "patch pods/status", "waiting", DENIED, REPORT)
    yield Case("hub", "patch pods/status", "lab", DENIED, REPORT)
    yield Case("editor", "put pod", "lab", DENIED, REPORT)
    yield Case("greedy notebook", "create slot pod", "", DENIED, REPORT)


def _side_effects() -> Iterator[Case]:
    """Rights on pods/status that the chart grants are good for annotations only."""
    forged_status = {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}
    labels = {"metadata": {"labels": {"app": "other"}}}
    finalizer = {"metadata": {"finalizers": ["example.com/stay"]}}
    for who in ("notebook", "scheduler", "plugin"):
        yield Case(who, "patch pods/status", "lab", DENIED, spec=forged_status, note="podIP")
        yield Case(who, "patch pods/status", "lab", DENIED, spec=labels, note="labels")
        yield Case(who, "patch pods/status", "plain", DENIED, spec=forged_status, note="podIP")
    yield Case("notebook", "patch pods/status", "lab", DENIED, spec=finalizer, note="finalizer")
    others = {"metadata": {"annotations": {"example.com/other": "1"}}}
    spoilt: dict[str, Any] = {
        "podIP": forged_status,
        "labels": labels,
        "finalizer": finalizer,
        "a foreign annotation": others,
    }
    for who, change in (("notebook", WISH), ("scheduler", FORGERY), ("plugin", REPORT)):
        yield Case(who, "patch pods/status", "lab", DENIED, spec=others, note="a foreign annotation")
        for note, spec in spoilt.items():  # beside what it may write
            yield Case(who, "patch pods/status", "lab", DENIED, change, spec, note=f"its own and {note}")
        for other in (WISH, FORGERY, REPORT):
            if other != change:
                yield Case(who, "patch pods/status", "lab", DENIED, {**change, **other})
    yield Case("kubelet", "patch pods/status", "lab", DONE, spec=forged_status, note="podIP")
    yield Case("editor", "patch pod", "lab", DONE, spec=labels, note="labels")


def _borrowed() -> Iterator[Case]:
    """An editor of a namespace may act as its service accounts, and gains nothing by what the chart granted."""
    beside: dict[str, dict[str, Any]] = {
        "podIP": {"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}},
        "condition": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        "phase": {"status": {"phase": "Succeeded"}},
        "labels": {"metadata": {"labels": {"app": "other"}}},
        "finalizer": {"metadata": {"finalizers": ["example.com/stay"]}},
        "a foreign annotation": {"metadata": {"annotations": {"example.com/other": "1"}}},
    }
    notebooks = ("colleague as notebook", "colleague as greedy notebook", "account of notebooks")
    for note, spec in beside.items():
        for target in ("lab", "plain"):
            for who in (*notebooks, "colleague as hub", "hub"):
                yield Case(who, "patch pods/status", target, DENIED, spec=spec, note=note)
        for who in ("hub", "colleague as hub"):
            yield Case(who, "patch pods/status", "lab", DENIED, WISH, spec, note=f"a wish and {note}")
        tokened = "colleague with a token of the pod"
        yield Case(tokened, "patch pods/status", "lab", DENIED, WISH, spec, note=f"a wish and {note}")
        for who in ("cluster's controller", "operator of everything"):  # by rights that the chart did not grant
            yield Case(who, "patch pods/status", "lab", DONE, spec=spec, note=note)
    for who in notebooks:
        for target in ("lab", "other", "plain", "waiting"):  # the answer would show the pod
            yield Case(who, "patch pods/status", target, DENIED, note="nothing")
        for change in (FORGERY, REPORT):
            yield Case(who, "patch pods/status", "lab", DENIED, change)
    for who in notebooks[:2]:
        yield Case(who, "patch pods/status", "lab", DENIED, WISH)
    yield Case("colleague as notebook", "patch pod", "lab", REFUSED, WISH)
    yield Case("colleague", "patch pod", "lab", DENIED, WISH)
    yield Case("colleague", "patch pods/status", "lab", REFUSED, WISH)
    # It may act as an account, and not as one with a pod …
    yield Case("colleague with claims of the pod", "patch pods/status", "lab", REFUSED, WISH)
    # … but make a token of the pod, as it may read the one that is there by `exec`: good for that pod's wish.
    yield Case("colleague with a token of the pod", "patch pods/status", "lab", DONE, WISH)
    yield Case("colleague with a token of the pod", "patch pods/status", "other", DENIED, WISH)
    yield Case("colleague with a token of the pod", "patch pods/status", "lab", DENIED, FORGERY)
    # Who may edit a hub's namespace can be the hub.
    yield Case("colleague as hub", "patch pods/status", "lab", DONE, WISH)
    yield Case("colleague as hub", "patch pods/status", "lab", DENIED, FORGERY)


def _forgetting() -> Iterator[Case]:
    """The hook of an installation takes away what was written before it, and can do nothing else."""
    gone = {"requested": None, "allocated": None, "attached": None}
    yield Case("hook", "patch pods/status", "lab", DONE, gone)
    yield Case("hook", "patch pod", "lab", REFUSED, gone)
    yield Case("hook", "patch node", ONE, DONE, {"inventory": None})
    count = {"metadata": {"labels": {PREFIX + "gpu.count": None}}}
    yield Case("hook", "patch node", ONE, DONE, {"inventory": None}, count, note="inventory and count taken away")
    for change in (WISH, FORGERY, REPORT, {**gone, **FORGERY}):
        yield Case("hook", "patch pods/status", "lab", DENIED, change)
    yield Case("hook", "patch node", ONE, DENIED, STOCK)
    beside: dict[str, dict[str, Any]] = {
        "labels": {"metadata": {"labels": {"app": "other"}}},
        "finalizer": {"metadata": {"finalizers": ["example.com/stay"]}},
        "a foreign annotation": {"metadata": {"annotations": {"example.com/other": "1"}}},
    }
    phase: dict[str, Any] = {"status": {"phase": "Succeeded"}}
    taint: dict[str, Any] = {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}
    name, model = {"kubernetes.io/hostname": None}, {PREFIX + "gpu.model": "H100"}
    for note, spec in {**beside, "phase": phase}.items():
        yield Case("hook", "patch pods/status", "lab", DENIED, spec=spec, note=note)
        yield Case("hook", "patch pods/status", "lab", DENIED, gone, spec, note=f"takes away and {note}")
    of_nodes: dict[str, dict[str, Any]] = {
        "name": {"metadata": {"labels": name}},
        "model": {"metadata": {"labels": model}},
        "taint": taint,
    }
    for note, spec in {**beside, **of_nodes}.items():
        yield Case("hook", "patch node", ONE, DENIED, spec=spec, note=note)
        yield Case("hook", "patch node", ONE, DENIED, {"inventory": None}, spec, note=f"takes away and {note}")
    yield Case("hook", "create slot pod", "", REFUSED)


def _bindings() -> Iterator[Case]:
    """Annotations of a Binding are merged into the pod."""
    for route in ("create pods/binding", "create bindings"):
        yield Case("greedy notebook", route, "waiting", DENIED, FORGERY)
        yield Case("editor", route, "waiting", DENIED, {"requested": "4"})
        yield Case("masters", route, "waiting", DENIED, FORGERY)
        yield Case("break-glass", route, "waiting", DONE, FORGERY)
    yield Case("scheduler", "create pods/binding", "waiting", DONE, FORGERY)
    yield Case("scheduler", "create pods/binding", "waiting", DONE)
    yield Case("scheduler", "create pods/binding", "waiting", DENIED, WISH)
    yield Case("scheduler", "create pods/binding", "waiting", DENIED, REPORT)
    yield Case("scheduler", "create bindings", "waiting", REFUSED, FORGERY)
    for who in ("our kube-scheduler", "cluster's kube-scheduler"):
        yield Case(who, "create pods/binding", "waiting", DONE)
        yield Case(who, "create pods/binding", "waiting", DENIED, FORGERY)
    yield Case("plugin", "create pods/binding", "waiting", REFUSED, FORGERY)


def _nodes() -> Iterator[Case]:
    """`inventory`, `use` and the labels of GPUs: the plugin of that node."""
    count = {"metadata": {"labels": {PREFIX + "gpu.count": "8"}}}
    model = {"metadata": {"labels": {PREFIX + "gpu.model": "H100"}}}
    for change in (STOCK, {"inventory": None}, {"use": '{"cpu":3}'}):
        yield Case("plugin", "patch nodes/status", ONE, DONE, change)
        yield Case("plugin", "patch nodes/status", TWO, DENIED, change)
        yield Case("account of plugins", "patch nodes/status", ONE, DENIED, change)
        yield Case("kubelet", "patch node", ONE, DENIED, change)
        yield Case("kubelet", "patch nodes/status", ONE, DENIED, change)
        yield Case("cluster-admin", "patch node", ONE, DENIED, change)
        yield Case("greedy notebook", "patch nodes/status", ONE, DENIED, change)
        yield Case("break-glass", "patch node", ONE, DONE, change)
    yield Case("kubelet", "patch node", TWO, REFUSED, STOCK)
    yield Case("scheduler", "patch nodes/status", ONE, REFUSED, STOCK)
    yield Case("notebook", "patch nodes/status", ONE, REFUSED, STOCK)
    yield Case("plugin", "patch node", ONE, REFUSED, STOCK)
    yield Case("editor", "create node", "jupyter-gpu-test-node3", DENIED, STOCK)
    yield Case("editor", "create node", "jupyter-gpu-test-node3", DONE, note="without inventory")
    for label, labels in {"count": count, "model": model}.items():
        yield Case("plugin", "patch nodes/status", ONE, DONE, STOCK, labels, note=f"inventory and {label}")
        yield Case("plugin", "patch nodes/status", TWO, DENIED, spec=labels, note=label)
        yield Case("kubelet", "patch node", ONE, DENIED, spec=labels, note=label)
    spoilt = {
        "capacity": {"status": {"capacity": {PREFIX + "slot": "9"}}},
        "role": {"metadata": {"labels": {"example.com/role": "x"}}},
        "name": {"metadata": {"labels": {"kubernetes.io/hostname": TWO}}},
        "foreign annotation": {"metadata": {"annotations": {"example.com/other": "1"}}},
    }
    for note, spec in spoilt.items():
        yield Case("plugin", "patch nodes/status", ONE, DENIED, spec=spec, note=note)
    yield Case("kubelet", "patch nodes/status", ONE, DONE, spec=spoilt["capacity"], note="capacity")


def _escapes() -> Iterator[Case]:
    """A pod with a slot stays in its cgroup and goes through the scheduler."""

    def secure(**context: Any) -> dict[str, Any]:
        return {"container": {"securityContext": context}}

    def more(where: str, **context: Any) -> dict[str, Any]:
        return {where: [{"name": "second", "image": "none", "securityContext": context}]}

    def path(host: str) -> dict[str, Any]:
        return {"volumes": [{"name": "host", "hostPath": {"path": host}}]}

    bad: dict[str, dict[str, Any]] = {
        "privileged": secure(privileged=True),
        "privileged init container": more("initContainers", privileged=True),
        "SYS_ADMIN in an init container": more("initContainers", capabilities={"add": ["SYS_ADMIN"]}),
        "hostPID": {"hostPID": True},
        "nodeName": {"nodeName": ONE},
    }
    spellings = ("SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "ALL", "BPF", "SYS_MODULE", "SYS_PTRACE", "DAC_READ_SEARCH")
    bad |= {f"capability {name}": secure(capabilities={"add": [name]}) for name in spellings}
    hosts = ["/", "//", "/sys", "/sys/", "//sys//fs/./cgroup", "/sys/fs/cgroup/unified", "/sys/fs/bpf", "/proc", "/var"]
    hosts += ["/run", "/run/containerd/containerd.sock", "/var/run/docker.sock", "/var/lib/kubelet/device-plugins"]
    hosts += ["/var/lib/jupyter-gpu", "/etc/kubernetes/pki", "/etc/cron.d", "/usr/bin", "/root", "/home", "/dev/shm"]
    hosts += ["/srv", "/srv/data/private", "/srv/database", "/srv/sharedness", "/srv/shared/..data"]
    bad |= {f"mounts {host}": path(host) for host in hosts}
    bad["mounts something allowed and something else"] = {
        "volumes": [*path("/srv/data")["volumes"], {"name": "more", "hostPath": {"path": "/srv/other"}}]
    }
    bad["flexVolume"] = {"volumes": [{"name": "old", "flexVolume": {"driver": "example.com/any"}}]}
    bad["gitRepo"] = {"volumes": [{"name": "old", "gitRepo": {"repository": "https://example.com/any"}}]}
    good: dict[str, dict[str, Any]] = {
        "nothing special": {},
        "NET_BIND_SERVICE": secure(capabilities={"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}),
        "all dropped": secure(capabilities={"drop": ["ALL"]}, allowPrivilegeEscalation=False),
        "escalation allowed": secure(allowPrivilegeEscalation=True),
        "mounts /srv/data": path("/srv/data"),
        "mounts //srv/./data/": path("//srv/./data/"),
        "mounts /srv/shared": path("/srv/shared"),
        "mounts /srv/shared/team": path("/srv/shared/team"),
        "mounts /srv/shared/team/one": path("/srv/shared/team/one"),
        "volumes of other kinds": {
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "home"}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "words", "configMap": {"name": "any"}},
                {"name": "secret", "secret": {"secretName": "any"}},
                {"name": "driver", "csi": {"driver": "example.com"}},
            ]
        },
    }
    for note, spec in bad.items():
        yield Case("cluster-admin", "create slot pod", "", DENIED, spec=spec, note=note)
        yield Case("cluster-admin", "create plain pod", "", DONE, spec=spec, note=note)
    for note, spec in good.items():
        yield Case("editor", "create slot pod", "", DONE, spec=spec, note=note)
    for steps in ("/srv/data/../../etc", "/srv/shared/../data"):
        yield Case("cluster-admin", "create slot pod", "", REFUSED, spec=path(steps), note=f"mounts {steps}")
    yield Case("hub", "create slot pod", "", DENIED, spec=bad["privileged"], note="privileged")
    yield Case("break-glass", "create slot pod", "", DONE, spec=bad["privileged"], note="privileged")
    debugger = {"name": "debug", "image": "none"}
    for note, context, wanted in (
        ("privileged", {"privileged": True}, DENIED),
        ("SYS_ADMIN", {"capabilities": {"add": ["SYS_ADMIN"]}}, DENIED),
        ("ordinary", {}, DONE),
    ):
        spec = {"spec": {"ephemeralContainers": [{**debugger, "securityContext": context}]}}
        for target in ("lab", "blank"):
            yield Case("editor", "patch pods/ephemeralcontainers", target, wanted, spec=spec, note=f"{note} debugger")
    spec = {"spec": {"ephemeralContainers": [{**debugger, "securityContext": {"privileged": True}}]}}
    yield Case("editor", "patch pods/ephemeralcontainers", "plain", DONE, spec=spec, note="privileged debugger")


def _visible_devices() -> Iterator[Case]:
    """A pod without a slot may not name the GPUs that the NVIDIA runtime gives it."""

    def environment(**entry: Any) -> dict[str, Any]:
        return {"env": [{"name": "PATH", "value": "/bin"}, {"name": "NVIDIA_VISIBLE_DEVICES", **entry}]}

    field = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['gpus']"}}}
    devices = "/var/run/nvidia-container-devices/all"
    mount = {"volumeMounts": [{"name": "v", "mountPath": devices}]}
    volumes = {"volumes": [{"name": "v", "emptyDir": {}}]}
    bad: dict[str, dict[str, Any]] = {
        "all GPUs": {"container": environment(value="all")},
        "a GPU by its uuid": {"container": environment(value="GPU-1")},
        "all GPUs by a variable": {"container": environment(value="$(GPUS)")},
        "GPUs that a field names": {"container": environment(**field)},
        "GPUs of an init container": {"initContainers": [{"name": "i", "image": "none", **environment(value="0")}]},
        "GPUs by a mount": {"container": mount, **volumes},
    }
    cdi = ("cdi.k8s.io/gpus", "nvidia.cdi.k8s.io/pod")
    bad |= {f"annotation {key}": {"metadata": {"annotations": {key: "nvidia.com/gpu=all"}}} for key in cdi}
    good = {f"GPUs: {value}": {"container": environment(value=value)} for value in ("void", "none", "")}
    for note, spec in bad.items():
        for who in ("editor", "cluster-admin"):
            yield Case(who, "create plain pod", "", DENIED, spec=spec, note=note)
        yield Case("editor", "create slot pod", "", DONE, spec=spec, note=note)
        yield Case("break-glass", "create plain pod", "", DONE, spec=spec, note=note)
    for note, spec in good.items():
        yield Case("editor", "create plain pod", "", DONE, spec=spec, note=note)
    debugger = {"spec": {"ephemeralContainers": [{"name": "d", "image": "none", **environment(value="all")}]}}
    later = {"metadata": {"annotations": {"cdi.k8s.io/gpus": "nvidia.com/gpu=all"}}}
    for target, wanted in (("plain", DENIED), ("lab", DONE)):
        yield Case("editor", "patch pods/ephemeralcontainers", target, wanted, spec=debugger, note="a debugger's GPUs")
        yield Case("editor", "patch pod", target, wanted, spec=later, note="a device later")


CASES = (
    *_visible_devices(),
    *_wishes(),
    *_decisions(),
    *_reports(),
    *_side_effects(),
    *_borrowed(),
    *_forgetting(),
    *_bindings(),
    *_nodes(),
    *_escapes(),
)
