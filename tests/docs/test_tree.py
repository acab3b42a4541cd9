"""The documentation describes the source tree as it is: tables, pictures, and every file, folder and name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from jupyter_gpu_hub.rules.groups import PROPERTIES
from scripts.lib import front_end, rooms, tree

ROOT = tree.ROOT
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MODULES = tree.read()
OF_USERS = re.compile(r"jupyter_\w+_config\.py")
"""Files that readers of the guides have, and the source has not."""


def files() -> set[str]:
    """Return the files of the source, as git knows or would add them; each path begins with a slash."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return {f"/{name}" for name in listed if (ROOT / name).is_file()}


FILES = files()
FOLDERS = {f"{parent}/" for name in FILES for parent in Path(name).parents}


def named(path: Path) -> str:
    """Return the id of a test of a page."""
    return str(path.relative_to(ROOT))


def missing(text: str) -> list[str]:
    """Return the names of files, folders and modules in a text that are not in the source, however they are written."""
    files = re.findall(r"`([\w.-][\w/.-]*\.(?:py|tsx?|c|h|S|mjs|sh))`", text)
    folders = re.findall(r"`([\w.-]+/[\w/.-]+/)`", text)
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", text)
    attributes = re.findall(r"`([a-z_]+)\.[A-Z]\w+`", text)
    dotted = re.findall(r"\bjupyter_gpu(?:_node|_scheduler|_hub)?(?:\.\w+)+", text)
    inside = {name.split(".")[1] for name in MODULES if "." in name}
    return [
        *(name for name in files if not OF_USERS.fullmatch(name) and not ends(name, FILES)),
        *(name for name in folders if not ends(name, FOLDERS)),
        *(name for name in paths if name.split("/")[0] in inside and not is_module(name.replace("/", "."))),
        *(name for name in attributes if not is_module(name)),
        *(name for name in dotted if ".".join(name.split(".")[:2]) not in {*MODULES, "jupyter_gpu.gpu", *PROPERTIES}),
    ]


def ends(name: str, known: set[str]) -> bool:
    """Return whether one of the known paths ends with a name."""
    return any(path.endswith(f"/{name}") for path in known)


def is_module(name: str) -> bool:
    """Return whether there is a module of that name in any package."""
    return any(module.endswith(f".{name}") for module in MODULES)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of each row of the first table below a heading of the page for contributors."""
    table = re.search(r"(?:^\|.*\n)+", CONTRIBUTING.partition(f"\n{heading}\n")[2], re.MULTILINE)
    assert table, heading
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table[0].splitlines()[2:]]


def test_pictures_and_tables_are_up_to_date() -> None:
    """They show the current source; ``python -m scripts.lib.rooms`` makes them anew."""
    old = [named(path) for path, text in rooms.files() if path.read_text(encoding="utf-8") != text]
    assert old == []


def test_every_module_has_its_line() -> None:
    """It is in one of the tables, with a sentence."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| `[\w/]+` \| \S.*\. \|$", page, re.MULTILINE)
    headings = re.findall(r"^### `[\w/]+/`$", page, re.MULTILINE)
    assert len(lines) + len(headings) == len(MODULES)
    of_front_end = re.findall(r"^\| `[\w-]+\.tsx?` \| \S.*\. \|$", page, re.MULTILINE)
    assert len(of_front_end) == len(front_end.read()) - 1  # all but the one that joins them


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=named)
def test_names_of_the_source_exist(page: Path) -> None:
    """No page names a file, a folder or a module that does not exist."""
    assert missing(page.read_text(encoding="utf-8")) == []


def test_python_modules_named_in_the_gate_exist() -> None:
    """The comments of the gate name Python modules by paths that exist."""
    folder = ROOT / "node_plugin" / "gate"
    named = {name for path in folder.rglob("*.[chS]") for name in re.findall(r"[\w/]+\.py\b", path.read_text())}
    assert len(named) >= 4
    assert [name for name in named if not ends(name, FILES)] == []


@pytest.mark.parametrize(
    "text",
    ["`doors.py`", "`server/doors.py`", "`shares/desks/`", "`agent/plan`", "`offences.DOUBT`", "jupyter_gpu.routes"],
)
def test_wrong_name_is_found(text: str) -> None:
    """It is found however it is written."""
    assert missing(f"As {text} says")


def test_questions_lead_to_files() -> None:
    """Each question has the files that answer it, and the names that are given are in them."""
    found = rows("## Find your way")
    assert len(found) >= 10
    for question, answer in found:
        assert question.endswith("?")
        check_answer(answer)


def test_parts_of_another_vendor_lead_to_files() -> None:
    """Each part that is NVIDIA's own has the files to change."""
    for _, answer in rows("### Another vendor's GPUs"):
        check_answer(answer)


def check_answer(answer: str) -> None:
    """Check that all files of an answer exist, and that each name in it is defined in one of them."""
    paths = re.findall(r"`([^`]*/[^`]*)`", answer)
    assert paths, answer
    assert [path for path in paths if f"/{path}" not in FILES] == []
    text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in paths)
    for name in re.findall(r"`([A-Za-z_]+(?:\.\w+)?)`", answer):
        assert re.search(rf"\b(?:class|def) {name.rpartition('.')[2]}\b", text), name


@pytest.mark.parametrize(
    ("heading", "first", "last"), [("### From the slider to the device program", 1, 12), ("#### In a cluster", 5, 14)]
)
def test_walk_of_an_amount_passes_no_room_twice(heading: str, first: int, last: int) -> None:
    """Each room exists, with the files that are named."""
    found = rows(heading)
    folders = [re.sub("`", "", folder) for _, folder, _ in found]
    assert [int(number) for number, _, _ in found] == list(range(first, first + len(found)))
    assert len(set(folders)) == len(folders) <= last - first + 1
    for folder, (_, _, names) in zip(folders, found, strict=True):
        files = [name for name in re.findall(r"`([^`]+)`", names) if name.endswith((".py", ".ts", ".tsx"))]
        assert files, folder
        assert [name for name in files if not (ROOT / folder / name).is_file()] == []


def test_folders_of_tests_exist() -> None:
    """The table names every folder of tests that no package has by that name, and none that is not there."""
    named = {path for row in rows("### Where the tests are") for path in re.findall(r"`([^`]+/)`", row[0])}
    assert [path for path in named if f"/{path}" not in FOLDERS] == []
    there = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").rglob("test_*.py")}
    packages = ["jupyter_gpu", "node_plugin/jupyter_gpu_node", "scheduler/jupyter_gpu_scheduler"]
    tested = {path.name for package in packages for path in (ROOT / package).iterdir() if path.is_dir()}
    of_distributions = {"node", "scheduler"}
    assert {name for name in there - tested - of_distributions if f"tests/{name}/" not in named} == set()
