"""Records written before an installation are not believed: the chart's real hook on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.api import MERGE
from tests.admission.cases import FORGED
from tests.admission.test_admission import NAMES, POLICIES, some_plane
from tests.admission.world import FOREIGN, GRANTED, NOTEBOOKS, ONE, PODS, PREFIX, TWO, USERNAME, World, slot_pod
from tests.cluster.testbed import until

pytestmark = [pytest.mark.cluster, pytest.mark.existing]
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
FORGERY = {"metadata": {"annotations": {PREFIX + "allocated": FORGED, "example.com/own": "1"}, "labels": {"app": "a"}}}
STOCK = {
    "metadata": {
        "annotations": {PREFIX + "inventory": '[{"uuid":"GPU-9"}]', "example.com/own": "1"},
        "labels": {PREFIX + "gpu.count": "8", "example.com/own": "1"},
    }
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Yield a world for these tests alone, as they take policies away."""
    with some_plane() as plane:
        world = World(plane, tmp_path_factory.mktemp("before"))
        world.build()
        yield world
        world.close()


def forge(world: World) -> None:
    """Write records without the right to, while no policy prevents it."""
    editor = world.identities["editor"]
    until(lambda: editor("PATCH", f"{PODS}/lab", FORGERY, MERGE).ok, 60, "the end of the policies")
    editor.need("PATCH", f"{PODS}/plain", FORGERY, MERGE)
    world.admin.need("PATCH", f"/api/v1/namespaces/{FOREIGN}/pods/stranger", FORGERY, MERGE)
    until(lambda: editor("PATCH", f"/api/v1/nodes/{TWO}", STOCK, MERGE).ok, 60, "the end of the policies")


def records(world: World) -> dict[str, set[str]]:
    """Annotations and labels of ours, by the object that has them."""
    found: dict[str, set[str]] = {}
    for path in (PODS, f"/api/v1/namespaces/{FOREIGN}/pods", "/api/v1/nodes"):
        for item in world.admin.need("GET", path)["items"]:
            metadata = item["metadata"]
            keys = (*metadata.get("annotations", {}), *metadata.get("labels", {}))
            if ours := {key.removeprefix(PREFIX) for key in keys if key.startswith(PREFIX)}:
                found[metadata["name"]] = ours
    return found


def own(world: World, path: str) -> Any:
    """Return the annotations that the forger wrote beside the records."""
    return world.admin.need("GET", path)["metadata"]["annotations"].get("example.com/own")


def unchecked(world: World) -> set[str]:
    """Return the policies and bindings that are marked as not checked since they were made."""
    found = [item["metadata"] for path in (POLICIES, BINDINGS) for item in world.admin.need("GET", path)["items"]]
    return {metadata["name"] for metadata in found if PREFIX + "unchecked" in metadata.get("annotations", {})}


def lose(world: World, *paths: str) -> None:
    """Policies or bindings, if they are there."""
    for path in paths:
        world.admin("DELETE", path)


def test_upgrade_keeps_earlier_records(world: World) -> None:
    """The policies were there all the time, so records of running pods and nodes stay; a policy that guards no records
    may be new.
    """
    lose(world, f"{POLICIES}/jupyter-gpu-visible-devices", f"{BINDINGS}/jupyter-gpu-visible-devices")
    before = records(world)
    assert before["lab"] == set(GRANTED)
    assert before[ONE] == {"inventory", "gpu.count"}
    assert "taken from" not in world.apply_policies()
    assert records(world) == before
    assert not unchecked(world)


def test_upgrade_from_before_workers_forgets_workers_alone(world: World) -> None:
    """While nothing guarded what makes a pod a worker, anybody could write it: it is taken away, and all else stays."""
    lose(world, f"{POLICIES}/jupyter-gpu-workers")
    before = records(world)
    forged = {"metadata": {"annotations": {PREFIX + "worker": '{"notebook":"1","id":"w1"}', "example.com/own": "1"}}}
    editor = world.identities["editor"]
    until(lambda: editor("PATCH", f"{PODS}/lab", forged, MERGE).ok, 60, "the end of the policy")
    assert "worker" in records(world)["lab"]
    world.write_hook()
    with world.start_hook("apply") as hook:
        assert hook.stdout is not None
        while not (line := hook.stdout.readline()).startswith("in force"):
            assert line, "the hook ended"
        hook.kill()
    assert unchecked(world) <= {"jupyter-gpu-workers"}
    world.apply_policies()
    assert (records(world), unchecked(world)) == (before, set())
    assert own(world, f"{PODS}/lab") == "1"
    assert editor("PATCH", f"{PODS}/lab", forged, MERGE).status == 403


@pytest.mark.parametrize("missing", ["all", f"{POLICIES}/jupyter-gpu-nodes", f"{BINDINGS}/jupyter-gpu-pods"])
def test_installation_removes_earlier_records(world: World, missing: str) -> None:
    """Uninstalled, or partly removed by hand, forged, installed again: none of our records is left."""
    lose(world, *([f"{POLICIES}/{name}" for name in NAMES] if missing == "all" else [missing]))
    if missing == "all":
        forge(world)
    else:
        world.glass.need("PATCH", f"{PODS}/lab", FORGERY, MERGE)
    assert "lab" in records(world)
    assert "taken from" in world.apply_policies()
    assert records(world) == {}
    assert own(world, f"{PODS}/lab") == own(world, f"/api/v1/nodes/{TWO}") == "1"
    assert world.admin.need("GET", f"{PODS}/lab")["metadata"]["labels"] == {"app": "a"}
    assert not unchecked(world)
    forged = world.identities["editor"]("PATCH", f"{PODS}/lab", FORGERY, MERGE)
    assert forged.status == 403, forged.message


def test_installation_forgets_users_that_were_not_attested(world: World) -> None:
    """A pod with a slot that named its user while no policy was there names none afterwards; other pods keep theirs."""
    lose(world, f"{POLICIES}/jupyter-gpu-pods")
    named = {"metadata": {"annotations": {USERNAME: "ann", PREFIX + "hub": "second"}}}
    editor = world.identities["editor"]
    for name in ("lab", "plain"):
        until(lambda name=name: editor("PATCH", f"{PODS}/{name}", named, MERGE).ok, 60, "the end of the policy")  # type: ignore[misc]
    assert "taken from" in world.apply_policies()
    found = {name: world.admin.need("GET", f"{PODS}/{name}")["metadata"]["annotations"] for name in ("lab", "plain")}
    assert USERNAME not in found["lab"]
    assert found["plain"][USERNAME] == "ann"
    assert not any(PREFIX + "hub" in annotations for annotations in found.values())
    world.admin.need("PATCH", f"{PODS}/plain", {"metadata": {"annotations": {USERNAME: None}}}, MERGE)


def test_next_hook_makes_up_for_a_killed_one(world: World) -> None:
    """The killed hook left its policies and did not check earlier records: the next one does."""
    lose(world, *(f"{POLICIES}/{name}" for name in NAMES))
    forge(world)
    world.write_hook()
    with world.start_hook("apply") as hook:
        assert hook.stdout is not None
        while not (line := hook.stdout.readline()).startswith("applied"):
            assert line, "the hook ended"
        hook.kill()
    assert unchecked(world)
    assert {"lab", "plain", "stranger", TWO} <= set(records(world))
    assert "taken from" in world.apply_policies()
    assert (records(world), unchecked(world)) == ({}, set())


def test_pod_created_during_the_clean_up_keeps_its_records(world: World) -> None:
    """A pod that has the name of a listed one keeps the records that it was rightfully created with."""
    lose(world, f"{POLICIES}/jupyter-gpu-pods")
    world.glass.need("PATCH", f"{PODS}/lab", FORGERY, MERGE)
    world.write_hook()
    path = world.folder / "hook" / "hook.py"
    program = path.read_text()
    # Stands still between its list and its first patch, until it is asked to go on.
    path.write_text(program.replace("def strip(", "def _strip(").replace("if __name__ ==", HALT + "if __name__ =="))
    with world.start_hook("apply") as hook:
        assert hook.stdout is not None
        while (line := hook.stdout.readline()) != "listed\n":
            assert line, "the hook ended"
        world.kill("lab")
        made = world.identities["hub"].need("POST", PODS, slot_pod("lab", annotations={"requested": "1"}))
        (world.folder / "go").touch()
        output, _ = hook.communicate(timeout=60)
    assert hook.returncode == 0, output
    assert records(world) == {"lab": {"requested"}}
    assert (
        world.admin.need("GET", f"/api/v1/namespaces/{NOTEBOOKS}/pods/lab")["metadata"]["uid"]
        == made["metadata"]["uid"]
    )


HALT = """
def strip(path, metadata):
    go = HERE.parent / "go"
    if not go.exists():
        print("listed", flush=True)
        while not go.exists():
            time.sleep(0.05)
    _strip(path, metadata)


"""
