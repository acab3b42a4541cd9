"""Pure: the names that a cell reads, assigns and deletes, found in its bytecode before it runs.

The source is that of the transformed cell, without magics. A name counts as read if on some path through the cell it
may be read before the cell has assigned it: ``if c: n = 1`` before ``print(n)`` reads n, ``n = 1`` before it does not.
A function may be called at any time after its definition, so it reads its global names where it is defined.
"""

from __future__ import annotations

import ast
import dis
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType

from jupyter_gpu.remote.rules import texts

Scoped = tuple[bool, str]
"""A name, and whether it is one of a class body."""

_INTERPRETER = """
__annotate__ __annotations__ __builtins__ __conditional_annotations__ __debug__ __doc__ __file__ __loader__ __name__
__package__ __spec__
"""
OF_INTERPRETER = frozenset(_INTERPRETER.split())
"""Global names that each process has of its own."""
_ENDS = frozenset(["RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"])
_GOES_ON_ELSEWHERE = frozenset(["JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"])
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_READS = frozenset(["LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"])
_IMPORT_STAR = 2
"""Operand of ``CALL_INTRINSIC_1``, which Python 3.12 and later use for ``import *``."""


@dataclass(frozen=True)
class CellNames:
    """The global names that a cell uses."""

    reads: frozenset[str] = frozenset()
    """May be read before they are assigned; also names of builtins, and names that exist nowhere."""
    assigns: frozenset[str] = frozenset()
    """May be assigned, by any statement that binds a name, or by a function with ``global``."""
    deletes: frozenset[str] = frozenset()
    """May be deleted, also by the end of ``except … as e``."""
    modules: frozenset[str] = frozenset()
    """Modules that are imported, by their absolute names, and what is imported from them: that may be modules."""
    stars: frozenset[str] = frozenset()
    """Modules of ``from … import *``: the names that these assign are not known."""
    unseen: tuple[str, ...] = ()
    """Calls that use names which cannot be seen, such as ``eval(text)``."""


@functools.lru_cache(maxsize=2)
def parsed(source: str, flags: int) -> tuple[ast.Module, CodeType]:
    """Return a cell's syntax tree and bytecode, kept for the next question about it; raises SyntaxError."""
    tree = ast.parse(source)
    code = compile(tree, "<cell>", "exec", flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return tree, code


def of_cell(source: str, flags: int = 0, transform: Callable[[str], str] = str) -> CellNames:
    """Return the names of a cell; raises SyntaxError.

    ``flags`` are those of ``compile``, for ``from __future__ import`` in earlier cells. ``transform`` does for the body
    of a magic, such as ``%%time``, what was done for the cell.
    """
    tree, code = parsed(source, flags)
    found = _Found()
    found.follow(code, frozenset())
    names = found.names()
    hidden = texts.of_tree(tree)
    for text in hidden.code:
        names = joined(names, _of_text(text, flags, transform))
    return joined(names, CellNames(reads=frozenset(hidden.reads), unseen=hidden.unseen))


def of_function(code: CodeType) -> CellNames:
    """Return the global names of a function, including those of functions inside it."""
    found = _Found()
    found.follow(code, frozenset())
    return found.names()


def _of_text(text: str, flags: int, transform: Callable[[str], str]) -> CellNames:
    try:
        return of_cell(transform(text), flags, transform)
    except (SyntaxError, ValueError):  # it will say so where it runs
        return CellNames()


def joined(first: CellNames, second: CellNames) -> CellNames:
    """Return the names of both, where it is not known which runs first."""
    return CellNames(
        first.reads | second.reads,
        first.assigns | second.assigns,
        first.deletes | second.deletes,
        first.modules | second.modules,
        first.stars | second.stars,
        first.unseen + second.unseen,
    )


@dataclass
class _Found:
    """Names found so far."""

    reads: set[str] = field(default_factory=set)
    assigns: set[str] = field(default_factory=set)
    deletes: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    stars: set[str] = field(default_factory=set)

    def names(self) -> CellNames:
        """Return what was found, without what belongs to the interpreter."""
        return CellNames(
            frozenset(self.reads - OF_INTERPRETER),
            frozenset(self.assigns - OF_INTERPRETER),
            frozenset(self.deletes - OF_INTERPRETER),
            frozenset(self.modules),
            frozenset(self.stars),
        )

    def follow(self, code: CodeType, bound: frozenset[str]) -> None:
        """Note the names of a code object which begins with ``bound`` surely assigned, and of those inside it."""
        in_class = not code.co_flags & inspect.CO_OPTIMIZED and code.co_name != "<module>"
        steps = list(dis.get_instructions(code))
        before = _surely_bound(code, steps, frozenset((False, name) for name in bound), in_class)
        module = ""
        for step in steps:
            now = before.get(step.offset)
            if now is None:  # never reached
                continue
            self._note(step, now, in_class)
            if step.opname == "IMPORT_NAME" and step.argval:
                module = step.argval
                self.modules.add(module)
            elif step.opname == "IMPORT_FROM" and module:
                self.modules.add(f"{module}.{step.argval}")
            elif step.opname == "IMPORT_STAR" or (step.opname == "CALL_INTRINSIC_1" and step.arg == _IMPORT_STAR):
                self.stars.add(module)
            elif isinstance(step.argval, CodeType):
                self.follow(step.argval, frozenset(name for of_class, name in now if not of_class))

    def _note(self, step: dis.Instruction, bound: frozenset[Scoped], in_class: bool) -> None:
        name = step.argval
        if step.opname in _READS:
            own = in_class and step.opname != "LOAD_GLOBAL"
            if (False, name) not in bound and not (own and (True, name) in bound):
                self.reads.add(name)
        elif (scoped := _binds(step, in_class)) and not scoped[0]:
            self.assigns.add(name)
        elif (scoped := _unbinds(step, in_class)) and not scoped[0]:
            self.deletes.add(name)
            if scoped not in bound:
                self.reads.add(name)


def _binds(step: dis.Instruction, in_class: bool) -> Scoped | None:
    if step.opname in ("STORE_NAME", "STORE_GLOBAL"):
        return (in_class and step.opname == "STORE_NAME", step.argval)
    return None


def _unbinds(step: dis.Instruction, in_class: bool) -> Scoped | None:
    if step.opname in ("DELETE_NAME", "DELETE_GLOBAL"):
        return (in_class and step.opname == "DELETE_NAME", step.argval)
    return None


def _surely_bound(
    code: CodeType, steps: list[dis.Instruction], start: frozenset[Scoped], in_class: bool
) -> Mapping[int, frozenset[Scoped]]:
    """Return for each instruction that can be reached the names that are assigned before it on every path."""
    handlers = [(entry.start, entry.end, entry.target) for entry in dis.Bytecode(code).exception_entries]  # type: ignore[attr-defined]
    following = {step.offset: later.offset for step, later in pairwise(steps)}
    by_offset = {step.offset: step for step in steps}
    before = {0: start}
    todo = [0]

    def reach(targets: Iterable[int], bound: frozenset[Scoped]) -> None:
        for target in targets:
            known = before.get(target)
            merged = bound if known is None else known & bound
            if merged != known:
                before[target] = merged
                todo.append(target)

    while todo:
        offset = todo.pop()
        step = by_offset[offset]
        reach((target for first, end, target in handlers if first <= offset < end), before[offset])
        bound = before[offset]
        if added := _binds(step, in_class):
            bound |= {added}
        elif removed := _unbinds(step, in_class):
            bound -= {removed}
        if step.opcode in _JUMPS:
            reach([step.argval], bound)
        if step.opname not in _ENDS | _GOES_ON_ELSEWHERE:
            reach([following[offset]], bound)
    return before
