"""The IPython extension that sets up the CUDA guard; `provisioner` loads it into every Python kernel.

If that was not possible, importing `jupyter_gpu` does it. Errors here are logged, and the kernel continues as if this
were not installed.
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Callable
from typing import Any

from jupyter_gpu import magic
from jupyter_gpu.kernel.cuda import frameworks
from jupyter_gpu.kernel.cuda import guard as cuda_guard
from jupyter_gpu.kernel.cuda.idle import IdleWatch

log = logging.getLogger(__name__)
_installed = False


def load_ipython_extension(shell: Any) -> None:
    """Install the guard. IPython calls this once in a kernel's life, before the first cell."""
    install(shell)


def install(shell: Any = None) -> None:
    """Set up the guard in this process, once; ``shell``: IPython's, which prints notices before and after a cell."""
    global _installed  # noqa: PLW0603 - so is CUDA's own state
    if _installed:
        return
    _installed = True
    try:
        guard = cuda_guard.guard()
        frameworks.install(guard)
        if shell is None and (ipython := sys.modules.get("IPython")) is not None:
            shell = ipython.get_ipython()
    except Exception:
        log.warning("The CUDA guard of jupyter-gpu could not be set up.", exc_info=True)
        return

    def say(find: Callable[[], str]) -> None:
        try:
            notice = find()
        except Exception:  # an error here would be shown at every cell
            log.debug("Looking for changes of the attached GPUs failed.", exc_info=True)
            return
        if notice:
            print(notice, file=sys.stderr)

    if shell is None:
        atexit.register(say, lambda: guard.end_of_cell(program=True))
    else:
        shell.events.register("pre_run_cell", lambda *_: say(guard.new_notice))
        shell.events.register("post_run_cell", lambda *_: say(guard.end_of_cell))
        idle = IdleWatch(guard, shell)
        shell.events.register("post_run_cell", lambda *_: idle.after_cell())
        magic.register(shell)
