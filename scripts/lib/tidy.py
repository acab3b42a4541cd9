"""Check what no other tool checks: files and functions stay small, no text names a machine or an unfinished thing, and
no file's name has a space.

Prints one line for each finding; exit status 1 if there are any.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80

CODE = {".c", ".css", ".js", ".mjs", ".py", ".sh", ".ts", ".tsx"}
NOT_OURS = {"yarn.lock", "LICENSE"}
FORBIDDEN = {
    re.compile(r"(?<![\w.$}/-])/(?:work|root)/"): "a path of one machine",
    re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b"): "an unfinished thing",
    re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE): "a merge conflict",
}


def findings(path: Path, text: str) -> Iterator[str]:
    """Yield the problems of one file; each finding starts with `path:line`."""
    if " " in str(path):
        yield f"{path}:1: its name has a space, as those have that a mistaken redirection of a shell makes"
    for pattern, what in FORBIDDEN.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: names {what}: {match.group().strip()}"
    if path.suffix in CODE and (lines := text.count("\n")) > MAX_FILE_LINES:
        yield f"{path}:1: has {lines} lines, more than {MAX_FILE_LINES}"
    if path.suffix == ".py":
        try:
            yield from long_functions(path, ast.parse(text, str(path)))
        except SyntaxError as error:
            yield f"{path}:{error.lineno}: {error.msg}"


def long_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    """Yield functions above the limit, decorators not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            lines = node.end_lineno - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name}() has {lines} lines, more than {MAX_FUNCTION_LINES}"


def texts() -> Iterator[tuple[Path, str]]:
    """Yield every text file that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = Path(name)
        if path.name in NOT_OURS or not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            yield path, data.decode()


if __name__ == "__main__":
    found = [finding for path, text in texts() for finding in findings(path, text)]
    print("\n".join(found) if found else "Files, functions and texts are in order.")
    sys.exit(bool(found))
