"""Pure: names in texts that a cell runs as code: ``eval``, ``exec``, magics, ``!commands`` and queries of pandas."""

from __future__ import annotations

import ast
import re
import string
from dataclasses import dataclass, field

RUN_CODE = frozenset(["lprun", "memit", "mprun", "prun", "time", "timeit"])
"""Magics whose line is code after some options, and whose cell is code, too."""
_NAME_NOTHING = """
autoreload bash cd conda config env file gpu html HTML javascript js latex load_ext ls magic mamba markdown matplotlib
perl pip precision pwd pylab python python3 reload_ext ruby script set_env sh svg uv writefile
"""
NAME_NOTHING = frozenset(_NAME_NOTHING.split())
"""Magics that use no variable but those in braces."""
_LONGEST = 60
_QUERY_NAME = re.compile(r"@([A-Za-z_]\w*)")
_SHELL_NAME = re.compile(r"(?<!\$)\$([A-Za-z_]\w*)")


@dataclass
class Hidden:
    """The texts in a cell."""

    code: list[str] = field(default_factory=list)
    """To be looked at as cells."""
    reads: set[str] = field(default_factory=set)
    unseen: tuple[str, ...] = ()
    """Calls whose names cannot be seen."""

    def call(self, node: ast.Call) -> None:
        """Note the texts of one call."""
        match node:
            case ast.Call(ast.Name("eval" | "exec"), [ast.Constant(str(text)), *_]):
                self.code.append(text.strip())
            case ast.Call(ast.Name("eval" | "exec"), [_, *_]) | ast.Call(ast.Name("globals" | "locals" | "vars"), []):
                self._not_seen(ast.unparse(node))
            case ast.Call(ast.Attribute(_, "query" | "eval"), [query, *_]):
                self._query(query)
            case ast.Call(ast.Attribute(ast.Call(ast.Name("get_ipython")), method), arguments):
                words = [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if len(words) == len(arguments):
                    self._shell(method, words)

    def _query(self, query: ast.expr) -> None:
        """``df.query("a < @limit")`` reads ``limit``; so do the fixed parts of an f-string."""
        for part in ast.walk(query):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                self.reads.update(_QUERY_NAME.findall(part.value))

    def _shell(self, method: str, words: list[str]) -> None:
        match method, words:
            case "run_line_magic", [name, line]:
                self._magic(f"%{name}", name, line)
            case "run_cell_magic", [name, line, body]:
                if name in RUN_CODE or name == "capture":
                    self.code.append(body)
                self._magic(f"%%{name}", name, line, body if name != "capture" else "")
            case (("system" | "getoutput"), [line]):
                self._in_braces(line)

    def _magic(self, shown: str, name: str, line: str, body: str = "") -> None:
        self._in_braces(line)
        if name in RUN_CODE:
            self.code.append(_without_options(line))
        elif name not in NAME_NOTHING and (line or body):
            self._not_seen(f"{shown} {line}")

    def _in_braces(self, line: str) -> None:
        """``!ls {folder}`` and ``!ls $folder`` read ``folder``."""
        self.reads.update(_SHELL_NAME.findall(line))
        try:
            self.code += [name for _, name, _, _ in string.Formatter().parse(line) if name]
        except ValueError:  # braces of the shell
            return

    def _not_seen(self, text: str) -> None:
        text = " ".join(text.split())
        short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        if short not in self.unseen:
            self.unseen += (short,)


def of_tree(tree: ast.Module) -> Hidden:
    """Return the texts of a cell."""
    found = Hidden()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        found.call(node)
    return found


def _without_options(line: str) -> str:
    """Return the code in the line of ``%timeit -n 10 f(x)``: the longest end of it that is code."""
    words = line.split(" ")
    for first in range(len(words)):
        rest = " ".join(words[first:])
        try:
            ast.parse(rest)
        except (SyntaxError, ValueError):
            continue
        return rest
    return ""
