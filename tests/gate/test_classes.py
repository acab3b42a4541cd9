"""The class of each of the driver's functions, against what was measured on a parked GPU."""

import re

import pytest

from .building import GATE, ROOT

FORMS = re.findall(r"F\((\w+), (\w*), \d+, (\w+)\)", (GATE / "driver" / "functions.def").read_text())
CLASSES = {name: word for name, _, word in FORMS}
FOUND = ROOT / "benchmarks" / "survey" / "found" / "driver-580.tsv"
MEASURED = {name: tuple(rest) for name, *rest in (line.split("\t") for line in FOUND.read_text().splitlines()[1:])}
GATED = set(re.findall(r'\bG\(\w+, "(\w+)"', (GATE / "driver" / "gated.h").read_text()))


def _of(word: str) -> set[str]:
    return {name for name, other in CLASSES.items() if other == word}


def test_forms_of_a_function_have_one_class() -> None:
    """A newer form, or one for another default stream, means the same."""
    assert {(name, word) for name, _, word in FORMS} == set(CLASSES.items())
    assert set(CLASSES.values()) == {"PASS", "ANSWER", "LATER", "ASK", "WORK"}


def test_what_passes_was_measured_as_right() -> None:
    """It succeeded while running, locked and parked; and the gate counts nothing in it."""
    right = {name for name, codes in MEASURED.items() if codes == ("0", "0", "0")}
    passes = _of("PASS")
    assert passes <= right
    assert passes & GATED == {"cuGetProcAddress"}  # others may wait for the gate's lock
    assert right - passes <= GATED | _of("LATER")  # all that may pass does


def test_no_call_that_ends_the_process_passes() -> None:
    """Each is answered, done later, or waits."""
    ends = {name for name, codes in MEASURED.items() if codes[2] == "ends"}
    assert len(ends) == 10
    answered = {"cuStreamQuery", "cuEventQuery", "cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"}
    assert _of("ANSWER") == answered
    assert answered <= ends
    assert {name: CLASSES[name] for name in ends - answered} == {
        "cuEventElapsedTime": "ASK",
        "cuMemAllocAsync": "WORK",
        "cuMemAllocFromPoolAsync": "WORK",
        "cuMemPoolDestroy": "LATER",
        "cuModuleUnload": "LATER",
    }


def test_what_is_done_later_only_gives_back() -> None:
    """Nothing else waits for it: memory that a program may use next is not among it."""
    assert all(re.search(r"Destroy|Unload|Free", name) for name in _of("LATER"))
    assert not _of("LATER") & {"cuMemFreeHost", "cuMemHostUnregister", "cuMemAddressFree", "cuMemUnmap", "cuCtxDestroy"}


@pytest.mark.parametrize("pattern", ["cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch", r"cu\w+Create"])
def test_what_gives_the_gpu_work_or_makes_something_is_use(pattern: str) -> None:
    """Launches, copies, fills; other than objects that only the host has."""
    hosts = {"cuGraphCreate", "cuGraphConditionalHandleCreate", "cuLinkCreate"}
    names = [name for name in CLASSES if re.match(pattern, name) and name not in hosts]
    assert names
    assert {name: CLASSES[name] for name in names if CLASSES[name] != "WORK"} == {}


def test_questions_are_no_use() -> None:
    """A program that watches its GPU by the driver does not keep it."""
    asks = [name for name in CLASSES if re.search(r"Get(?!ProcAddress)|Query|Occupancy", name)]
    assert len(asks) > 100
    assert {CLASSES[name] for name in asks} == {"ASK", "PASS", "ANSWER"}
    assert {name for name in _of("ASK") if name not in asks} == {"cuEventElapsedTime", "cuDeviceTotalMem"}
