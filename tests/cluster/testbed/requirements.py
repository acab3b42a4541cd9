"""Whether nodes can run on this machine, in words."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.testbed import cgroups, node
from tests.cluster.testbed.commands import ClusterError

PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
}
"""A program and the package that has it."""
HIDDEN = ("/run", "/var/lib", "/var/log")
SOCKET_LENGTH = 107
"""Limit of the kernel on the path of a Unix socket."""


def check(state: Path) -> None:
    """Raises ClusterError, with all that is missing."""
    if problems := list(_problems(state)):
        raise ClusterError(
            "A cluster with nodes cannot run here:\n" + "\n".join(f"- {problem}" for problem in problems)
        )


def _problems(state: Path) -> Iterator[str]:
    if os.geteuid() != 0:
        yield "Nodes run containers, which needs root. Try again with sudo."
        return
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            yield f"{program} is not installed: the package {package} has it."
    for found in (node.cni_plugins, cgroups.hierarchies):
        try:
            found()
        except ClusterError as error:
            yield str(error)
    if not os.access("/sys/fs/cgroup", os.W_OK):
        yield "/sys/fs/cgroup cannot be written: in a container, start that one privileged."
    if not Path("/sys/fs/bpf").is_dir():
        yield "The kernel has no BPF file system (/sys/fs/bpf is missing)."
    if any(str(state).startswith(f"{folder}/") for folder in HIDDEN):
        yield f"Nodes have their own {', '.join(HIDDEN)}, so the cluster's files cannot lie there. Set XDG_STATE_HOME."
    if len(f"{state}/nodes/node99/run/containerd.sock.ttrpc") > SOCKET_LENGTH:
        yield f"The path {state} is too long for sockets below it. Set XDG_STATE_HOME to a shorter one."
