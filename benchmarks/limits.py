"""The cost of limits for a decision: 5,000 nodes, 1,000 users with ten pods each, 1,000 limits, against no limits.

Both clusters get the same changes in turn, in one process, and its CPU time is what counts: from a change that a watch
brings, with the JSON that is read, to the decision, and to the last one that follows in other pods: with limits, one of
them may grow, and ends of sliders move. One user in four may have less than ten pods
wish on average. Beside that, how long a changed limit takes to the pod's node, on a real API server, and, as root and
with a browser, from the click in the hub's page to the user's slider and kernel, in a whole cluster.
`python -m benchmarks.limits --nodes 500 --users 100` measures the decisions of a smaller cluster, `--page` the way
from the page alone.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections.abc import Callable, Iterator, Sequence

from jupyter_gpu.model.annotations import Wish

from .lib import limit_chain, limit_page
from .lib.figures import CannotRunError, Figure, table
from .lib.owned_cluster import OwnedCluster, in_turn

COMMAND = "scripts/bench limits"
LIMIT_SECONDS = 1200.0
NODES, USERS, PODS = 5_000, 1_000, 10_000
TURNS = 200
CHANGES = 50
"""Changes of a limit in an API server."""
CLICKS, NOTICES = 60, 40
"""Changes of a limit in the page, and those of them that take GPUs, after a question."""
MOST = 1.2
"""Times the cost without limits."""
_AMOUNTS = (0, 250, 500, 1000, 1000, 1500, 2000, 2000, 3000, 4000)  # as in `decide`
_LIMITS = (12, 24, 32, 48)
"""GPUs; ten pods of one user wish 15 on average."""

_Change = Callable[[OwnedCluster, random.Random], object]


def run() -> Sequence[Figure]:
    """Measure the way of a change; then CPU milliseconds of the scheduler against the same cluster without limits."""
    chain = limit_chain.measure(CHANGES, COMMAND)
    return [*_page(), *chain, *_decisions(NODES, USERS, PODS, TURNS)]


def _page() -> Sequence[Figure]:
    try:
        return limit_page.measure(CLICKS, NOTICES, COMMAND)
    except CannotRunError as error:
        print(f"left out: {error};", end=" ", file=sys.stderr)
        return []


def _decisions(nodes: int, users: int, pods: int, turns: int) -> Iterator[Figure]:
    free, limited = clusters = _clusters(nodes, users, pods, turns)
    gc.collect()
    gc.freeze()  # collections while it is measured cost each cluster what it makes itself

    def figures(what: str, change: _Change) -> Iterator[Figure]:
        name, (without, ours) = f"limits: {what}", in_turn(clusters, turns, change)
        first, baseline = ([turn.own for turn in found] for found in (ours, without))
        goal = MOST * sorted(baseline)[len(baseline) // 2]
        yield Figure.of(f"{name}, to the decision", "ms", first, COMMAND, goal=goal, baseline=baseline, sure=True)
        every, baseline = ([turn.total for turn in found] for found in (ours, without))
        yield Figure.of(f"{name}, all that follows", "ms", every, COMMAND, baseline=baseline, sure=True)
        mean, lone = (sum(turn.total for turn in found) / turns for found in (ours, without))
        yield Figure(f"{name}, all that follows, mean", "ms", mean, COMMAND, baseline=lone)
        decided, lone = (sum(turn.decisions for turn in found) / turns for found in (ours, without))
        yield Figure(f"{name}, decisions", "a change", decided, COMMAND, baseline=lone)

    def ask(cluster: OwnedCluster, chance: random.Random) -> None:
        cluster.ask(_uid(chance.randrange(pods)), _wish(chance))

    yield from figures("a wish changes", ask)
    yield from figures("nothing changes", lambda cluster, chance: cluster.touch(_uid(chance.randrange(pods))))
    leaving = iter(range(2 * turns))  # each of them from both, in turn
    yield from figures("a pod leaves", lambda cluster, _: cluster.remove(_uid(pods + next(leaving) // 2)))
    changes = in_turn(
        (limited,), turns, lambda cluster, chance: cluster.put_limit(chance.randrange(users), chance.choice(_LIMITS))
    )
    yield Figure.of("limits: a limit changes", "ms", [turn.total for turn in changes[0]], COMMAND)
    for cluster in clusters:
        _fill(cluster, nodes, users, pods // 10)
    waiting = f"{free.waiting():,} wait without limits, {limited.waiting():,} with"
    yield from figures(f"a wish changes while {waiting}", ask)


def _clusters(nodes: int, users: int, pods: int, turns: int) -> tuple[OwnedCluster, OwnedCluster]:
    """Return the same cluster twice: without limits, and with one for each user."""
    found = OwnedCluster(nodes), OwnedCluster(nodes)
    chance = random.Random(1)
    for user in range(users):
        found[1].put_limit(user, chance.choice(_LIMITS), guaranteed=2, weight=chance.choice((1, 1, 2)))
    for cluster in found:
        chance = random.Random(2)
        for number in range(pods + turns):  # the last of them are those that leave
            cluster.put_pod(_uid(number), chance.randrange(users), _wish(chance), number % nodes)
        cluster.begin()
    return found


def _fill(cluster: OwnedCluster, nodes: int, users: int, count: int) -> None:
    """Have so many pods more wait, each on a node of its own."""
    for number in range(count):
        cluster.put_pod(f"waiting-{number:05}", number % users, Wish(8000), number % nodes)
    cluster.settle()


def _wish(chance: random.Random) -> Wish:
    topology = chance.choice((None, None, None, "island"))
    model = chance.choice(((), (), ("H100", "A100")))
    return Wish(chance.choice(_AMOUNTS), model=model, topology=topology, priority=chance.choice((None, None, 5)))


def _uid(number: int) -> str:
    return f"pod-{number:05}"


def main() -> None:
    """Measure the decisions of a cluster of another size, with ten pods for each user; or the way from the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        print(table(_page()))
        return
    print(table(tuple(_decisions(arguments.nodes, arguments.users, 10 * arguments.users, arguments.turns))))


if __name__ == "__main__":
    main()
