"""Calls of a notebook's functions in a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from jupyter_gpu.remote.calls import perform, prepare
from jupyter_gpu.remote.codec import Namespace, TooLarge
from jupyter_gpu.remote.connection import Connection, Listener
from jupyter_gpu.remote.errors import CannotSend, WorkerRefused
from tests.remote.spaces import space
from tests.worker.test_connection import Heard, ran


def call(
    connection: Connection,
    here: Namespace,
    function: Callable[..., Any],
    arguments: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
    limit: int | None = None,
) -> Any:
    """Call a function of a namespace in the worker."""
    return perform(connection, here, prepare(here, function, arguments, named).chunks, listener, limit)


def iter_nothing() -> Iterator[int]:
    """Return a generator, which cannot be pickled."""
    yield from ()


def test_function_is_called_there(kept: Connection) -> None:
    """With its arguments; what it prints is heard, what it returns comes back."""
    here = space("import os\ndef f(a, *, b): print('runs'); return a + b, os.getpid()")
    heard = Heard()
    result, pid = call(kept, here, here["f"], [1], {"b": 2}, heard.listener())
    assert result == 3
    assert pid != here["os"].getpid()
    assert heard.text == "runs\n"


def test_function_reads_the_values_of_now(kept: Connection) -> None:
    """At each call, also those that functions read which it calls, and whatever the worker has of that name."""
    here = space("SCALE = 10\ndef step(x): return x * SCALE\ndef f(x): return step(x) + 1")
    assert call(kept, here, here["f"], [1]) == 11
    here["SCALE"] = 20
    ran(kept, "SCALE = 30")
    assert call(kept, here, here["f"], [1]) == 21


def test_nothing_is_left(kept: Connection) -> None:
    """No name of ours, here or there, whether the call returned or raised."""
    here = space("def f(x): return 1 // x")
    before = set(here)
    call(kept, here, here["f"], [1])
    with pytest.raises(ZeroDivisionError):
        call(kept, here, here["f"], [0])
    assert set(here) == before
    assert ran(kept, "print([name for name in globals() if name.startswith('_gpu')])") == "[]\n"


def test_changes_there_stay_there(kept: Connection) -> None:
    """Changes of arguments and of global names stay there."""
    here = space("seen = []\ndef f(x):\n  global last\n  x.append(1); seen.append(1); last = x\n  return x")
    argument: list[int] = []
    assert call(kept, here, here["f"], [argument]) == [1]
    assert (argument, here["seen"], "last" in here) == ([], [], False)


def test_argument_and_global_that_are_one_are_one_there(kept: Connection) -> None:
    """As here."""
    here = space("data = [1]\ndef f(x): return x is data")
    assert call(kept, here, here["f"], [here["data"]]) is True


def test_results_are_of_the_notebook(kept: Connection) -> None:
    """Instances of its classes, functions on its namespace."""
    here = space("n = 1\nclass A: pass\ndef f(): return A(), lambda: n")
    one, function = call(kept, here, here["f"])
    assert isinstance(one, here["A"])
    here["n"] = 5
    assert function() == 5


def test_own_error_is_raised(kept: Connection) -> None:
    """Its class and its content, with the traceback of the worker."""
    here = space("class Odd(Exception): pass\ndef f(): raise Odd('here', 7)")
    with pytest.raises(here["Odd"]) as caught:
        call(kept, here, here["f"])
    assert caught.value.args == ("here", 7)
    assert "In the worker" in caught.value.__notes__[0]


def test_error_that_cannot_be_sent(kept: Connection) -> None:
    """Its name and text arrive."""
    here = space("import threading\ndef f(): raise ValueError(threading.Lock())")
    with pytest.raises(WorkerRefused, match="ValueError: <unlocked"):
        call(kept, here, here["f"])


@pytest.mark.parametrize(
    ("code", "arguments", "reason"),
    [
        ("import threading; lock = threading.Lock()\ndef f(): return lock", [], "lock, which the function uses"),
        ("def f(x, y): return x", [1, iter_nothing()], "Argument 2 of f cannot be sent: .*generator"),
        ("import threading\ndef f(x=threading.Lock()): return x", [], "The function or one of its arguments"),
    ],
)
def test_what_cannot_be_sent_is_not_called(kept: Connection, code: str, arguments: list[Any], reason: str) -> None:
    """With the name and the reason."""
    here = space(code)
    with pytest.raises(CannotSend, match=reason):
        call(kept, here, here["f"], arguments)
    with pytest.raises(CannotSend, match=r"Argument there of f cannot be sent: .*generator"):
        prepare(here, here["f"], [], {"there": iter_nothing()})
    assert "_gpu_call" not in here


def test_result_that_does_not_come_back(kept: Connection) -> None:
    """It cannot be sent, or is larger than was allowed."""
    here = space("import threading\ndef f(): return threading.Lock()\ndef g(): return bytes(100_000)")
    with pytest.raises(CannotSend, match=r"result of the function cannot be sent: .*lock"):
        call(kept, here, here["f"])
    with pytest.raises(TooLarge, match="larger than 1000 bytes"):
        call(kept, here, here["g"], limit=1000)
    assert call(kept, here, here["g"]) == bytes(100_000)


def test_interrupted_call(kept: Connection) -> None:
    """It raises KeyboardInterrupt here, and the next one works."""
    here = space("import time\ndef f(): time.sleep(60)\ndef g(): return 1")
    threading.Timer(0.5, kept.interrupt).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call(kept, here, here["f"])
    assert time.monotonic() - began < 30
    assert call(kept, here, here["g"]) == 1


STICKY = """
class Assert(RuntimeError):
    error_code = 710
Assert.__module__, Assert.__name__, Assert.__qualname__ = "torch", "AcceleratorError", "AcceleratorError"
class Unread:
    def __reduce__(self): raise Assert("while it is copied")
def fails(): raise ValueError("the user's own") from Assert("CUDA error: device-side assert triggered")
def returns(): return Unread()
def caught():
    try:
        fails()
    except ValueError:
        return 1
"""


@pytest.mark.parametrize(("name", "error"), [("fails", ValueError), ("returns", CannotSend)])
def test_cuda_ended(connection: Connection, name: str, error: type[Exception]) -> None:
    """After an error of CUDA's that ends it for the process, of the function or while its result is copied."""
    here = space(STICKY)
    assert call(connection, here, here["caught"]) == 1
    assert connection.sticky is None
    with pytest.raises(error):
        call(connection, here, here[name])
    assert connection.sticky == 710
    assert call(connection, here, here["caught"]) == 1
    assert connection.sticky == 710


def test_gpus_are_told_by_the_variables_of_their_vendors(connection: Connection) -> None:
    """From then on these are the choice of a user, also for what it starts."""
    told = {"CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "GPU-8a5f01c2d3e4b600"}
    connection.begin(visible=told)
    here = space("import os\ndef f(names): return {name: os.environ[name] for name in names}")
    assert call(connection, here, here["f"], [list(told)]) == told
