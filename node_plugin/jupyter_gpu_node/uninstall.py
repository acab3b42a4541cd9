"""Removal of what the node plugin leaves on a node: ``python -m jupyter_gpu_node.uninstall --settings FILE``.

It opens nothing. Programs stay on the control groups of pods that still run: these have the device nodes of all GPUs,
and without a program they could open every one of them. A program goes with its pod's group. What is removed are the
pins, the sockets, the records, the gate, and the device nodes of simulated GPUs. Annotation and labels of the Node are
removed by the chart's hook, which may write them, with `removal`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from jupyter_gpu.common.settings_file import SettingsError
from jupyter_gpu_node.devices.freeze import unfreeze
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import NoCgroupTree, PodCgroups
from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.shares.enforcement import stopped_processes
from jupyter_gpu_node.shares.server import paths as share_paths

from . import settings as settings_module
from .settings import Settings


def uninstall(settings: Settings) -> list[str]:
    """Remove the node plugin's traces, and return what was done, in plain words. Can be repeated."""
    done = []
    pins = Pins.at(settings.pins)
    running = 0
    with contextlib.suppress(NoCgroupTree):
        cgroups = PodCgroups.of_this_machine(settings.cgroup)
        for uid in pins.uids():
            if group := cgroups.find(uid):
                running += 1
                unfreeze(group)
    for uid in sorted(pins.uids()):
        pins.discard(uid)
        done.append(f"Pins of pod {uid} were removed.")
    if pins.directory:
        with contextlib.suppress(OSError):
            pins.directory.rmdir()
    done += _resume_stopped(settings.violations)
    # without the note the next installation takes the machine for new: nothing that was attached before it is believed
    paths = [settings.record, settings.pins_note, settings.violations]
    paths += [settings.state / "simulated", settings.state / share_paths.FOLDER]
    if not running:  # a container that starts again needs its nodes, and a program of a whole GPU its socket
        paths += [settings.run / "slots", settings.device_directory, settings.state / "gate"]
    done += [f"{path} was removed." for path in paths if _remove(path)]
    if running:
        done.append(
            f"{running} pods still run. They keep the GPUs that they have, until they end; they get no others. "
            "Programs that have a part of a GPU wait for ever: end them."
        )
    return done


def _resume_stopped(violations: Path) -> list[str]:
    """Resume programs that were stopped until the next turn of their share, which never comes."""
    stopped = {
        one
        for state in stopped_processes.load(violations).values()
        for record in state.values()
        for one in record.stopped
    }
    signals.resume(stopped)
    return [f"{len(stopped)} stopped programs run again."] if stopped else []


def _remove(path: Path) -> bool:
    """Remove a path, and tell whether it existed.

    Containers keep the nodes and directories that they were started with.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return True
    try:
        path.unlink()
    except OSError:
        return False
    return True


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpu_node.uninstall", description="Clean a node up.")
    parser.add_argument("--settings", type=Path, default=None, help="the node plugin's settings file")
    arguments = parser.parse_args(words)
    try:
        settings = settings_module.load(arguments.settings, {"NODE_NAME": "this node", **os.environ})
    except SettingsError as error:
        print(error, file=sys.stderr)
        return 2
    for line in uninstall(settings):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
