"""The CUDA guard of a kernel whose GPUs change: it decides which GPUs CUDA sees, and when.

CUDA looks for GPUs once in the life of a process, and so does HIP, for which all of this holds as well. So, until it
looks, ``CUDA_VISIBLE_DEVICES`` (for HIP another variable: `visible`) follows what is attached; a look while nothing is
attached is refused, because most libraries remember its failure for ever (see `frameworks`); a cell in which another
library looked says so at its end (see `looks`); and a kernel that looked too early to see a new GPU gets a notice.
NVML, which keeps GPUs open and counts them for as long as it is initialised, is initialised again when the GPUs change
(see `nvml`).

None of this happens on simulated GPUs, or if the user has set ``CUDA_VISIBLE_DEVICES``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from jupyter_gpu.common import attached
from jupyter_gpu.common.attached import Hint
from jupyter_gpu.common.rules.visible import (
    OURS,
    ROCR,
    VARIABLES,
    VISIBLE,
    WANTED,
    hip_changes,
    is_ours,
    value_of,
)
from jupyter_gpu.kernel.rules.looks import looked, looked_too_early

from .devices import cuda_nodes, mapped_devices, open_files
from .looks import LookReader, keeps_answer
from .nvml import STARTED, Nvml

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    from jupyter_gpu.model.view import View

TELL_LOOKS = "JUPYTER_GPU_TELL_LOOKS"
"""Variable: with the value ``0``, nothing is said of libraries that looked for GPUs while there were none."""
_WAYS_OUT = (
    "There are two ways out: restart this kernel; or use {it} from another process: with gpu.run(function), from "
    "worker processes, or from another notebook."
)

P = ParamSpec("P")
R = TypeVar("R")


class CudaGuard:
    """The CUDA guard of one process. `environ` is its environment, `path` the file of `attached`."""

    def __init__(
        self,
        environ: MutableMapping[str, str],
        path: str | None,
        looks: LookReader | None = None,
        nvml: Nvml | None = None,
    ) -> None:
        self._environ = environ
        self._looks = looks or LookReader()
        self._nvml = nvml or Nvml()
        self._nvml_due: bool | None = None
        """None: NVML need not follow. Otherwise, whether it is to be initialised again."""
        self.nvml_refusal = ""
        """Reason why NVML could not follow, and keeps the GPUs open that it had; empty: nothing keeps it from that."""
        self._reader = attached.AttachedReader(path)
        self.inherited = {name: environ[name] for name in (VISIBLE, OURS, WANTED) if name in environ}
        """Environment with which the process was started."""
        self._hint: Hint | None = None
        self._started_with: tuple[str, ...] | None = None
        self._too_early = False
        self._notified: tuple[str, ...] = ("", "")
        self._changed = False

    @property
    def blocked(self) -> bool:
        """Whether CUDA would find no GPU if it looked now, and would not look again."""
        self.refresh()
        hint = self._hint
        return self._started_with is None and hint is not None and not (hint.simulated or hint.gpus) and self._is_ours()

    def refresh(self) -> None:
        """Read the file of `attached`; cheap if nothing changed."""
        hint = self._reader.read()
        if hint is not None:
            self.see(hint)

    def see(self, hint: Hint) -> None:
        """Follow ``hint`` if it is newer."""
        if not hint.newer_than(self._hint):
            return
        self._plan_nvml(self._hint, hint)
        self._hint = hint
        self._changed = True
        if self._is_ours() and not hint.simulated:
            self._set_variables(hint)
        self.restart_nvml()

    def _set_variables(self, hint: Hint) -> None:
        """Name the GPUs also after CUDA started: this process does not look again, but the workers that it starts do.

        A variable that named GPUs before the server said whose its GPUs are goes.
        """
        gpus = self._ordered(list(hint.gpus))
        for vendor, (visible, ours, wanted) in VARIABLES.items():
            if vendor in hint.vendors:
                own = self._environ.get(wanted)  # of the site that runs the server
                value = value_of(vendor, hint, self._environ, own, gpus)
                self._environ[visible] = self._environ[ours] = value
            elif ours in self._environ and self._environ.get(visible) == self._environ[ours]:
                del self._environ[visible], self._environ[ours]
        for name, now in hip_changes(self._environ, hint, self._environ.get(ROCR)).items():
            if now is None:
                self._environ.pop(name, None)
            else:
                self._environ[name] = now

    @property
    def nvml_keeps_gpus(self) -> bool:
        """Whether NVML may have GPUs of this process open, although CUDA has not started here by a hook of ours."""
        hint = self._hint
        has_gpus = hint is not None and bool(hint.gpus) and not hint.simulated
        return has_gpus and self._started_with is None and self._nvml.loaded

    def _plan_nvml(self, before: Hint | None, now: Hint) -> None:
        """Note that NVML has to follow: it counts the GPUs of its start, and keeps them open."""
        if before is None or now.simulated or before.gpus == now.gpus:
            return
        # Where nothing keeps NVML from the GPUs that were given back, it would open them again.
        self._nvml_due = now.enforced or set(before.gpus) <= set(now.gpus)

    def restart_nvml(self) -> None:
        """Have NVML follow the GPUs if it has not done so yet, and it can."""
        if self._nvml_due is None:
            return
        hindrance = STARTED if self._started_with is not None else self._nvml.restart(start=self._nvml_due)
        self.nvml_refusal = "" if hindrance == STARTED else hindrance
        if not self.nvml_refusal:
            self._nvml_due = None

    def check(self) -> None:
        """Raise `NoGpuAttached` if CUDA must not start now."""
        if self.blocked:
            from .errors import NoGpuAttached

            raise NoGpuAttached(
                "Your server has no GPU: gpu.resize(1) first. (CUDA looks for GPUs only once in a process, so it was "
                f"kept from looking now. To stay on the CPU on purpose, set os.environ['{VISIBLE}'] = '-1'.)"
            )

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Guard the call that makes CUDA look for GPUs."""
        self.check()
        before = self._started_with
        if before is None and self._hint is not None:
            self._started_with = tuple(gpu.uuid for gpu in self._hint.gpus)
        try:
            yield
        except Exception as error:
            self._started_with = before
            if before is None and self._hint is not None and self._hint.gpus and _no_gpu(error):
                from .errors import CudaStartedTooEarly

                self._too_early = True
                raise CudaStartedTooEarly(self._lost(self._hint.gpus)) from error
            raise

    def starts(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return ``function``, which makes CUDA look for GPUs, with the guard around it."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.starting():
                return function(*args, **kwargs)

        return _dressed(guarded, function)

    def answers(self, function: Callable[P, R], nothing: Callable[[], R]) -> Callable[P, R]:
        """Return ``function``, which counts the GPUs, guarded: ``nothing()`` if CUDA must not start now."""

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            return nothing() if self.blocked else function(*args, **kwargs)

        return _dressed(guarded, function)

    def notice(self, links: Iterable[str] | None = None, mapped: Iterable[str] | None = None) -> str:
        """Return the notice for the user of this process, or "".

        ``links``, ``mapped``: the files that it has open, and the device files that it has mapped (default: read).
        """
        hint = self._hint
        if hint is None or hint.simulated or not hint.gpus or not self._is_ours():
            return ""
        if hidden := self._hidden(hint.gpus, links, mapped):
            return self._lost(hidden)
        kept = self._looks.kept()
        return looked_too_early(kept) if self._tells_looks() else ""

    @property
    def can_use_new(self) -> bool:
        """Whether CUDA in this process can use GPUs that come from now on: it has not looked for any yet."""
        self.refresh()
        if self._hint is None or self._hint.simulated or not self._is_ours():
            return True
        if self._too_early or self._started_with is not None or self._looks.kept():
            return False
        return not cuda_nodes(open_files(), mapped_devices())

    def _hidden(
        self, gpus: Iterable[attached.AttachedGpu], links: Iterable[str] | None, mapped: Iterable[str] | None
    ) -> list[attached.AttachedGpu]:
        """List the GPUs that CUDA cannot use in this process, as it looked before they were there."""
        if self._too_early:
            return list(gpus)
        if self._started_with is not None:
            return [gpu for gpu in gpus if gpu.uuid not in self._started_with]
        nodes = cuda_nodes(open_files() if links is None else links, mapped_devices() if mapped is None else mapped)
        return [gpu for gpu in gpus if nodes and gpu.path not in nodes]

    def end_of_cell(self, *, program: bool = False) -> str:
        """Return what to say at the end of a cell or ``program`` in which libraries without a hook looked for a GPU."""
        if not self.blocked:
            return ""
        paths = self._looks.new()
        return looked(paths, filter(keeps_answer, paths), program=program) if self._tells_looks() else ""

    def _tells_looks(self) -> bool:
        return self._environ.get(TELL_LOOKS) != "0"

    def new_notice(self) -> str:
        """Return the notices of this process and of the server that are new; "" if none is."""
        self.refresh()
        self.restart_nvml()
        if not self._changed:
            return ""
        self._changed = False
        texts = (self._hint.notice if self._hint else "", self.notice())
        new = [text for text, told in zip(texts, self._notified, strict=True) if text != told]
        self._notified = texts
        return "\n".join(filter(None, new))

    def _lost(self, gpus: Iterable[attached.AttachedGpu]) -> str:
        indices = [str(gpu.index) for gpu in gpus]
        names = f"GPU {indices[0]}" if len(indices) == 1 else f"GPUs {', '.join(indices)}"
        return (
            f"This kernel cannot use {names}: CUDA has already looked for GPUs in it, and it looks only once. "
            + _WAYS_OUT.format(it="it" if len(indices) == 1 else "them")
        )

    def _ordered(self, gpus: list[attached.AttachedGpu]) -> list[attached.AttachedGpu]:
        """Sort the GPUs: those with which CUDA started first, as libraries count devices in this order."""
        known = {gpu.uuid: gpu for gpu in gpus}
        first = [known[uuid] for uuid in self._started_with or () if uuid in known]
        return first + [gpu for gpu in gpus if gpu not in first]

    def _is_ours(self) -> bool:
        return self._hint is None or is_ours(self._environ, self._hint)


_guard: CudaGuard | None = None


def guard() -> CudaGuard:
    """Return the guard of this process."""
    global _guard  # noqa: PLW0603 - CUDA's own state is one of the process, too
    if _guard is None:
        _guard = CudaGuard(os.environ, os.environ.get(attached.VARIABLE))
        _guard.refresh()
    return _guard


def seen(view: View) -> tuple[str, ...]:
    """Pass ``view`` to the guard; return the notices that the user of this process needs."""
    mine = guard()
    mine.see(Hint.of(view))
    text = mine.notice()
    return (text,) if text else ()


def _no_gpu(error: Exception) -> bool:
    """Tell whether ``error`` says that there is no GPU, in the words of CUDA or of PyTorch."""
    text = str(error).lower().replace("_", " ").replace("-", " ")
    return any(words in text for words in ("no cuda", "no device", "nodevice", "not initialized", "(100)"))


def _dressed(new: Callable[P, R], old: Callable[P, R]) -> Callable[P, R]:
    """Give ``new`` the name and the docstring of ``old``."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(old, name, None)
        if isinstance(value, str):
            setattr(new, name, value)
    return new
