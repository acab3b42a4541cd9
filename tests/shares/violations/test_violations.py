"""Violations against turns: each rule by a case, and what must hold whatever happens."""

import json
import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.violations.events import (
    Continue,
    EnforcementOrder,
    EnforcerStarted,
    Event,
    GaveBack,
    Late,
    Removed,
    Stop,
    TakeAway,
    Tick,
    TurnBegan,
    TurnEnded,
    UseScanned,
)
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from jupyter_gpu_node.shares.rules.violations.violation_records import State, ViolationRecord, from_plain, to_plain
from jupyter_gpu_node.shares.rules.violations.violations import Present, decide, wake

PENALTIES = Penalties(grace=100_000, strikes=3)
HOG, CHILD, JUPYTER, OTHER = ProcessId(7, 70), ProcessId(8, 80), ProcessId(9, 90), ProcessId(10, 100)
SECOND = 1_000_000
KEPT = "it kept the GPU after it was asked for it"
IN_TURNS = "it used the GPU in turns of others"
AVOIDED = f"{IN_TURNS}. For 60 s, what does not ask for the GPU runs in turns of its share only"


@dataclass
class World:
    """One GPU's programs, what they do, and the orders about them."""

    present: Present = field(default_factory=lambda: Present({"a": frozenset({HOG, JUPYTER})}, frozenset({JUPYTER})))
    penalties: Penalties = PENALTIES
    state: State = field(default_factory=dict)
    now: int = 0

    def see(self, event: Event, after: int = 0) -> tuple[EnforcementOrder, ...]:
        self.now += after
        outcome = decide(self.state, event, self.now, self.present, self.penalties)
        self.state = outcome.state
        return outcome.orders

    def late(self) -> tuple[EnforcementOrder, ...]:
        """It keeps the GPU for as long as it is let."""
        self.see(Late("a", self.now))
        return self.see(Tick(), self.penalties.grace)


def group(*processes: ProcessId) -> frozenset[ProcessId]:
    return frozenset(processes)


def stop(*processes: ProcessId, why: str = KEPT) -> Stop:
    return Stop("a", group(*processes), f"Stopped until its next turn: {why}.")


# --- late -------------------------------------------------------------------------------------------------------------


def test_share_that_keeps_the_gpu_is_stopped_after_the_grace() -> None:
    """It is stopped not a microsecond before, and the Jupyter server never."""
    world = World()
    assert world.see(Late("a", 5), after=50_000) == ()
    assert wake(world.state, PENALTIES) == 100_005
    assert world.see(Tick(), after=50_004) == ()
    assert world.see(Tick(), after=1) == (stop(HOG),)


def test_throttled_share_is_late_later() -> None:
    """It is late later by as much as it was stopped, also if that is found later; the next turn begins anew."""
    world = World()
    world.see(Late("a", 0), after=50_000)
    world.present = replace(world.present, throttled={"a": 90_000})
    assert world.see(Tick(), after=50_000) == ()
    assert wake(world.state, PENALTIES) == 190_000
    world.present = replace(world.present, throttled={"a": 180_000})
    assert world.see(Tick(), after=90_000) == ()
    assert wake(world.state, PENALTIES) == 280_000
    world.present = replace(world.present, throttled={})
    assert world.see(Tick(), after=89_999) == ()
    assert world.see(Tick(), after=1) == (stop(HOG),)
    world.see(TurnBegan("a"))
    world.see(Late("a", world.now))
    assert world.see(Tick(), after=PENALTIES.grace) == (stop(HOG),)


def test_share_that_gives_back_in_time_is_no_offender() -> None:
    """A kernel cannot be interrupted. Nothing is remembered of it."""
    world = World()
    world.see(Late("a", 0))
    assert world.see(GaveBack("a"), after=99_999) == ()
    assert world.see(Tick(), after=1_000_000) == ()
    assert (world.state, wake(world.state, PENALTIES)) == ({}, None)


def test_it_runs_again_in_its_turn() -> None:
    """It keeps its strike."""
    world = World()
    assert world.late() == (stop(HOG),)
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)
    assert world.see(TurnBegan("a")) == ()
    assert world.state["a"].strikes == 1


def test_lateness_ends_with_the_next_turn() -> None:
    """A stopped process cannot give back: that is done for it, and is no second violation."""
    world = World()
    world.late()
    assert world.late() == ()
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)
    assert world.see(Tick(), after=PENALTIES.grace) == ()


def test_a_stop_ends_without_a_turn() -> None:
    """A stopped process is not forgotten because its share gets no turn."""
    world = World()
    world.late()
    assert wake(world.state, PENALTIES) == world.now + PENALTIES.longest
    assert world.see(Late("a", world.now), after=PENALTIES.longest - 1) == ()
    assert wake(world.state, PENALTIES) == world.now + 1
    assert world.see(Tick(), after=1) == (Continue("a", group(HOG)),)


def test_too_many_violations_cost_the_share() -> None:
    """Its user reads why; what is stopped runs again before."""
    world = World()
    for _ in range(2):
        assert world.late() == (stop(HOG),)
        assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)
    words = f"Taken away: {KEPT}, violation 3 of late. Restart its programs and ask again."
    assert world.late() == (TakeAway("a", words),)
    assert world.late() == ()  # once
    assert world.see(GaveBack("a"), after=100 * PENALTIES.forget) == ()
    assert world.state["a"].taken == words
    assert wake(world.state, PENALTIES) is None
    world.see(Removed("a"))
    assert world.state == {}


def test_old_violations_are_forgotten() -> None:
    """A violation once in a while costs nothing but that turn."""
    world = World()
    for _ in range(20):
        assert world.late() == (stop(HOG),)
        world.see(TurnBegan("a"))
        world.now += PENALTIES.forget
    assert world.see(Tick(), after=10 * PENALTIES.forget) == ()
    assert world.state == {}


def test_violations_of_spared_processes_count() -> None:
    """They are not stopped, but their share is taken away."""
    world = World(Present({"a": group(JUPYTER)}, group(JUPYTER)))
    assert world.late() == ()
    assert world.late() == ()
    assert [type(order) for order in world.late()] == [TakeAway]


def test_an_offender_that_is_gone_is_not_stopped() -> None:
    """Its pid may belong to another one by now."""
    assert World(Present()).late() == ()


# --- in turns of others -----------------------------------------------------------------------------------------------


def foreign(amount: int, share: str = "a") -> UseScanned:
    return UseScanned({share: {HOG: amount - amount // 2, CHILD: amount // 2}}, 1_000_000)


def test_process_that_uses_turns_of_others_is_stopped() -> None:
    """It is when it was seen several times in a row, and above what may be an error of measurement."""
    world = World()
    assert [world.see(foreign(amount)) for amount in (50_001, 50_001, 50_000, 50_001, 50_001)] == [()] * 5
    assert world.see(foreign(50_001)) == (stop(HOG, why=AVOIDED),)
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)
    assert world.see(foreign(50_001)) == ()


def avoider(penalties: Penalties = PENALTIES) -> World:
    """Its process, and its child, were seen without turns, and stopped with all others of their share."""
    world = World(Present({"a": group(HOG, CHILD, OTHER)}), penalties)
    for _ in range(3):
        orders = world.see(foreign(900_000), SECOND)
    assert orders == (stop(HOG, CHILD, OTHER, why=AVOIDED if penalties.kept else IN_TURNS),)
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG, CHILD, OTHER)),)
    return world


def test_a_way_that_cannot_ask_is_no_violation() -> None:
    """Its processes are kept to their turns as all that never ask, and told by what; however often, the share stays."""
    world = World()
    why = AVOIDED.replace("others.", "others by OpenCL, which cannot ask for turns.")
    for _ in range(3 * PENALTIES.strikes):
        for _ in range(2):
            assert world.see(replace(foreign(900_000), apis={"a": "OpenCL"}), SECOND) == ()
        assert world.see(replace(foreign(900_000), apis={"a": "OpenCL"}), SECOND) == (stop(HOG, why=why),)
        assert world.see(TurnBegan("a"), PENALTIES.kept) == (Continue("a", group(HOG)),)
        assert world.state["a"].strikes == 0


def test_a_way_that_cannot_ask_excuses_no_keeping() -> None:
    """A share that was asked for the GPU and keeps it is late, whatever it uses; turns are for those that ask."""
    world = World()
    world.see(replace(foreign(900_000), apis={"a": "OpenCL"}), SECOND)
    assert world.late() == (stop(HOG),)
    assert world.state["a"].strikes == 1
    world = World()
    for _ in range(10):
        orders = world.see(UseScanned({}, SECOND, {"a": 900_000}, {"a": "OptiX"}), SECOND)
        if orders:
            break
    assert orders == (stop(HOG, why=f"{IN_TURNS} by OptiX, which cannot ask for turns"),)
    assert world.state["a"].strikes == 1


def test_process_that_never_asks_is_kept_to_turns_for_a_while() -> None:
    """It is stopped between them, without a strike and without a word; those of its share that ask are let be."""
    world = avoider()
    both = group(HOG, CHILD)
    for _ in range(20):
        assert world.see(TurnEnded("a", both), SECOND) == (Stop("a", both, ""),)
        assert world.see(foreign(900_000), SECOND) == ()
        assert world.see(TurnBegan("a"), SECOND) == (Continue("a", both),)
    assert world.state["a"].strikes == 1
    assert world.see(TurnEnded("a", both), SECOND) == ()
    assert [world.see(foreign(900_000), SECOND) for _ in range(2)] == [(), ()]
    assert [type(order) for order in world.see(foreign(900_000), SECOND)] == [Stop]
    assert round(world.state["a"].strikes) == 2


def test_children_of_an_avoider_are_kept_to_turns() -> None:
    """Processes seen meanwhile are stopped; not those that have ended, or must never be stopped."""
    world = avoider()
    world.see(UseScanned({"a": {OTHER: 100, JUPYTER: 100}}, SECOND))
    world.present = replace(world.present, never=group(JUPYTER))
    assert world.see(TurnEnded("a", group(CHILD, OTHER, JUPYTER))) == (Stop("a", group(CHILD, OTHER), ""),)
    assert world.see(UseScanned({"a": {HOG: 100}}, SECOND)) == (Stop("a", group(HOG), ""),)
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG, CHILD, OTHER)),)
    assert world.see(TurnEnded("a", group())) == ()
    assert not world.state["a"].restricted_until


def test_an_avoider_that_rests_is_let_be() -> None:
    """No turns are asked for on its behalf, and one more use is no violation yet."""
    world = avoider()
    for _ in range(9):
        assert world.see(UseScanned({}, SECOND)) == ()
    assert world.see(foreign(1)) == ()
    for _ in range(10):
        assert world.state["a"].restricted_until
        assert world.see(TurnEnded("a", group(HOG))) == (Stop("a", group(HOG), ""),)
        assert world.see(UseScanned({}, SECOND)) == ()
        assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)
    assert world.see(TurnEnded("a", group(HOG))) == ()
    assert world.see(foreign(900_000)) == ()


def test_avoider_without_a_turn_runs_again() -> None:
    """It runs again as after any stop, and is as before the violation."""
    world = avoider()
    world.see(TurnEnded("a", group(HOG)))
    assert wake(world.state, PENALTIES) == world.now + PENALTIES.longest
    assert world.see(Tick(), PENALTIES.longest) == (Continue("a", group(HOG)),)
    assert not world.state["a"].restricted_until


def test_the_others_of_an_avoiders_share_can_be_late() -> None:
    """A stop between its turns is no excuse."""
    world = avoider()
    world.see(TurnEnded("a", group(HOG)))
    assert world.late() == (stop(CHILD, OTHER),)
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG, CHILD, OTHER)),)
    world.see(TurnEnded("a", group(HOG)))
    assert [type(order) for order in world.late()] == [TakeAway, Continue]
    assert world.see(TurnEnded("a", group(HOG))) == ()


def test_process_is_not_kept_to_turns_where_that_is_switched_off() -> None:
    """It is stopped until the next turn, and no more."""
    world = avoider(replace(PENALTIES, kept=0))
    assert world.see(TurnEnded("a", group(HOG))) == ()


def test_an_avoider_is_free_after_a_restart() -> None:
    """Its use is seen again."""
    world = avoider()
    world.see(TurnEnded("a", group(HOG)))
    assert world.see(EnforcerStarted()) == (Continue("a", group(HOG)),)
    assert world.see(TurnEnded("a", group(HOG))) == ()


@pytest.mark.parametrize("milli", [100, 250, 500, 900])
def test_few_samples_of_the_driver_suspect_no_share_that_keeps_to_its_turns(milli: int) -> None:
    """Hours of scans of shares that keep to their turns: the driver samples five times a second which process runs."""
    world, draw = World(), random.Random(milli)
    for _ in range(20_000):
        seen = sum(draw.random() < milli / 1000 for _ in range(5))
        assert world.see(UseScanned({}, SECOND, {"a": seen * SECOND // 5 - milli * 1000}), SECOND) == ()


@pytest.mark.parametrize(("milli", "uses", "within"), [(500, 1000, 20), (250, 600, 30), (100, 1000, 8)])
def test_share_that_asks_and_avoids_the_gate_is_found(milli: int, uses: int, within: int) -> None:
    """It takes some seconds; a second time it begins anew."""
    world, draw = World(), random.Random(milli)
    found = []
    for second in range(200):
        seen = sum(draw.random() < uses / 1000 for _ in range(5))
        if world.see(UseScanned({}, SECOND, {"a": seen * SECOND // 5 - milli * 1000}), SECOND):
            found.append(second)
            world.see(TurnBegan("a"))
            if len(found) == 2:
                break
    assert found[0] <= within
    assert 3 <= found[1] - found[0] <= within


@pytest.mark.parametrize("more", [75, 100, 150])
def test_a_little_more_than_its_turns_is_found_in_minutes(more: int) -> None:
    """It is less than the doubt of a short scan."""
    world, draw = World(), random.Random(more)
    for second in range(2_000):
        seen = sum(draw.random() < (250 + more) / 1000 for _ in range(5))
        if world.see(UseScanned({}, SECOND, {"a": seen * SECOND // 5 - 250_000}), SECOND):
            assert second <= 900
            return
    raise AssertionError("it was never found")


def test_use_beyond_turns_is_forgotten_with_a_stop() -> None:
    """Work that was queued before the stop runs on."""
    world = World()
    for _ in range(3):
        assert world.see(UseScanned({}, SECOND, {"a": 900_000}), SECOND) == ()
    assert world.late()
    assert world.see(UseScanned({}, SECOND, {"a": 900_000}), SECOND) == ()
    world.see(TurnBegan("a"))
    for _ in range(3):
        assert world.see(UseScanned({}, SECOND, {"a": 900_000}), SECOND) == ()
    assert [type(order) for order in world.see(UseScanned({}, SECOND, {"a": 900_000}), SECOND)] == [Stop]


def test_a_turn_does_not_break_the_row() -> None:
    """A share that avoids the gate has turns too, and more of them than scans."""
    world = World()
    for event in (foreign(900_000), TurnBegan("a"), foreign(900_000), TurnBegan("a"), GaveBack("a")):
        assert world.see(event) == ()
    assert [type(order) for order in world.see(foreign(900_000))] == [Stop]


def test_not_to_be_seen_is_to_be_seen_without_use() -> None:
    """The row is broken by it."""
    world = World()
    for event in (foreign(900_000), foreign(900_000), UseScanned({}, 1_000_000), foreign(900_000), foreign(900_000)):
        assert world.see(event) == ()


def test_queued_work_of_stopped_processes_is_no_violation() -> None:
    """A stop does not reach what the GPU has already."""
    world = World()
    world.late()
    for _ in range(10):
        assert world.see(foreign(900_000)) == ()
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)
    assert world.state["a"].strikes == 1


def test_a_stop_is_remembered_longer_than_its_strike() -> None:
    """It is, although the settings forget a strike at once."""
    world = World(penalties=replace(PENALTIES, forget=1_000_000, longest=600_000_000))
    world.late()
    assert world.see(Tick(), after=100_000_000) == ()
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)


# --- while it is stopped ----------------------------------------------------------------------------------------------


def test_a_process_that_comes_later_is_stopped_too() -> None:
    """It belongs to the same violation; all run again together."""
    world = World()
    world.late()
    world.present = replace(world.present, processes={"a": group(HOG, CHILD), "b": group(OTHER)})
    assert world.see(Tick()) == (Stop("a", group(CHILD), "Stopped until its next turn, as the others of this share."),)
    assert world.see(Tick()) == ()
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG, CHILD)),)


def test_spared_process_runs_at_once() -> None:
    """It does when that is known only afterwards."""
    world = World(Present({"a": group(HOG, CHILD)}))
    assert world.late() == (stop(HOG, CHILD),)
    world.present = replace(world.present, never=group(CHILD))
    assert world.see(Tick()) == (Continue("a", group(CHILD)),)
    assert world.state["a"].stopped == group(HOG)


def test_a_process_that_is_not_seen_is_not_forgotten() -> None:
    """A stopped process is continued in the next turn, whatever a scan of the GPU misses meanwhile."""
    world = World()
    world.late()
    world.present = Present()
    world.see(Tick())
    assert world.see(TurnBegan("a")) == (Continue("a", group(HOG)),)


def test_a_share_that_is_removed_runs_again() -> None:
    """Its programs can end then."""
    world = World()
    world.late()
    assert world.see(Removed("a")) == (Continue("a", group(HOG)),)
    assert (world.state, world.see(Removed("a")), world.see(TurnBegan("a")), world.see(GaveBack("a"))) == (
        {},
        (),
        (),
        (),
    )


# --- restart ----------------------------------------------------------------------------------------------------------


def test_after_a_restart_all_run_again() -> None:
    """The file says which were stopped; strikes count on, whatever the clock says now."""
    world = World(now=10**15)
    world.late()
    kept = json.loads(json.dumps(to_plain(world.state)))
    again = World(state=from_plain(kept), now=3)
    assert again.see(EnforcerStarted()) == (Continue("a", group(HOG)),)
    assert again.state["a"] == ViolationRecord(strikes=1.0, struck=3, since=again.state["a"].since)
    assert again.see(EnforcerStarted()) == ()


def test_taken_share_is_taken_again_after_a_restart() -> None:
    """The plugin may have ended before it did."""
    world = World(penalties=Penalties(grace=1_000, strikes=1))
    (order,) = world.late()
    again = World(state=from_plain(to_plain(world.state)))
    assert again.see(EnforcerStarted()) == (order,)


@pytest.mark.parametrize(
    "plain",
    [
        None, [], 5, {"a": None}, {"a": {}},
        *(
            {"a": {"strikes": 1, "struck": 0, "stopped": [[1, 2]], "taken": ""} | wrong}
            for wrong in (
                {"strikes": -1}, {"strikes": float("nan")}, {"strikes": float("inf")}, {"strikes": "1"}, {"struck": -1},
                {"struck": 1.5}, {"stopped": None}, {"stopped": [[1]]}, {"stopped": [[0, 1]]}, {"stopped": [[True, 1]]},
                {"stopped": ["ab"]}, {"stopped": [[-1, 1]]}, {"taken": None},
            )
        ),
    ],
)  # fmt: skip
def test_impossible_file_is_refused(plain: Any) -> None:
    """It is, whatever of it is wrong: a signal to the wrong process cannot be taken back."""
    with pytest.raises(ValueError, match="not a record of violations"):
        from_plain(plain)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"grace": 0}, "grace is 0; it must be a whole number from 1000"),
        ({"tolerance": 1001}, "tolerance is 1001"),
        ({"looks": 1.5}, "looks is 1.5"),
        ({"strikes": True}, "strikes is True"),
        ({"longest": "5"}, "longest is '5'"),
        ({"forget": -1}, "forget is -1"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], words: str) -> None:
    """The administrator reads which one and why."""
    with pytest.raises(ValueError, match=words):
        Penalties(**settings)


# --- whatever happens -------------------------------------------------------------------------------------------------

SHARES = st.sampled_from(["a", "b"])
GROUPS = st.frozensets(st.sampled_from([HOG, CHILD, JUPYTER, OTHER]))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Late, SHARES, st.integers(0, 1_000)),
    st.builds(GaveBack, SHARES),
    st.builds(TurnBegan, SHARES),
    st.builds(TurnEnded, SHARES, GROUPS),
    st.builds(Removed, SHARES),
    st.builds(
        UseScanned, st.dictionaries(SHARES, st.dictionaries(st.sampled_from([HOG, CHILD]), st.just(500))), st.just(1000)
    ),
    st.just(Tick()),
    st.just(EnforcerStarted()),
)


@given(st.lists(st.tuples(EVENTS, st.integers(0, 60_000), GROUPS), max_size=40), st.frozensets(st.just(JUPYTER)))
def test_rules_of_every_event(
    story: list[tuple[Event, int, frozenset[ProcessId]]], never: frozenset[ProcessId]
) -> None:
    """Stopped processes are known, for as long as allowed, and run again in their turn and when their share is gone."""
    world = World(Present({}, never), Penalties(grace=1_000, longest=100_000, strikes=3, looks=2, kept=200_000))
    stopped: dict[str, frozenset[ProcessId]] = {}
    since: dict[str, int] = {}
    for event, after, processes in story:
        while (due := wake(world.state, world.penalties)) is not None and due <= world.now + after:
            after -= max(0, due - world.now)
            apply_rule(world.see(Tick(), max(0, due - world.now)), stopped, since, world)
            assert wake(world.state, world.penalties) != due, "it would wake for nothing for ever"
        share = getattr(event, "share", "a")
        world.present = replace(world.present, processes={share: processes})
        orders = world.see(event, after)
        apply_rule(orders, stopped, since, world)
        assert {name: one.stopped for name, one in world.state.items() if one.stopped} == stopped
        assert all(world.now < since[name] + 100_000 for name in stopped)
        assert not any(one & never for one in stopped.values())
        if isinstance(event, EnforcerStarted):
            assert not stopped
        if isinstance(event, TurnBegan | Removed):
            assert event.share not in stopped or any(isinstance(order, Stop) for order in orders)
        assert not any(one.taken and (one.stopped or one.restricted_until) for one in world.state.values())
        assert all(one.stopped <= one.avoiders for one in world.state.values() if one.between)


def apply_rule(
    orders: tuple[EnforcementOrder, ...], stopped: dict[str, frozenset[ProcessId]], since: dict[str, int], world: World
) -> None:
    """Carry out the orders: no process is stopped twice, or continued while it runs."""
    for order in orders:
        before = stopped.get(order.share, frozenset())
        match order:
            case Stop(share, processes, reason):
                assert processes
                assert reason or world.state[share].restricted_until, "its user was never told why"
                assert not processes & before
                since.setdefault(share, world.now)
                stopped[share] = before | processes
            case Continue(share, processes):
                assert processes
                assert processes <= before
                stopped[share] = before - processes
            case TakeAway():
                assert order.reason
        if not stopped.get(order.share):
            stopped.pop(order.share, None)
            since.pop(order.share, None)


def _excused(world: World) -> None:
    world.present = replace(world.present, resting=frozenset({HOG}), dormant=frozenset({"a"}))


def test_share_that_its_user_stopped_is_excused_for_a_while() -> None:
    """It cannot give back; then its work runs on, and it is late as any. A process that its user stopped is left so."""
    world = World(Present({"a": frozenset({HOG, CHILD})}))
    _excused(world)
    assert not world.see(Late("a", 0), after=PENALTIES.grace)
    assert world.state["a"].strikes == 0
    assert not world.see(Late("a", world.now, again=True))
    assert not world.see(Tick(), after=PENALTIES.longest // 2)
    assert world.state["a"].late is None
    assert not world.see(Late("a", world.now, again=True))
    assert world.see(Tick(), after=PENALTIES.longest) == (
        Stop("a", frozenset({CHILD}), f"Stopped until its next turn: {KEPT}."),
    )


def test_an_excuse_is_for_one_turn() -> None:
    """The next one begins anew, and so does one after it ran meanwhile."""
    world = World()
    _excused(world)
    world.see(Late("a", 0), after=PENALTIES.grace)
    assert not world.see(Late("a", world.now + PENALTIES.longest), after=PENALTIES.longest + PENALTIES.grace)
    assert world.state["a"].dormant_since == world.now
    world.present = replace(world.present, resting=frozenset(), dormant=frozenset())
    world.see(Tick())
    assert not world.state


def test_an_avoider_that_its_user_stopped_is_not_stopped_once_more() -> None:
    """It is not continued in its turn either."""
    world = World()
    for _ in range(PENALTIES.looks):
        world.see(UseScanned({"a": {HOG: SECOND}}, SECOND), after=SECOND)
    world.see(TurnBegan("a"))
    _excused(world)
    assert not world.see(TurnEnded("a", frozenset({HOG})))
