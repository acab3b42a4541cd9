"""The pictures of the rooms and the tables of modules in the documentation, made from the source.

``python -m scripts.lib.rooms`` writes them; with ``--check`` it only says which of them are out of date.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.lib import boxes, front_end, layers, tree
from scripts.lib.tree import ROOT, Module

IMAGES = ROOT / "docs" / "images"
GATE = ROOT / "node_plugin" / "gate"
PAGES = (ROOT / "docs" / "architecture.md", ROOT / "docs" / "designs" / "time-shares.md")
MARKED = re.compile(
    r"(<!-- modules (?P<package>\w+): python -m scripts\.lib\.rooms -->\n).*?(<!-- end of modules -->\n)", re.DOTALL
)


@dataclass(frozen=True)
class Room:
    """One room: a package with all in it, or modules that stand beside the packages."""

    title: str
    prefixes: tuple[str, ...]
    text: str = ""
    """Text in place of the first sentence of the package's docstring."""


NODE, SCHEDULER, HUB = "jupyter_gpu_node", "jupyter_gpu_scheduler", "jupyter_gpu_hub"
LEFT_OUT = (
    *tree.PACKAGES,  # their packages themselves: that of jupyter_gpu loads everything on its first use
    f"{NODE}.settings",  # one file for the settings of all rooms, made of their rules
)


def _package(name: str, title: str = "") -> Room:
    return Room(title or name.rpartition(".")[2] + "/", (name,))


WHOLE = [
    Room(
        "beside the rooms",
        ("jupyter_gpu.startup", "jupyter_gpu.magic", "jupyter_gpu.simulate"),
        "startup, magic and simulate: what a kernel loads at its start, %gpu, load for simulated GPUs.",
    ),
    *(_package(f"jupyter_gpu.{name}") for name in ("server", "cli", "doctor", "worker", "dask", "remote", "kernel")),
    _package("jupyter_gpu.backends.local", "backends/local/"),
    _package("jupyter_gpu.backends.kubernetes", "backends/kubernetes/"),
    _package("jupyter_gpu.backends"),
    Room("scheduler", (SCHEDULER,), "The process that serves a cluster with these decisions."),
    _package(f"{SCHEDULER}.rules", "scheduler/rules/"),
    _package(NODE, "node_plugin/"),
    _package(HUB, "hub/"),
    *(_package(f"jupyter_gpu.{name}") for name in ("kube", "common", "model")),
]
NODE_PLUGIN = [
    Room("command", (f"{NODE}.command",)),
    Room("__main__", (f"{NODE}.__main__", f"{NODE}.supervision")),
    Room("uninstall", (f"{NODE}.uninstall",)),
    *(
        _package(f"{NODE}.{name}")
        for name in ("top", "agent", "kubelet", "holders", "parking", "shares", "devices", "gpus", "processes")
    ),
]
DECISIONS = [
    Room("the process", (SCHEDULER,), "Watches the cluster, has decisions made, and writes them."),
    *(
        _package(f"{SCHEDULER}.rules.{name}")
        for name in ("new_pods", "pairs", "scoring", "queue", "parking", "placement", "limits", "state")
    ),
    Room("wire", (f"{SCHEDULER}.rules.wire",)),
    _package(f"{SCHEDULER}.workers", "workers/"),
]
FRONT_END = [
    Room("index", (f"{front_end.NAME}.index",), "The plugins, which join all parts."),
    *(
        Room(f"{name}/", (f"{front_end.NAME}.{name}",), purpose.replace("`", ""))
        for name, purpose in front_end.rooms().items()
    ),
]
FOR_ALL = ("common/", "model/", "words/", "history/", "api/")


@dataclass(frozen=True)
class Picture:
    """One picture: the rooms in it, and which of them are used by so many that arrows to them would hide all others."""

    title: str
    packages: tuple[str, ...]
    rooms: list[Room]
    bars: tuple[str, ...] = ()


PICTURES = {
    "rooms.svg": Picture(
        "The rooms of jupyter-gpu and the imports between them", tuple(tree.PACKAGES), WHOLE, ("common/", "model/")
    ),
    "rooms-node.svg": Picture(
        "The rooms of the node plugin and the imports between them", (NODE,), NODE_PLUGIN, ("processes/",)
    ),
    "rooms-scheduler.svg": Picture("The rooms of the scheduler and the imports between them", (SCHEDULER,), DECISIONS),
    "rooms-front-end.svg": Picture(
        "The rooms of the front end and the imports between them", (front_end.NAME,), FRONT_END, FOR_ALL
    ),
}


class NoRoom(Exception):
    """The error of a module that is in none of the rooms."""


def room_of(name: str, rooms: list[Room]) -> Room:
    """Return the room of a module: the one with the longest prefix; raises `NoRoom`."""
    fitting = [(len(prefix), room) for room in rooms for prefix in room.prefixes if f"{name}.".startswith(f"{prefix}.")]
    if not fitting:
        raise NoRoom(f"{name} is in no room: add its folder to scripts/lib/rooms.py")
    return max(fitting, key=lambda pair: pair[0])[1]


def picture(made: Picture, modules: Mapping[str, Module]) -> str:
    """Return the SVG of one picture; raises `NoRoom`, and `layers.Circle` if rooms import each other."""
    inside = {
        name: room_of(name, made.rooms)
        for name in modules
        if name.partition(".")[0] in made.packages and name not in LEFT_OUT
    }
    arrows = {
        (room.title, inside[other].title)
        for name, room in inside.items()
        for other in modules[name].imports
        if other in inside and inside[other] != room
    }
    drawn = {
        room.title: _box(room, [modules[name] for name, of in inside.items() if of == room], modules)
        for room in made.rooms
    }
    return boxes.draw(made.title, drawn, arrows, made.bars)


def _box(room: Room, members: list[Module], modules: Mapping[str, Module]) -> boxes.Box:
    files = [module for module in members if not module.is_package] or members
    pure = sum(tree.is_pure(module.name) for module in files)
    note = f"{len(files)} modules" if len(room.title) < 16 else str(len(files))
    text = room.text or modules[room.prefixes[0]].summary.replace("`", "")
    return boxes.Box(room.title, note if len(files) > 1 else "", text, pure / len(files))


def tables(package: str, modules: Mapping[str, Module]) -> str:
    """Return a section for each folder of a package: what it is for, and a table of its modules."""
    folders: dict[str, list[Module]] = {}
    for name, module in sorted(modules.items()):
        if name.partition(".")[0] == package:
            folders.setdefault(_folder(module, modules), []).append(module)
    return "\n".join(_section(modules[folder], members) for folder, members in folders.items())


def _folder(module: Module, modules: Mapping[str, Module]) -> str:
    """Return the package whose section has a module: the second below the top, the third of backends."""
    parts = module.name.split(".")
    for depth in (3, 2) if parts[1:2] == ["backends"] else (2,):
        name = ".".join(parts[:depth])
        if name in modules and modules[name].is_package:
            return name
    return parts[0]


def _section(package: Module, members: list[Module]) -> str:
    path = package.path.parent.relative_to(ROOT)
    rows = [f"| `{_short(module, package)}` | {_cell(module.summary)} |" for module in members if module is not package]
    head = f"### `{path}/`\n\n{_code(package.summary)}\n"
    return head + ("\n| module | what it is |\n|---|---|\n" + "\n".join(rows) + "\n" if rows else "")


def _short(module: Module, package: Module) -> str:
    rest = module.name.removeprefix(f"{package.name}.").replace(".", "/")
    return f"{rest}/" if module.is_package else rest


def _code(text: str) -> str:
    return text.replace("``", "`")


def _cell(text: str) -> str:
    return _code(text).replace("|", "\\|")


def gate(folder: Path) -> str:
    """Return a table of the C files: the first sentence of each, or of its header if it has none itself."""
    rows = []
    for path in sorted(path for path in folder.glob("*/*.[chS]") if path.parent.name != "standin"):
        if path.suffix == ".h" and (path.with_suffix(".c").exists() or path.with_suffix(".S").exists()):
            continue
        said = tree.first_comment(path) or tree.first_comment(path.with_suffix(".h"))
        rows.append(f"| `{path.relative_to(folder)}` | {_cell(said)} |\n")
    return "| file | what it is |\n|---|---|\n" + "".join(rows)


def _tables(package: str, modules: Mapping[str, Module]) -> str:
    if package == "gate":
        return gate(GATE)
    if package == front_end.NAME:
        return front_end.tables(front_end.rooms(), modules)
    return tables(package, modules)


def page(text: str, modules: Mapping[str, Module]) -> str:
    """Return the page with the tables of now between its marks."""

    def now(marked: re.Match[str]) -> str:
        return f"{marked[1]}\n{_tables(marked['package'], modules)}\n{marked[3]}"

    return MARKED.sub(now, text)


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file that is made from the source, and what it should contain."""
    modules = tree.read() | front_end.read()
    for name, made in PICTURES.items():
        yield IMAGES / name, picture(made, modules)
    for path in PAGES:
        yield path, page(path.read_text(encoding="utf-8"), modules)


def main(words: list[str] | None = None) -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 if a file is out of date")
    check = parser.parse_args(words).check
    try:
        made = dict(files())
    except (NoRoom, layers.Circle) as error:
        print(error)
        return 1
    old = [path for path, text in made.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in old:
        if check:
            print(f"{path.relative_to(ROOT)} is out of date: run python -m scripts.lib.rooms")
        else:
            path.write_text(made[path], encoding="utf-8")
    if check and not old:
        print("Pictures of the rooms and tables of modules are in order.")
    return int(check and bool(old))


if __name__ == "__main__":
    sys.exit(main())
