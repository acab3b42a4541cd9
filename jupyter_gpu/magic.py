"""The line magic ``%gpu``: the commands of a terminal, in a cell. Most of it is loaded at its first use."""

from __future__ import annotations

from collections.abc import Sequence

TYPE_CHECKING = False  # as in typing
if TYPE_CHECKING:
    import argparse
    from typing import Any

COMMANDS = ("release", "status", "usage", "wait")
OPTIONS = (
    *("--each", "--lendable", "--memory", "--model", "--no-lendable", "--no-wait", "--placement", "--priority"),
    *("--timeout", "--topology", "--vendor"),
)
VALUES = {
    "--each": ("0.25", "0.5"),
    "--memory": ("8GiB", "20GiB", "40GiB", "80GiB"),
    "--model": (),
    "--placement": ("any", "local"),
    "--priority": tuple("0123456789"),
    "--timeout": ("60", "600", "3600"),
    "--topology": ("any", "island", "switch"),
    "--vendor": ("amd", "any", "nvidia"),
}
"""Values offered after these options."""
_HELP = "See %gpu?"


def register(shell: Any) -> None:
    """Register the magic and its completion in the IPython of ``shell``."""
    shell.register_magic_function(gpu, "line_cell", "gpu")
    shell.set_hook("complete_command", complete, str_key="%gpu")

    def in_place(lines: list[str]) -> list[str]:
        first = next((at for at, text in enumerate(lines) if text.strip()), None)
        if first is None or lines[first].split()[:1] != ["%%gpu"]:
            return lines
        from jupyter_gpu.remote import cell_magic

        return cell_magic.in_place(shell, lines, first)

    in_place.has_side_effects = True  # type: ignore[attr-defined] # not called to find out whether a cell is complete
    shell.input_transformers_cleanup.insert(0, in_place)


def gpu(line: str, cell: str | None = None) -> Any:
    """Show or change the GPUs of this Jupyter server.

    %gpu                           the current state
    %gpu 2                         have two GPUs; blocks until they are attached
    %gpu 0.5 --memory 20GiB        half of one; also --each, --model, --vendor, --topology, --placement, --priority
    %gpu 1 --lendable              others may use it while it rests, where a cluster lends; --no-lendable: they may not
    %gpu --memory 40GiB            so much memory of a GPU, in time that others leave
    %gpu 3 --no-wait               ask and continue
    %gpu 3 --timeout 60            wait at most a minute
    %gpu release                   give everything back
    %gpu wait                      wait until the request is fulfilled
    %gpu usage                     what was held and used

    Variables can be used: %gpu {n}. It returns what gpu.status() does: now = %gpu 2

    %%gpu 2                        a cell with at least two GPUs, until its end; where CUDA has started in this
                                   kernel and cannot use them, it runs in a process of its own
    %%gpu 2 --fresh                always in that process: its variables stay while the GPUs are the same
    %%gpu 2 -i data -o model       sends data although it is not seen that the cell uses it; brings model
                                   whatever its size
    """
    import shlex

    from jupyter_gpu.kernel.api import gpu as here
    from jupyter_gpu.model.errors import InvalidRequest

    if cell is not None or line.startswith("cell"):  # `in_place` has put it there
        from IPython.core.getipython import get_ipython

        from jupyter_gpu.remote import cell_magic

        if cell is None:
            return cell_magic.hold(get_ipython(), line.removeprefix("cell"))
        return cell_magic.run(get_ipython(), line, cell)
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(f"'%gpu {line}' cannot be read: {error}. {_HELP}") from None
    given = _parsed(words)
    if given is None:
        return print(gpu.__doc__)
    patience = {"wait": not given.no_wait, "timeout": given.timeout}
    options = ("each", "memory", "model", "vendor", "topology", "placement", "priority", "lendable")
    named = {name: value for name in options if (value := getattr(given, name)) is not None}
    if given.what is None and "memory" in named:
        return here.resize(**named, **patience)
    what = given.what or "status"
    if what not in COMMANDS:
        return here.resize(what, **named, **patience)
    if named:
        raise InvalidRequest(f"'%gpu {what}' takes no --{next(iter(named))}: it goes with an amount. {_HELP}")
    if what == "release":
        return here.release(**patience)
    if what == "wait":
        return here.wait(timeout=given.timeout)
    return here.usage() if what == "usage" else here.status()


def complete(_shell: Any, event: Any) -> list[str]:
    """Return the words that can be completed at the cursor."""
    from jupyter_gpu.cli import offers

    words = event.text_until_cursor.split()
    before = words[-1] if event.text_until_cursor.endswith(" ") else words[-2] if len(words) > 1 else "%gpu"
    if before in VALUES:
        return list(VALUES[before])
    if before == "%gpu":
        return [*offers.amounts(), *COMMANDS]
    return [option for option in OPTIONS if option not in words or option == event.symbol]


def _parsed(words: Sequence[str]) -> argparse.Namespace | None:
    """Parse the options; None if help is asked for. Raises InvalidRequest."""
    import argparse

    from jupyter_gpu.cli import options
    from jupyter_gpu.model.errors import InvalidRequest

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise InvalidRequest(f"'%gpu {' '.join(words)}': {message}. {_HELP}")

    if {"-h", "--help"} & set(words):
        return None
    parser = Parser(prog="%gpu", add_help=False, parents=[options.request(), options.patience(), options.no_wait()])
    parser.add_argument("what", nargs="?")
    try:
        return parser.parse_args(words)
    except InvalidRequest as error:
        raise error.with_traceback(None)  # noqa: B904 - it is the same; where argparse found it helps nobody
