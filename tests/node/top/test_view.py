"""The table of time shares, and the rates between two readings."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.share import ShareRates, ShareUse
from jupyter_gpu.model.terminal import Style
from jupyter_gpu_node.shares.rules.share_file import ShareFile
from jupyter_gpu_node.top.rules import view
from jupyter_gpu_node.top.rules.history import History, ObservedShare, to_json

SHARE = ShareUse(
    uuid="GPU-1", allocated=250, effective=400, guaranteed=9_000_000, borrowed=800_000, idle=70_000, overrun=600,
    switching=5_000, waited=400_000, throttled=30_000, lost=2_000, balance=1_200_000, cap=2_000_000,
    expires=17_000_000, sharing=1, period=100_000, busy=0.93, reason="Grew by 150 from what others do not use.",
    memory_used=2**30, memory_limit=2**34,
)  # fmt: skip
OTHER = replace(
    SHARE, allocated=750, effective=600, balance=0, expires=None, reason="", memory_used=None, memory_limit=None
)
WHOLE = replace(SHARE, uuid="GPU-2", allocated=1000, effective=1000, sharing=0, reason="", memory_limit=None, busy=0.5)
SEEN = (
    ObservedShare("GPU-1", "a", SHARE, 1.2, 99_000, ShareRates(0.3, 0.1, 0.05, 0.2, 0.02)),
    ObservedShare("GPU-1", "b", OTHER, 0.0, 99_000, ShareRates()),
    ObservedShare("GPU-2", "c", WHOLE, 1.0, 9_000, None),
)
NAMES = {"a": "team-a/notebook-alice", "b": "team-b/notebook-with-a-very-long-name"}


def screen(style: Style, *seen: ObservedShare) -> str:
    return "\n".join(view.lines("Time shares", seen or SEEN, NAMES, style, 100_000))


WIDE = """\
Time shares: 2 GPUs, 3 shares

GPU-1  93% busy  2 shares
  POD                      NOW/SHARE  GPU TIME     RUNS  BANK             WAITS  EXPIRES  THROTTLED               MEMORY
  team-a/notebook-alice      400/250  ███▓░░        45%  ██░░ 1.2/2.0 s     20%     17 s         2%         1 GiB/16 GiB
    Grew by 150 from what others do not use.
  team-b/notebook-with-a>    600/750        │        0%  ░░░░ 0.0/2.0 s      0%                  0%

GPU-2  50% busy  one pod's alone  unchanged for 91 s
  POD           NOW/SHARE  GPU TIME                RUNS  BANK             WAITS  EXPIRES  THROTTLED               MEMORY
  c                  1000                                                                                          1 GiB

█ of its slice, ▓ from its bank, ▒ idle time, ░ waiting; │ what it earns"""
USUAL = """\
Time shares: 2 GPUs, 3 shares

GPU-1  93% busy  2 shares
  POD              NOW/SHARE  GPU TIME     RUNS  BANK             WAITS  EXPIRES
  team-a/noteboo>    400/250  ###+ww        45%  ##.. 1.2/2.0 s     20%     17 s
    Grew by 150 from what others do not use.
  team-b/noteboo>    600/750        |        0%  .... 0.0/2.0 s      0%

GPU-2  50% busy  one pod's alone  unchanged for 91 s
  POD           NOW/SHARE  GPU TIME        RUNS  BANK             WAITS  EXPIRES
  c                  1000

# of its slice, + from its bank, - idle time, w waiting; | what it earns"""
NARROW = """\
Time shares: 2 GPUs, 3 shares

GPU-1  93% busy  2 shares
  POD              NOW/SHARE  GPU TIME
  team-a/noteboo>    400/250  ███▓░░
    Grew by 150 from what others do not>
  team-b/noteboo>    600/750        │

GPU-2  50% busy  one pod's alone  uncha>
  POD           NOW/SHARE  GPU TIME
  c                  1000

█ of its slice, ▓ from its bank, ▒ idle>"""


def test_a_wide_terminal() -> None:
    """Everything, with the bar to scale."""
    assert screen(Style(120)) == WIDE


def test_a_usual_terminal_without_unicode() -> None:
    """The least important columns are left out, and marks are letters."""
    assert screen(Style(80, unicode=False)) == USUAL


def test_a_narrow_terminal() -> None:
    """Names and shares stay."""
    assert screen(Style(40)) == NARROW


@given(st.integers(20, 200), st.integers(4, 30) | st.none(), st.booleans(), st.booleans())
def test_no_line_is_longer_than_the_terminal(width: int, height: int | None, colour: bool, unicode: bool) -> None:
    """Nor are there more of them; with colours it says the same as without, and no colour is left on."""
    style = Style(width, height, colour, unicode)
    shown = view.lines("Time shares", SEEN, NAMES, style, 100_000)
    assert max(map(view.length, shown)) <= width
    assert height is None or len(shown) <= height
    plain = view.lines("Time shares", SEEN, NAMES, replace(style, colour=False), 100_000)
    bare = [view.COLOUR.sub("", line).rstrip() for line in shown]
    assert bare == [line.rstrip() for line in plain]
    for line in shown:
        last = [*view.COLOUR.findall(line), "\x1b[0m"][:-1]
        assert not last or last[-1] == "\x1b[0m" or line.endswith(">")
    if not unicode:
        assert "\n".join(shown).isascii()


def test_shares_that_do_not_fit_are_counted() -> None:
    """Below each other only so many lines have room."""
    shown = view.lines("Time shares", SEEN, NAMES, Style(100, 6), 100_000)
    assert len(shown) == 6
    assert shown[-1].startswith("... ")
    assert "more lines: make the window larger" in shown[-1]


def test_empty_table_says_so() -> None:
    """A machine without shares gets a sentence."""
    assert view.lines("Time shares", (), {}, Style(80), 0) == [
        "Time shares: 0 GPUs, 0 shares",
        "",
        "No GPU is shared out on this machine now.",
    ]


@given(
    st.tuples(*[st.floats(0, 1)] * 4).map(lambda parts: [part / max(1, sum(parts)) for part in parts]),
    st.integers(1, 1000),
    st.integers(1, 80),
)
def test_the_bar_is_to_scale(parts: list[float], milli: int, width: int) -> None:
    """Each part within half a cell, or a whole one where the one before began late; and never wider."""
    rates = ShareRates(*parts)
    shown = view.bar(replace(SHARE, effective=milli), rates, width, Style(unicode=False))
    assert len(shown) == width
    ends = 0.0
    for mark, part in zip("#+-w", parts, strict=True):
        ends += part * width
        assert abs(shown.count(mark) - part * width) <= 1 + 1e-9
    assert shown.count("|") <= 1


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 s"), (85_000, "85 ms"), (994_999, "995 ms"), (995_000, "1.0 s"), (9_949_999, "9.9 s"), (17_000_000, "17 s"),
     (119_000_000, "119 s"), (180_000_000, "3 min")],
)  # fmt: skip
def test_durations(amount: int, text: str) -> None:
    """As short as they stay useful."""
    assert view.duration(amount) == text


# --- between two readings ---------------------------------------------------------------------------------------------

KEY = ("GPU-1", "a")


def later(file: ShareFile, written: int, **more: int) -> ShareFile:
    changes = {name: getattr(file.share, name) + amount for name, amount in more.items()}
    return replace(file, share=replace(file.share, **changes), written=written)


def rates_of(history: History, file: ShareFile, now: int) -> ShareRates | None:
    (seen,) = history.update({(file.share.uuid, "a"): file}, now)
    return seen.rates


def test_rates_are_of_the_time_between_two_writings() -> None:
    """The first reading knows none; a share that did nothing has none."""
    history, file = History(), ShareFile(SHARE, 0.5, 1_000)
    assert rates_of(history, file, 1_050) is None
    file = later(file, 2_000, guaranteed=300_000, waited=100_000)
    assert rates_of(history, file, 2_050) == ShareRates(guaranteed=0.3, waiting=0.1)
    assert rates_of(history, file, 3_050) == ShareRates()


def test_after_a_rest_only_time_since_the_last_reading_counts() -> None:
    """A file that was not written for an hour was still valid at the last reading."""
    history, file = History(), ShareFile(SHARE, 0.5, 1_000)
    assert rates_of(history, file, 3_600_000) is None
    file = later(file, 3_600_800, guaranteed=600_000)  # it began 1.2 seconds before the reading at the earliest
    assert rates_of(history, file, 3_601_000) == ShareRates(guaranteed=0.3)


def test_a_whole_gpu_is_written_seldom() -> None:
    """Until it is again, what was seen last is so still."""
    history, file = History(), ShareFile(WHOLE, 1.0, 1_000)
    assert rates_of(history, file, 1_000) is None
    assert rates_of(history, file, 2_000) is None
    file = later(file, 9_000, guaranteed=4_000_000)
    assert rates_of(history, file, 9_000) == ShareRates(guaranteed=0.5)
    assert rates_of(history, file, 10_000) == ShareRates(guaranteed=0.5)


def test_shares_come_and_go() -> None:
    """By GPU and pod; one that was away is a new one."""
    history, file = History(), ShareFile(SHARE, 0.5, 1_000)
    history.update({("GPU-2", "b"): file, KEY: file}, 1_000)
    assert [(one.gpu, one.pod) for one in history.update({("GPU-2", "b"): file, KEY: file}, 2_000)] == [
        KEY,
        ("GPU-2", "b"),
    ]
    assert history.update({}, 3_000) == ()
    assert rates_of(history, file, 4_000) is None


def test_json_has_all_fields() -> None:
    """All that a share's file says, as of now, and the rates."""
    history, file = History(), ShareFile(SHARE, 0.5, 1_000)
    history.update({KEY: file}, 1_000)
    (seen,) = history.update({KEY: later(file, 2_000, idle=250_000)}, 2_500)
    body = to_json(seen)
    assert (body["pod"], body["uuid"], body["expires"], body["use"], body["written"]) == (
        "a", "GPU-1", 16_500_000, 0.5, 2_000,
    )  # fmt: skip
    assert body["rates"] == {"guaranteed": 0, "borrowed": 0, "idle": 0.25, "waiting": 0, "throttled": 0}
    assert ShareUse.from_json(body) == replace(seen.share)
    assert to_json(SEEN[2])["rates"] is None
