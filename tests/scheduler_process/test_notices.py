"""Events about lowered limits on a real API server: once for each pod and limit, also across a restart."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jupyter_gpu.kube.rules import paths
from tests.cluster.testbed import until
from tests.scheduler_process.stage import Stage
from tests.scheduler_process.test_limits import limited, pod_of, set_limit, user

pytestmark = pytest.mark.cluster

__all__ = ["limited"]
REASON = "GpuLimitLowered"


def notices(stage: Stage, namespace: str, name: str, reason: str = REASON) -> list[dict[str, Any]]:
    """Return the notices about an object of that name."""
    chosen = f"involvedObject.name={name},reason={reason}"
    return stage.do(stage.kube.list(paths.events(namespace), fields=chosen)).items


def test_lowered_limit_is_told_once(limited: Stage) -> None:
    """The pod and the limit have one Event each, which says when, how much and by which limit; a restart adds none."""
    node, name = limited.node(), f"{limited.prefix}-ann"
    set_limit(limited, name, subject=user("ann"), max=3, grace="10m")
    first = limited.scheduler()
    pod_of(limited, "ann", "p", node, 3)
    limited.until_count("p", 3)
    assert notices(limited, limited.namespace, "p") == []
    set_limit(limited, name, subject=user("ann"), max=1)
    (told,) = until(lambda: notices(limited, limited.namespace, "p"), what="the notice of the pod") or []
    assert "Your limit is 1 GPU, set for you" in told["message"]
    assert "2 GPUs will be taken back at" in told["message"]
    assert told["type"] == "Warning"
    (of_limit,) = until(lambda: notices(limited, "default", name), what="the notice of the limit") or []
    assert of_limit["message"].endswith(": 2 GPUs of user ann of hub hub.")
    assert of_limit["involvedObject"]["kind"] == "GpuLimit"
    first.kill()
    limited.scheduler(environ={"POD_NAME": "second"})
    pod_of(limited, "ann", "q", node, 1)
    limited.until_reason("q", "LimitExceeded")
    time.sleep(5)
    assert [one["count"] for one in notices(limited, limited.namespace, "p")] == [1]
    assert [one["count"] for one in notices(limited, "default", name)] == [1]
    assert notices(limited, limited.namespace, "q") == []


def test_notice_that_a_killed_scheduler_owes_is_made(limited: Stage) -> None:
    """The next leader announces a grace that began before; a limit that is lowered further is announced again."""
    node, name = limited.node(), f"{limited.prefix}-ann"
    set_limit(limited, name, subject=user("ann"), max=3, grace="10m")
    first = limited.scheduler()
    pod_of(limited, "ann", "p", node, 3)
    limited.until_count("p", 3)
    set_limit(limited, name, subject=user("ann"), max=2)
    until(lambda: (found := limited.allocated("p")) and found.limit and found.limit.give_back_at, what="the decision")
    first.kill()
    for event in notices(limited, limited.namespace, "p"):
        limited.do(limited.kube.delete(paths.event(limited.namespace, event["metadata"]["name"])))
    limited.scheduler(environ={"POD_NAME": "second"})
    until(lambda: len(notices(limited, limited.namespace, "p")) == 1, what="the notice")
    set_limit(limited, name, subject=user("ann"), max=1)
    until(lambda: len(notices(limited, limited.namespace, "p")) == 2, what="the second notice")


def test_reclaimed_gpus_are_told_with_a_notice_for_each_pod(limited: Stage) -> None:
    """A preemptible pod gets a notice when its GPUs go to another one; a pod from which nothing is reclaimed gets none.
    The announced time applies to the next leader, too.
    """
    node = limited.node()
    set_limit(limited, "default", subject={"kind": "Default"}, grace="20s")
    first = limited.scheduler()
    pod_of(limited, "bob", "job", node, {"generation": 1, "milli": 3000, "preemptible": True})
    limited.until_count("job", 3)
    pod_of(limited, "bob", "other", node, 1)
    limited.until_count("other", 1)
    pod_of(limited, "ann", "notebook", node, 1)
    (told,) = until(lambda: notices(limited, limited.namespace, "job", "GpusReclaimed"), what="the notice") or []
    assert "Others wait for GPUs that come first to them: 1 GPU at" in told["message"]
    found = limited.allocated("job")
    assert found
    assert found.limit
    (item,) = found.limit.reclaimed
    assert item.milli == 1000
    first.kill()
    limited.scheduler(environ={"POD_NAME": "second"})
    limited.until_count("notebook", 1)
    assert item.at - 1 <= time.time() <= item.at + 15
    assert limited.until_count("job", 2)
    assert len(notices(limited, limited.namespace, "job", "GpusReclaimed")) == 1
    assert notices(limited, limited.namespace, "other", "GpusReclaimed") == []
