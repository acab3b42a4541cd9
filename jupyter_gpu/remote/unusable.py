"""Processes of workers that can use no GPU any more, after an error of CUDA's, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jupyter_gpu.model.message import Message, gettext
from jupyter_gpu.remote.rules import cuda_errors
from jupyter_gpu.remote.rules.cuda_errors import NUMBERS, Kind

_MOST = 100
"""Errors that are looked at: one, and what it was raised from."""


def sticky_code(error: BaseException | None) -> int | None:
    """Return the code of an error of CUDA's that makes this process unusable: the error, or one that led to it."""
    return next((code for one in _chain(error) if (code := _code(one)) is not None), None)


def sentence(where: str, code: int, lost: Iterable[str]) -> Message:
    """Return what is said of a kernel that was ended for such an error, with the names of what it had."""
    name = f"CUDA_ERROR_{cuda_errors.STICKY.get(code, code)}"
    if names := ", ".join(sorted(lost)):
        return gettext("After this error (%1) CUDA works no more in the process on %2, so the process was ended, and "
                       "the next cell or call gets a fresh one. Lost with it, to be made again: %3.",
                       name, where, names)  # fmt: skip
    return gettext("After this error (%1) CUDA works no more in the process on %2, so the process was ended, and the "
                   "next cell or call gets a fresh one. Nothing else was in it.", name, where)  # fmt: skip


def _code(error: BaseException) -> int | None:
    kinds = [Kind(str(kind.__module__), kind.__name__) for kind in type(error).__mro__]
    if not cuda_errors.is_of_cuda(kinds):  # of others nothing is read: they may have any code, and values of a GPU
        return None
    numbers = [getattr(error, name, None) for name in NUMBERS]
    return cuda_errors.sticky(numbers, " ".join(one for one in error.args if isinstance(one, str)))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from or while, and the members of groups; each once."""
    todo, seen = [error], set[int]()
    while todo and len(seen) < _MOST:
        one = todo.pop(0)
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        todo += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            todo += one.exceptions
