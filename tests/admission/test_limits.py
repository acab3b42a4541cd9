"""Rights to write limits and accounts: the chart's policies and rights on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.api import MERGE, Answer, Api
from tests.admission.test_admission import some_plane
from tests.admission.test_definitions import ACCOUNTS, DEFINITIONS, LIMITS, account, limit
from tests.admission.world import SYSTEM, VALUES, World
from tests.cluster.testbed import existing, until
from tests.deploy import chart

pytestmark = [pytest.mark.cluster, pytest.mark.existing]
MANAGED = "app.kubernetes.io/managed-by"
LOCKS: dict[str, dict[str, Any]] = {
    "helm": {"labels": {MANAGED: "Helm"}},
    "argo-label": {"labels": {"argocd.argoproj.io/instance": "gpus"}},
    "argo": {"annotations": {"argocd.argoproj.io/tracking-id": "gpus:…"}},
    "flux": {"labels": {"kustomize.toolkit.fluxcd.io/name": "gpus"}},
    "flux-helm": {"labels": {"helm.toolkit.fluxcd.io/name": "gpus"}},
    "unknown": {"labels": {MANAGED: "another-tool"}},
}
"""The marks of tools on the objects that they manage."""
OPEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "ours": {"labels": {MANAGED: "jupyter-gpu-hub"}},
    "properties": {"labels": {MANAGED: "jupyter-gpu-hub-properties"}},
    "kubectl": {"labels": {MANAGED: "kubectl"}},
}
CAP = "the service of the hub may not change limits of kind Cap, which are the cluster's"
KEPT = "another tool (Helm, Argo CD, Flux) keeps this limit: change it there"
MEMBERS = "in the status of limits the service of the hub may change the members of groups only"
STATUS = "the jupyter-gpu scheduler may change the status of limits only, and no members there"
WRITTEN = "GpuAccounts are written by the jupyter-gpu scheduler only"
DRY = "?dryRun=All"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a world with a limit of each kind, and one for each mark of a tool."""
    with some_plane() as plane:
        world = World(plane, tmp_path_factory.mktemp("limits"))
        world.build()
        for name, subject in SUBJECTS.items():
            world.admin.need("POST", LIMITS, limit({"subject": subject, "max": 1}, name))
        for name, metadata in {**LOCKS, **OPEN}.items():
            body = limit({"subject": {"kind": "Group", "name": name}, "max": 1}, name)
            world.admin.need("POST", LIMITS, {**body, "metadata": {"name": name, **metadata}})
        yield world
        for name in (*SUBJECTS, *LOCKS, *OPEN):
            world.admin("DELETE", f"{LIMITS}/{name}")
        world.close()


SUBJECTS: dict[str, dict[str, str]] = {
    "of-a-user": {"kind": "User", "name": "ann"},
    "of-a-group": {"kind": "Group", "name": "ml"},
    "of-a-namespace": {"kind": "Namespace", "name": "team"},
    "of-everyone": {"kind": "Default"},
    "the-cap": {"kind": "Cap"},
}


def hub(world: World) -> Api:
    """Return the client of the hub's service."""
    return world.identities["hub's service"]


def writes(api: Api, name: str, subject: dict[str, str], metadata: dict[str, Any]) -> dict[str, Answer]:
    """Create a limit of this subject, and change and delete the one of that name; without effect."""
    new = {**limit({"subject": subject, "max": 2}), "metadata": {"name": "new", **metadata}}
    return {
        "create": api("POST", LIMITS + DRY, new),
        "patch": api("PATCH", f"{LIMITS}/{name}{DRY}", {"spec": {"max": 2}}, MERGE),
        "delete": api("DELETE", f"{LIMITS}/{name}{DRY}"),
    }


def refusals(answers: dict[str, Answer]) -> dict[str, str]:
    """Return by attempt the sentence of our policy; empty: it was done."""
    found = {}
    for what, answer in answers.items():
        assert answer.ok or "ValidatingAdmissionPolicy" in answer.message, f"{what}: {answer.message}"
        found[what] = "" if answer.ok else answer.message.partition("denied request: ")[2]
    return found


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "the-cap"])
def test_hub_s_service_changes_limits(world: World, name: str) -> None:
    """It may do everything with those that no tool keeps."""
    assert set(refusals(writes(hub(world), name, SUBJECTS[name], {})).values()) == {""}


@pytest.mark.parametrize("name", OPEN)
def test_marks_of_our_own_lock_nothing(world: World, name: str) -> None:
    """The service marks what it mirrors, and must be able to change it."""
    assert set(refusals(writes(hub(world), name, {"kind": "Group", "name": name}, OPEN[name])).values()) == {""}


def test_hub_s_service_may_not_touch_the_cap(world: World) -> None:
    """The cap binds hubs as well: their service cannot make, change or remove it."""
    answers = writes(hub(world), "the-cap", SUBJECTS["the-cap"], {})
    assert refusals(answers) == dict.fromkeys(answers, CAP)
    assert set(refusals(writes(world.identities["cluster-admin"], "the-cap", {"kind": "Cap"}, {})).values()) == {""}


@pytest.mark.parametrize("name", LOCKS)
def test_hub_s_service_may_not_touch_what_a_tool_keeps(world: World, name: str) -> None:
    """The tool would undo it. Nor can the service take the mark away, or set it."""
    answers = writes(hub(world), name, {"kind": "Group", "name": name}, LOCKS[name])
    marks = {part: dict.fromkeys(keys) for part, keys in LOCKS[name].items()}
    answers["unmark"] = hub(world)("PATCH", f"{LIMITS}/{name}{DRY}", {"metadata": marks}, MERGE)
    answers["mark"] = hub(world)("PATCH", f"{LIMITS}/plain{DRY}", {"metadata": LOCKS[name]}, MERGE)
    assert refusals(answers) == dict.fromkeys(answers, KEPT)
    masters = world.identities["masters"]
    assert set(refusals(writes(masters, name, {"kind": "Group", "name": name}, LOCKS[name])).values()) == {""}


def test_hub_s_service_mirrors_members_of_groups_only(world: World) -> None:
    """It writes the members of any group's limit; nothing else of a status, and for no other subject."""

    def write(name: str, status: dict[str, Any]) -> Answer:
        return hub(world)("PATCH", f"{LIMITS}/{name}/status{DRY}", {"status": status}, MERGE)

    for name in ("of-a-group", "helm", "plain"):
        assert write(name, {"members": ["ann", "ünï"]}).ok
        assert write(name, {"membersOfHubs": {"jhub": ["ann", "ünï"], "other": []}}).ok
        for status in (
            {"used": "0"},
            {"waiting": "1"},
            {"conditions": [condition()]},
            {"members": ["ann"], "used": "0"},
        ):
            assert refusals({"status": write(name, status)}) == {"status": MEMBERS}
    for name in ("of-a-user", "of-everyone", "the-cap", "of-a-namespace"):
        for members in ({"members": ["ann"]}, {"membersOfHubs": {"jhub": ["ann"]}}):
            assert refusals({"status": write(name, members)}) == {"status": MEMBERS}


def test_hub_s_service_writes_the_members_for_good(world: World) -> None:
    """They stay while the scheduler writes the rest, and another field of the scheduler's stays as well."""
    path = f"{LIMITS}/of-a-group"
    hub(world).need("PATCH", f"{path}/status", {"status": {"members": ["ann"]}}, MERGE)
    scheduler = world.identities["scheduler"]
    scheduler.need("PATCH", f"{path}/status", {"status": {"used": "2", "conditions": [condition()]}}, MERGE)
    hub(world).need("PATCH", f"{path}/status", {"status": {"members": ["ann", "bob"]}}, MERGE)
    status = world.admin.need("GET", path)["status"]
    assert (status["members"], status["used"], len(status["conditions"])) == (["ann", "bob"], "2", 1)


def test_scheduler_writes_only_the_status_of_limits(world: World) -> None:
    """All of it but the members; RBAC gives it nothing else."""
    scheduler = world.identities["scheduler"]
    assert scheduler("PATCH", f"{LIMITS}/of-a-user/status{DRY}", {"status": {"used": "1", "waiting": "0"}}, MERGE).ok
    answer = scheduler("PATCH", f"{LIMITS}/of-a-group/status{DRY}", {"status": {"members": ["eve"]}}, MERGE)
    of_hubs = scheduler("PATCH", f"{LIMITS}/of-a-group/status{DRY}", {"status": {"membersOfHubs": {"a": []}}}, MERGE)
    assert refusals({"members": answer, "of hubs": of_hubs}) == {"members": STATUS, "of hubs": STATUS}
    for answer in (
        scheduler("POST", LIMITS + DRY, limit({"subject": {"kind": "Default"}})),
        scheduler("PATCH", f"{LIMITS}/of-a-user{DRY}", {"spec": {"max": 9}}, MERGE),
        scheduler("DELETE", f"{LIMITS}/of-a-user{DRY}"),
    ):
        assert answer.status == 403
        assert "ValidatingAdmissionPolicy" not in answer.message
    assert scheduler("GET", LIMITS).ok
    assert scheduler("GET", f"{DEFINITIONS}/gpulimits.jupyter-gpu.io").ok
    assert scheduler("GET", DEFINITIONS).status == 403


def test_scheduler_alone_writes_accounts(world: World) -> None:
    """Neither administrators nor the hub's service forge what was used; administrators may remove an account."""
    scheduler, body = world.identities["scheduler"], account({"kind": "User", "name": "ann", "hub": "jhub"}, "ann")
    scheduler.need("POST", ACCOUNTS, body)
    scheduler.need("PATCH", f"{ACCOUNTS}/ann/status", {"status": {"used": "1", "waiting": "0"}}, MERGE)
    assert scheduler("DELETE", f"{ACCOUNTS}/ann{DRY}").ok
    for who in ("masters", "cluster-admin"):
        api = world.identities[who]
        answers = {
            "create": api("POST", ACCOUNTS + DRY, account({"kind": "Namespace", "name": "team"})),
            "status": api("PATCH", f"{ACCOUNTS}/ann/status{DRY}", {"status": {"used": "0"}}, MERGE),
            "label": api("PATCH", f"{ACCOUNTS}/ann{DRY}", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        }
        assert refusals(answers) == dict.fromkeys(answers, WRITTEN)
        assert api("DELETE", f"{ACCOUNTS}/ann{DRY}").ok
    for who in ("hub's service", "hub", "notebook", "editor", "plugin"):
        answer = world.identities[who]("PATCH", f"{ACCOUNTS}/ann/status{DRY}", {"status": {"used": "0"}}, MERGE)
        assert answer.status == 403, who
    assert hub(world)("GET", ACCOUNTS).ok
    world.admin.need("DELETE", f"{ACCOUNTS}/ann")


def test_break_glass_repairs_everything(world: World) -> None:
    """Members of the group are bound by no policy."""
    world.glass.need("POST", ACCOUNTS + DRY, account({"kind": "Namespace", "name": "team"}))


def test_limits_are_read_by_viewers_and_written_by_administrators(world: World) -> None:
    """The right to view the cluster shows limits and accounts; the right to edit namespaces changes none of them."""
    world.apply(
        [binding("jupyter-gpu-test-viewer", "view", "victor"), binding("jupyter-gpu-test-edits", "edit", "edith")]
    )
    for name in ("victor", "edith"):
        user = Api(world.plane.kubeconfig, impersonate=[("Impersonate-User", name)])
        until(lambda user=user: user("GET", LIMITS).ok, 60, "the aggregated role")  # type: ignore[misc]
        assert user("GET", ACCOUNTS).ok
        assert user("PATCH", f"{LIMITS}/of-a-namespace{DRY}", {"spec": {"max": 9}}, MERGE).status == 403
        assert user("POST", LIMITS + DRY, limit({"subject": {"kind": "Namespace", "name": "team"}})).status == 403
        user.close()
    for who in ("editor", "notebook", "hub", "operator of everything"):
        assert world.identities[who]("GET", LIMITS).status == 403, who


def test_hub_s_service_writes_nothing_where_limits_are_kept_in_files(world: World) -> None:
    """With `hub.edit: false` it reads limits, and mirrors members of groups."""
    values = {**VALUES, "hub": {"enabled": True, "edit": False}}
    roles = [item for item in chart.render(values, namespace=SYSTEM) if item["kind"] == "ClusterRole"]
    world.apply([item for item in roles if item["metadata"]["name"] == "jupyter-gpu-hub-service"])
    try:
        until(lambda: hub(world)("POST", LIMITS + DRY, limit({"subject": {"kind": "Default"}})).status == 403)
        for answer in writes(hub(world), "of-a-user", SUBJECTS["of-a-user"], {}).values():
            assert answer.status == 403
            assert "ValidatingAdmissionPolicy" not in answer.message
        assert hub(world)("PATCH", f"{LIMITS}/of-a-group/status{DRY}", {"status": {"members": ["ann"]}}, MERGE).ok
    finally:
        roles = [item for item in chart.render(VALUES, namespace=SYSTEM) if item["kind"] == "ClusterRole"]
        world.apply([item for item in roles if item["metadata"]["name"] == "jupyter-gpu-hub-service"])


def condition() -> dict[str, str]:
    """Return a condition of a limit."""
    said = {"type": "Conflicting", "status": "True", "reason": "TwoLimits", "message": "…"}
    return {**said, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def binding(name: str, role: str, user: str) -> dict[str, Any]:
    """Bind a role of the whole cluster to a user."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": existing.OURS},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
    }
