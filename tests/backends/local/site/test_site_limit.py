"""The `CUDA_VISIBLE_DEVICES` that a server was started with: which GPUs it leaves, and the condition that says so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.processes.identity import boot, identify, namespace
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.backends.local.site.rules.site_limit import VARIABLE, SiteLimit, Visible, visible
from jupyter_gpu.backends.local.site.surroundings import SITE, site_limit
from jupyter_gpu.common.rules.visible import OURS
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.devices.enforcement import MARK
from jupyter_gpu_node.gpus.registry import Registry
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from tests.backends.local.stage import Remote, Stage
from tests.builders import gpu

FOUR = tuple(gpu(index, uuid=f"GPU-{uuid}") for index, uuid in enumerate(("1a2b", "1a3c", "2d4e", "3f5a")))
ENTRIES = st.sampled_from(
    ["0", "1", "2", "3", "4", "-1", "", " 2 ", "GPU-1a2b", "GPU-2", "GPU-1a", "GPU-", "MIG-1", "x"]
)


@pytest.mark.parametrize(
    ("value", "indices", "stopped"),
    [
        ("0,2", [0, 2], None),
        ("2,1", [2, 1], None),
        ("0,2,-1,1", [0, 2], "-1"),
        (" 1 , 3", [1, 3], None),
        ("+1,3gpu", [1, 3], None),
        ("0-2", [0], None),
        ("0,,1", [0], ""),
        ("7,0", [], "7"),
        ("99999999999,0", [], "99999999999"),
        ("", [], None),
        ("  ", [], None),
        ("-1", [], "-1"),
        ("NoDevFiles", [], "NoDevFiles"),
        ("GPU-1a2b,GPU-3", [0, 3], None),
        ("GPU-2d4e-and-more", [], "GPU-2d4e-and-more"),
        ("GPU-1a,GPU-2", [], "GPU-1a"),
        ("GPU-", [], "GPU-"),
        ("GPU-2,0", [2], "0"),
        ("0,GPU-2", [0], "GPU-2"),
        ("gpu-2", [], "gpu-2"),
        ("MIG-GPU-1a2b/1/0", [], "MIG-GPU-1a2b/1/0"),
        ("GPU-1a2b,MIG-GPU-2d4e/1/0", [0], "MIG-GPU-2d4e/1/0"),
    ],
)
def test_visible_gpus_are_those_of_cuda(value: str, indices: list[int], stopped: str | None) -> None:
    """In the order of the list, up to what names no GPU."""
    assert visible(value, FOUR) == Visible(tuple(FOUR[index].uuid for index in indices), stopped)


@pytest.mark.parametrize("value", ["1,1", "0,1,0,-1", "GPU-1a2b,GPU-1a2b", "GPU-2,GPU-2d"])
def test_gpu_named_twice_hides_all(value: str) -> None:
    """Also by two names."""
    assert visible(value, FOUR) == Visible((), twice=True)


@given(st.lists(st.integers(0, 3), unique=True, min_size=1))
def test_list_of_existing_gpus(indices: list[int]) -> None:
    """By index or by uuid: just these, in this order."""
    uuids = tuple(FOUR[index].uuid for index in indices)
    assert visible(",".join(map(str, indices)), FOUR) == visible(",".join(uuids), FOUR) == Visible(uuids)


@given(st.lists(ENTRIES, max_size=5), st.lists(ENTRIES, max_size=3))
def test_nothing_after_a_wrong_entry_counts(entries: list[str], more: list[str]) -> None:
    """Entries after it neither show nor hide anything."""
    found = visible(",".join(entries), FOUR)
    assert set(found.uuids) <= {gpu.uuid for gpu in FOUR}
    assert len(set(found.uuids)) == len(found.uuids)
    if found.stopped is not None or found.twice:
        assert visible(",".join(entries + more), FOUR) == found


@given(st.text(), st.integers(0, 4))
def test_any_text_shows_at_most_all_gpus(value: str, count: int) -> None:
    """Whatever stands there, it means something, and never more than there is."""
    limit = SiteLimit(value)
    assert set(limit.choose(FOUR[:count])) <= set(FOUR)
    assert isinstance(limit.explain(FOUR[:count]), str)


@given(st.lists(ENTRIES, max_size=4), st.lists(st.sets(st.sampled_from(FOUR)), max_size=4))
def test_visible_gpu_stays_visible(entries: list[str], inventories: list[set[Gpu]]) -> None:
    """GPUs vanish and come back; that hides none of the others, as it would if the list were read anew."""
    limit = SiteLimit(",".join(entries))
    shown: set[str] = set()
    for inventory in inventories:
        there = sorted(inventory, key=lambda one: one.index)
        chosen = {one.uuid for one in limit.choose(there)}
        assert shown & {one.uuid for one in there} <= chosen
        shown |= chosen


def test_gpu_that_answers_late_becomes_visible() -> None:
    """A driver that has not reported GPU 0 yet hides GPU 1 of "0,1" only until it does."""
    limit = SiteLimit("0,1")
    assert limit.choose(()) == ()
    assert limit.choose(FOUR[1:]) == ()
    assert limit.choose(FOUR) == FOUR[:2]
    assert limit.choose(FOUR[1:]) == FOUR[1:2]


@pytest.mark.parametrize(
    ("value", "count", "words"),
    [
        (None, 4, ""),
        ("0,1,2,3", 4, ""),
        ("0,2", 4, "of the 4 GPUs here it uses only GPUs 0, 2."),
        ("3", 4, "of the 4 GPUs here it uses only GPU 3."),
        (
            "0,NoDevFiles",
            1,
            "of the GPU here it uses only GPU 0. 'NoDevFiles' names no GPU here: that, and what follows",
        ),
        ("-1", 1, "it uses none of the GPU here. '-1' names no GPU here"),
        ("1,1", 4, "it uses none of the 4 GPUs here. A GPU is named twice there, so CUDA shows none."),
        ("MIG-1", 4, "'MIG-1' is a part of a GPU (MIG), which is not supported."),
    ],
)
def test_limit_is_explained(value: str | None, count: int, words: str) -> None:
    """The text names the GPUs that are used, and why not more; it is empty if no GPU is hidden."""
    limit = SiteLimit(value)
    limit.choose(FOUR[:count])
    told = limit.explain(FOUR[:count])
    assert words in told
    assert bool(told) is bool(words)


def test_hidden_gpus_stay_covered() -> None:
    """Device rules cover them, and a scan for holders finds them; nothing is decided about them."""

    class Source:
        simulated, note = False, ""

        def inventory(self) -> tuple[Gpu, ...]:
            return FOUR

        def loads(self, uuids: Sequence[str]) -> dict[str, Any]:
            return {}

        def processes(self) -> frozenset[int]:
            return frozenset()

        def close(self) -> None:
            pass

    registry = Registry(Source, always=(), choose=SiteLimit("1").choose)  # type: ignore[arg-type]
    registry.take()
    assert registry.gpus == FOUR[1:2]
    assert registry.seen.keys() == {one.uuid for one in FOUR}
    assert {one.device for one in FOUR} <= registry.devices


# -- servers ----------------------------------------------------------------------------------------------------------


def server(stage: Stage, variables: dict[str, str], **options: Any) -> Remote:
    """One whose GPUs pass for real ones."""
    actor = stage.actor()
    actor.ask("real_gpus", count=3)
    actor.ask("put", **variables)
    stage.start(actor, simulated_gpus=0, enforcement="soft", patient=False, **options)
    actor.ask("request", milli=0)
    return actor


def limits(view: dict[str, Any]) -> list[str]:
    """Return what the view says about it."""
    return [one["message"] for one in view["conditions"] if one["type"] == "SiteLimit"]


def test_a_site_limits_a_server(stage: Stage) -> None:
    """Its total is what the list names, it gets just these, and the panel says why; another server may have the
    rest."""
    mine = server(stage, {VARIABLE: "2,0"})
    view = mine.ask("request", milli=2000)
    assert [gpu["index"] for gpu in view["gpus"]] == [0, 2]
    assert (view["total"], view["limit"]) == (2000, 2000)
    (text,) = limits(view)
    assert "CUDA_VISIBLE_DEVICES='2,0'" in text
    assert "only GPUs 0, 2" in text
    assert "follow_visible_devices" in text
    with pytest.raises(RuntimeError, match=r"LimitExceeded|Infeasible"):
        mine.ask("request", milli=3000)
    assert mine.ask("environment")[SITE] == "2,0"
    all_of = server(stage, {VARIABLE: "2,0"}, follow_visible_devices=False)
    view = all_of.ask("request", milli=1000)
    assert ([gpu["index"] for gpu in view["gpus"]], view["total"], limits(view)) == ([1], 3000, [])
    assert SITE not in all_of.ask("environment")


def test_no_gpu_at_all(stage: Stage) -> None:
    """The value that SLURM sets for a job without GPUs leaves none, and the view says so."""
    view = server(stage, {VARIABLE: "NoDevFiles"}).ask("view")
    assert view["total"] == 0
    assert "'NoDevFiles' names no GPU here" in limits(view)[0]


def test_simulated_gpus_are_not_the_sites(stage: Stage) -> None:
    """They are for trying things out, wherever that is."""
    actor = stage.actor()
    actor.ask("put", **{VARIABLE: "0"})
    assert stage.start(actor)["total"] == 3000


def test_a_server_inside_a_notebooks_terminal(tmp_path: Path) -> None:
    """The inherited value names the outer server's GPUs; the same environment elsewhere is a site's limit."""
    uid = "a" * 32
    pods = tmp_path / "pods"
    pods.mkdir()
    environ = {VARIABLE: "GPU-1", MARK: uid}
    assert site_limit({}, pods) is None
    assert site_limit({VARIABLE: ""}, pods) == ""
    assert site_limit(environ, pods) == "GPU-1", "a pod that is not recorded"
    assert site_limit({**environ, OURS: environ[VARIABLE]}, pods) is None, "what a notebook's server told, elsewhere"
    outer, me = identify(os.getppid()), identify(os.getpid())
    assert outer
    assert me
    for process, expected in ((outer, None), (me, "GPU-1"), (ProcessId(outer.pid, outer.start + 1), "GPU-1")):
        (pods / f"{uid}.json").write_bytes(Record(uid, process, boot(), namespace()).encode())
        assert site_limit(environ, pods) == expected
    (pods / f"{uid}.json").write_bytes(Record(uid, me, boot(), namespace()).encode())
    code = (
        "import os, pathlib; from jupyter_gpu.backends.local.site.surroundings import site_limit;"
        f"print(site_limit(os.environ, pathlib.Path({str(pods)!r})))"
    )
    for more, expected in (({}, "None"), ({SITE: "0,1"}, "0,1")):
        inside = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **environ, **more},
            capture_output=True,
            text=True,
            check=True,
        )
        assert inside.stdout.strip() == expected
    (pods / f"{uid}.json").write_text("{}")
    assert site_limit(environ, pods) == "GPU-1"
    assert site_limit({**environ, MARK: "../../etc/passwd"}, pods) == "GPU-1"
