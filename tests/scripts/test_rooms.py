"""Reading of the source, and the pictures of its rooms."""

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.lib import boxes, front_end, layers, rooms, tree
from scripts.lib.boxes import Box
from scripts.lib.tree import Module

NAMES = "abcdefghij"
DOWNWARD = st.sets(st.sampled_from(list(itertools.combinations(NAMES, 2))), max_size=20)
"""Arrows from earlier letters to later ones: never in a circle."""


def module(name: str, *imports: str, docstring: str = "A part.", package: bool = False) -> Module:
    """Return one module as it was read."""
    path = Path(*name.split("."), "__init__.py") if package else Path(*name.split(".")).with_suffix(".py")
    return Module(name, tree.ROOT / path, docstring, frozenset(imports))


def modules(found: Iterable[Module]) -> dict[str, Module]:
    """Return modules by name."""
    return {module.name: module for module in found}


@given(DOWNWARD)
def test_every_arrow_points_down(arrows: set[tuple[str, str]]) -> None:
    """It crosses one layer at each step, from one box to the other."""
    placed = layers.arrange(NAMES, sorted(arrows))
    level = {name: at for at, layer in enumerate(placed.layers) for name in layer}
    assert set(NAMES) <= level.keys()
    assert placed.chains.keys() == arrows
    for (upper, lower), chain in placed.chains.items():
        assert (chain[0], chain[-1]) == (upper, lower)
        assert [level[name] for name in chain] == list(range(level[upper], level[lower] - 1, -1))


@given(DOWNWARD)
def test_boxes_do_not_overlap(arrows: set[tuple[str, str]]) -> None:
    """Each layer has room for everything in it, in its order."""
    placed = layers.arrange(NAMES, sorted(arrows))
    for layer in placed.layers:
        widths = [layers.WIDTH if name in NAMES else layers.LANE for name in layer]
        ends = [
            (placed.middle[name] - w / 2, placed.middle[name] + w / 2) for name, w in zip(layer, widths, strict=True)
        ]
        assert all(left[1] + layers.GAP <= right[0] + 1e-6 for left, right in itertools.pairwise(ends))


@pytest.mark.parametrize("arrows", [[("a", "a")], [("a", "b"), ("b", "a")], [("c", "a"), ("a", "b"), ("b", "c")]])
def test_import_cycle_is_refused(arrows: list[tuple[str, str]]) -> None:
    """The error names the cycle, and nothing else."""
    with pytest.raises(layers.Circle) as error:
        layers.arrange("abcd", [*arrows, ("d", "a")])
    told = str(error.value).partition(": ")[2].split(", ")
    assert set(told) == {name for pair in arrows for name in pair}


def test_picture_has_all_boxes_and_arrows() -> None:
    """Arrows with another path to the same box are grey; those to a bar are left out; names are escaped."""
    drawn = {name: Box(f"<{name}>", "2 modules", "Something.") for name in "abcd"}
    text = boxes.draw("All", drawn, [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")], bars=("d",))
    page = ET.fromstring(text)
    words = [element.text for element in page.iter("{http://www.w3.org/2000/svg}text")]
    assert {"<a>", "<b>", "<c>", "<d>"} <= set(words)
    paths = [element.get("class") for element in page.iter("{http://www.w3.org/2000/svg}path")]
    assert (paths.count("line"), paths.count("also")) == (2, 1)


def test_imports_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Relative and absolute ones, inside functions, of modules and of names in them; nothing else is reported."""
    (tmp_path / "p" / "q").mkdir(parents=True)
    (tmp_path / "p" / "__init__.py").write_text('"""A package."""\nfrom .a import name\n')
    (tmp_path / "p" / "a.py").write_text("import os, p.q.c\n")
    (tmp_path / "p" / "q" / "__init__.py").write_text("from . import c\n")
    (tmp_path / "p" / "q" / "c.py").write_text(
        "def f():\n    from .. import a\n    from p.q import name\n    from ..a import z\n"
    )
    (tmp_path / "p" / "_version.py").write_text("")
    monkeypatch.setattr(tree, "PACKAGES", {"p": tmp_path / "p"})
    assert {name: set(module.imports) for name, module in tree.read().items()} == {
        "p": {"p.a"},
        "p.a": {"p.q.c"},
        "p.q": {"p.q.c"},
        "p.q.c": {"p.a", "p.q"},
    }


def test_imports_of_the_front_end_are_found(tmp_path: Path) -> None:
    """They are static, dynamic, or of types; style sheets and packages are none."""
    for name in ("a/one", "a/two", "b/three", "b/four"):
        path = tmp_path / "src" / f"{name}.ts"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "src" / "index.tsx").write_text(
        "/** Joins\n * all | parts. More. */\n"
        "import React from 'react';\nimport '../style/a.css';\nimport {\n  x,\n  y\n} from './a/one';\n"
        "export type { T } from './a/two';\nconst load = () => import(/* webpackChunkName: \"c\" */ './b/three');\n"
        "let parts: typeof import('./b/four');\n"
    )
    index = front_end.read(tmp_path)["labextension.index"]
    assert index.imports == {f"labextension.{name}" for name in ("a.one", "a.two", "b.three", "b.four")}
    assert index.summary == "Joins all | parts."


def test_tables_of_the_front_end_have_a_section_for_each_room(tmp_path: Path) -> None:
    """The first room of the file is at the bottom."""
    (tmp_path / "rooms.json").write_text('{"a": {"purpose": "Below."}, "b": {"purpose": "Above."}}')
    found = modules([module("labextension.a.one", docstring="One | two."), module("labextension.index")])
    assert front_end.tables(front_end.rooms(tmp_path), found).splitlines() == [
        *("#### `labextension/src/b/`", "", "Above.", "", "| file | what it is |", "|---|---|", ""),
        *("#### `labextension/src/a/`", "", "Below.", "", "| file | what it is |", "|---|---|"),
        "| `one.py` | One \\| two. |",
    ]


@pytest.mark.parametrize(
    ("docstring", "summary"),
    [
        ("One part. Another sentence.", "One part."),
        ("One part of\ntwo lines.\n\nMore.", "One part of two lines."),
        ("Texts; pure. Odd input is none.", "Texts."),
        ("Programs, see bpf(2). Pure.", "Programs, see bpf(2)."),
        ("Questions (e.g. two) of one.", "Questions (e.g. two) of one."),
    ],
)
def test_summary_is_the_first_sentence(docstring: str, summary: str) -> None:
    """Words that repeat the folder are removed."""
    assert module("p.a", docstring=docstring).summary == summary


def test_pure_folders_are_outermost() -> None:
    """They are the model and folders named `rules`, without the folders below."""
    names = ["p", "p.rules", "p.rules.more", "p.q", "p.q.rules", "jupyter_gpu", "jupyter_gpu.model"]
    found = modules([*(module(name, package=True) for name in names), module("p.ruleset"), module("p.rules.a")])
    assert tree.pure_folders(found) == ["p.rules", "p.q.rules", "jupyter_gpu.model"]
    assert tree.is_pure("p.rules.more.a")
    assert not tree.is_pure("p.ruleset")


def test_folder_without_a_room_is_reported() -> None:
    """A picture never leaves out a new folder."""
    with pytest.raises(rooms.NoRoom, match=r"jupyter_gpu_node\.cellar\.a"):
        rooms.room_of("jupyter_gpu_node.cellar.a", rooms.NODE_PLUGIN)
    assert rooms.room_of("jupyter_gpu.backends.local.pod", rooms.WHOLE).title == "backends/local/"
    assert rooms.room_of("jupyter_gpu.backends.base", rooms.WHOLE).title == "backends/"


def test_outdated_files_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ``--check`` nothing is written; without it the next check passes."""
    page = tmp_path / "page.md"
    page.write_text("old")
    monkeypatch.setattr(rooms, "ROOT", tmp_path)
    monkeypatch.setattr(rooms, "files", lambda: iter([(page, "new"), (tmp_path / "new.svg", "<svg/>")]))
    assert rooms.main(["--check"]) == 1
    assert capsys.readouterr().out.count("out of date") == 2
    assert page.read_text() == "old"
    assert rooms.main([]) == 0
    assert rooms.main(["--check"]) == 0
    assert (tmp_path / "new.svg").read_text() == "<svg/>"


def test_tables_have_a_section_for_each_folder() -> None:
    """Rows are its modules and the folders in it; bars in a sentence do not end its cell."""
    found = modules(
        [
            module("p", package=True, docstring="All."),
            module("p.q", package=True, docstring="A room."),
            module("p.q.a", docstring="``a | b``: one or the other."),
            module("p.q.rules", package=True, docstring="Pure: rules."),
            module("p.q.rules.b", docstring="Rules. Pure."),
            module("other.a"),
        ]
    )
    assert rooms.tables("p", found).splitlines() == [
        *("### `p/`", "", "All.", ""),
        *("### `p/q/`", "", "A room.", "", "| module | what it is |", "|---|---|"),
        "| `a` | `a \\| b`: one or the other. |",
        "| `rules/` | Pure: rules. |",
        "| `rules/b` | Rules. |",
    ]


def test_c_files_have_rows(tmp_path: Path) -> None:
    """A row is the first sentence of the file, or of its header; a header alone has a row, too."""
    part = tmp_path / "part"
    part.mkdir()
    (part / "a.c").write_text("/* The first part,\n * on two lines. More. */\n#include <a.h>\n/* Not this. */\n")
    (part / "a.h").write_text("/* Not this. */\n")
    (part / "b.c").write_text('#include "b.h"\n')
    (part / "b.h").write_text("/* The second part.\n *\n * More. */\n")
    (part / "c.h").write_text("/* A header. */\n")
    assert rooms.gate(tmp_path).splitlines()[2:] == [
        "| `part/a.c` | The first part, on two lines. |",
        "| `part/b.c` | The second part. |",
        "| `part/c.h` | A header. |",
    ]
