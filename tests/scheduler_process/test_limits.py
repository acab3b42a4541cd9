"""Limits on a real API server: however a wish is written, an owner's pods together never get more than the limit."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.kube import NotFound
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.annotations import ATTACHED, Attached, decode_allocated, decode_attached
from jupyter_gpu.model.limits.account import Account, read_account
from jupyter_gpu.model.limits.changes import format_time
from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner
from jupyter_gpu_scheduler.rules.accounts.statement import only_time
from tests.cluster.testbed import until
from tests.scheduler_process.definitions import define, limit_body, undefine
from tests.scheduler_process.extender_client import ExtenderClient
from tests.scheduler_process.stage import Scheduler, Stage

pytestmark = pytest.mark.cluster


@contextmanager
def limits_in_use(stage: Stage) -> Iterator[None]:
    """The cluster has the kinds of limits and accounts, until the end of the block; then its schedulers are killed."""
    stage.do(define(stage.kube, "gpulimits", "gpuaccounts"))
    yield
    for scheduler in stage.schedulers:
        scheduler.kill()
    stage.do(undefine(stage.kube, "gpulimits", "gpuaccounts"))


@pytest.fixture
def limited(stage: Stage) -> Iterator[Stage]:
    """Return a stage whose cluster has the kinds of limits and accounts."""
    with limits_in_use(stage):
        yield stage


def set_limit(stage: Stage, name: str, **spec: Any) -> None:
    """Write a limit."""
    try:
        stage.do(stage.kube.patch(paths.limit(name), {"spec": spec}))
    except NotFound:
        stage.do(stage.kube.create(paths.limits(), limit_body(name, spec)))


def user(name: str) -> dict[str, str]:
    """Return the subject of a user's limit."""
    return {"kind": "User", "name": name}


def pod_of(stage: Stage, user_name: str, name: str, node: str, wants: object, hub: str = "hub") -> str:
    """Create a pod of a user."""
    return stage.pod(name, node, wants, annotations={USERNAME: user_name, HUB: hub})


def account(stage: Stage, owner: Owner) -> Account | None:
    """Return the account of an owner."""
    found = [read_account(item) for item in stage.do(stage.kube.list(paths.accounts())).items]
    return next((one for one in found if one and one.owner == owner), None)


def until_account(stage: Stage, owner: Owner, **fields: Any) -> Account:
    """Wait for an account with these values."""

    def fits() -> Account | None:
        found = account(stage, owner)
        return found if found and all(getattr(found, key) == value for key, value in fields.items()) else None

    found = until(fits, what=f"an account of {owner} with {fields}, not {account(stage, owner)}")
    assert found
    return found


def successor(stage: Stage, **more: Any) -> Scheduler:
    """Start a scheduler that need not wait for the lease of those before, which are dead."""
    lease = {"name": f"{stage.prefix}-{len(stage.schedulers)}", "retrySeconds": 0.3}
    return stage.scheduler(settings={"lease": lease}, **more)


def until_limit(stage: Stage, name: str, milli: int | None, most: int | None) -> None:
    """Wait for the limit that a pod's panel shows."""

    def fits() -> bool:
        found = stage.allocated(name)
        return bool(found and found.limit and (found.limit.milli, found.limit.max) == (milli, most))

    until(fits, what=f"{name} to be told its limit; it is told {stage.allocated(name)}")


def test_wish_above_the_limit_gets_the_limit_and_the_rest_when_it_is_raised(limited: Stage) -> None:
    """Three are wished, two allowed: two are given at once, the third as soon as the limit is raised."""
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=2)
    limited.scheduler()
    pod_of(limited, "ann", "p", node, 3)
    limited.until_count("p", 2)
    limited.until_reason("p", "LimitExceeded")
    until_limit(limited, "p", 2000, 2000)
    found = limited.allocated("p")
    assert found
    assert "2 GPUs" in found.message
    assert found.ticket is None
    set_limit(limited, "ann", subject=user("ann"), max=3)
    limited.until_count("p", 3)
    until_limit(limited, "p", 3000, 3000)
    assert limited.requested("p") == "3"


def test_limit_counts_all_pods_of_a_user_on_all_nodes(limited: Stage) -> None:
    """Three servers of one user share a limit of two; what one gives back another may have. Another hub's ann is
    somebody else.
    """
    one, two = limited.node("n1"), limited.node("n2", gpus=6)
    set_limit(limited, "ann", subject={**user("ann"), "hub": "hub"}, max=2)
    limited.scheduler()
    pod_of(limited, "ann", "a", one, 1)
    limited.until_count("a", 1)
    pod_of(limited, "ann", "b", two, 1)
    limited.until_count("b", 1)
    pod_of(limited, "ann", "c", two, 1)
    limited.until_reason("c", "LimitExceeded")
    until_limit(limited, "c", 0, 2000)
    pod_of(limited, "ann", "other", two, 3, hub="lab")
    limited.until_count("other", 3)
    limited.request("a", {"generation": 1, "milli": 0})
    limited.until_count("c", 1)
    until_limit(limited, "a", 0, 2000)
    until_account(limited, Owner("User", "ann", "hub"), used=2000, waiting=0)
    until_account(limited, Owner("User", "ann", "lab"), used=3000)


def test_lowered_limit_takes_back_after_the_grace(limited: Stage, tmp_path: Path) -> None:
    """The pod keeps its GPUs until the announced time, although the scheduler is killed before and after each write,
    and the API server in between. A notice that the account has is not changed any more.
    """
    armed, owner = tmp_path / "crash-at", Owner("User", "ann", "hub")

    def begin(point: str = "") -> Scheduler:
        armed.write_text(point)
        return successor(limited, environ={faults.VARIABLE: f"@{armed}"}, lead=not point)

    def dies(scheduler: Scheduler) -> None:
        until(lambda: scheduler.process.poll() is not None, what="the process to die")

    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=3, grace="15s")
    first = begin()
    uid = pod_of(limited, "ann", "p", node, 3)
    limited.until_count("p", 3)
    until_account(limited, owner, used=3000)
    lowered = time.time()
    armed.write_text("scheduler:decided")
    set_limit(limited, "ann", subject=user("ann"), max=1)
    dies(first)
    dies(begin("scheduler:written"))
    third = begin()
    until(lambda: (found := account(limited, owner)) and found.give_back_at, what="a notice in the account")
    found = account(limited, owner)
    assert found
    assert found.give_back_at
    assert lowered + 14 <= found.give_back_at <= time.time() + 15
    with limited.plane.without("apiserver"):
        armed.write_text("scheduler:decided")
        until(lambda: not third.leads(), what="it to lead no more")
    dies(third)
    dies(begin("scheduler:written"))
    assert time.time() >= found.give_back_at - 1
    begin()
    limited.until_count("p", 1)
    until_limit(limited, "p", 1000, 1000)
    until_account(limited, owner, used=1000, over_since=None, give_back_at=None)
    decided = [decode_allocated(text) for text in limited.decisions("p")]
    assert [count for count, _ in itertools.groupby(len(one.shares) for one in decided) if count] == [3, 1]
    told = [int(one.limit.give_back_at) for one in decided if one.limit and one.limit.give_back_at]
    assert told == sorted(told)
    assert told[-1] == found.give_back_at
    assert [len(decode_attached(text).shares) for text in limited.watcher.writes(uid, ATTACHED)][-1] == 1


def test_limit_lowered_while_a_gpu_is_on_its_way_is_never_exceeded(limited: Stage) -> None:
    """GPUs that are allocated and not attached yet are not attached any more. One that drains when the limit is raised
    stays with the pod. The request is as the user wrote it.
    """
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=3, grace="0s")
    limited.scheduler()
    uid = pod_of(limited, "ann", "p", node, 1)
    limited.until_count("p", 1)
    limited.pause(node)
    wish = json.dumps({"generation": 2, "milli": 3000})
    limited.request("p", wish)
    until(lambda: (found := limited.allocated("p")) and len(found.shares) == 3, what="three GPUs to be on their way")
    set_limit(limited, "ann", subject=user("ann"), max=1)
    until(lambda: (found := limited.allocated("p")) and len(found.shares) == 1, what="the limit to be applied")
    limited.pause()
    limited.until_count("p", 1)
    assert {len(held(text)) for text in limited.watcher.writes(uid, ATTACHED)} == {1}
    set_limit(limited, "ann", subject=user("ann"), max=2)
    limited.until_count("p", 2)
    limited.hold_open(uid, *(share.uuid for share in (limited.attached("p") or Attached(0)).shares))
    set_limit(limited, "ann", subject=user("ann"), max=1)
    until(lambda: (found := limited.attached("p")) and found.draining, what="a GPU to drain")
    set_limit(limited, "ann", subject=user("ann"), max=2)
    limited.until_count("p", 2)
    assert max(len(held(text)) for text in limited.watcher.writes(uid, ATTACHED)) == 2
    assert limited.requested("p") == wish


def held(attached: str) -> set[str]:
    """Return the GPUs that a pod has, or has not closed yet."""
    found = decode_attached(attached)
    return {share.uuid for share in (*found.shares, *(one.share for one in found.draining))}


def test_account_is_written_once_for_each_change(limited: Stage) -> None:
    """GPU time alone is written five minutes after the last write, by a new leader as by the last one."""
    done = 'jupyter_gpu_scheduler_writes_total{kind="account",outcome="done"'
    seen = limited.follow(paths.accounts())
    node, owner = limited.node(), Owner("User", "ann", "hub")
    first = limited.scheduler()
    pod_of(limited, "ann", "p", node, 1)
    limited.until_count("p", 1)
    until_account(limited, owner, used=1000, waiting=0)
    written = first.metric(done)
    limited.request("p", {"generation": 2, "milli": 2000})
    limited.until_count("p", 2)
    until_account(limited, owner, used=2000, waiting=0)
    until(lambda: first.metric(done) > written, what="the write to be counted")
    assert first.metric(done) <= written + 2  # two where the request is seen before its answer
    written = first.metric(done)
    time.sleep(1)
    assert first.metric(done) == written
    statuses = [item["status"] for item in seen if item.get("status")]
    assert len(statuses) == written
    assert not any(only_time(one, other) for one, other in itertools.pairwise(statuses))
    first.kill()
    second = successor(limited)
    time.sleep(1)
    assert second.metric(done) == 0
    second.kill()
    found = until_account(limited, owner, used=2000)
    assert found.counted_until
    late = {"status": {"countedUntil": format_time(found.counted_until - 300)}}
    limited.do(limited.kube.patch(paths.account(found.object_name, "status"), late))
    third = successor(limited)
    until(lambda: third.metric(done) == 1, what="GPU time to be written")
    after = until_account(limited, owner, used=2000)
    assert sum(after.hours.values()) >= sum(found.hours.values()) + 2000 * 300


def test_new_pod_starts_with_what_its_limit_allows(limited: Stage) -> None:
    """A notebook of three GPUs starts with the one that its owner may have; with none where that is none."""
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=1)
    set_limit(limited, "bob", subject=user("bob"), max=0)
    client = ExtenderClient(limited.scheduler().extender_port)
    for name in ("ann", "bob"):
        pod_of(limited, name, name, "", 3)
        pod = limited.get(name)
        until(lambda: client.filter(pod, [node])["NodeNames"] == [node], what=f"room for {name}")  # noqa: B023
        assert client.bind(pod, node) == ""
    limited.until_count("ann", 1)
    assert limited.until_reason("ann", "LimitExceeded").ticket is None
    assert limited.until_reason("bob", "LimitExceeded").shares == ()


def test_pods_without_a_user_share_the_limit_of_their_namespace(limited: Stage) -> None:
    """The namespace is the owner of pods that no hub attributes to a user; the default limits it."""
    node = limited.node()
    set_limit(limited, "default", subject={"kind": "Default"}, max=1)
    limited.scheduler()
    limited.pod("a", node, 1)
    limited.until_count("a", 1)
    limited.pod("b", node, 1)
    limited.until_reason("b", "LimitExceeded")
    set_limit(limited, "ns", subject={"kind": "Namespace", "name": limited.namespace}, max=2)
    limited.until_count("b", 1)


def test_group_and_cap_hold_together(limited: Stage) -> None:
    """A member of a group gets what the group may, up to the cap; who leaves it has the default again."""
    node = limited.node()
    set_limit(limited, "default", subject={"kind": "Default"}, max=1, grace="1s")
    set_limit(limited, "ml", subject={"kind": "Group", "name": "ml"}, max="unlimited")
    set_limit(limited, "cap", subject={"kind": "Cap"}, max=3)
    limited.do(limited.kube.patch(paths.limit("ml", "status"), {"status": {"members": ["ann"]}}))
    limited.scheduler()
    pod_of(limited, "ann", "p", node, 4)
    limited.until_count("p", 3)
    limited.do(limited.kube.patch(paths.limit("ml", "status"), {"status": {"members": []}}))
    limited.until_count("p", 1)


def test_hours_outlive_the_scheduler(limited: Stage) -> None:
    """GPU time is counted across a restart; a budget that is used up lowers the limit to what is guaranteed."""
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=2, guaranteed=1, grace="1s")
    first = limited.scheduler()
    pod_of(limited, "ann", "p", node, 2)
    limited.until_count("p", 2)
    owner = Owner("User", "ann", "hub")
    until_account(limited, owner, used=2000)
    began = time.time()
    time.sleep(2)
    first.kill()
    limited.scheduler(environ={"POD_NAME": "second"})
    limited.request("p", {"generation": 2, "milli": 1000})
    limited.until_count("p", 1)
    found = until_account(limited, owner, used=1000)
    counted = sum(found.hours.values())
    assert 2000 * 2 <= counted <= 2000 * (time.time() - began + 2)
    limited.request("p", {"generation": 3, "milli": 2000})
    limited.until_count("p", 2)
    set_limit(limited, "ann", budget={"gpuHours": "0.001", "window": "Month"}, subject=user("ann"))
    limited.until_count("p", 1)
    until_limit(limited, "p", 1000, 1000)
    told = limited.allocated("p")
    assert told
    assert told.limit
    assert "budget" in told.limit.source.sentence()


def test_job_gives_a_notebook_its_guaranteed_gpus_back(limited: Stage) -> None:
    """A preemptible pod fills a resting node; a notebook takes what is guaranteed to its owner, within the grace."""
    node = limited.node()
    set_limit(limited, "default", subject={"kind": "Default"}, grace="3s")
    set_limit(limited, "ann", subject=user("ann"), max=3, guaranteed=2)
    limited.scheduler()
    pod_of(limited, "bob", "job", node, {"generation": 1, "milli": 4000, "preemptible": True})
    limited.until_count("job", 4)
    pod_of(limited, "ann", "notebook", node, 2)
    limited.until_count("notebook", 2)
    limited.until_count("job", 2)
    assert limited.until_reason("job", "Partial").ticket
    limited.delete("notebook")
    limited.until_count("job", 4)


def test_account_that_was_only_made_is_completed(limited: Stage) -> None:
    """A scheduler that is killed between making an account and writing it is replaced by one that does both."""
    node = limited.node()
    first = limited.scheduler(environ={faults.VARIABLE: "scheduler:account"})
    pod_of(limited, "ann", "p", node, 1)
    until(lambda: first.process.poll() is not None, what="the process to die")
    owner = Owner("User", "ann", "hub")
    made = account(limited, owner)
    assert made
    assert made.counted_until is None
    limited.scheduler(environ={"POD_NAME": "second"})
    limited.until_count("p", 1)
    until_account(limited, owner, used=1000)


def test_account_that_is_removed_is_written_again(limited: Stage) -> None:
    """No change of an object is needed for it."""
    node = limited.node()
    limited.scheduler()
    pod_of(limited, "ann", "p", node, 1)
    owner = Owner("User", "ann", "hub")
    found = until_account(limited, owner, used=1000)
    limited.do(limited.kube.delete(paths.account(found.object_name)))
    until_account(limited, owner, used=1000)


def test_account_of_an_owner_who_is_gone_is_removed(limited: Stage) -> None:
    """One that says nothing any more goes; one with hours of the last weeks stays, as does that of a pod's owner."""
    today = datetime.now(UTC).date()
    old, recent = Owner("User", "old", "hub"), Owner("User", "recent", "hub")
    for owner, day in ((old, today - timedelta(days=60)), (recent, today - timedelta(days=3))):
        made = Account(owner, hours={day: 3_600_000})
        body = {"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuAccount", "metadata": {"name": made.object_name}}
        limited.do(limited.kube.create(paths.accounts(), {**body, "spec": made.spec()}))
        limited.do(limited.kube.patch(paths.account(made.object_name, "status"), {"status": made.status()}))
    node = limited.node()
    pod_of(limited, "ann", "p", node, 0)
    limited.scheduler()
    until(lambda: account(limited, old) is None, what="the old account to be removed")
    until_account(limited, Owner("User", "ann", "hub"), used=0)
    assert account(limited, recent)


def test_scheduler_that_may_not_read_limits_decides_nothing(limited: Stage) -> None:
    """Limits that cannot be read are not taken for none; the readiness probe says what is missing."""
    node = limited.node()
    may = "pods,pods/status,nodes,events,leases.coordination.k8s.io"
    limited.plane.kubectl("create", "clusterrole", "blind", "--verb=*", f"--resource={may}")
    limited.plane.kubectl("create", "clusterrolebinding", "blind", "--clusterrole=blind", "--user=blind")
    scheduler = limited.scheduler(user="blind", lead=False)
    pod_of(limited, "ann", "p", node, 1)
    until(lambda: "limits (GpuLimits) are not known" in scheduler.get("/readyz")[1], what="the probe to say so")
    assert scheduler.get("/readyz")[0] != 200
    assert not scheduler.leads()
    assert limited.allocated("p") is None


def test_limits_are_counted_in_the_metrics(limited: Stage) -> None:
    """Metrics have the number of known limits, and whether their kind is absent."""
    scheduler = limited.scheduler()
    assert scheduler.metric("jupyter_gpu_scheduler_limits ") == 0
    assert scheduler.metric("jupyter_gpu_scheduler_limits_absent ") == 0
    set_limit(limited, "default", subject={"kind": "Default"}, max=1)
    until(lambda: scheduler.metric("jupyter_gpu_scheduler_limits ") == 1, what="the limit to be counted")
    limited.do(undefine(limited.kube, "gpulimits"))
    until(lambda: scheduler.metric("jupyter_gpu_scheduler_limits_held ") == 1, what="the alarm")
    until(lambda: scheduler.metric("jupyter_gpu_scheduler_limits_absent ") == 1, what="the kind to be missed")
    limited.do(define(limited.kube, "gpulimits"))


def test_use_is_counted_in_the_metrics(limited: Stage) -> None:
    """GPU time of a user, idle time and time in line are counted by the leader, in whole and parts of GPUs."""
    node = limited.node(gpus=1)
    scheduler = limited.scheduler()
    pod_of(limited, "ann", "p", node, 1)
    limited.until_count("p", 1)
    pod_of(limited, "bob", "q", node, "500m")
    labels = f'{{namespace="{limited.namespace}",username="%s",model="%s",kind="%s"}}'
    held = "jupyter_gpu_user_gpu_seconds_total" + labels % ("ann", "Simulated GPU", "owned")
    idle = held.replace("gpu_seconds", "idle_gpu_seconds")
    waits = "jupyter_gpu_user_waiting_seconds_total" + labels % ("bob", "", "share")
    until(lambda: scheduler.metric(idle) > 0.5 and scheduler.metric(waits) > 0.5, what="time to be counted")
    assert scheduler.metric(held) >= scheduler.metric(idle)
    limited.request("p", {"generation": 2, "milli": 0})
    limited.until_count("q", 1)
    time.sleep(0.5)
    before = [scheduler.metric(name) for name in (held, idle, waits)]
    time.sleep(1)
    assert [scheduler.metric(name) for name in (held, idle, waits)] == before
    assert scheduler.metric(held.replace("ann", "bob").replace("owned", "share")) >= 0.5


def test_wish_in_json_is_not_rewritten(limited: Stage) -> None:
    """The wish stays as it was written, whatever the limit."""
    node = limited.node()
    set_limit(limited, "ann", subject=user("ann"), max=1)
    limited.scheduler()
    wish = json.dumps({"generation": 4, "milli": 2000, "extra": "kept"})
    pod_of(limited, "ann", "p", node, wish)
    limited.until_count("p", 1)
    assert limited.requested("p") == wish
