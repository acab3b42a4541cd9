"""``jupyter gpu limits`` in this process, and what it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpu.cli import main


class LimitsShell:
    """The command with ``options`` that say whose limits it is about; ``error`` is what it printed last as an error."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self._options = options
        self.error = ""
        self._capsys = capsys

    def __call__(self, part: str, *words: str, status: int = 0) -> str:
        """Return the output of a command that ends with this status."""
        found = main(["limits", part, *self._options, *words])
        printed = self._capsys.readouterr()
        self.error = printed.err
        assert found == status, printed
        return printed.out

    def json(self, part: str, *words: str) -> Any:
        """Return the JSON that it prints."""
        return json.loads(self(part, *words, "--json"))
