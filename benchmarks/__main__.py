"""Run benchmarks: `scripts/bench [NAME…] [--json FILE]`. Without names, all of them."""

import argparse
import json
import os
import pkgutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .lib import isolated
from .lib.figures import Figure, table


def names() -> list[str]:
    """Return the names of the benchmarks."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(module.name for module in found if not module.ispkg and module.name != "__main__")


def measure(name: str) -> Sequence[Figure]:
    """Return the figures of one benchmark; print a line on standard error meanwhile. Raises BrokenError."""
    print(f"{name} …", end=" ", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        outcome = isolated.measure(name)
    except isolated.BrokenError as error:
        print(f"BROKEN: {error}", file=sys.stderr)
        raise
    print(f"NOT RUN: {outcome.missing}" if outcome.missing else f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return outcome.figures


def main() -> int:
    """Run the benchmarks. Exit status 1 if one broke; a missed goal is shown, but is no error."""
    known = names()
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures what people wait for.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(known)):
        parser.error(f"there is no benchmark {', '.join(unknown)}; benchmarks are {', '.join(known)}")
    figures: list[Figure] = []
    broken = []
    for name in arguments.names or known:
        try:
            figures += measure(name)
        except isolated.BrokenError:  # one broken benchmark does not hide the others
            broken.append(name)
    load = os.getloadavg()[0]
    print(f"\n{table(figures)}\n\n{os.cpu_count()} CPUs, load {load:.1f}; p50, p90 and p99 in the figure's unit.")
    if arguments.json:
        arguments.json.write_text(json.dumps([figure.to_json() for figure in figures], indent=2) + "\n")
    if broken:
        print(f"Broken: {', '.join(broken)}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
