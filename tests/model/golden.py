"""The golden files: read by these tests and by the tests of the front end.

They are written by hand. ``python tests/model/golden.py`` only lays them out again: an object or a list stands
on one line where it fits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden"
WIDTH = 120


def load(name: str) -> list[dict[str, Any]]:
    """The cases in ``tests/golden/<name>.json``."""
    cases: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return cases


def pretty(value: Any, indent: int = 0, prefix: int = 0) -> str:
    """JSON text of ``value``; ``prefix`` is what already stands on the line."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or not value or (indent and indent + prefix + len(line) < WIDTH):
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        keys = {key: json.dumps(key, ensure_ascii=False) for key in value}
        rows = [f"{keys[key]}: {pretty(item, indent + 2, len(keys[key]) + 3)}" for key, item in value.items()]
    else:
        rows = [pretty(item, indent + 2, 1) for item in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{inner}" + f",\n{inner}".join(rows) + f"\n{' ' * indent}{right}"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.json")):
        path.write_text(pretty(json.loads(path.read_text(encoding="utf-8"))) + "\n", encoding="utf-8")
