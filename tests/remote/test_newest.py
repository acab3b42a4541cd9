"""Places of the newest value of each name."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.remote.newest import Newest
from jupyter_gpu.remote.rules.shipping import There


@dataclass(eq=False)
class Kernel:
    """A kernel of a worker."""

    there: dict[str, There] = field(default_factory=lambda: {"a": There(1)})


def test_change_and_copies() -> None:
    """The last to change it has it alone, then those that got it from there; it is lost with the last one."""
    newest: Newest[Kernel] = Newest()
    first, second = Kernel(), Kernel()
    assert (len(newest), newest.holders("a"), newest.held("ab")) == (0, (), {})
    newest.changed("a", first)
    newest.copied("a", second)
    assert (len(newest), newest.held("ab")) == (1, {"a": (second, first)})
    second.there.clear()
    assert (newest.holders("a"), newest.lost("ab", {"a": 1})) == ((first,), [])
    first.there.clear()
    assert newest.held("a") == {}
    assert newest.lost("ab", {"a": 1}) == ["a"]
    assert newest.lost("b", {"a": 1}) == newest.lost("a", {"a": 2}) == newest.lost("a", {}) == []
    newest.forget("a")
    newest.forget("b")
    assert newest.lost("a", {"a": 1}) == []


def test_what_may_have_changed() -> None:
    """It is with who used it last; that it ended is told only if it is known that it was another one."""
    newest: Newest[Kernel] = Newest()
    first, second = Kernel(), Kernel()
    newest.used("a", first)
    newest.copied("a", second)
    newest.used("a", second)
    assert newest.holders("a") == (second,)
    second.there.clear()
    assert newest.lost("a", {"a": 1}) == []
    second.there["a"] = There(1)
    newest.changed("a", second)
    newest.used("a", second)
    second.there.clear()
    assert newest.lost("a", {"a": 1}) == ["a"]
    newest.used("a", first)  # it was sent there since
    first.there.clear()
    assert newest.lost("a", {"a": 1}) == []


@given(st.lists(st.tuples(st.sampled_from(["changed", "used", "copied", "forget"]), st.integers(0, 2))))
def test_every_holder_has_the_latest_value(steps: list[tuple[str, int]]) -> None:
    """After any steps, those that have the newest value are those that have the one of the latest change."""
    newest: Newest[Kernel] = Newest()
    kernels = [Kernel() for _ in range(3)]
    values, latest = [0, 0, 0], 0
    for number, (step, index) in enumerate(steps, 1):
        if step in ("changed", "used"):
            values[index] = latest = number
            getattr(newest, step)("a", kernels[index])
        elif step == "forget":
            latest = number  # the notebook's
            newest.forget("a")
        elif holders := newest.holders("a"):
            if kernels[index] not in holders:
                newest.copied("a", kernels[index])
            values[index] = values[kernels.index(holders[0])]
        assert {kernels.index(one) for one in newest.holders("a")} == {
            place for place in range(3) if latest and values[place] == latest
        }
