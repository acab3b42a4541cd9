"""Names that a cell uses."""

from __future__ import annotations

import builtins
import contextlib
import itertools
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from jupyter_gpu.remote.rules import names
from jupyter_gpu.remote.rules.names import CellNames

BUILTINS = frozenset(dir(builtins))


def used(cell: str) -> CellNames:
    """Return the names of a cell as it was typed."""
    transform = TransformerManager().transform_cell  # type: ignore[no-untyped-call]
    return names.of_cell(transform(cell), transform=transform)


def reads(cell: str) -> set[str]:
    """Return what is read, without builtins."""
    return set(used(cell).reads - BUILTINS - {"get_ipython"})


CASES = {
    "plain": ("loss = train(model, data)", "train model data", "loss"),
    "assigned before": ("n = 1\nprint(n)", "", "n"),
    "assigned on one path": ("if c: n = 1\nprint(n)", "c n", "n"),
    "assigned on both paths": ("if c: n = 1\nelse: n = 2\nprint(n)", "c", "n"),
    "augmented": ("n += step", "n step", "n"),
    "loop": ("for i in items: total = i\nprint(i, total)", "items i total", "i total"),
    "while true": ("while True:\n  n = 1\n  if n: break\nprint(n)", "", "n"),
    "function": ("def f(x, y=default): return x + lim\nf(1)", "default lim", "f"),
    "function defined before its global": ("def f(): return n\nn = 1\nf()", "n", "f n"),
    "function defined after its global": ("n = 1\ndef f(): return n\nf()", "", "f n"),
    "recursion": ("def f(x): return f(x - 1)", "f", "f"),
    "nested": ("def f():\n  def g(): return lim\n  return g", "lim", "f"),
    "closure": ("def f(a):\n  b = 1\n  def g():\n    nonlocal b\n    b += a\n  return g", "", "f"),
    "lambda": ("f = lambda x: x * scale", "scale", "f"),
    "comprehension": ("[x * k for x in xs if x > lo]", "k xs lo", ""),
    "comprehensions": ("{a: b for a, b in d}; {c for c in s}; (e + z for e in g)", "d s z g", ""),
    "walrus": ("if (n := f()) > 1: print(n)", "f", "n"),
    "walrus in comprehension": ("[last := x for x in xs]\nprint(last)", "xs last", "last"),
    "import": ("import numpy as np, os.path\nnp.zeros(k)", "k", "np os"),
    "from import": ("from math import sqrt, pi as p\nsqrt(p)", "", "sqrt p"),
    "class": ("class A(Base):\n  x = 1\n  y = x + z\n  def f(self): return w", "Base z w", "A"),
    "class reads outer": ("class A:\n  n = n", "n", "A"),
    "class with global": ("class A:\n  global n\n  n = 1\nprint(n)", "n", "A n"),
    "comprehension in class": ("class A:\n  a = [i + k for i in xs]", "k xs", "A"),
    "decorator": ("@deco(arg)\ndef f(): pass", "deco arg", "f"),
    "global in function": ("def f():\n  global n\n  n = 1\nf()\nprint(n)", "n", "f n"),
    "f-string": ("f'{a!r:>{width}} {b + 1}'", "a width b", ""),
    "with": ("with open(p) as h, lock: h.read()", "p lock", "h"),
    "unpacking": ("(a, *b), c[0], d.e = x", "c d x", "a b"),
    "match": ("match cmd:\n  case [x, *rest]: y = x\n  case {'k': v, **kw}: pass\n  case Point(q): pass", "cmd Point",
              "x rest y v kw q"),
    "await": ("x = await f(y)\nasync with a as b: pass\nasync for i in c: pass", "f y a c", "x b i"),
    "star arguments": ("f(*args, **kwargs)", "f args kwargs", ""),
    "in place": ("a[0] = 1; p.v = 5; l.append(2)", "a p l", ""),
    "try": ("try:\n  n = f()\nfinally:\n  print(n)", "f n", "n"),
    "try else": ("try:\n  n = f()\nexcept E:\n  raise\nprint(n)", "f E", "n"),
    "try that goes on": ("try:\n  n = f()\nexcept E:\n  pass\nprint(n)", "f E n", "n"),
    "suppressed by with": ("with suppress(E):\n  n = f()\nprint(n)", "suppress E f n", "n"),
    "unreachable": ("def f():\n  return 1\n  return dead", "", "f"),
    "chained comparison": ("a < b < c", "a b c", ""),
    "conditional expression": ("x = a if t else b", "a t b", "x"),
    "assert": ("assert ok, why", "ok why", ""),
    "eval": ("eval('lim + 1')", "lim", ""),
    "exec": ("exec('n = lim')", "lim", "n"),
    "eval of no code": ("eval('1 +')", "", ""),
    "query": ("df.query('a < @lim and b > @lo')", "df lim lo", ""),
    "query with f-string": ("df.eval(f'{col} > @lim')", "df col lim", ""),
    "other query": ("db.query(rows)", "db rows", ""),
    "line magic with code": ("%timeit -n 10 -r3 f(x)", "f x", ""),
    "assigning magic": ("%time y = f(x)", "f x", "y"),
    "magic with its options only": ("%timeit -n 10", "", ""),
    "magic whose code is none": ("%timeit f(", "", ""),
    "cell magic with code": ("%%time\nn = f(x)\nprint(n)", "f x", "n"),
    "magic in a magic": ("%%time\n!ls {folder}", "folder", ""),
    "captured": ("%%capture\nn = f(x)", "f x", "n"),
    "shell command": ("!ls {folder} $file $$x", "folder file", ""),
    "shell command with its own braces": ("!awk '{print $1}}'", "", ""),
    "shell output": ("out = !ls {folder}", "folder", "out"),
    "help": ("f?", "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("cell", "read", "assigned"), CASES.values(), ids=CASES)
def test_names(cell: str, read: str, assigned: str) -> None:
    """These are read before they are assigned, and those assigned."""
    assert reads(cell) == set(read.split())
    assert used(cell).assigns == set(assigned.split())


@pytest.mark.parametrize(
    ("cell", "read", "deleted"),
    [
        ("del n", "n", "n"),
        ("n = 1\ndel n", "", "n"),
        ("n = 1\ndel n\nprint(n)", "n", "n"),
        ("if c: del n", "c n", "n"),
        ("try: f()\nexcept E as e: print(e)", "f E", "e"),
        ("try: f()\nexcept E as e: pass\nprint(e)", "f E e", "e"),
        ("def f():\n  global n\n  del n", "n", "n"),
        ("class A:\n  n = 1\n  del n", "", ""),
        ("del a[0], p.v", "a p", ""),
    ],
)
def test_deleted(cell: str, read: str, deleted: str) -> None:
    """A name that the cell deletes must be there, if the cell has not assigned it."""
    assert reads(cell) == set(read.split())
    assert used(cell).deletes == set(deleted.split())


def test_modules_and_stars() -> None:
    """Modules have their absolute names; what `import *` assigns is not known."""
    found = used("import a.b\nfrom c.d import e, f\nfrom g.h import *\ndef f(): import lazy")
    assert found.modules == {"a.b", "c.d", "c.d.e", "c.d.f", "g.h", "lazy"}
    assert found.stars == {"g.h"}
    assert found.assigns == {"a", "e", "f"}
    assert used("from . import x").modules == frozenset()


@pytest.mark.parametrize(
    ("cell", "unseen"),
    [
        ("eval(text)", ("eval(text)",)),
        ("exec(a); exec(a)", ("exec(a)",)),
        ("globals()['n']; vars(); locals()", ("globals()", "vars()", "locals()")),
        ("vars(p)", ()),
        ("eval('a')", ()),
        ("%store model", ("%store model",)),
        ("%who", ()),
        ("%matplotlib inline", ()),
        ("%%sql db\nselect", ("%%sql db",)),
        ("%%sql\nselect", ("%%sql",)),
        ("%%bash\nls", ()),
        ("%%capture out\nf()", ("%%capture out",)),
        ("get_ipython().run_line_magic(name, 'x')", ()),
        ("get_ipython().run_line_magic('time')", ()),
        ("get_ipython().kernel.x()", ()),
        ("%store " + "x" * 80, ("%store " + "x" * 52 + "…",)),
    ],
)
def test_unseen(cell: str, unseen: tuple[str, ...]) -> None:
    """Calls that may use any name are told once each, in at most 60 characters."""
    assert used(cell).unseen == unseen


def test_names_of_the_interpreter_are_left_out() -> None:
    """Each process has its own, and annotations make some."""
    found = used("x: int = 1\nprint(__name__, __doc__)")
    assert found.reads <= BUILTINS
    assert found.assigns == {"x"}


def test_future_imports_of_earlier_cells_count() -> None:
    """Annotations are then no code."""
    import __future__

    assert "T" not in names.of_cell("x: T = 1", __future__.annotations.compiler_flag).reads


def test_a_cell_that_is_no_code_raises() -> None:
    """As it does where it runs."""
    with pytest.raises(SyntaxError):
        names.of_cell("1 +")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_type_parameters() -> None:
    """They are no globals; what they are bound by is."""
    assert reads("def f[T: Base](x: T) -> Out: return y\ntype A[U] = dict[U, V]") >= {"y"}
    assert reads("class A[T]:\n  z = z\n  def f(self, x: T): return w") == {"z", "w"}
    assert used("def f[T](x): pass\ntype A = int").assigns == {"f", "A"}


def test_function() -> None:
    """The globals of a function, and of functions inside it."""
    space: dict[str, object] = {}
    exec("def f(x):\n  global n\n  n = [y + k for y in x]\n  return lambda: g(n)", space)
    found = names.of_function(space["f"].__code__)  # type: ignore[attr-defined]
    assert (found.reads, found.assigns) == (frozenset({"k", "g"}), frozenset({"n"}))


STATEMENTS = st.sampled_from(
    ["{n} = 1", "{n}", "del {n}", "{n} += 1", "[{n} for q in (1, 2)]", "(lambda: {n})()", "import os as {n}",
     "for {n} in (1, 2): pass", "for {n} in (): pass", "class {n}: v = 1", "def {n}(): pass", "raise KeyError"]
)  # fmt: skip
BLOCKS = st.sampled_from(
    ["if next(coin):\n{a}\nelse:\n{b}", "try:\n{a}\nexcept KeyError as c:\n{b}", "try:\n{a}\nfinally:\n{b}",
     "while next(coin):\n{a}\nelse:\n{b}", "for c in range(2):\n{a}\n  if next(coin): break\nelse:\n{b}"]
)  # fmt: skip


def indented(text: str) -> str:
    """Return a block."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def cells() -> st.SearchStrategy[str]:
    """Return random cells of a few names."""
    line = st.builds(lambda text, n: text.format(n=n), STATEMENTS, st.sampled_from("abc"))

    def longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        block = st.builds(lambda text, a, b: text.format(a=indented(a), b=indented(b)), BLOCKS, inner, inner)
        return st.lists(st.one_of(line, block), min_size=1, max_size=4).map("\n".join)

    return st.recursive(line, longer, max_leaves=12)


class Watched(dict):  # type: ignore[type-arg]
    """A namespace that notes which names are looked up in vain or found before they were assigned here."""

    def __init__(self, given: dict[str, object], coin: Iterator[bool]) -> None:
        super().__init__(coin=coin)
        self.given, self.read, self.assigned, self.deleted = given, set(), set(), set()  # type: ignore[var-annotated]

    def __missing__(self, name: str) -> object:
        if name in BUILTINS:
            raise KeyError(name)
        self.read.add(name)
        if name in self.deleted or name not in self.given:
            raise KeyError(name)
        return self.given[name]

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, value)
        self.assigned.add(name)

    def __delitem__(self, name: str) -> None:
        if not super().__contains__(name):
            self.__missing__(name)
        else:
            super().__delitem__(name)
        self.deleted.add(name)


@given(cells(), st.lists(st.booleans(), max_size=20), st.sets(st.sampled_from("abc")))
def test_what_a_run_uses_was_foreseen(cell: str, coins: list[bool], there: set[str]) -> None:
    """Whatever path a run takes, each name that it reads, assigns or deletes was found before."""
    space = Watched(dict.fromkeys(there, 1), itertools.chain(coins, itertools.repeat(False)))
    found = names.of_cell(cell)
    with contextlib.suppress(KeyError, NameError, TypeError):
        exec(compile(cell, "<cell>", "exec"), space)
    assert space.read <= found.reads
    assert space.assigned <= found.assigns
    assert space.deleted <= found.deletes
