"""The notebooks of docs/examples, run in real kernels of a real server on simulated GPUs.

`python -m tests.docs.gallery` runs them and stores their outputs; a test compares these with a new run.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.kernel.kernels import Failed, Kernel
from tests.kernel.servers import Server, serve

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
LEAVES_AFTER = 1.0
"""Seconds that a neighbour stays after the start of the cell during which it leaves."""
_UUID = re.compile(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def notebooks() -> list[Path]:
    """Return the gallery."""
    return sorted(FOLDER.glob("*.ipynb"))


def run(path: Path, server: Server, neighbour: Server) -> list[str]:
    """Return the output of each code cell; raise if one fails.

    Before a cell tagged `neighbour-takes-3`, another server takes three of the four GPUs. While one tagged
    `neighbour-leaves` runs, it gives them back.
    """
    with server.kernel() as kernel:
        said = []
        for cell in code_cells(path):
            leaving = threading.Timer(LEAVES_AFTER, neighbour.gpus, [0])
            for tag in cell["metadata"].get("tags", ()):
                if tag.startswith("neighbour-takes-"):
                    neighbour.gpus(int(tag.removeprefix("neighbour-takes-")))
                else:
                    assert tag == "neighbour-leaves", tag
                    leaving.start()
            said.append(run_cell(kernel, "".join(cell["source"])))
            if leaving.ident:
                leaving.join()
        return said


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[Server, Server]]:
    """Run the gallery's server and its neighbour's, on one machine with four simulated GPUs."""
    homes = folder / "notebook", folder / "neighbour"
    for home in homes:
        home.mkdir()
    with serve(homes[0], folder / "state") as server, serve(homes[1], folder / "state") as neighbour:
        yield server, neighbour


def run_cell(kernel: Kernel, source: str) -> str:
    """Return what a cell prints and its result, as text, without progress bars; raise if it fails."""
    said = []

    def hear(message: dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            said.append(content["text"])
        elif message["msg_type"] == "execute_result":
            said.append(content["data"]["text/plain"])

    reply = kernel.client.execute_interactive(source, timeout=60, output_hook=hear)["content"]
    if reply["status"] == "error":
        raise Failed(reply["ename"], reply["evalue"])
    return _UUID.sub("GPU-…", "".join(said)).rstrip()


def code_cells(path: Path) -> list[dict[str, Any]]:
    """Return a notebook's cells with code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def stored(path: Path) -> list[str]:
    """Return the stored output of each code cell."""
    return ["".join(output["text"]) for cell in code_cells(path) for output in cell["outputs"] or [{"text": ""}]]


def store(path: Path, said: list[str]) -> None:
    """Write the outputs into a notebook: text only, for the site."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    texts = iter(said)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            text = next(texts)
            lines = text.splitlines(keepends=True)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if text else []
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Run all of them and store their outputs."""
    with tempfile.TemporaryDirectory(prefix="jg-") as folder, servers(Path(folder)) as pair:
        for path in notebooks():
            print(path.name, flush=True)
            store(path, run(path, *pair))


if __name__ == "__main__":
    main()
