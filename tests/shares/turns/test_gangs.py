"""Programs that use several GPUs at once, in simulated time: none waits for another in a circle, none starves."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_node.shares.rules.protocol import Ask
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.demand import Demand
from jupyter_gpu_node.shares.rules.turns.gangs import groups
from jupyter_gpu_node.shares.rules.turns.rule import Rule
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from tests.shares.turns.collective import TIMING, Kind, Machine

MS = 1_000
SECOND = 1_000_000
MEETS = Kind()
FREE = Kind(threads=True)
TRAINS = Kind((300,) * 20 + (1_000,), (False,) * 20 + (True,), threads=True)
ALONE = Kind(meets=(False,))
TWO = {"0": {"a": 500, "b": 500}, "1": {"a": 500, "b": 500}}
RING = {"0": {"a": 500, "c": 500}, "1": {"a": 500, "b": 500}, "2": {"b": 500, "c": 500}}
BESIDE = {"0": {"a": 300, "b": 300, "x": 400}, "1": {"a": 300, "b": 300, "y": 400}}
Shares = Mapping[str, Mapping[str, int]]


def machine(shares: Shares, kinds: Mapping[str, Kind], *, gangs: bool = True) -> Machine:
    found = Machine(shares, gangs=gangs)
    for pod, kind in kinds.items():
        found.start(pod, kind)
    return found


def progress(one: Machine, time: int) -> dict[str, int]:
    """Launches of each that ended on all its GPUs in that time."""
    before = {pod: program.done for pod, program in one.programs.items()}
    one.run(time)
    return {pod: program.done - before[pod] for pod, program in one.programs.items()}


def part(one: Machine, pod: str, gpu: str) -> float:
    """Return the part of all time in which its kernels ran there without waiting for each other."""
    return one.programs[pod].gates[gpu].busy / one.now


def crossed(gangs: bool) -> Machine:
    """``a`` has one GPU, ``b`` the other, and each has a kernel there that waits for its peer."""
    one = Machine(TWO, gangs=gangs)
    a, b = one.start("a", MEETS), one.start("b", Kind(first="1"))
    one.run(300)
    assert gangs or (a.gates["0"].queue and b.gates["1"].queue)
    return one


@pytest.mark.uncounted
@pytest.mark.parametrize("gangs", [False, True])
def test_two_programs_that_have_one_gpu_each(gangs: bool) -> None:
    """They stand still for ever where each GPU decides for itself, and go on under the rules of gangs."""
    one = crossed(gangs)
    one.run(SECOND)
    done = progress(one, SECOND)
    assert all(count > 400 for count in done.values()) if gangs else not any(done.values()), done


@pytest.mark.uncounted
@pytest.mark.parametrize("kind", [MEETS, FREE, TRAINS], ids=["one thread", "threads", "trains"])
@pytest.mark.parametrize("gangs", [False, True])
def test_three_in_a_ring(kind: Kind, gangs: bool) -> None:
    """All go on, though no two of them have two GPUs in common."""
    one = machine(RING, dict.fromkeys("abc", kind), gangs=gangs)
    one.run(SECOND)
    done = progress(one, SECOND)
    if gangs:
        assert min(done.values()) * 4 > max(done.values()) > 0
    elif kind is not MEETS:
        assert not any(done.values())


@pytest.mark.uncounted
@pytest.mark.parametrize("b", [500, 700])
@pytest.mark.parametrize("kinds", [(MEETS, MEETS), (FREE, FREE), (FREE, MEETS), (TRAINS, TRAINS)])
def test_shares_of_programs_on_several_gpus_are_exact(b: int, kinds: tuple[Kind, Kind]) -> None:
    """Each is within 1.5 % of its milli, and the GPUs are 97 % busy."""
    one = machine({"0": {"a": 1000 - b, "b": b}, "1": {"a": 1000 - b, "b": b}}, dict(zip("ab", kinds, strict=True)))
    one.run(3 * SECOND)
    for gpu in "01":
        assert part(one, "b", gpu) == pytest.approx(b / 1000, abs=0.015)
        assert part(one, "a", gpu) + part(one, "b", gpu) >= 0.97


@pytest.mark.uncounted
@pytest.mark.parametrize("kind", [FREE, TRAINS], ids=["threads", "trains"])
def test_shares_of_one_gpu_beside_them_are_exact(kind: Kind) -> None:
    """They wait for no other GPU, and get what is theirs."""
    one = machine(BESIDE, {"a": kind, "b": kind, "x": ALONE, "y": ALONE})
    one.run(5 * SECOND)
    for pod, gpu, milli in (("a", "0", 300), ("b", "1", 300), ("x", "0", 400), ("y", "1", 400)):
        assert part(one, pod, gpu) == pytest.approx(milli / 1000, abs=0.015)


@pytest.mark.uncounted
@pytest.mark.parametrize("kind", [FREE, TRAINS], ids=["threads", "trains"])
def test_one_program_beside_shares_of_one_gpu(kind: Kind) -> None:
    """It has all of its GPUs together, and each share its milli."""
    one = machine({"0": {"a": 300, "x": 700}, "1": {"a": 300, "y": 700}}, {"a": kind, "x": ALONE, "y": ALONE})
    one.run(5 * SECOND)
    for pod, gpu, milli in (("a", "0", 300), ("x", "0", 700), ("y", "1", 700)):
        assert part(one, pod, gpu) == pytest.approx(milli / 1000, abs=0.015)


def test_program_that_asks_for_one_gpu_first_takes_no_other() -> None:
    """One thread that waits for its first GPU has not asked for the second one yet."""
    one = machine({"0": {"a": 250}, "3": {"a": 250, "x": 250}}, {"a": Kind((30_000,)), "x": Kind((500,))})
    one.run(3 * SECOND)
    assert part(one, "x", "3") > 0.235


@pytest.mark.uncounted
def test_gpu_that_a_gang_does_not_use_is_used() -> None:
    """Its members work on the first GPU only: a share of the second one has nearly all of that."""
    one = machine(BESIDE, {"x": ALONE, "y": ALONE})
    for pod in "ab":
        one.start(pod, ALONE, only=("0",))
        one.several.add(pod)
    one.run(3 * SECOND)
    assert part(one, "y", "1") > 0.98
    assert part(one, "a", "0") == pytest.approx(0.3, abs=0.015)


def test_one_that_had_to_wait_is_not_paid_back_for_ever() -> None:
    """``a`` gets little of GPU 0 as it gets little of GPU 1: when that ends, ``x`` has its own from then on."""
    shares = {"0": {"a": 200, "x": 800}, "1": {"a": 20, "y": 980}}
    one = machine(shares, {"a": FREE, "x": ALONE, "y": ALONE})
    one.run(3 * SECOND)
    assert part(one, "x", "0") > 0.9
    one.kill("y")
    before = one.programs["x"].gates["0"].busy
    one.run(SECOND)
    assert one.programs["x"].gates["0"].busy - before > 0.72 * SECOND


@pytest.mark.uncounted
def test_nothing_changes_where_each_process_has_one_gpu() -> None:
    """There is never a rule, and the turns are the same to the microsecond."""
    kinds = {"x": ALONE, "y": Kind((300, 5_000), (False, False)), "a": ALONE}
    shares = {"0": {"x": 300, "y": 300, "a": 400}, "1": {"a": 500}}
    ended = []
    for gangs in (False, True):
        one = Machine(shares, gangs=gangs)
        for pod, kind in kinds.items():
            one.start(pod, kind, only=("0",))
        one.start("a", ALONE, "other", only=("1",))
        for _ in range(20):
            one.run(100 * MS)
            assert not one.rules
        ended.append({pod: program.done for pod, program in one.programs.items()})
    assert ended[0] == ended[1]


EXAMPLES = settings(max_examples=6, derandomize=True)
"""Each takes seconds, so these are few, and the same ones each time: for more, raise that and leave out the latter."""


@pytest.mark.uncounted(after=25)
@EXAMPLES
@given(st.sampled_from([MEETS, FREE, TRAINS]), st.integers(0, 3_000), st.sampled_from("ab"), st.booleans())
def test_killed_program_stops_no_other(kind: Kind, when: int, pod: str, three: bool) -> None:
    """It is killed at any moment, also while it has turns: the others go on."""
    one = machine(RING if three else TWO, dict.fromkeys("abc" if three else "ab", kind))
    one.run(when * 100)
    one.kill(pod)
    one.run(100 * MS)
    assert all(count > 0 for count in progress(one, SECOND).values())


KINDS = st.builds(
    lambda parts, threads: Kind(tuple(time for time, _ in parts), tuple(meets for _, meets in parts), threads),
    st.lists(st.tuples(st.sampled_from([100, 500, 1_000, 8_000, 30_000]), st.booleans()), min_size=1, max_size=6),
    st.booleans(),
)


PROGRAMS = st.tuples(st.sets(st.sampled_from("0123"), min_size=1), KINDS, st.integers(0, 300))


@pytest.mark.uncounted
@EXAMPLES
@given(st.lists(PROGRAMS, min_size=2, max_size=5))
def test_no_program_starves(programs: Sequence[tuple[set[str], Kind, int]]) -> None:
    """Two of a group never run at once, and every program goes on, whatever they launch, wherever and whenever."""
    shares = {
        gpu: {str(number): 1000 // len(programs) for number, (gpus, _, _) in enumerate(programs) if gpu in gpus}
        for gpu in "0123"
    }
    one = Machine(shares)
    for number, (_, kind, later) in enumerate(programs):
        one.run(later * 100)
        one.start(str(number), kind)
    one.run(SECOND)
    done = progress(one, 2 * SECOND)
    assert all(count > 0 for count in done.values()), done
    assert not one.late


@pytest.mark.uncounted
@EXAMPLES
@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from("012"), st.sampled_from("abc"), st.integers(0, 4))))
def test_shares_come_go_and_change(changes: Sequence[tuple[int, str, str, int]]) -> None:
    """While programs run on them: never two of a group, and a pod that still has all of its shares goes on."""
    one = machine(RING, dict.fromkeys("abc", FREE))
    shares = {gpu: dict(pods) for gpu, pods in RING.items()}
    for later, gpu, pod, amount in changes:
        one.run(later * 100)
        if pod in one.programs and pod in shares[gpu]:
            shares[gpu][pod] = 100 * amount
            shares[gpu] = {name: milli for name, milli in shares[gpu].items() if milli}
            one.set(gpu, shares[gpu])
            if pod not in shares[gpu]:
                one.kill(pod)  # its own doing: what it has on the other GPU waits for ever
    for gpu, pods in RING.items():
        one.set(gpu, pods)
    one.run(SECOND)
    done = progress(one, SECOND)
    assert all(count > 0 for count in done.values()), done


def test_one_that_comes_later_is_not_charged_for_the_time_before() -> None:
    """It had the GPU for long before it used a second one, and gets what is its own from then on."""
    one = Machine(TWO)
    one.start("a", ALONE, only=("0",))
    one.run(2 * SECOND)
    one.several.add("a")
    one.start("b", FREE)
    one.run(SECOND)
    assert one.programs["a"].gates["0"].busy > 2.4 * SECOND
    assert one.programs["b"].done > 400


@pytest.mark.parametrize("entitled", [True, False])
def test_share_pays_for_a_gpu_that_a_member_waits_for(entitled: bool) -> None:
    """It pays from slice and savings, then it owes; it pays nothing only if the member could not have the GPU."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"a": 500, "x": 500}, 0)
    arbiter.apply_rule(Rule(barred=frozenset("a"), contesting=frozenset("a" if entitled else ())), 0)
    arbiter.ask("a", 0)
    arbiter.ask("x", 0)
    for now in range(0, 3 * SECOND, 5 * MS):
        arbiter.tick(now)
    account = arbiter.account("x", 3 * SECOND)
    assert account.idle == (0 if entitled else 3 * SECOND // 2)
    assert account.idle + account.guaranteed + account.overrun == 3 * SECOND
    assert (account.overrun > SECOND) is entitled
    assert arbiter.account("a", 3 * SECOND).waited == 3 * SECOND


def test_none_begins_while_a_gpu_rests() -> None:
    """A pod that had it from the server before this one may have it still."""
    arbiter = Arbiter(TIMING, 0)
    arbiter.put({"a": 500}, 0)
    arbiter.rest(100 * MS)
    arbiter.ask("a", 0)
    assert not any(arbiter.fits("a", "a", 50 * MS, strictly=strictly) for strictly in (True, False))
    assert all(arbiter.fits("a", "a", 100 * MS, strictly=strictly) for strictly in (True, False))


def test_groups() -> None:
    """Pods with any GPU in common are a group, also by way of third ones."""
    demand = Demand(True, False, False, False, 500)
    gpus = {"a": "01", "b": "23", "c": "45", "d": "12", "e": "56"}
    found = groups({pod: dict.fromkeys(names, demand) for pod, names in gpus.items()})
    assert sorted("".join(sorted(group)) for group in found) == ["abd", "ce"]


def test_a_share_that_comes_again_is_under_the_rule_of_its_pod() -> None:
    """It has another key with the arbiter."""
    one = machine(TWO, {"a": MEETS, "b": MEETS})
    one.run(5 * MS)
    (first,) = {rule.first for rule in one.rules.values()}
    other = "b" if first == "a" else "a"
    assert one.rules["0"] == Rule(first, barred=frozenset({other}), contesting=one.rules["0"].contesting)
    manager = one.managers["0"]
    manager.set({str(first): Terms(500)}, one.now)
    manager.set({pod: Terms(500) for pod in "ab"}, one.now)
    client, _ = manager.join(other, one.now)
    one.by_client[client] = one.programs[other].gates["0"]
    one.act(manager.receive(client, Ask(), one.now))
    one.run(10 * MS)
    assert manager.demand(other) == Demand(True, False, False, False, 500)
