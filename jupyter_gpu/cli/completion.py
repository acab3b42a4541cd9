"""``jupyter gpu completion bash``: lines for a shell, by which it completes our words after Tab, with argcomplete.

``jupyter`` passes the words after ``gpu`` on to us, so both spellings are completed.
"""

from __future__ import annotations

import argparse
import os

from . import codes, options
from .output import say

_ASKED = "_ARGCOMPLETE"
"""Variable by which a shell asks for completions."""
_COMMANDS = ["jupyter", "jupyter-gpu"]
_WHERE = {
    "bash": 'eval "$(jupyter gpu completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(jupyter gpu completion zsh)"   # in ~/.zshrc, below compinit',
    "fish": "jupyter gpu completion fish | source   # in ~/.config/fish/config.fish",
}


def add(commands: options.Commands) -> None:
    """Add the command."""
    completion = options.command(
        commands,
        "completion",
        "print what a shell needs to complete these commands",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(["Write in the start-up file of your shell:", *(f"  {line}" for line in _WHERE.values())]),
    )
    completion.add_argument("shell", choices=tuple(_WHERE))
    completion.set_defaults(run=_completion)


def answer(parser: argparse.ArgumentParser) -> None:
    """Print completions and exit, if a shell asks for them."""
    if _ASKED not in os.environ:
        return
    from argcomplete import autocomplete
    from argcomplete.completers import SuppressCompleter

    autocomplete(parser, always_complete_options=False, default_completer=SuppressCompleter())


def _completion(given: argparse.Namespace) -> int:
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        from jupyter_gpu.model.errors import GpuError

        raise GpuError(
            "Completion needs the package argcomplete, which is not installed here: 'pip install argcomplete'."
        ) from None
    say(shellcode(_COMMANDS, shell=given.shell).strip())
    return codes.DONE
