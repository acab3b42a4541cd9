"""Calls at the entries while the process is parked on the stand-in, which ends it if a wrong one enters."""

import re
from pathlib import Path

import pytest

from .building import GATE, Built, build_entries
from .place import Program

LISTED = re.findall(r"F\((\w+), (\w*), \d+, (\w+)\)", (GATE / "driver" / "functions.def").read_text())
SYMBOLS = {name + end: word for name, end, word in LISTED}


@pytest.fixture(scope="module")
def parked(built: Built) -> list[str]:
    """Return the command of a program with the gate in it, which parks itself."""
    return [str(build_entries(built.program("parked"), built.driver, source="parked.c"))]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a GPU of its own, which is parked in no time."""
    quick = {f"JUPYTER_GPU_STANDIN_PARK_{name}": "0" for name in ("BASE", "IN", "OUT")}
    return quick | {"JUPYTER_GPU_STANDIN": str(tmp_path)}


def test_every_function_does_what_its_class_says(parked: list[str], env: dict[str, str]) -> None:
    """Those that ask for the end of work, or give something back, succeed at once; the others wait."""
    with Program([*parked, "shut"], env) as program:
        returned, waiting = program.lines()
    succeed = {f"{symbol}=0" for symbol, word in SYMBOLS.items() if word in ("ANSWER", "LATER")}
    assert set(returned.split()) == succeed
    unlisted = 1
    assert int(waiting) == unlisted + sum(word in ("ASK", "WORK") for word in SYMBOLS.values())


def test_what_is_given_back_meanwhile_is_freed_afterwards(parked: list[str], env: dict[str, str]) -> None:
    """In the context of the thread that did so; calls that pass are right, and nothing is left of 64 MiB."""
    with Program([*parked, "back"], env) as program:
        answers, memory = program.lines()
    assert answers == "0 0 0 0 0 0 0 0"
    assert memory == "64 0"


@pytest.mark.parametrize(("version", "answers"), [("13000", "1 1"), ("13010", "0 1"), ("12080", "0 1")])
def test_nothing_passes_that_was_not_measured(
    parked: list[str], env: dict[str, str], version: str, answers: str
) -> None:
    """With another driver, calls that pass with driver 580 wait for the return."""
    with Program([*parked, "unknown"], env | {"JUPYTER_GPU_STANDIN_VERSION": version}) as program:
        assert program.lines() == [answers]


def test_more_than_is_kept_waits(parked: list[str], env: dict[str, str]) -> None:
    """After 65,536 calls the next one waits until the process runs again."""
    with Program([*parked, "full"], env) as program:
        assert program.lines() == ["65536 65537"]


def test_threads_at_work_are_parked_again_and_again(parked: list[str], env: dict[str, str]) -> None:
    """None of them moves meanwhile; their data are right, their use is noticed, and all memory is given back."""
    with Program([*parked, "rounds", "200"], env) as program:
        assert program.lines() == ["moved 0 wrong 0 unnoticed 0 lost 0"]
