"""`%%gpu` in real kernels of a real server, with simulated GPUs."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, await_, serve, serve_soft
from tests.worker.test_gpu_calls import IMPORTS, LIBRARY, STICKY, give_back
from tests.worker.test_processes import gone


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run one server for the module."""
    with serve_soft(tmp_path_factory) as running:
        (running.folder / "once.py").write_text(LIBRARY)
        yield running


@pytest.fixture(scope="module")
def notebook(server: Server) -> Iterator[Kernel]:
    """Start the kernel of a notebook."""
    with server.kernel() as running:
        running.run(f"{IMPORTS}\nhere = os.getpid()")
        yield running


@pytest.fixture
def kernel(notebook: Kernel, server: Server) -> Iterator[Kernel]:
    """Return the same kernel, with no GPU before and after."""
    notebook.run("gpu.release()")
    yield notebook
    give_back(server)


@pytest.fixture
def kept(notebook: Kernel) -> Kernel:
    """Return it with a GPU that stays, as the worker and its namespace do, also from one test to the next."""
    notebook.run("gpu.resize(1)")
    return notebook


def fresh(kernel: Kernel, code: str, options: str = "") -> str:
    """Run a cell in the worker; return what it prints."""
    return kernel.run(f"%%gpu 1 --fresh {options}\n{code}")


def error_of(kernel: Kernel, code: str) -> str:
    """Run a cell that fails; return the traceback that a page shows."""
    kernel.client.execute(code)
    while (message := kernel.client.get_iopub_msg(timeout=60))["msg_type"] != "error":
        pass
    kernel.client.get_shell_msg(timeout=60)
    return "\n".join(message["content"]["traceback"])


def test_cell_sees_gpus_that_came_after_cuda_started(server: Server) -> None:
    """The notebook's CUDA sees one, the cell two; what it assigned is here, and nothing drains."""
    with server.kernel() as own:
        own.run(IMPORTS)
        assert own.run("gpu.resize(1); print(seen())") == "1"
        own.run("%%gpu 2 --fresh\ncount, pid = seen(), os.getpid()")
        assert own.run("print(count, pid != os.getpid(), seen())") == "2 True 1"
        await_(lambda: server.status()["phase"] == "Ready")
        assert own.run("print(gpu.status().attached)") == "1"
    give_back(server)


def test_cell_in_place(kernel: Kernel, server: Server) -> None:
    """CUDA has not started, so it runs here: await and the last value are as ever, and GPUs are there until its end."""
    code = "%%gpu 2\nawait asyncio.sleep(0)\nsaid = get_ipython().run_cell('1')\nprint(os.getpid() == here)\n"
    assert kernel.run(f"{code}gpu.status().attached").splitlines()[-1] == "True"
    assert kernel.results[-1]["text/plain"] == "2"
    await_(lambda: server.status()["phase"] == "Idle")
    assert "line 3" in error_of(kernel, "%%gpu 2\nn = 0\n1 / n")
    await_(lambda: server.status()["phase"] == "Idle")


def test_namespace_stays(kept: Kernel) -> None:
    """A value that a cell assigned is there in the next one, and is not sent again; so is what the notebook sent."""
    kept.run("data = bytearray(100_000); n = 1")
    fresh(kept, "import os\npid = os.getpid(); first = id(data); n += 1")
    assert fresh(kept, "print(os.getpid() == pid, id(data) == first, n)") == "True True 2"
    kept.run("data[0] = 1")
    assert fresh(kept, "print(id(data) == first, data[0])") == "False 1"
    assert kept.run("print(n, pid != here)") == "2 True"


def test_deleted_names(kept: Kernel) -> None:
    """A name that either side deletes is gone on both."""
    kept.run("one = two = 1")
    fresh(kept, "one, two; del one")
    kept.run("assert 'one' not in globals(); del two")
    assert fresh(kept, "print('two' in globals(), two if 'two' in globals() else 0)") == "False 0"


def test_large_values_stay(kept: Kernel) -> None:
    """With a handle, by which they come; later cells use them; `del` ends them there."""
    fresh(kept, "large = bytearray(65 * 2**20); small = 1")
    assert "large stays in the worker, as gpu.remote.large: it is more" in kept.errors
    assert kept.run("print('large' in globals(), small, gpu.remote)") == "False 1 <large: bytearray on this machine>"
    assert fresh(kept, "print(len(large))") == str(65 * 2**20)
    assert kept.run("print(len(gpu.remote.large.get()), 'large' in globals())") == f"{65 * 2**20} False"
    fresh(kept, "large[0] = 7", "-o large")
    assert kept.run("print(large[0], len(gpu.remote))") == "7 0"
    fresh(kept, "large = bytearray(65 * 2**20)")
    kept.run("del gpu.remote.large, large")
    with pytest.raises(Failed, match="NameError"):
        fresh(kept, "large")


def test_gigabyte_that_a_cell_reads(kept: Kernel) -> None:
    """It goes there once, as long as it is unchanged here."""
    pytest.importorskip("numpy", reason="not run: needs numpy, which the extra [test] has")
    kept.run("import numpy; data = numpy.zeros(2**27)")
    assert fresh(kept, "place = data.ctypes.data; print(data.nbytes, data[-1])") == f"{2**30} 0.0"
    assert fresh(kept, "print(data.ctypes.data == place)") == "True"
    fresh(kept, "del data, place")


def test_changes_are_told(kept: Kernel) -> None:
    """Changes in place stay there, unless -o brings them; of large lists it is said before the cell runs."""
    kept.run("rows = []; many = [str(n) for n in range(200_000)]")
    fresh(kept, "rows.append(1); len(many)")
    assert "many is read; changes of it there do not come back without -o many." in kept.errors
    assert "rows was changed in the worker; -o rows brings it." in kept.errors
    fresh(kept, "rows.append(2)", "-o rows")
    assert kept.run("print(rows)") == "[1, 2]"


def test_worker_that_cuda_ended_for(kept: Kernel) -> None:
    """It ends by itself, and the cell names what is lost; the next one has another."""
    kept.run(STICKY)
    first = fresh(kept, "only = threading.Lock(); print(os.getpid())")
    with pytest.raises(Failed, match="AcceleratorError"):
        fresh(kept, "asserts()")
    assert "(CUDA_ERROR_ASSERT)" in kept.errors
    assert re.search(r"Lost with it, to be made again: .*\bonly\.$", kept.errors.strip())
    assert fresh(kept, "print(os.getpid(), 'only' in globals())") not in (f"{first} True", f"{first} False")


def test_what_cannot_be_sent(kernel: Kernel, server: Server) -> None:
    """It is said before there are GPUs, and the cell does not run; what cannot come back stays."""
    with pytest.raises(Failed, match=r"CannotSend: lock cannot be sent: .*Make it in the cell"):
        fresh(kernel, "print(lock)", "-i here") if kernel.run("lock = threading.Lock()") == "" else None
    assert server.status()["requested"]["milli"] == 0
    kernel.run("gpu.resize(1)")
    fresh(kernel, "import threading\nlocks = threading.Lock()")
    assert "locks stays in the worker, as gpu.remote.locks: it cannot be sent" in kernel.errors
    assert fresh(kernel, "print(locks.locked())") == "False"
    with pytest.raises(Failed, match="CannotSend: locks cannot be sent"):
        kernel.run("gpu.remote.locks.get()")


def test_cell_that_takes_gpus_brings_all(kernel: Kernel, server: Server) -> None:
    """Its process ends with it, so nothing stays there; what cannot be sent is told."""
    fresh(kernel, "import os, threading\nlarge = bytearray(65 * 2**20); pid = os.getpid(); lock2 = threading.Lock()")
    assert "lock2 is lost with the process" in kernel.errors
    pid, size = map(int, kernel.run("print(pid, len(large))").split())
    assert (gone(pid), size) == (True, 65 * 2**20)
    with pytest.raises(Failed, match="WorkerLost: lock2 was in the worker on this machine, which has ended"):
        fresh(kernel, "lock2.locked()")
    await_(lambda: server.status()["phase"] == "Idle")


def test_names_in_texts(kept: Kernel) -> None:
    """It is said that they are not seen; -i names them."""
    kept.run("most = 5; text = 'most + 1'")
    with pytest.raises(Failed, match="NameError"):
        fresh(kept, "print(eval(text))")
    assert "cannot be seen which variables 'eval(text)' uses" in kept.errors
    assert fresh(kept, "print(eval(text))", "-i most,text") == "6"
    assert kept.errors == ""


def test_cell_is_read_once(kept: Kernel) -> None:
    """It is parsed when it is decided where it runs, and that is decided once, also of the same cell again."""
    kept.run("from jupyter_gpu.remote.rules import names; names.parsed.cache_clear()")
    kept.run("\n\n%%gpu 1 --fresh\nread = 1\nprint(read)")
    assert kept.run("found = names.parsed.cache_info(); print(found.misses, found.hits > 0)") == "1 True"
    kept.run("from jupyter_gpu.remote import cell_magic; real, asked = cell_magic.can_use, []")
    kept.run("cell_magic.can_use = lambda milli: asked.append(milli) or real(milli)")
    for _ in range(2):
        kept.run("%%gpu 1\n1")
    kept.run("cell_magic.can_use = real")
    assert kept.run("print(asked)") == "[1000, 1000]"


def test_functions_use_names_of_the_cell(kept: Kernel) -> None:
    """As here: a cell that assigns what a function of the notebook reads."""
    kept.run("SCALE = 10\ndef step(x): return x * SCALE")
    assert fresh(kept, "SCALE = 20\nprint(step(1))") == "20"
    assert kept.run("print(step(1))") == "20"


def test_calls_leave_values_of_cells(kept: Kernel) -> None:
    """`gpu.run` uses the notebook's values; cells have theirs afterwards."""
    kept.run("data = [1]\ndef change(): data.append(5); return data")
    fresh(kept, "data.append(2)")
    assert kept.run("print(gpu.run(change))") == "[1, 5]"
    assert fresh(kept, "print(data)") == "[1, 2]"


def test_result_of_a_call_stays(kept: Kernel) -> None:
    """With a handle, which is the value in later calls and cells; it replaces an older one there."""
    kept.run("import threading\ndef make(n): return [threading.Lock(), n]\ndef second(pair): return pair[1]")
    assert kept.run("print(gpu.keep('pair', make, 4))") == "<pair: list on this machine>"
    assert kept.run("print(gpu.run(second, gpu.remote.pair), 'pair' in globals())") == "4 False"
    assert fresh(kept, "print(pair[1])") == "4"
    kept.run("gpu.keep('pair', make, 5)")
    assert fresh(kept, "print(pair[1])") == "5"
    with pytest.raises(Failed, match=r"InvalidRequest: .*gpu.resize"):
        kept.run("gpu.keep('pair', make, 5, gpus=3)")
    with pytest.raises(Failed, match="InvalidRequest: 'name'"):
        kept.run("gpu.keep('a b', make, 5)")


def test_output_is_that_of_the_cell(kept: Kernel) -> None:
    """Text, displays, the last value; top-level await."""
    code = (
        "import asyncio\nfrom IPython.display import HTML, display\ndisplay(HTML('<b>x</b>'))\nawait asyncio.sleep(0)\n"
    )
    assert fresh(kept, f"{code}print('1 %', end='\\r')\nprint('text')\n6 * 7") == "1 %\rtext"
    shown = [one.get("text/html") or one["text/plain"] for one in kept.results]
    assert shown == ["<b>x</b>", "42"]


PLOT = """
import matplotlib.pyplot as plt
from tqdm import tqdm
def draws():
    for _ in tqdm(range(3)): pass
    plt.plot([1, 2, 3])
    plt.show()
draws()
"""


def test_plots_and_progress_bars(kept: Kernel) -> None:
    """A cell and a call show them, as any cell does: a picture, and one line that is written again and again."""
    for name in ("matplotlib", "tqdm"):
        pytest.importorskip(name, reason=f"not run: needs {name}, which the extra [test] has")
    fresh(kept, PLOT)
    for _ in range(2):
        assert [one for one in kept.results if "image/png" in one]
        assert "100%" in kept.errors
        assert "\r" in kept.errors
        kept.run("gpu.run(draws)")


def test_error_is_that_of_the_cell(kept: Kernel) -> None:
    """With its own lines and number; what was assigned before it is here."""
    text = error_of(kept, "%%gpu 1 --fresh\nbefore = 1\nzero = 0\n1 / zero")
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    number = int(kept.run("print(get_ipython().displayhook.prompt_count)")) - 1
    assert f"Cell In[{number}], line 4" in text
    assert "----> 4 1 / zero" in text
    assert "cell_magic" not in text
    assert kept.run("print(before)") == "1"
    with pytest.raises(Failed, match="ZeroDivisionError"):
        fresh(kept, "1 / 0")
    text = re.sub(r"\x1b\[[0-9;]*m", "", error_of(kept, "%%gpu 1 --fresh\n1\n1 /"))
    assert "Cell In[" in text
    assert ", line 3" in text
    assert "cell_magic" not in text


def test_interrupt(kept: Kernel, tmp_path: Path) -> None:
    """Ctrl-C ends the cell; the next one works, with what was there."""
    mark = tmp_path / "runs"
    own = int(kept.run("print(here)"))
    kept.client.execute(f"%%gpu 1 --fresh\nimport time\nmine = 3\nopen({str(mark)!r}, 'w').close()\ntime.sleep(60)")
    await_(mark.exists)
    os.kill(own, signal.SIGINT)
    assert kept.client.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
    kept.run("pass")
    assert kept.run("print(mine)") == "3"
    assert fresh(kept, "print(mine)") == "3"


def test_lost_worker(kept: Kernel, tmp_path: Path) -> None:
    """A plain error, and the cell is not run again; the next one works; what was only there is lost, and said so."""
    log = tmp_path / "ran"
    fresh(kept, "huge = bytearray(65 * 2**20)")
    code = f"open({str(log)!r}, 'a').write('x')\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    text = error_of(kept, f"%%gpu 1 --fresh\n{code}")
    assert "WorkerLost" in text
    assert "not run again" in text
    assert "Line 1: %%gpu 1 --fresh" in text
    assert log.read_text() == "x"
    kept.run("pass")
    assert fresh(kept, "print(1)") == "1"
    with pytest.raises(Failed, match="WorkerLost: huge was in the worker"):
        kept.run("gpu.remote.huge.get()")
    with pytest.raises(Failed, match="WorkerLost: huge was in the worker"):
        fresh(kept, "huge")


def test_module_that_was_loaded_again(kept: Kernel, server: Server) -> None:
    """The worker has its new source, also for functions that it got before."""
    path = server.folder / "helps.py"
    path.write_text("def answer(): return 1\n")
    kept.run("import importlib, sys; sys.dont_write_bytecode = True; import helps\ndef ask(): return helps.answer()")
    assert fresh(kept, "print(ask())") == "1"
    path.write_text("def answer(): return 22\n")
    assert fresh(kept, "print(ask())") == "1"
    kept.run("importlib.reload(helps)")
    assert fresh(kept, "print(ask())") == "22"
    assert kept.run("print(gpu.run(ask))") == "22"


def test_other_package(kept: Kernel) -> None:
    """A version that this process has loaded, and that was changed on the disk since, is refused with a sentence."""
    kept.run("gpu.release(); gpu.resize(1); import cloudpickle; real = cloudpickle.__version__")
    kept.run("cloudpickle.__version__ = '1.0'")
    with pytest.raises(Failed, match=r"WorkerRefused: The worker has cloudpickle .* and this process 1.0"):
        fresh(kept, "print(1)")
    kept.run("cloudpickle.__version__ = real")
    assert fresh(kept, "print(1)") == "1"


def test_time_limit(kernel: Kernel, server: Server, tmp_path: Path) -> None:
    """All GPUs are another server's: then the cell runs neither here nor there, and its request is gone."""
    with serve(tmp_path, server.folder / "state", "--GpuExtension.enforcement=soft") as other:
        other.gpus(4)
        for options in ("", "--fresh "):
            with pytest.raises(Failed, match="NoCapacity"):
                kernel.run(f"%%gpu 1 {options}--timeout 0.2\nran = 1")
    assert kernel.run("print('ran' in globals())") == "False"
    assert server.status()["requested"]["milli"] == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%%gpu lots", "'lots' is not an amount of GPUs"),
        ("%%gpu 0 --fresh", "needs more than 0"),
        ("%%gpu 1 --nonsense", "unrecognized arguments: --nonsense"),
        ("%%gpu 1 -o a.b", "'a.b' is not the name of a variable"),
        ("%%gpu 'half", "cannot be read: No closing quotation"),
    ],
)
def test_invalid_line(kernel: Kernel, line: str, said: str) -> None:
    """It is our error, and nothing runs."""
    with pytest.raises(Failed, match=said) as failed:
        kernel.run(f"{line}\nran = 1")
    assert failed.value.kind == "InvalidRequest"
    assert kernel.run("print('ran' in globals())") == "False"
