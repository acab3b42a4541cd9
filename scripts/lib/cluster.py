"""Make a real Kubernetes cluster on this machine, look at it, use it and remove it.

Started by `scripts/cluster`, which sets up what is missing.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cluster.testbed import Cluster, ClusterError, binaries, state

DEFAULT = os.environ.get("JUPYTER_GPU_CLUSTER", "main")
USE = """\
It has a control plane and nodes that run containers (containerd and a kubelet in namespaces of their own). It stays
until `down`; after a restart of the machine `up` starts it again. Several may run side by side, with different names.
"""
Command = Callable[[Cluster, argparse.Namespace], int]


def up(cluster: Cluster, words: argparse.Namespace) -> int:
    """Make the cluster, or start the parts of it that do not run."""
    started = time.monotonic()

    def progress(line: str) -> None:
        print(f"{time.monotonic() - started:5.0f} s  {line}", flush=True)

    Cluster.create(cluster.name, words.nodes, progress=progress)
    progress("Ready")
    print(f"\nexport KUBECONFIG={cluster.kubeconfig}\nscripts/cluster{_named(cluster)} kubectl get nodes")
    return 0


def down(cluster: Cluster, words: argparse.Namespace) -> int:
    """Remove the cluster and everything that belongs to it."""
    for name in state.every() if words.all else (cluster.name,):
        each = Cluster(name)
        there = each.folder.exists()
        each.down()
        print(f"The cluster {name} is removed." if there else f"There was no cluster {name}; nothing of it is left.")
    return 0


def status(cluster: Cluster, _: argparse.Namespace) -> int:
    """Print which parts of the cluster run; the exit status is 0 if all do."""
    others = [name for name in state.every() if name != cluster.name]
    if not cluster.exists:
        print(f"There is no cluster {cluster.name}. Make it with `scripts/cluster{_named(cluster)} up`.")
    else:
        running = {part: cluster.running(part) for part in cluster.parts}
        for part, runs in running.items():
            print(f"{part:<22}{'runs' if runs else f'STOPPED   {cluster.log(part)}'}")
        print(f"\nAPI server  {cluster.plane.url}\nkubeconfig  {cluster.kubeconfig}")
        if running["apiserver"] and running["etcd"]:
            print("\n" + cluster.kubectl("get", "nodes"), end="")
    if others:
        print(f"\nOther clusters: {', '.join(others)}")
    return 0 if cluster.exists and all(running.values()) else 1


def kubectl(cluster: Cluster, words: argparse.Namespace) -> int:
    """Run kubectl as administrator of the cluster."""
    return _become(cluster, "kubectl", words.words)


def helm(cluster: Cluster, words: argparse.Namespace) -> int:
    """Run helm as administrator of the cluster."""
    return _become(cluster, "helm", words.words)


def lab(cluster: Cluster, _: argparse.Namespace) -> int:
    """Build the images, install the product on the cluster, start a notebook with it, and print its address."""
    from scripts.lib import cluster_lab

    return cluster_lab.main(cluster)


def load_image(cluster: Cluster, words: argparse.Namespace) -> int:
    """Load an archive, as `docker save` or `buildah push` makes it, into the nodes."""
    cluster.load_image(words.archive, words.node)
    return 0


def build(_: Cluster, words: argparse.Namespace) -> int:
    """Build what is missing of Kubernetes; with --check only print it."""
    if words.check:
        print("\n".join(binaries.missing()))
        return int(bool(binaries.missing()))
    binaries.ensure(progress=lambda line: print(line, flush=True))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="scripts/cluster",
        description=f"A real Kubernetes cluster ({binaries.version()}) on this machine.",
        epilog=USE,
    )
    top.add_argument("--name", default=DEFAULT, help="which cluster (default: %(default)s, or $JUPYTER_GPU_CLUSTER)")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, *, named: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        made.set_defaults(command=command)
        if named:
            made.add_argument("--name", default=argparse.SUPPRESS, help="which cluster")
        return made

    add("up", up).add_argument("--nodes", type=int, default=2, metavar="N", help="how many (default: %(default)s)")
    add("down", down).add_argument("--all", action="store_true", help="every cluster of this user")
    add("status", status)
    for name, command in (("kubectl", kubectl), ("helm", helm)):
        add(name, command, named=False).usage = f"scripts/cluster [--name NAME] {name} …"
    add("lab", lab)
    load = add("load-image", load_image)
    load.add_argument("archive", type=Path, metavar="ARCHIVE")
    load.add_argument("--node", help="only on this one (default: on all)")
    add("build", build).add_argument("--check", action="store_true", help="build nothing")
    return top


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Separate the script's own words from those of the program that it runs, which may look the same."""
    for index in range(min(3, len(words))):
        before = words[:index]
        if words[index] in ("kubectl", "helm") and (not before or before[0].partition("=")[0] == "--name"):
            return words[: index + 1], words[index + 1 :]
    return words, []


def main() -> int:
    """Run the command line; errors are printed as messages."""
    own, others = split(sys.argv[1:])
    words = parser().parse_args(own, argparse.Namespace(words=others))
    try:
        done: int = words.command(Cluster(words.name), words)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nInterrupted. `scripts/cluster up` goes on where it was, `scripts/cluster down` removes it.",
            file=sys.stderr,
        )
        return 130
    return done


def _become(cluster: Cluster, program: str, words: list[str]) -> int:
    """Run a program in place of this one, so that its terminal, signals and exit status are its own."""
    if not cluster.exists:
        raise ClusterError(f"There is no cluster {cluster.name}. Make it with `scripts/cluster{_named(cluster)} up`.")
    path = str(binaries.path(program))
    os.environ.update(cluster.environment)
    os.execv(path, [path, *words])


def _named(cluster: Cluster) -> str:
    """Return the words that choose this cluster."""
    return "" if cluster.name == DEFAULT else f" --name {cluster.name}"


if __name__ == "__main__":
    sys.exit(main())
