"""Run benchmarks: `scripts/bench [NAME[:PART]…] [--json FILE]`. Without names, all of them.

One that is named and has parts (`pairs`) runs all of them, each by itself; `pairs:warm` is one part.
"""

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


def chosen(words: Sequence[str]) -> list[str]:
    """Return the benchmarks and parts for the words of a command line. Raises ValueError for one that there is not."""
    known, found = names(), list[str]()
    for word in words:
        name, _, part = word.partition(":")
        if name not in known:
            raise ValueError(f"there is no benchmark {name}; benchmarks are {', '.join(known)}")
        parts = isolated.parts(name)
        if part and part not in parts:
            raise ValueError(f"{name} has no part {part}; it has {', '.join(parts) or 'none'}")
        found += [f"{name}:{one}" for one in ([part] if part else parts)] or [name]
    return found or known


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
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures what people wait for.")
    parser.add_argument("names", nargs="*", metavar="NAME[:PART]", help=", ".join(names()))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    arguments = parser.parse_args()
    try:
        wanted = chosen(arguments.names)
    except ValueError as error:
        parser.error(str(error))
    figures: list[Figure] = []
    broken = []
    for name in wanted:
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
