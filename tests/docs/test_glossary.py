"""The glossary: each of its terms is used elsewhere, each of its names is in the source, and readers find it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.lib import tree

ROOT = tree.ROOT
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (?!term |---)([^|]+) \| ([^|]+) \|$", GLOSSARY, re.MULTILINE)
"""Terms and meanings."""
READERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/architecture.md")]
GUIDES = ("user-guide", "admin-guide", "cluster-guide", "run-elsewhere", "other-nodes", "lending")
PAGES = [*READERS, *(ROOT / "docs" / f"{name}.md" for name in GUIDES)]
SOURCES = [path for package in ("jupyter_gpu", "scheduler", "node_plugin") for path in (ROOT / package).rglob("*.py")]


def used(term: str, text: str) -> bool:
    """Return whether a text has a term, in the singular or the plural, in any case and across lines."""
    words = r"\s+".join(map(re.escape, term.split()))
    return bool(re.search(rf"\b{words}s?\b", text, re.IGNORECASE))


def unused(terms: list[str], texts: list[str]) -> list[str]:
    """Return the terms that no text has."""
    return [term for term in terms if not any(used(term, text) for text in texts)]


def test_terms_stand_once() -> None:
    """Each term has one meaning."""
    terms = [term.lower() for term, _ in ROWS]
    assert len(terms) >= 25
    assert sorted(set(terms)) == sorted(terms)


def test_every_term_is_used() -> None:
    """A page for users, administrators or developers has it."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert unused([term for term, _ in ROWS], texts) == []


def test_every_name_is_in_the_source() -> None:
    """Names that stand in brackets, and other identifiers in a meaning, are names of the code."""
    names = {name for _, meaning in ROWS for name in re.findall(r"`([A-Za-z_]+)`", meaning)}
    assert {"Wish", "effective"} <= names
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize("page", READERS, ids=lambda page: page.name)
def test_glossary_is_linked(page: Path) -> None:
    """Each entrance to the documentation leads to it."""
    assert re.search(r"\]\((?:docs/)?glossary\.md(?:#[\w-]+)?\)", page.read_text(encoding="utf-8"))


def test_unused_term_is_found() -> None:
    """A term that no page has is reported; a plural, and words on two lines, count as used."""
    assert unused(["gate", "soft mode", "bank"], ["Two gates", "in soft\nmode"]) == ["bank"]
