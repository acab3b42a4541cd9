"""Names that pages repeat: of tests, benchmarks, labels and weights. Each is what the code has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import chosen
from jupyter_gpu.remote import bulk, connection, first_process, items, sources
from jupyter_gpu.remote.rules import control, shipping
from jupyter_gpu.worker import node, pinned
from jupyter_gpu_scheduler.rules.pairs.relation import SWITCH_KEYS, Network
from jupyter_gpu_scheduler.rules.scoring.policy import PRESETS
from jupyter_gpu_scheduler.workers.rules import status

MIB = 2**20
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
LINES = [line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
SHOWN = re.compile(r"\| `(tests/[\w/]+\.py)` \| ((?:`test_\w+`(?:, )?)+) \|$")
"""The end of a row that says which tests show something."""
BENCH = re.compile(r"`scripts/bench ([a-z_: ]+)`")
WEIGHTS = re.compile(r"^\| weight \| 1 means \|(.*)\|$\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)


def guide(name: str) -> str:
    """Return the text of a page."""
    return (DOCS / name).read_text(encoding="utf-8")


def test_tables_name_tests_that_exist() -> None:
    """A test that is renamed or moved is renamed in the tables, too."""
    rows = [found.groups() for line in LINES if (found := SHOWN.search(line))]
    assert len(rows) > 60
    for file, names in rows:
        source = (ROOT / file).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert f"def {name}(" in source, f"{file} has no {name}"


def test_benchmarks_that_are_named_exist() -> None:
    """With their parts; those of modules that are run by themselves are modules. One page says what is planned, too."""
    plans = (DOCS / "designs" / "parking.md").read_text(encoding="utf-8").splitlines()
    built = [line for line in LINES if line not in plans]
    words = {word for line in built for found in BENCH.findall(line) for word in found.split()}
    assert "pairs:warm" in words
    assert chosen(sorted(words))
    modules = {name for line in built for name in re.findall(r"python -m (benchmarks\.[a-z_.]+)", line)}
    assert "benchmarks.placement" in modules
    assert [name for name in sorted(modules) if importlib.util.find_spec(name) is None] == []


def test_ports_of_workers_are_those_of_the_guide() -> None:
    """Whoever writes a policy of the network by it leaves none out."""
    text = guide("other-nodes.md")
    assert f"listens on its ports {control.PORT} to {control.LAST_PORT}. Those from" in text
    assert f"Those from {control.LAST_PORT - control.MAX_KERNELS + 1} on serve Dask" in text


@pytest.mark.parametrize(
    ("said", "so"),
    [
        ("`WorkerLost` after 15 seconds;", (first_process.SILENCE, pinned.SILENCE) == (15_000, 15_000)),
        ("interrupted after a minute. For ten minutes the process is kept", node.ALONE == (60, 600)),
        ("up to 64 MB together", shipping.LIMIT == 64 * MIB),
        ("(16 MB or more in one call)", bulk.LARGE == 16 * MIB),
        ("up to 256 MiB of all items", items.MEMORY == 256 * MIB),
        ("(up to 1,000, 8 MiB; ", (sources.MOST_MODULES, sources.MOST_BYTES) == (1_000, 8 * MIB)),
        ("a third Ctrl-C ends", connection.LAST_INTERRUPT == 3),
        ("no place for a worker within a minute", status.UNPLACED_SECONDS == 60),
    ],
)
def test_numbers_of_the_guide_are_those_of_the_code(said: str, so: bool) -> None:
    """Users read them on the page about cells that run elsewhere."""
    assert said in " ".join(guide("run-elsewhere.md").split())
    assert so


def test_labels_of_switches_are_those_of_the_guide() -> None:
    """In their order, the nearest switch first; and the points of each relation."""
    text = guide("other-nodes.md").partition("### Near and far")[2]
    named = re.findall(r"`([\w./-]+)`", text.partition("of the first of these labels")[2].partition(". Without")[0])
    assert tuple(named) == SWITCH_KEYS
    points = re.search(r"\| `node`, `switch`, `other` \| (\d+), (\d+), (\d+) \|", text)
    unknown = re.search(r"\| `unknown` \| (\d+) \|", text)
    assert points
    assert unknown
    usual = Network()
    assert tuple(map(float, (*points.groups(), *unknown.groups()))) == (
        *(usual.node, usual.switch, usual.other, usual.unknown),
    )


def test_weights_of_the_guide_are_those_of_the_policies() -> None:
    """A row for each, and a column for each policy."""
    table = re.search(
        r"^\| weight \| 1 means \|(.*)\|$\n\|[-|]+\|\n((?:\|.*\n)+)", guide("cluster-guide.md"), re.MULTILINE
    )
    assert table
    policies = re.findall(r"`(\w+)`", table[1])
    found: dict[str, dict[str, float]] = {name: {} for name in policies}
    for row in table[2].splitlines():
        names, _, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        weights = re.findall(r"`(\w+)`", names)
        for policy, cell in zip(policies, cells, strict=True):
            if only := re.fullmatch(r"([\d.-]+) \((\w+)\)", cell):
                numbers = [only[1] if only[2] in weight else "" for weight in weights]
            else:
                numbers = [*cell.split(", "), *([""] * len(weights))]
            found[policy] |= {weight: float(one) for weight, one in zip(weights, numbers, strict=False) if one}
    assert found == {name: dict(weights) for name, weights in PRESETS.items()}


@pytest.mark.parametrize("name", PRESETS)
def test_other_weights_can_outweigh_the_relation(name: str) -> None:
    """All together: else GPUs of another node would be chosen only where there are no others (70 of 100 points)."""
    weights, usual = PRESETS[name], Network()
    others = sum(abs(weight) for key, weight in weights.items() if key not in ("relation", "expected"))
    assert others > weights["relation"] * (usual.node - usual.switch) / 100
