"""Values of one namespace in another."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from jupyter_gpu.remote import codec
from jupyter_gpu.remote.codec import Chunk, TooLarge
from jupyter_gpu.remote.errors import CannotSend
from tests.remote.spaces import Grid, OnGpu, sent, space, whole

STEP = "SCALE = 10\ndef step(x): return x * SCALE"


def test_function_reads_the_globals_of_the_worker() -> None:
    """A cell there that assigns `SCALE` changes what the function does, as it would here."""
    here, there = space(STEP), space()
    assert sent(here, {"step"}, there) == {}
    exec("first = step(1); SCALE = 20; second = step(1)", there)
    assert (there["first"], there["second"]) == (10, 20)


def test_plain_cloudpickle_gives_a_function_other_globals() -> None:
    """This is why functions are pickled otherwise here."""
    there = space()
    there["step"] = pickle.loads(cloudpickle.dumps(space(STEP)["step"]))
    exec("SCALE = 20; second = step(1)", there)
    assert there["second"] == 10


def test_function_brings_what_it_uses() -> None:
    """Helpers, and what these use; names that exist nowhere are left to the function."""
    here = space(
        "import math\nk = 2\ndef half(x): return x / k\ndef f(x): return half(math.floor(x)) if x else nowhere"
    )
    there = space()
    assert sent(here, {"f"}, there) == {}
    assert there["f"](5.5) == 2.5
    assert {"f", "half", "k", "math"} <= there.keys()
    with pytest.raises(NameError, match="nowhere"):
        there["f"](0)


def test_functions_everywhere_have_the_globals_of_the_worker() -> None:
    """In containers, as methods, as closures, as defaults, as lambdas, as decorated ones."""
    here = space(
        "n = 1\n"
        "import functools\n"
        "def deco(f):\n  @functools.wraps(f)\n  def inner(*a): return f(*a) + n\n  return inner\n"
        "@deco\ndef decorated(): return n\n"
        "def outer(k):\n  def inner(): return n + k\n  return inner\n"
        "class A:\n  def get(self): return n\n  @classmethod\n  def make(cls): return cls()\n  @property\n"
        "  def p(self): return n\n"
        "class B(A):\n  def get(self): return super().get() * 2\n"
        "both = [lambda: n, {'f': outer(5)}]\n"
        "obj = B()\nbound = obj.get\npartial = functools.partial(lambda x: x + n, 1)\n"
    )
    there = space()
    assert sent(here, {"decorated", "both", "obj", "bound", "partial"}, there) == {}
    exec(
        "n = 10\n"
        "got = [decorated(), both[0](), both[1]['f'](), obj.get(), bound(), obj.p, type(obj).make().get(), partial()]",
        there,
    )
    assert there["got"] == [20, 10, 15, 20, 20, 10, 20, 11]


def test_function_assigns_globals_of_the_worker() -> None:
    """Names that it reads and assigns are known before."""
    here, there = space("count = 1\ndef f():\n  global count, last\n  count += 1\n  last = count"), space()
    assert sent(here, {"f"}, there) == {}
    there["f"]()
    assert (there["count"], there["last"]) == (2, 2)
    uses = codec.measure(here, {"f"}).uses
    assert (uses.reads, uses.assigns) == (frozenset({"count"}), frozenset({"count", "last"}))


def test_functions_that_share_a_cell_share_it_there() -> None:
    """A counter and its reset see each other's changes."""
    here = space(
        "def make():\n  n = 0\n  def up():\n    nonlocal n\n    n += 1\n    return n\n"
        "  return up, lambda: n\nup, now = make()"
    )
    there = space()
    assert sent(here, {"up", "now"}, there) == {}
    there["up"]()
    assert there["now"]() == 1
    assert here["now"]() == 0


def test_recursive_and_mutual_functions() -> None:
    """They find each other by name, each sent by itself."""
    here = space("def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - 1)")
    there = space()
    assert sent(here, {"even"}, there) == {}
    assert there["even"](10)
    assert not there["even"](7)


def test_functions_of_two_messages_share_globals() -> None:
    """Those of an earlier message see what a later one brings."""
    here, there = space(STEP), space()
    sent(here, {"step"}, there)
    here["SCALE"] = 30
    assert sent(here, {"SCALE"}, there) == {}
    assert there["step"](1) == 30


def test_builtins_of_the_worker_stay() -> None:
    """Its namespace has the same builtins after a function has arrived."""
    there = space()
    there["__builtins__"] = mark = dict(there["__builtins__"])
    sent(space(STEP), {"step"}, there)
    assert there["__builtins__"] is mark
    bare: dict[str, Any] = {}
    sent(space(STEP), {"step"}, bare)
    assert bare["step"](2) == 20


def test_classes_keep_their_identity() -> None:
    """A class comes back as the same, and its instances are instances of it."""
    here, there = space("class A: pass\na = A()"), space()
    sent(here, {"A", "a"}, there)
    assert isinstance(there["a"], there["A"])
    exec("b = A()", there)
    sent(there, {"b"}, here)
    assert isinstance(here["b"], here["A"])


def test_modules_go_as_an_import() -> None:
    """Also below another name."""
    here, there = space("import json as j, os.path"), space()
    assert sent(here, {"j", "os"}, there) == {}
    assert there["j"] is sys.modules["json"]
    assert max(len(value.chunk.stream) for value in codec.measure(here, {"j", "os"}).pickled.values()) < 200


def test_names_that_share_objects_share_them_there() -> None:
    """They are in one chunk; others are apart."""
    shared: list[int] = [1]
    here, there = space(a=shared, b={"x": shared}, c=[1], text="t", same="t"), space()
    assert sent(here, {"a", "b", "c", "text", "same"}, there) == {}
    assert there["a"] is there["b"]["x"]
    assert there["c"] is not there["a"]
    measured = codec.measure(here, here.keys() - {"__name__", "__builtins__"})
    assert measured.groups == [("a", "b"), ("c",), ("same",), ("text",)]


def test_arrays_are_apart() -> None:
    """The class and the functions that they have in common do not join values."""
    here = space(g=Grid(bytearray(5)), h=Grid(bytearray(5)), i={"j": Grid})
    assert codec.measure(here, {"g", "h", "i"}).groups == [("g",), ("h",), ("i",)]


def test_values_of_very_many_objects_may_share_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not compared, and go with all others."""
    monkeypatch.setattr(codec, "MOST_OBJECTS", 50)
    here = space(many=[[n] for n in range(60)], a=[1], b=[2])
    assert codec.measure(here, {"many", "a", "b"}).groups == [("a", "b", "many")]
    assert codec.measure(here, {"a", "b"}).groups == [("a",), ("b",)]


def test_part_of_a_group() -> None:
    """A value that is not to be sent stays away, also where it shares objects."""
    shared = [1]
    here = space(a=shared, b=[shared], c=[shared], d=1)
    measured = codec.measure(here, {"a", "b", "c", "d"})
    assert whole(codec.chunks(here, measured, {"a", "c"})) == [("a", "c")]
    assert whole(codec.chunks(here, measured, {"b", "d"})) == [("b",), ("d",)]


def test_large_buffers_are_not_copied_and_can_be_written() -> None:
    """They lie beside the pickle; read-only ones that arrive are copied into ones that can be written."""
    data = bytearray(codec.SEPARATE)
    here, there = space(g=Grid(data), small=Grid(bytearray(10))), space()
    chunk, small = (codec.pickled(here, (name,)).chunk for name in ("g", "small"))
    assert len(chunk.stream) < 200
    assert chunk.buffers[0].obj is data
    assert small.buffers == ()
    assert sent(here, {"g", "small"}, there) == {}
    there["g"].data[0] = there["small"].data[0] = 1
    assert (data[0], there["g"].data[0]) == (0, 1)
    ours = bytearray(codec.SEPARATE)
    assert codec.load(there, [Chunk(("g",), chunk.stream, (ours,))]) == {}
    assert there["g"].data is ours


def test_buffer_that_is_not_contiguous() -> None:
    """It is refused with a reason; array libraries copy it before."""
    strided = Grid(memoryview(bytearray(100))[::2])
    assert "contiguous" in codec.measure(space(g=strided), {"g"}).failed["g"]


def test_fingerprints() -> None:
    """The same while a value is the same; another one after a change, also one in a buffer."""
    here = space(
        "class A:\n  x = 1\n  def f(self): return super().__hash__() + k\nk = 1\na = A()\nf = lambda y=[1]: k\n"
    )
    here |= {"g": Grid(bytearray(codec.SEPARATE)), "l": [1, {"a": "b"}]}
    wanted = {"A", "a", "f", "g", "l", "k"}
    before = codec.measure(here, wanted).fingerprints
    assert codec.measure(here, wanted).fingerprints == before
    exec("a.v = 1; A.x = 2; f.__defaults__[0].append(1); l[1]['a'] = 'c'; k = 2", here)
    here["g"].data[-1] = 1
    after = codec.measure(here, wanted).fingerprints
    assert all(before[name] != after[name] for name in wanted)


def test_function_keeps_its_fingerprint_where_a_global_changes() -> None:
    """It is sent without its globals, so that only these are sent again."""
    here = space(STEP)
    before = codec.measure(here, {"step"}).fingerprints
    here["SCALE"] = 11
    after = codec.measure(here, {"step"}).fingerprints
    assert before["step"] == after["step"]
    assert before["SCALE"] != after["SCALE"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("v = (i for i in ())", "generator"),
        ("import threading; v = threading.Lock()", "lock"),
        ("import socket; v = socket.socket()", "socket"),
        ("import sqlite3; v = sqlite3.connect(':memory:')", "sqlite3"),
        ("class A:\n  def __reduce__(self): raise ValueError('no, never\\nmore')\nv = A()", "ValueError: no, never"),
        ("class A:\n  def __reduce__(self): raise ValueError\nv = A()", "ValueError"),
        ("v = []\nfor _ in range(100_000): v = [v]", "recursion"),
    ],
)
def test_what_cannot_be_pickled_has_a_reason(code: str, reason: str) -> None:
    """And the other names are sent."""
    here, there = space(code, other=[1]), space()
    failed = sent(here, {"v", "other"}, there)
    assert list(failed) == ["v"]
    assert reason in failed["v"]
    assert "\n" not in failed["v"]
    assert there["other"] == [1]
    if "socket" in code or "sqlite" in code:
        here["v"].close()


def test_open_files_are_not_sent(tmp_path: Path) -> None:
    """Cloudpickle would send what they contain. Files in memory are sent."""
    (tmp_path / "secret").write_text("content")
    with (tmp_path / "secret").open() as file:
        here = space(v=[file], text=io.StringIO("t"))
        there = space()
        assert list(sent(here, {"v", "text"}, there)) == ["v"]
        assert "open file" in codec.measure(here, {"v"}).failed["v"]
        assert b"content" in cloudpickle.dumps(file)
    assert there["text"].getvalue() == "t"


def test_standard_output_stands_for_that_of_the_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has no content to send."""
    with (tmp_path / "out").open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        chunk = codec.pickled(space(out=stream), ("out",)).chunk
    monkeypatch.undo()
    there = space()
    assert codec.load(there, [chunk]) == {}
    assert there["out"] is sys.stdout


def test_arrays_on_a_gpu_stay_there() -> None:
    """Unless a copy in host memory is asked for."""
    here, there = space(v=[OnGpu()], kind=OnGpu), space()
    assert codec.measure(here, {"v", "kind"}).failed == {"v": "it is in the memory of a GPU"}
    measured = codec.measure(here, {"v"}, host_copies=True)
    codec.load(there, codec.chunks(here, measured, {"v"}, host_copies=True))
    assert there["v"] == [7]


def test_arrays_of_several_libraries() -> None:
    """Tensors in host memory are not on a GPU; PyTorch's parameters are pickled as their data."""

    class Host(OnGpu):
        @property
        def __cuda_array_interface__(self) -> Any:
            raise AttributeError("dense CPU tensor")

    class Nothing(OnGpu):
        get = property()  # it has none

    class Parameter(OnGpu):
        def __reduce__(self) -> Any:
            return list, ((OnGpu(self.value),),)

    class Gradient(OnGpu):
        is_cuda = True

        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")

    class Jax(OnGpu):
        get = property()

        def __array__(self) -> list[int]:
            return [self.value]

    here = space(host=Host(), nothing=Nothing(), parameter=Parameter(3), gradient=Gradient(4), jax=Jax(5))
    assert "memory of a GPU" in codec.measure(here, {"gradient"}).failed["gradient"]
    measured = codec.measure(here, {*here} - {"__builtins__", "__name__"}, host_copies=True)
    assert measured.failed == {"nothing": "it is in the memory of a GPU, and Nothing has no way to host memory"}
    there = space()
    assert codec.load(there, codec.chunks(here, measured, measured.pickled)) == {}
    assert there["parameter"] == [3]
    assert (there["gradient"], there["jax"]) == (4, [5])
    assert there["host"].value == 7


def test_limit() -> None:
    """A value above it is not pickled to its end, whether its bytes are in the pickle or beside it."""
    here = space(text=b"x" * 1000, g=Grid(bytearray(codec.SEPARATE)), small=[1])
    measured = codec.measure(here, {"text", "g", "small"}, limit=500)
    assert measured.large == {"text", "g"}
    assert measured.sizes == {"small": codec.pickled(here, ("small",)).size}
    assert codec.measure(here, {"text", "g", "small"}, inline=500).large == {"text"}
    with pytest.raises(TooLarge):
        codec.pickled(here, ("text",), limit=10)


def test_quick() -> None:
    """Arrays are quick to pickle whatever their size, long lists are not."""
    here = space(g=Grid(bytearray(codec.QUICK * 2)), text=b"x" * codec.QUICK)
    assert codec.pickled(here, ("g",)).quick
    assert not codec.pickled(here, ("text",)).quick


def test_what_cannot_be_loaded_has_a_reason() -> None:
    """No name of its chunk is bound; the others are."""
    here, there = (
        space("def boom(): raise ValueError('there')\nclass A:\n  def __reduce__(self): return boom, ()"),
        space(),
    )
    shared = [1]
    here |= {"a": [shared, here["A"]()], "b": shared, "c": 3}
    failed = sent(here, {"a", "b", "c"}, there)
    assert failed == {"a": "ValueError: there", "b": "ValueError: there"}
    assert "b" not in there
    assert there["c"] == 3


def test_frames() -> None:
    """Chunks are a header of JSON values and parts; a message with other parts is refused."""
    made = [Chunk(("a", "b"), b"s", (b"x", b"y")), Chunk(("c",), b"t")]
    header, parts = codec.frames(made)
    assert header == [{"names": ["a", "b"], "buffers": 2}, {"names": ["c"], "buffers": 0}]
    assert codec.read_frames(header, parts) == made
    with pytest.raises(ValueError, match="more than its header says"):
        codec.read_frames(header[:1], parts)
    with pytest.raises(ValueError, match="does not have those"):
        codec.read_frames(header, parts[:2])
    with pytest.raises(ValueError, match="does not have those"):
        codec.read_frames([{"names": ["a"]}], parts)


def test_pickles_need_this_module_to_be_loaded() -> None:
    """Another unpickler has no namespace for the functions."""
    stream = codec.pickled(space(STEP), ("step",)).chunk.stream
    with pytest.raises(pickle.UnpicklingError, match="jupyter-gpu only"):
        pickle.loads(stream)


def test_functions_of_modules_go_by_name() -> None:
    """They have the module's globals."""
    here, there = space("from json import dumps"), space()
    assert sent(here, {"dumps"}, there) == {}
    assert there["dumps"] is sys.modules["json"].dumps


def test_names_that_are_not_there_are_left_out() -> None:
    """They may be builtins, or made by the cell."""
    measured = codec.measure(space(a=1), {"a", "print", "b"})
    assert list(measured.pickled) == ["a"]


def test_errors_as_reasons() -> None:
    """One line, with the type where the text alone says little."""
    assert codec.reason(CannotSend("it has an open file")) == "it has an open file"
    assert codec.reason(KeyError("x")) == "KeyError: 'x'"
    assert codec.reason(TypeError()) == "TypeError"
    assert "lock" in codec.measure(space(v=threading.Lock()), {"v"}).failed["v"]


def test_reducers_of_cloudpickle_are_as_expected() -> None:
    """The reduction of a function has code, closure, state and setter where they are read here."""
    here = space("def outer():\n  k = 1\n  return lambda: k + n\nn = 1\nf = outer()")
    pickler = cloudpickle.Pickler(io.BytesIO())
    _, arguments, (state, slots), lists, dicts, setter = pickler.reducer_override(here["f"])
    assert arguments[0] is here["f"].__code__
    assert len(arguments) == 5
    assert len(arguments[4]) == 1
    assert (state, lists, dicts) == ({}, None, None)
    assert slots["__globals__"] == {"n": 1}
    assert setter.__name__ == "_function_setstate"


CYCLES = """
import gc, pickle
from jupyter_gpu.remote import codec

class Array(bytearray):
    def __reduce_ex__(self, protocol):
        return bytearray, (pickle.PickleBuffer(self),)

def cycle(kind):
    here = {"__name__": "__main__", "a": Array(codec.SEPARATE)}
    array, done = here["a"], codec.pickled(here, ("a",))
    if kind == 0:
        array.kept = done
    elif kind == 1:
        array.kept = [memoryview(one) for one in done.chunk.buffers]
    elif kind == 2:
        array.kept = pickle.PickleBuffer(done.chunk.buffers[0])
    elif kind == 3:
        array.kept = memoryview(pickle.PickleBuffer(array)), done, here
    else:
        there = {"__name__": "__main__", "kept": done, "array": array}
        codec.load(there, [done.chunk])
        array.kept = there

for number in range(1000):
    cycle(number % 5)
    if number % 7 == 0:
        gc.collect()
gc.collect()
print("done")
"""


def test_cycles_of_buffers_are_collected() -> None:
    """Arrays that keep what they were pickled as: the garbage collector ends them without an error or a crash."""
    ran = subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", CYCLES], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
