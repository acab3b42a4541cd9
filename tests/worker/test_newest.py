"""Values that cells change, now on one node and now on another: each cell has the newest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import await_
from tests.worker.two_pods import TwoPods, two_pods

pytestmark = pytest.mark.root

HERE = "%%gpu 1 --fresh"
THERE = "%%gpu 2"


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoPods]:
    """Run both pods for the module."""
    with two_pods(tmp_path_factory) as made:
        yield made


@pytest.fixture(scope="module")
def kernel(pods: TwoPods) -> Iterator[Kernel]:
    """Start the kernel of a notebook with GPUs of both nodes, in which cells keep what they assign."""
    assert pods.server is not None
    with pods.server.kernel() as running:
        running.run("from jupyter_gpu import gpu; import os, threading; gpu.resize(3)")
        yield running
        running.run("gpu.release(timeout=30)")
        await_(lambda: not pods.kernels)


def test_changed_in_turn(kernel: Kernel) -> None:
    """A value that one place changed is brought to the next one, which is said; aliases stay."""
    kernel.run("rows = []; also = [rows]")
    kernel.run(f"{THERE}\nrows.append(1); also")
    assert "rows was changed in the worker" in kernel.errors
    assert kernel.run(f"{HERE}\nrows.append(2); print(rows, also[0] is rows)") == "[1, 2] True"
    assert "rows comes from the worker on node2, which has the newest value." in kernel.errors
    assert kernel.run(f"{THERE}\nrows.append(3); print(rows, also[0] is rows)") == "[1, 2, 3] True"
    assert "rows comes from the worker on this machine" in kernel.errors
    assert kernel.run(f"{THERE}\nprint(rows)") == "[1, 2, 3]"
    assert kernel.errors == ""
    assert kernel.run(f"{HERE} -o rows\nrows.append(4)\nprint(rows)") == "[1, 2, 3, 4]"
    assert kernel.run(f"{THERE}\nprint(rows)") == kernel.run("print(rows)") == "[1, 2, 3, 4]"


def test_notebook_changes_it_meanwhile(kernel: Kernel) -> None:
    """Its value is then the newest, everywhere; -i sends it in any case."""
    kernel.run("both = [0]")
    kernel.run(f"{THERE}\nboth.append(1)")
    kernel.run("both.append(2)")
    assert kernel.run(f"{HERE}\nprint(both)") == "[0, 2]"
    assert kernel.run(f"{THERE}\nprint(both)") == "[0, 2]"
    kernel.run(f"{THERE}\nboth.append(3)")
    assert kernel.run(f"{HERE} -i both\nprint(both)") == "[0, 2]"
    assert kernel.run(f"{THERE}\nprint(both)") == "[0, 2]"


def test_made_there(kernel: Kernel) -> None:
    """A value that stays is known elsewhere, with a handle to where it was used; `del` ends all copies."""
    kernel.run("def make(): return [1]")
    kernel.run("gpu.keep('made', make, gpus=2)")
    assert kernel.run(f"{HERE}\nmade.append(2); print(made)") == "[1, 2]"
    assert kernel.run("print(gpu.remote.made)") == "<made: list on this machine>"
    assert kernel.run(f"{THERE}\nprint(made); del made") == "[1, 2]"
    with pytest.raises(Failed, match="NameError"):
        kernel.run(f"{HERE}\nmade")
    kernel.run("gpu.keep('made', make, gpus=2)")
    kernel.run("def last(row): return row[-1]")
    kernel.run(f"{HERE}\nmade.append(3)")
    assert kernel.run("print(gpu.run(last, gpu.remote.made, gpus=2))") == "3"
    assert "made comes from the worker on this machine, which has the newest value." in kernel.errors
    assert kernel.run("print(gpu.run(last, gpu.remote.made), gpu.remote.made)") == "3 <made: list on this machine>"
    kernel.run(f"{THERE}\nmade")
    kernel.run("del gpu.remote.made")
    for place in (HERE, THERE):
        with pytest.raises(Failed, match="NameError"):
            kernel.run(f"{place}\nmade")


def test_handle_as_an_argument(kernel: Kernel) -> None:
    """It is the newest value of another node, which the call may have changed; also in cells, by any name."""
    kernel.run("def make(): return [1]\ndef add(row, what): row.append(what); return len(row)")
    kernel.run("row = gpu.keep('row', make, gpus=2); other = row")
    assert kernel.run("print(gpu.run(add, row, 2), gpu.remote.row)") == "2 <row: list on this machine>"
    assert "row comes from the worker on node2" in kernel.errors
    assert kernel.run("print(await gpu.arun(add, [row][0], 3, gpus=2), row.get())") == "3 [1, 2, 3]"
    assert kernel.run(f"{HERE}\nother.append(4); print(other)") == "[1, 2, 3, 4]"
    assert "row was changed in the worker" in kernel.errors
    assert kernel.run(f"{THERE}\nprint(row, other is row)") == "[1, 2, 3, 4] True"
    assert kernel.run("print(gpu.run(len, row), gpu.run(len, row, gpus=2))") == "4 4"
    kernel.run("del gpu.remote.row")
    with pytest.raises(Failed, match=r"CannotSend: .*row is no longer there"):
        kernel.run("gpu.run(len, row)")


def test_handle_in_items_of_map(kernel: Kernel) -> None:
    """Each process has a copy."""
    kernel.run("import time\ndef pid(row): time.sleep(.3); return os.getpid(), row")
    kernel.run("row = gpu.keep('mapped', list, 'ab')")
    pids = "found = gpu.map(pid, [row] * 3, gpus=1); print(len({one for one, _ in found}), [row for _, row in found])"
    assert kernel.run(pids) == f"3 {[['a', 'b']] * 3}"
    kernel.run("del gpu.remote.mapped, row")


def test_handle_of_what_cannot_be_brought(kernel: Kernel) -> None:
    """Nothing is called."""
    kernel.run("lock = gpu.keep('only', threading.Lock, gpus=2)")
    with pytest.raises(Failed, match=r"CannotSend: only is in the worker on node2 and cannot be brought: .*lock"):
        kernel.run("gpu.run(repr, lock)")
    assert kernel.run("print(gpu.run(repr, lock, gpus=2)[:9])") == "<unlocked"
    kernel.run("del gpu.remote.only, lock")


def test_what_cannot_be_watched(kernel: Kernel) -> None:
    """It may be newer, so it is brought."""
    kernel.run("many = [str(n) for n in range(150_000)]")
    kernel.run(f"{THERE}\nmany.append('last')")
    assert kernel.run(f"{HERE}\nprint(many[-1])") == "last"
    assert kernel.run(f"{THERE}\nprint(many[-1])") == "last"


def test_what_cannot_be_brought(kernel: Kernel) -> None:
    """A plain error before the cell runs, also in the notebook; never the notebook's older value in silence."""
    kernel.run("box = [0]")
    kernel.run(f"{THERE}\nimport threading\nbox.append(threading.Lock())\nlock = threading.Lock()")
    with pytest.raises(Failed, match=r"CannotSend: The newest value of box is in the worker on node2 .*-i box gives"):
        kernel.run(f"{HERE}\nran = box")
    assert kernel.run("print('ran' in globals())") == "False"
    assert kernel.run(f"{HERE} -i box\nprint(box)") == "[0]"
    kernel.run(f"{THERE}\nbox.append(1)")
    assert (
        kernel.run("%%gpu 1\nprint(box, os.getpid() == int(open('/proc/self/stat').read().split()[0]))") == "[0] True"
    )
    assert "box may be newer in the worker on node2" in kernel.errors
    with pytest.raises(Failed, match=r"CannotSend: lock is in the worker on node2, and this cell runs in the notebook"):
        kernel.run("%%gpu 1\nlock")


def test_place_that_ended(kernel: Kernel, pods: TwoPods) -> None:
    """It is said that the notebook's value is older; one that another place has, too, is not lost."""
    kernel.run("ends = [0]; kept = [0]")
    kernel.run(f"{THERE}\nends.append(1); kept.append(1)")
    kernel.run(f"{HERE}\nkept")
    kernel.run("gpu.resize(1, timeout=30)")
    await_(lambda: not pods.kernels)
    assert kernel.run(f"{HERE}\nprint(ends, kept)") == "[0] [0, 1]"
    assert "ends was newer in the worker, which has ended: the cell gets the notebook's." in kernel.errors
    assert kernel.run(f"{HERE}\nprint(ends, kept)") == "[0] [0, 1]"
    assert kernel.errors == ""
