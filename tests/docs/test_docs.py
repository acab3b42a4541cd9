"""The documentation is true: every setting, error, option, link and example is compared with the program."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import pkgutil
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import jupyter_gpu
from jupyter_gpu.cli import codes as exits
from jupyter_gpu.cli.parser import parser as command_line
from jupyter_gpu.kernel.api import ServerGpus
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.status import Phase
from jupyter_gpu.server.app import GpuExtension
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.violations.penalties import Penalties
from tests.model import golden

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
GUIDES = [page for page in PAGES if page.parent.name != "designs"]
"""Pages whose examples are to be typed in; those of a design are sketches."""
USER_GUIDE = (ROOT / "docs" / "user-guide.md").read_text(encoding="utf-8")
ADMIN_GUIDE = (ROOT / "docs" / "admin-guide.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def named(path: Path) -> str:
    """Return the id of a test of a page."""
    return str(path.relative_to(ROOT))


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of one language; "" is a terminal."""
    return [code for name, code in FENCE.findall(text) if name == language]


def first_cells(text: str, heading: str) -> list[str]:
    """Return the first column of the first table below ``heading``, without its head."""
    section = text.partition(f"\n{heading}\n")[2]
    rows = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert rows, heading
    return [row.split("|")[1].strip() for row in rows[0].splitlines()[2:]]


def anchor(heading: str) -> str:
    """Return the anchor of a heading, by GitHub's rule."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files(page: Path) -> None:
    """Every relative link and picture leads to a file, and to a heading in it if it names one."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", text)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, heading = target.partition("#")
        file = page.parent / name if name else page
        assert file.is_file(), f"{target} is not there"
        if heading:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in map(anchor, headings), f"{target}: no such heading"


def test_every_page_is_linked() -> None:
    """A reader of the README finds every page."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.name == "README.md" or f"({named(page)})" in readme


def test_every_setting_is_documented() -> None:
    """The admin guide has one row for each setting, with its default."""
    rows = dict(re.findall(r"^\| `c\.GpuExtension\.(\w+)` \| `(.*?)` \|", ADMIN_GUIDE, re.MULTILINE))
    traits = GpuExtension.class_own_traits(config=True)
    app = GpuExtension()
    assert {name: json.loads(default) for name, default in rows.items()} == {
        name: getattr(app, name) for name in traits
    }


def test_every_rule_of_time_shares_is_documented() -> None:
    """The admin guide has one row for each rule, with its default."""
    units = {"ms": 1_000, "s": 1_000_000, "MiB": 1, "": 1}
    rows = re.findall(r"^\| `(timing|elastic|penalties)\.(\w+)` \| ([\d.]+) ?(\w*) \|", ADMIN_GUIDE, re.MULTILINE)
    rules: dict[str, Timing | Elastic | Penalties] = {
        "timing": Timing(),
        "elastic": Elastic(),
        "penalties": Penalties(),
    }
    assert {(kind, name): float(value) * units[unit] for kind, name, value, unit in rows} == {
        (kind, item.name): getattr(rule, item.name) for kind, rule in rules.items() for item in fields(rule)
    }


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_settings_in_examples_are_valid(page: Path) -> None:
    """Settings in examples exist and accept the value that is shown."""
    text = page.read_text(encoding="utf-8")
    for name, value in re.findall(r"c\.GpuExtension\.(\w+) = (\S+)", text):
        setattr(GpuExtension(), name, ast.literal_eval(value.rstrip("`),.")))
    for name in re.findall(r"GpuExtension\.(\w+)", text):
        assert hasattr(GpuExtension, name), name


def errors(cls: type[GpuError] = GpuError) -> Iterator[type[GpuError]]:
    """Return all error classes that users can meet."""
    for below in cls.__subclasses__():
        if below.__module__.startswith("jupyter_gpu"):
            yield below
            yield from errors(below)


UNTOLD = {"ParkRefused", "GpuDataLost", "Parked"}
"""Words that nothing says yet: users are told of them with the step that parks (`docs/designs/parking.md`)."""


def test_every_error_is_documented() -> None:
    """The user guide has one row for each error, in whatever module it is."""
    for module in pkgutil.walk_packages(jupyter_gpu.__path__, "jupyter_gpu."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    assert sorted(first_cells(USER_GUIDE, "## Errors")) == sorted(
        f"`{cls.__name__}`" for cls in errors() if cls.__name__ not in UNTOLD
    )


def test_exit_codes_are_documented() -> None:
    """The user guide and the help list the exit codes of the command."""
    codes = [exits.DONE, exits.ERROR, exits.USAGE, exits.WAITING, exits.DRAINING, exits.UNREACHABLE, exits.INTERRUPTED]
    assert first_cells(USER_GUIDE, "## In a terminal") == [str(code) for code in codes]
    assert re.findall(r"(\d+) (?:done|error|wrong|waiting|given|no|Ctrl)", command_line().epilog or "") == [
        str(code) for code in codes
    ]


def test_phases_are_documented() -> None:
    """The user guide names every phase."""
    line = re.search(r"^status\.phase .*: (.*)$", USER_GUIDE, re.MULTILINE)
    assert line
    assert sorted(line[1].split(", ")) == sorted(set(Phase) - UNTOLD)


def test_explained_sentences_exist() -> None:
    """The program prints each sentence that is explained."""
    said = {case["sentence"] for case in [*golden.load("sentences"), *golden.load("limits")]}
    assert set(first_cells(USER_GUIDE, "## The panel")) <= said


@pytest.mark.parametrize("page", GUIDES, ids=named)
def test_commands_in_examples_are_valid(page: Path) -> None:
    """Commands are understood; scripts that are named can be run."""
    for code in blocks(page.read_text(encoding="utf-8"), ""):
        for line in code.splitlines():
            words = shlex.split(line.partition(" | ")[0], comments=True)
            if words[:2] == ["jupyter", "gpu"]:
                command_line().parse_args(words[2:])
            elif words and words[0].startswith("scripts/"):
                assert os.access(ROOT / words[0], os.X_OK), words[0]


@pytest.mark.parametrize("page", GUIDES, ids=named)
def test_python_examples_are_valid(page: Path) -> None:
    """They compile, and call functions that exist with arguments that these take."""
    for code in blocks(page.read_text(encoding="utf-8"), "python"):
        tree = compile(code, str(page), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert isinstance(tree, ast.Module)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "jupyter_gpu":
                assert all(hasattr(jupyter_gpu, alias.name) for alias in node.names)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gpu":
                assert hasattr(ServerGpus, node.attr), node.attr
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                check_call(node, node.func)


def check_call(call: ast.Call, function: ast.Attribute) -> None:
    """Check that a call of a method of `gpu` binds to its signature."""
    if isinstance(function.value, ast.Name) and function.value.id == "gpu":
        keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg}
        inspect.signature(getattr(ServerGpus, function.attr)).bind(None, *call.args, **keywords)


def test_figures_of_the_cluster_guide_are_those_of_the_readme() -> None:
    """The guide's figures for the size of a cluster are those that were measured last."""
    guide = (ROOT / "docs" / "cluster-guide.md").read_text(encoding="utf-8")
    figures = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Figures\n")[2]
    table = re.search(r"(?:^\|.*\n)+", guide.partition("\n### How large\n")[2], re.MULTILINE)
    assert table
    measured = [part.strip() for row in table[0].splitlines()[2:] for part in re.split("[;,]", row.split("|")[2])]
    given = [figure[0] for part in measured if (figure := re.match(r"\d[\d./ ]*(?:%|MiB|ms|s\b|×)?", part))]
    assert len(given) >= 6
    assert [figure for figure in given if figure not in figures] == []


def test_changelog_has_the_version() -> None:
    """The changelog has a section for the version that is built."""
    version = json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))["version"]
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0].split()[-1] == version


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/*.yaml")), ids=lambda path: path.name)
def test_description_of_an_api_can_be_read(path: Path) -> None:
    """Each is YAML with routes: a colon in a sentence makes it none, which only tests with a server would show."""
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["paths"]
