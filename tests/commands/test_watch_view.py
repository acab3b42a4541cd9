"""The screen of `jupyter gpu watch`."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.cli.rules.watch_view import change, lines, width
from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu.model.limits.source import Source, SourceKind
from jupyter_gpu.model.pod_worker import PodWorker, Stage
from jupyter_gpu.model.service import Relation
from jupyter_gpu.model.share import GuestUse
from jupyter_gpu.model.terminal import Style
from jupyter_gpu.model.view import LIMIT_LOWERED, Condition, GpuLoad, GpuState, GpuUser, Mode, PodGpu, Sample, View
from tests.model.strategies import views
from tests.model.test_share import ONE as SHARE

GIB = 2**30
BARE = View("i", 1, Mode.ENFORCED, False, "local", 4000, 4000, (0, 1000))
ONE = Gpu("GPU-1", 0, "NVIDIA H100 80GB HBM3", 80 * GIB)
TWO = Gpu("GPU-2", 1, "NVIDIA H100 80GB HBM3", 80 * GIB)
USER = GpuUser(7, "python", notebook="work/train.ipynb")
VIEW = replace(
    BARE,
    gpus=(PodGpu(ONE, 1000, GpuState.ATTACHED, (USER,)), PodGpu(TWO, 500, GpuState.DRAINING)),
    conditions=(Condition("Soft", "Soft mode: nothing keeps programs from GPUs."),),
)
SAMPLE = Sample(1.0, {"GPU-1": GpuLoad(52.4, 40 * GIB)}, {"GPU-2": replace(SHARE, uuid="GPU-2")})


def test_whole_screen_is_drawn() -> None:
    """It has a title and clock, the sentence, and for each GPU its load, memory, share and users."""
    shown = lines("GPUs of http://x/", "12:00:00", VIEW, SAMPLE, "", Style(100))
    assert shown[0] == "GPUs of http://x/" + " " * 75 + "12:00:00"
    assert shown[3] == "GPU 0  ████████░░░░░░░░  52 %  ████░░░░    40 GiB of 80 GiB    NVIDIA H100 80GB HBM3"
    assert shown[4] == "       used by train.ipynb"
    assert shown[6].startswith("GPU 1  ░░░░░░░░░░░░░░░░  -  %  ░░░░░░░░         - of 80 GiB")
    assert "bank" in shown[7]
    assert shown[8] == "       draining"
    assert shown[-1] == "Soft mode: nothing keeps programs from GPUs."


def test_worker_is_shown() -> None:
    """It has a line with its node, its GPUs, its state and its distance."""
    worker = PodWorker("w1", "node2", Relation.SWITCH, Stage.PULLING, 1000)
    shown = lines("t", "c", replace(BARE, workers=(worker,)), None, "", Style(100))
    assert shown[-1] == "node2  1 GPU to come · Pulling the image · Other node, same switch"


def test_figures_of_a_worker_are_shown() -> None:
    """The load of each of its GPUs that is known, what was shipped, and how soon it answers."""
    gpus = (GpuShare("GPU-8", 1000), GpuShare("GPU-9", 500))
    worker = PodWorker("w1", "node2", Relation.SWITCH, Stage.READY, 1500, gpus, shipped=1024, round_trip=500)
    view = replace(BARE, workers=(worker,))
    assert lines("t", "c", view, None, "", Style(100))[-1] == "       1 KiB sent there and back, answers in 0.5 ms"
    sample = Sample(1.0, {"GPU-8": GpuLoad(None, 7), "GPU-9": GpuLoad(49.6, 7)})
    assert lines("t", "c", view, sample, "", Style(100))[-1] == (
        "       GPU 1: 50 %, 1 KiB sent there and back, answers in 0.5 ms"
    )
    broken = replace(BARE, workers=(worker._replace(health=("", "Xid 79")),))
    assert lines("t", "c", broken, None, "", Style(100))[-1] == "       GPU 1: Xid 79"


def test_limit_of_the_user_is_shown() -> None:
    """It has a line of its own, unless a condition says it."""
    limit = PodLimit(1000, 1000, Source(SourceKind.GROUP, "ml", "root"))
    limited = replace(BARE, allocated=Allocated(1, limit=limit))
    shown = lines("t", "c", limited, None, "", Style(100))
    assert shown[2:] == ["", "Your limit is 1 GPU, set for group ml by root."]
    lowered = replace(limited, conditions=(Condition(LIMIT_LOWERED, "Your limit was lowered."),))
    assert lines("t", "c", lowered, None, "", Style(100))[2:] == ["", "Your limit was lowered."]


@pytest.mark.parametrize(
    ("columns", "there", "gone"),
    [
        (70, ("█", "40 GiB of 80 GiB", "NVIDIA"), "████░░░░ "),
        (52, ("█", "40 GiB of 80 GiB"), "NVIDIA"),
        (40, ("52 %", "40 GiB of 80 GiB"), "█"),
        (24, ("52 %",), "NVIDIA"),
    ],
)
def test_narrow_screen_drops_the_least_important(columns: int, there: tuple[str, ...], gone: str) -> None:
    """The least important is left out first."""
    shown = lines("t", "c", VIEW, SAMPLE, "", Style(columns))
    line = next(line for line in shown if line.startswith("GPU 0"))
    assert all(text in line for text in there)
    assert gone not in line


def test_plain_screen_has_no_escapes() -> None:
    """Without UTF-8 all is ASCII; without colour there is no escape sequence; with it each part ends its own."""
    odd = replace(VIEW, gpus=(VIEW.gpus[0]._replace(users=(GpuUser(1, "naïve·…\x07"),)),))
    plain = lines("t", "c", odd, SAMPLE, "", Style(80, unicode=False))
    assert all(line.isascii() and line.isprintable() for line in plain)
    assert "########" in plain[3]
    coloured = "\n".join(lines("t", "c", VIEW, SAMPLE, "", Style(80, colour=True)))
    assert "\x1b[32m████████" in coloured
    assert coloured.count("\x1b[0m") == len(re.findall("\x1b\\[[1-9][0-9]*m", coloured))


def test_lost_server_is_explained() -> None:
    """The reason is shown above the last known state."""
    shown = lines("t", "c", VIEW, None, "The server does not answer. It is tried again.", Style(30))[3:]
    assert shown[:2] == ["The server does not answer. It", "is tried again."]
    assert any(line.startswith("GPU 0") for line in shown)


def test_share_without_an_account_shows_its_size() -> None:
    """Such a share shows how much of the GPU it is."""
    half = replace(VIEW, gpus=(PodGpu(ONE, 500, GpuState.ATTACHED),))
    assert "       0.5 of it" in lines("t", "c", half, None, "", Style(80))


def test_lent_gpu_is_called_so() -> None:
    """A guest has no part of it."""
    lent = replace(VIEW, gpus=(PodGpu(ONE, 0, GpuState.ATTACHED),))
    assert "       lent while others rest: may pause at any moment" in lines("t", "c", lent, None, "", Style(80))


def test_owner_of_a_lent_gpu_sees_what_it_keeps_and_what_a_guest_has() -> None:
    """The guest's figures are those of the sample."""
    lent = replace(VIEW, gpus=(PodGpu(ONE, 1000, GpuState.ATTACHED, keeps=60 * GIB),))
    use = replace(SHARE, guest=GuestUse(0.404, 12 * GIB))
    shown = lines("t", "c", lent, Sample(1.0, {}, {"GPU-1": use}), "", Style(80))
    assert "       lent while it rests: keeps 60 GiB" in shown
    assert "       a guest has 40 % of the time and 12 GiB" in shown
    assert not any("a guest" in line for line in lines("t", "c", lent, None, "", Style(80)))


def test_low_window_counts_missing_lines() -> None:
    """The last line tells how many are missing."""
    shown = lines("t", "c", VIEW, SAMPLE, "", Style(100, 5))
    assert (len(shown), shown[-1]) == (5, "... 7 more lines: make the window larger")
    assert lines("t", "c", VIEW, SAMPLE, "", Style(100, 10))[-1] == "... 2 more lines: make the window larger"
    assert lines("t", "c", VIEW, SAMPLE, "", Style(100, 11))[-1] == "Soft mode: nothing keeps programs from GPUs."


def test_gpu_that_rests_says_for_how_long() -> None:
    """By the clock of the sample; without one the time is not known."""
    idle = replace(VIEW, gpus=(VIEW.gpus[0]._replace(idle_since=1000),))
    shown = lines("t", "c", idle, SAMPLE._replace(time=1000.0 + 12 * 60), "", Style(80))
    assert shown[4:6] == ["       used by train.ipynb", "       idle for 12 min"]
    assert not any("idle" in line for line in lines("t", "c", idle, None, "", Style(80)))


def test_change_is_one_line() -> None:
    """It has the sentence, and each GPU with its part, its state and its users."""
    assert change(VIEW).endswith("GPU 0: train.ipynb · GPU 1 (0.5 of it) draining")
    assert change(BARE) == "0 of 4 GPUs attached"


def test_width_counts_columns() -> None:
    """Wide characters take two columns, combining marks none; half of a wide one is not shown."""
    assert [width(text) for text in ("ab", "日本", "e\u0301")] == [2, 4, 1]
    named = replace(BARE, gpus=(VIEW.gpus[0]._replace(users=(GpuUser(1, "x", notebook="日" * 40),)),))
    assert lines("t", "c", named, None, "", Style(20))[-1] == " " * 7 + "日" * 6 + ">"


texts = st.text(max_size=60)


@pytest.mark.uncounted(after=25)
@given(views, texts, texts, st.integers(20, 200), st.none() | st.integers(4, 40), st.booleans())
def test_view_always_fits(view: View, title: str, lost: str, columns: int, rows: int | None, unicode: bool) -> None:
    """Whatever a view holds, nothing exceeds the window, and nothing sends commands to the terminal."""
    loads = {item.gpu.uuid: GpuLoad(float(i * 40 % 101), i * GIB) for i, item in enumerate(view.gpus)}
    shown = lines(title, "12:00:00", view, Sample(0.0, loads), lost, Style(columns, rows, unicode=unicode))
    assert all(width(line) <= columns and "\x1b" not in line and "\n" not in line for line in shown)
    assert rows is None or len(shown) <= rows
    assert unicode or all(line.isascii() for line in shown)
