"""Every identity tries every route to what is not its own: the chart's policies and rights on a real API server."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.admission import cases
from tests.admission.api import MERGE, Api
from tests.admission.cases import DONE, NOTHING, Case, Wanted
from tests.admission.owners import OWNERS
from tests.admission.requests import REQUESTS
from tests.admission.world import NOTEBOOKS, ONE, PODS, PREFIX, VALUES, World, binding, slot_pod
from tests.cluster.testbed import ControlPlane, Existing, borrowed, control_plane, existing, until

pytestmark = [pytest.mark.cluster, pytest.mark.existing]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
NAMES = (
    "jupyter-gpu-accounts",
    "jupyter-gpu-bindings",
    "jupyter-gpu-jobs",
    "jupyter-gpu-limits",
    "jupyter-gpu-nodes",
    "jupyter-gpu-pods",
    "jupyter-gpu-visible-devices",
    "jupyter-gpu-workers",
)
CASES = (*cases.CASES, *OWNERS, *REQUESTS)


@contextmanager
def some_plane() -> Iterator[ControlPlane | Existing]:
    """Return the control plane of an existing cluster, where that is allowed; else one for these tests."""
    if existing.choice().context:
        with borrowed() as cluster:
            yield cluster
    else:
        with control_plane(parts=("etcd", "apiserver", "controller-manager")) as plane:
            yield plane


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One for all cases: they are tried without lasting effect."""
    with some_plane() as plane:
        world = World(plane, tmp_path_factory.mktemp("admission"))
        world.build()
        yield world
        world.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_identity_writes_only_its_own(world: World, case: Case) -> None:
    """Each attempt ends as the table says."""
    answer = case.attempt(world)
    assert case.outcome(answer) is case.wanted, f"{answer.status} {answer.message}"


def test_cases_are_unique_and_complete() -> None:
    """No line of the table stands there twice, and no route or identity is forgotten."""
    assert len({str(case) for case in CASES}) == len(CASES) >= 98
    assert {case.route for case in CASES} == set(cases.ROUTES)
    assert {case.wanted for case in CASES} == set(Wanted)


def test_every_identity_tries(world: World) -> None:
    """Each identity of the table has a case."""
    assert {case.who for case in CASES} == set(world.identities)


def test_rightful_writes_of_a_pods_life_are_accepted(world: World) -> None:
    """Real writes by the three writers, one after the other, stay."""
    hub, scheduler, plugin = (world.identities[who] for who in ("hub", "scheduler", "plugin"))
    made = hub.need("POST", PODS, slot_pod("life", annotations={"requested": "1"}))
    uid = made["metadata"]["uid"]
    allocated = {"allocated": '{"observedGeneration":0,"shares":[]}'}
    scheduler.need("POST", f"{PODS}/life/binding", binding("life", ONE, allocated, uid))
    token = world.token(NOTEBOOKS, "default", made)
    status = f"{PODS}/life/status"
    plugin.need("PATCH", status, _annotations(uid, "attached", allocated["allocated"]), MERGE)
    notebook = Api(world.plane.kubeconfig, token)
    notebook.need("PATCH", status, _annotations(uid, "requested", '{"generation":1,"milli":2000}'), MERGE)
    notebook.close()
    scheduler.need("PATCH", status, _annotations(uid, "allocated", '{"observedGeneration":1,"shares":[]}'), MERGE)
    found = world.admin.need("GET", f"{PODS}/life")
    ours = {key.removeprefix(PREFIX) for key in found["metadata"]["annotations"] if key.startswith(PREFIX)}
    assert ours == {"requested", "allocated", "attached"}
    assert found["spec"]["nodeName"] == ONE
    world.kill("life")


def test_token_of_a_deleted_pod_writes_nothing(world: World) -> None:
    """A pod is deleted and its name used again: its token, accepted for some seconds more, writes nothing."""
    first = world.place(slot_pod("twice"), ONE)
    notebook = Api(world.plane.kubeconfig, world.token(NOTEBOOKS, "default", first))
    wish = {"metadata": {"annotations": {PREFIX + "requested": "2"}}}
    notebook.need("PATCH", f"{PODS}/twice/status", wish, MERGE)
    world.kill("twice")
    world.place(slot_pod("twice"), ONE)
    answer = notebook("PATCH", f"{PODS}/twice/status", wish, MERGE)
    assert answer.status in (401, 403), answer
    assert PREFIX + "requested" not in world.admin.need("GET", f"{PODS}/twice")["metadata"].get("annotations", {})
    notebook.close()
    world.kill("twice")


def test_policies_are_well_typed(world: World) -> None:
    """The API server's type check accepts every expression."""

    def checked() -> bool:
        found = [world.admin.need("GET", f"{POLICIES}/{name}") for name in NAMES]
        return all(item.get("status", {}).get("observedGeneration") == item["metadata"]["generation"] for item in found)

    until(checked, 60, "the type check of the policies")
    for name in NAMES:
        checking = world.admin.need("GET", f"{POLICIES}/{name}")["status"].get("typeChecking", {})
        assert not checking.get("expressionWarnings"), checking


def test_hook_changes_policies_in_place(world: World) -> None:
    """Applied again, the policies are the same objects, and enforced all the while."""
    before = [world.admin.need("GET", f"{POLICIES}/{name}")["metadata"]["uid"] for name in NAMES]
    assert "in force" in world.apply_policies()
    assert [world.admin.need("GET", f"{POLICIES}/{name}")["metadata"]["uid"] for name in NAMES] == before


def test_no_path_of_a_node_is_mounted_by_default(world: World) -> None:
    """No path is allowed if the chart names none; the expressions without any path are well typed too."""
    mounts = [case for case in CASES if case.note.startswith("mounts /srv/") and case.wanted is DONE]
    mounts = [case for case in mounts if case.route == "create slot pod"]
    assert len(mounts) >= 4
    world.apply_policies(policies={"allowedHostPaths": []})
    assert {case.outcome(case.attempt(world)) for case in mounts} == {cases.DENIED}
    test_policies_are_well_typed(world)
    world.apply_policies()
    assert {case.outcome(case.attempt(world)) for case in mounts} == {DONE}


def test_policy_of_visible_devices_can_be_switched_off(world: World) -> None:
    """It is removed then, also where it was there before; and it comes back, but for trusted namespaces."""
    named = [case for case in CASES if case.who == "editor" and case.wanted is cases.DENIED and "all GPUs" in case.note]
    assert named
    path = f"{POLICIES}/jupyter-gpu-visible-devices"
    world.apply_policies(policies={"visibleDevices": {"refuse": False}})
    assert world.admin("GET", path).status == 404
    until(lambda: {case.outcome(case.attempt(world)) for case in named} == {DONE}, 60, "its end")
    world.apply_policies()
    assert {case.outcome(case.attempt(world)) for case in named} == {cases.DENIED}
    world.apply_policies(policies={"visibleDevices": {"exceptNamespaces": [NOTEBOOKS]}})
    assert {case.outcome(case.attempt(world)) for case in named} == {DONE}
    world.apply_policies()


def test_creators_ask_where_limits_are_used(world: World) -> None:
    """A creator of a pod with a slot may write its first request then, no later one, and none of other pods."""
    asked = {case.who: case for case in CASES if case.route == "create slot pod" and case.change == cases.WISH}
    later = [case for case in CASES if case.route != "create slot pod" and case.change == cases.WISH]
    assert asked["editor"].wanted is cases.DENIED
    world.apply_policies(limits={"askAtCreation": None})  # the hub's service is enabled
    outcomes = {who: case.outcome(case.attempt(world)) for who, case in asked.items()}
    refused = dict.fromkeys(("notebook", "hub's service"), cases.REFUSED)
    assert outcomes == {**refused, "greedy notebook": DONE, "hub": DONE, "editor": DONE}
    plain = Case("editor", "create plain pod", "", cases.DENIED, cases.WISH)
    assert plain.outcome(plain.attempt(world)) is cases.DENIED
    assert [str(case) for case in later if case.outcome(case.attempt(world)) is not case.wanted] == []
    world.apply_policies()
    assert asked["editor"].outcome(asked["editor"].attempt(world)) is cases.DENIED


def test_attestation_can_be_switched_off(world: World) -> None:
    """The creator of a pod may then name any user, and still nobody changes it later."""
    forged = [case for case in OWNERS if case.wanted is cases.DENIED and case.who != "break-glass"]
    created = [case for case in forged if case.route == "create slot pod" and "too long" not in case.note]
    later = [case for case in forged if case not in created]
    assert len(created) >= 6 <= len(later)
    world.apply_policies(limits={**VALUES["limits"], "attest": False})
    assert {case.outcome(case.attempt(world)) for case in created} == {DONE}
    assert {case.outcome(case.attempt(world)) for case in later} == {cases.DENIED}
    test_policies_are_well_typed(world)
    world.apply_policies()
    assert {case.outcome(case.attempt(world)) for case in created} == {cases.DENIED}


def test_without_policies_forgeries_succeed(world: World) -> None:
    """Without our policies every denied attempt of the table succeeds."""
    denied = [case for case in CASES if case.wanted is cases.DENIED]
    assert len(denied) >= 69
    for name in NAMES:
        world.admin.need("DELETE", f"{POLICIES}/{name}")
    try:  # each may be in force for a while after its end, whatever becomes of the others
        until(lambda: not _still_denied(world, denied), 60, "the end of the policies")
    finally:
        world.apply_policies()


def _still_denied(world: World, denied: list[Case]) -> list[Case]:
    return [case for case in denied if case.outcome(case.attempt(world)) not in (DONE, NOTHING)]


def _annotations(uid: str, key: str, value: str) -> dict[str, object]:
    return {"metadata": {"uid": uid, "annotations": {PREFIX + key: value}}}
