"""Decisions are in pure folders: their docstrings, their import contract and their coverage agree."""

import fnmatch
import re
import tomllib
from collections.abc import Iterable

from scripts.lib import tree

MODULES = tree.read()
FOLDERS = tree.pure_folders(MODULES)
PROJECT = tomllib.loads((tree.ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def patterns_of_the_contract() -> list[str]:
    """Return the sources of the contract, as patterns of `fnmatch`."""
    (contract,) = (
        contract
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract["name"] == "Decisions are pure"
    )
    return [source.replace("**", "*") for source in contract["source_modules"]]


def forgotten(folders: Iterable[str], patterns: Iterable[str]) -> set[str]:
    """Return the folders that no pattern names."""
    return {folder for folder in folders if not any(fnmatch.fnmatchcase(folder, pattern) for pattern in patterns)}


def test_all_packages_have_pure_folders() -> None:
    """Otherwise the tests below would prove nothing."""
    assert len(FOLDERS) > 20
    assert {name.partition(".")[0] for name in FOLDERS} == set(tree.PACKAGES)


def test_every_pure_folder_says_so() -> None:
    """Each pure folder, and each folder inside one, says so in the first word of its docstring."""
    packages = [module for module in MODULES.values() if module.is_package and tree.is_pure(module.name)]
    assert [module.name for module in packages if not module.docstring.startswith("Pure: ")] == []


def test_no_other_module_calls_itself_pure() -> None:
    """A module that decides is in a folder of rules."""
    outside = [module for module in MODULES.values() if not tree.is_pure(module.name)]
    assert [module.name for module in outside if re.search(r"\bpure\b", module.docstring, re.IGNORECASE)] == []


def test_contract_names_every_pure_folder() -> None:
    """It names no folder that does not exist, so new and moved folders are noticed."""
    patterns = patterns_of_the_contract()
    assert forgotten(FOLDERS, patterns) == set()
    assert [pattern for pattern in patterns if not fnmatch.filter(FOLDERS, pattern)] == []


def test_every_pure_folder_is_covered() -> None:
    """Full branch coverage is required of exactly these folders."""
    homes = {"jupyter_gpu_scheduler": "scheduler", "jupyter_gpu_node": "node_plugin", "jupyter_gpu_hub": "hub"}
    folders = ["/".join(filter(None, (homes.get(name.partition(".")[0], ""), *name.split(".")))) for name in FOLDERS]
    assert sorted(PROJECT["tool"]["coverage"]["run"]["source"]) == sorted(folders)
