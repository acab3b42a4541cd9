"""Messages that can be translated, of Python and of TypeScript: ``python -m scripts.lib.messages jupyter_gpu.pot``.

Writes a gettext template, from which translators make a catalogue for each language. ``--check`` compares the
catalogues in `jupyter_gpu/locale` with the messages: none may be of a message that is gone, or have other placeholders,
and those in `COMPLETE` lack none.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ("jupyter_gpu", "hub/jupyter_gpu_hub")
TYPESCRIPT = "labextension/src"
LOCALES = ROOT / "jupyter_gpu" / "locale"
COMPLETE = frozenset({"de_DE"})
"""Locales that lack no message; others may lack some. Half a page in another language reads worse than English."""
_STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_CALL = re.compile(r"\btrans\s*\.__\(\s*(?P<text>(?:" + _STRING + r")(?:\s*\+\s*(?:" + _STRING + r"))*)?")
_ESCAPE = re.compile(r"\\(.)")


def messages(root: Path = ROOT) -> dict[str, list[str]]:
    """Return where each message is (``file:line``), by its text. Raises ``ValueError`` for one that is no literal."""
    found: dict[str, list[str]] = {}
    files = [file for folder in PYTHON for file in sorted((root / folder).rglob("*.py"))]
    files += sorted(file for end in ("*.ts", "*.tsx") for file in (root / TYPESCRIPT).rglob(end))
    for file in files:
        read = of_python if file.suffix == ".py" else of_typescript
        place = file.relative_to(root).as_posix()
        for line, text in read(file.read_text(encoding="utf-8")):
            if text is None:
                raise ValueError(f"{place}:{line}: a message must be written where it is translated, as a string.")
            found.setdefault(text, []).append(f"{place}:{line}")
    return found


def of_python(source: str) -> Iterator[tuple[int, str | None]]:
    """Yield line and text of each call of ``gettext``; ``None`` for one without a literal."""
    if "gettext" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "gettext":
            first = node.args[0] if node.args else None
            text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
            yield node.lineno, text


def of_typescript(source: str) -> Iterator[tuple[int, str | None]]:
    """Yield line and text of each call of ``trans.__``; ``None`` for one without a literal."""
    for match in _CALL.finditer(source):
        parts = re.findall(_STRING, match["text"] or "")
        text = "".join(_ESCAPE.sub(r"\1", part[1:-1]) for part in parts)
        yield source.count("\n", 0, match.start()) + 1, text or None


def template(found: Mapping[str, list[str]]) -> str:
    """Return the gettext template."""
    head = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    blocks = [
        "".join(f"#: {place}\n" for place in places) + f'msgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n'
        for text, places in sorted(found.items(), key=lambda item: item[1])
    ]
    return "\n".join([head, *blocks])


def problems(catalogue: Mapping[str, object], known: Mapping[str, object]) -> list[str]:
    """Return what is wrong with a catalogue of JupyterLab (``{"English": ["Deutsch"]}``), a sentence each."""
    found = []
    for text, forms in catalogue.items():
        if not text:
            continue
        if text not in known:
            found.append(f"There is no such message any more: {text!r}")
        elif not (isinstance(forms, list) and len(forms) == 1 and isinstance(forms[0], str) and forms[0]):
            found.append(f"It needs one translation: {text!r}")
        elif placeholders(text) != placeholders(forms[0]):
            found.append(f"Its placeholders are others: {text!r}")
    return found


def missing(catalogue: Mapping[str, object], known: Mapping[str, Sequence[str]]) -> list[str]:
    """Return which messages a catalogue lacks, a sentence each, with the first place where it is."""
    return [f"It has no translation: {text!r} ({known[text][0]})" for text in known if text not in catalogue]


def placeholders(text: str) -> set[str]:
    """Return ``%1``, ``%2`` … of a message."""
    return set(re.findall("%[1-9]", text))


def catalogues() -> dict[str, Mapping[str, object]]:
    """Return our own catalogues, by locale."""
    files = sorted(LOCALES.glob("*/LC_MESSAGES/jupyter_gpu.json"))
    return {file.parents[1].name: json.loads(file.read_text(encoding="utf-8")) for file in files}


def main(arguments: list[str] | None = None) -> int:
    """Write the template, or check the catalogues and tell how much of each is translated."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="the template to write")
    parser.add_argument("--check", action="store_true", help="compare the catalogues with the messages")
    given = parser.parse_args(arguments)
    found = messages()
    if given.file:
        given.file.write_text(template(found), encoding="utf-8")
        print(f"{given.file}: {len(found)} messages.")
    wrong = []
    for locale, catalogue in catalogues().items() if given.check else ():
        lacking = missing(catalogue, found) if locale in COMPLETE else []
        wrong += [f"{locale}: {problem}" for problem in problems(catalogue, found) + lacking]
        print(f"{locale}: {len(catalogue.keys() & found.keys())} of {len(found)} messages.")
    print("".join(f"{line}\n" for line in wrong), end="", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
