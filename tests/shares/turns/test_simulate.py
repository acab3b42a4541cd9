"""The guarantees of time sharing, with programs that behave as programs do, in simulated time."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lib.simulated_gpu import ProgramUse, SimulatedProgram, Simulation, bursty, hog
from jupyter_gpu_node.shares.rules.turns.timing import Timing

pytestmark = pytest.mark.uncounted

MS = 1_000
SECOND = 1_000_000
HANDOVER = 400


def percentile(values: Sequence[int], percent: float) -> int:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def busy(uses: Mapping[str, ProgramUse], seconds: float) -> float:
    return sum(use.work for use in uses.values()) / (seconds * SECOND)


def notebook(milli: int, seconds: int, *, work: int = 20 * MS) -> SimulatedProgram:
    """A burst every 200 ms, at moments that beat against the periods."""
    return bursty(milli, range(50 * MS, seconds * SECOND, 203 * MS), work)


@pytest.mark.parametrize("hogs", [1, 2, 4, 8])
def test_a_burst_beside_hogs_waits_for_a_kernel_and_not_for_a_lease(hogs: int) -> None:
    """While its bank lasts: p50 2.5, p95 5 and at most 12 ms with the GPU 96 % busy."""
    milli, seconds = 1000 // (hogs + 1), 30
    programs = {"notebook": notebook(milli, seconds)} | {f"hog{n}": hog(milli, seconds) for n in range(hogs)}
    uses = Simulation(programs, Timing(), handover=HANDOVER).run(seconds * SECOND)
    waits = uses["notebook"].waits[5:]  # it has nothing saved in its first second
    assert percentile(waits, 50) <= 2_500
    assert percentile(waits, 95) <= 5_000
    assert max(waits) <= 12_000
    assert busy(uses, seconds) >= 0.96


@pytest.mark.parametrize("hogs", [2, 4, 8])
def test_hogs_that_have_savings_are_hogs(hogs: int) -> None:
    """Idle at first, all of them have saved time: they take turns of a lease all the same, and bursts come first."""
    milli, start = 1000 // (hogs + 1), 6 * SECOND
    programs = {"notebook": bursty(milli, range(start, 20 * SECOND, 203 * MS), 20 * MS)}
    programs |= {
        f"hog{n}": SimulatedProgram(milli, ((start + n * 50 * MS, 20 * SECOND),), silent=True) for n in range(hogs)
    }
    uses = Simulation(programs, Timing(), handover=HANDOVER).run(20 * SECOND)
    waits = uses["notebook"].waits[5:]
    assert percentile(waits, 95) <= 5_000
    assert max(waits) <= 12_000
    assert sum(use.work for use in uses.values()) >= 0.96 * 14 * SECOND


@pytest.mark.parametrize("pause", [1, 21, 45])
def test_training_that_waits_for_its_results_is_no_burst(pause: int) -> None:
    """It saves time in its pauses; a burst of a share that rested comes first all the same, while its bank lasts."""
    trainer = SimulatedProgram(700, ((0, 50 * MS),), silent=True, again=pause * MS)
    burst = bursty(300, range(20 * SECOND, 60 * SECOND, 10 * SECOND), 400 * MS)
    uses = Simulation({"trainer": trainer, "burst": burst}, Timing(), handover=HANDOVER).run(60 * SECOND)
    assert uses["trainer"].account.balance > 0 or pause == 1
    assert percentile(uses["burst"].waits, 95) <= 5_000
    assert percentile(uses["burst"].times, 95) <= 500 * MS
    assert uses["burst"].account.borrowed > 4 * 200 * MS


def test_shares_are_exact() -> None:
    """Hogs of 100, 200, 300 and 400 for a minute: each within 0.05 % of the GPU, by what the GPU really did."""
    uses = Simulation({f"h{m}": hog(m, 60) for m in (100, 200, 300, 400)}, Timing(), handover=HANDOVER).run(60 * SECOND)
    total = sum(use.work for use in uses.values())
    for milli in (100, 200, 300, 400):
        assert abs(uses[f"h{milli}"].work / total - milli / 1000) <= 0.0005


@pytest.mark.parametrize("milli", [100, 250, 500])
def test_a_burst_is_not_followed_by_a_pause(milli: int) -> None:
    """A share without savings gets what it earns from then on, and its neighbour as much as without the burst."""
    start, end = 10 * SECOND, 30 * SECOND
    programs = {"burst": SimulatedProgram(milli, ((start, end),), silent=True), "hog": hog(1000 - milli, 30)}
    uses = Simulation(programs, Timing(), handover=HANDOVER).run(end)
    turns = [turn for turn in uses["burst"].turns if turn[1] > start]
    period, slice_time = Timing().period, Timing().slice(milli)
    assert max(after[0] - before[1] for before, after in pairwise(turns)) <= 2 * period
    spent = Timing().cap(milli) * 1000 // (750 - milli)  # a long burst leaves a quarter to the other
    for begin in range(start + spent + 2 * period, end - SECOND, SECOND):
        had = within(uses["burst"].turns, begin, begin + SECOND)
        assert had == pytest.approx(SECOND * milli / 1000, abs=2 * slice_time)


@pytest.mark.parametrize("rested", [True, False])
@pytest.mark.parametrize("shares", [(500, 500), (750, 250), (100, 200, 300, 400)])
def test_no_share_waits_until_others_have_spent_their_savings(shares: Sequence[int], rested: bool) -> None:
    """Training that waits for each result has its turns all the time, after all have rested or all but one."""
    begin, end = 10 * SECOND, 30 * SECOND
    programs = {
        str(milli): SimulatedProgram(milli, ((begin if rested or number == 0 else 0, 21 * MS),), 2_500, again=200)
        for number, milli in enumerate(shares)
    }
    uses = Simulation(programs, Timing(), handover=HANDOVER).run(end)
    for milli in shares:
        turns = [turn for turn in uses[str(milli)].turns if turn[1] > begin]
        assert max(after[0] - before[1] for before, after in pairwise(turns)) <= 2 * Timing().period


def test_a_bank_makes_bursts_wait_less() -> None:
    """A mostly idle share beside hogs: with its bank the bursts that exceed its slice are served at once."""

    def ended(savings: int) -> ProgramUse:
        programs = {"notebook": notebook(100, 30, work=15 * MS), "a": hog(450, 30), "b": hog(450, 30)}
        return Simulation(programs, Timing(savings=savings), handover=HANDOVER).run(30 * SECOND)["notebook"]

    with_bank, without = ended(20), ended(0)
    assert with_bank.account.borrowed > 0 == without.account.borrowed
    assert percentile(with_bank.times, 99) * 2 < percentile(without.times, 99)


def test_unclaimed_time_is_used() -> None:
    """One hog of a tenth of a GPU has all of it, minus what others really use."""
    uses = Simulation({"hog": hog(100, 10), "notebook": notebook(500, 10)}, Timing(), handover=HANDOVER).run(
        10 * SECOND
    )
    assert busy(uses, 10) > 0.98


def test_shares_follow_while_programs_run() -> None:
    """Resized, swapped and removed in the middle: from then on each has what it should."""
    simulation = Simulation({"a": hog(500, 30), "b": hog(500, 30)}, Timing())
    simulation.at(10 * SECOND, lambda arbiter, now: arbiter.put({"a": 200, "b": 800}, now))
    simulation.at(20 * SECOND, lambda arbiter, now: arbiter.put({"a": 700, "b": 300}, now))
    uses = simulation.run(30 * SECOND)
    for start, a in ((0, 0.5), (10, 0.2), (20, 0.7)):
        assert within(uses["a"].turns, start * SECOND, (start + 10) * SECOND) / (10 * SECOND) == pytest.approx(
            a, abs=0.01
        )


def within(turns: Sequence[tuple[int, int]], start: int, end: int) -> int:
    """Return for how long a program had the GPU in this window."""
    return sum(max(0, min(stop, end) - max(begin, start)) for begin, stop in turns)


JOBS = st.lists(st.tuples(st.integers(0, 400 * MS), st.integers(1, 300 * MS)), max_size=12).map(
    lambda steps: tuple((sum(pause for pause, _ in steps[: n + 1]), work) for n, (_, work) in enumerate(steps))
)
SHARES = st.lists(st.integers(20, 400), min_size=1, max_size=5).map(
    lambda parts: [max(1, part * 1000 // max(1000, sum(parts))) for part in parts]
)
KERNELS = st.sampled_from((10, 100, 1_000, 5_000))
END = 3 * SECOND


@settings(max_examples=60)
@given(st.data(), SHARES)
def test_share_with_constant_demand_gets_its_milli(data: st.DataObject, shares: list[int]) -> None:
    """Over any window it gets them, less what the others had saved and what cannot be interrupted."""
    timing = Timing(savings=data.draw(st.integers(0, 5)))
    steady, *others = shares
    programs = {"steady": hog(steady, 6, data.draw(KERNELS))}
    for number, milli in enumerate(others):
        programs[f"other{number}"] = SimulatedProgram(
            milli, data.draw(JOBS), data.draw(KERNELS), data.draw(st.integers(1, 3))
        )
    uses = Simulation(programs, timing).run(END)
    caps = sum(timing.cap(milli) for milli in others)
    longest = max(program.kernel * program.depth for program in programs.values())
    slack = caps + 2 * timing.slice(1000) + timing.lease + 4 * longest
    for start in range(0, END, 500 * MS):
        for end in range(start + 500 * MS, END + 1, 500 * MS):
            assert within(uses["steady"].turns, start, end) >= steady * (end - start) // 1000 - slack


@settings(max_examples=60)
@given(st.data(), SHARES)
def test_no_job_starves_and_no_two_run_at_once(data: st.DataObject, shares: list[int]) -> None:
    """Every job begins in bounded time, however greedy the others are; the GPU does one thing at a time."""
    programs = {f"hog{number}": hog(milli, 6, data.draw(KERNELS)) for number, milli in enumerate(shares[1:])}
    programs["shy"] = SimulatedProgram(shares[0], ((data.draw(st.integers(0, 500 * MS)), 1 * MS),), 100, 1)
    uses = Simulation(programs, Timing(), handover=data.draw(st.integers(0, HANDOVER))).run(END)
    turns = sorted(turn for use in uses.values() for turn in use.turns)
    assert all(before[1] <= after[0] for before, after in pairwise(turns))
    assert sum(stop - begin for begin, stop in turns) <= END
    (wait,) = uses["shy"].waits
    assert wait <= (2 + timing_turns(shares[0])) * 100 * MS


def timing_turns(milli: int) -> int:
    """Periods until a share of ``milli`` has earned a turn that is worth the change of hands."""
    timing = Timing()
    return timing.least // timing.slice(milli)


@pytest.mark.parametrize(("milli", "others"), [(500, (500,)), (100, (900,)), (900, (100,)), (250, (250, 250, 250))])
@pytest.mark.parametrize("kernel", [250, 10_000])
def test_false_report_of_work_gains_next_to_nothing(milli: int, others: Sequence[int], kernel: int) -> None:
    """A share that reports no work gains half a hundredth, where its neighbours tell the truth."""
    found = []
    for lies in (False, True):
        liar = SimulatedProgram(milli, ((0, 120 * SECOND),), kernel, silent=True, lies=lies)
        programs = {"liar": liar} | {f"hog{n}": hog(one, 60) for n, one in enumerate(others)}
        uses = Simulation(programs, Timing(), handover=HANDOVER).run(60 * SECOND)
        found.append(uses["liar"].work / sum(use.work for use in uses.values()) * 1000 / milli)
    assert found[1] <= 1.005
    assert found[0] == pytest.approx(1, abs=0.003)
