"""A running kernel, as tests talk to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Failed(Exception):
    """An error in a cell."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Kernel:
    """A running kernel and what it printed."""

    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client
        self.errors = ""
        self.results: list[dict[str, Any]] = []

    def run(self, code: str, timeout: float = 60) -> str:
        """Return the cell's standard output; `errors` has the other stream, `results` its rich output."""
        texts = {"stdout": "", "stderr": ""}
        self.results = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                texts[content["name"]] += content["text"]
            elif message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
                self.results.append(content["data"])

        reply = self.client.execute_interactive(code, timeout=timeout, output_hook=hear)["content"]
        self.errors = texts["stderr"]
        if reply["status"] == "error":
            raise Failed(reply["ename"], reply["evalue"])
        return texts["stdout"].strip()


StartKernel = Callable[..., Kernel]
