"""The status of limits on a real API server: written by the leader, beside members that the hub writes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube.rules import objects, paths
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Stage
from tests.scheduler_process.test_limits import limited, pod_of, set_limit, user

pytestmark = pytest.mark.cluster

__all__ = ["limited"]


def status(stage: Stage, name: str) -> dict[str, Any]:
    """Return the status of a limit."""
    found: dict[str, Any] = stage.do(stage.kube.get(paths.limit(name))).get("status", {})
    return found


def until_status(stage: Stage, name: str, **fields: Any) -> dict[str, Any]:
    """Wait for a status with these values."""

    def fits() -> dict[str, Any] | None:
        found = status(stage, name)
        return found if all(found.get(key) == value for key, value in fields.items()) else None

    found = until(fits, what=f"{name} to have {fields}, not {status(stage, name)}")
    assert found
    return found


def condition(stage: Stage, name: str) -> dict[str, Any] | None:
    """Return the condition of a limit that has one."""
    found = status(stage, name).get("conditions")
    return found[0] if found else None


def test_use_is_shown_beside_the_members(limited: Stage) -> None:
    """Used and waiting are summed over the members of a group, which stay as the hub's service wrote them."""
    node = limited.node()
    set_limit(limited, "ml", subject={"kind": "Group", "name": "ml"}, max=2)
    set_limit(limited, "cap", subject={"kind": "Cap"}, max=3)
    limited.do(limited.kube.patch(paths.limit("ml", "status"), {"status": {"members": ["ann", "bob"]}}))
    limited.scheduler()
    pod_of(limited, "ann", "a", node, 3)
    pod_of(limited, "bob", "b", node, 1)
    pod_of(limited, "eve", "e", node, 1)
    until_status(limited, "ml", used="3", waiting="1", members=["ann", "bob"])
    until_status(limited, "cap", used="4", waiting="1")
    columns = limited.plane.kubectl("get", "gpulimits", "ml").splitlines()
    assert columns[0].split()[-3:] == ["USED", "WAITING", "AGE"]
    assert columns[1].split()[-3:-1] == ["3", "1"]
    limited.do(limited.kube.patch(paths.limit("ml", "status"), {"status": {"members": ["bob"]}}))
    until_status(limited, "ml", used="1", waiting="0", members=["bob"])


def test_limits_of_one_subject_both_say_so(limited: Stage) -> None:
    """A duplicate is reported in both objects, and no more once one of them is removed."""
    set_limit(limited, "first", subject=user("ann"), max=1)
    limited.scheduler()
    until_status(limited, "first", used="0")
    assert condition(limited, "first") is None
    set_limit(limited, "second", subject=user("ann"), max=2)
    for name in ("first", "second"):
        found = until(lambda: condition(limited, name), what=f"{name} to say that there are two")  # noqa: B023
        assert found
        assert (found["type"], found["status"], found["reason"]) == ("Conflicting", "True", "SameSubject")
        assert "Of each field the smaller value holds" in found["message"]
    limited.do(limited.kube.delete(paths.limit("second")))
    until(lambda: condition(limited, "first") is None, what="the conflict to be over")


def test_what_somebody_wrote_is_repaired(limited: Stage) -> None:
    """A status that was changed by hand is written again, without anything else happening."""
    set_limit(limited, "ann", subject=user("ann"), max=1)
    limited.scheduler()
    until_status(limited, "ann", used="0")
    limited.do(limited.kube.patch(paths.limit("ann", "status"), {"status": {"used": "7"}}))
    until_status(limited, "ann", used="0")


def test_status_is_written_after_a_kill(limited: Stage) -> None:
    """A scheduler that is killed before it writes is replaced by one that does, and conditions keep their time."""
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=1)
    set_limit(limited, "twin", subject=user("ann"), max=1)
    first = limited.scheduler(environ={faults.VARIABLE: "scheduler:limit-status"}, lead=False)
    until(lambda: first.process.poll() is not None, what="the process to die")
    assert status(limited, "ann") == {}
    second = limited.scheduler(environ={"POD_NAME": "second"})
    pod_of(limited, "ann", "p", node, 1)
    before = until_status(limited, "ann", used="1")
    second.kill()
    time.sleep(1.1)  # times have whole seconds
    limited.scheduler(environ={"POD_NAME": "third"})
    limited.request("p", {"generation": 2, "milli": 0})
    after = until_status(limited, "ann", used="0")
    assert after["conditions"] == before["conditions"]


def test_status_is_not_written_without_a_change(limited: Stage) -> None:
    """A restart writes nothing that is there already; use that comes and goes costs a write each few seconds."""
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=1)
    first = limited.scheduler()
    pod_of(limited, "ann", "p", node, 1)
    until_status(limited, "ann", used="1")
    version = objects.resource_version(limited.do(limited.kube.get(paths.limit("ann"))))
    first.kill()
    second = limited.scheduler(environ={"POD_NAME": "second"})
    written = 'jupyter_gpu_scheduler_writes_total{kind="limit-status",outcome="done"}'
    for generation in range(1, 9):
        limited.request("p", {"generation": generation, "milli": 1000 * (generation % 2)})
        limited.until_count("p", generation % 2)
    until_status(limited, "ann", used="0")
    assert objects.resource_version(limited.do(limited.kube.get(paths.limit("ann")))) != version
    assert 1 <= second.metric(written) <= 4
