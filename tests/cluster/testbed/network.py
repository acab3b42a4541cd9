"""The network of one cluster: a bridge on this machine, and a range of addresses that nothing else uses.

All nodes and pods are in one flat network: a node has a network namespace with a bridge `cni0`, whose uplink is one end
of a veth pair; the other is a port of the machine's bridge. So no packet is ever routed, and removing the machine's
bridge and the namespaces removes everything. The API server listens on the address of the service `kubernetes`, which
the machine's bridge has: pods reach it with no kube-proxy. The module `services` puts those of other services there.

    10.x.0.1      this machine            10.x.0.10+N   node N
    10.x.240.1    the API server          10.x.N.*      pods of node N
"""

import fcntl
import ipaddress
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.testbed.commands import ClusterError, CommandFailed, run

MOST_NODES = 99
CANDIDATES = tuple(ipaddress.ip_network(f"10.{second}.0.0/16") for second in range(128, 255)) + tuple(
    ipaddress.ip_network(f"172.{second}.0.0/16") for second in range(18, 32)
)
BRIDGE_FILTERS = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


@dataclass(frozen=True)
class Network:
    """Addresses and links of a cluster; `key` is six letters that no other cluster of this machine has."""

    key: str
    prefix: str
    """The first two numbers of every address, such as 10.130."""

    @property
    def bridge(self) -> str:
        """The machine's bridge."""
        return f"jg{self.key}"

    @property
    def range(self) -> str:
        """The range of all addresses."""
        return f"{self.prefix}.0.0/16"

    @property
    def host(self) -> str:
        """This machine, as pods see it."""
        return f"{self.prefix}.0.1"

    @property
    def services(self) -> str:
        """Range of service addresses."""
        return f"{self.prefix}.240.0/20"

    @property
    def service(self) -> str:
        """Address of the API server, for pods and for this machine."""
        return f"{self.prefix}.240.1"

    def link(self, number: int) -> str:
        """This machine's end of the veth pair of a node."""
        return f"{self.bridge}n{number}"

    def node(self, number: int) -> str:
        """Address of a node."""
        return f"{self.prefix}.0.{10 + number}"

    def pods(self, number: int) -> tuple[str, str]:
        """First and last address of the pods of a node."""
        return f"{self.prefix}.{number}.10", f"{self.prefix}.{number}.250"

    def up(self) -> None:
        """Make the bridge, unless it is there."""
        if not _exists(self.bridge):
            run("ip", "link", "add", self.bridge, "address", _hardware_address(self.host), "type", "bridge")
        run("ip", "addr", "replace", f"{self.host}/16", "dev", self.bridge)
        run("ip", "addr", "replace", f"{self.service}/32", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        self._pass_filters()

    def join(self, number: int, pid: int) -> None:
        """Give the network namespace of this process the node's links and address."""
        inside = ("nsenter", "-t", str(pid), "-n", "ip")
        mine, address = self.link(number), self.node(number)
        _delete(mine)
        run("ip", "link", "add", mine, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        run("ip", "link", "set", mine, "master", self.bridge, "up")
        run(*inside, "link", "set", "lo", "up")
        run(*inside, "link", "add", "cni0", "address", _hardware_address(address), "type", "bridge")
        run(*inside, "link", "set", "eth0", "master", "cni0", "up")
        run(*inside, "addr", "add", f"{address}/16", "dev", "cni0")
        run(*inside, "link", "set", "cni0", "up")
        run(*inside, "route", "add", "default", "via", self.host)

    def _pass_filters(self) -> None:
        """Let our packets pass the packet filter, if it sees those within a bridge (as Docker sets it up)."""
        if not BRIDGE_FILTERS.exists() or BRIDGE_FILTERS.read_text().strip() != "1" or not shutil.which("iptables"):
            return
        try:
            run("iptables", "-w", "-C", *_rule(self.bridge))
        except CommandFailed:
            run("iptables", "-w", "-I", *_rule(self.bridge))


def key_links(key: str) -> tuple[str, ...]:
    """Links of a cluster that exist on this machine."""
    return tuple(sorted(link for link in _links() if link.startswith(f"jg{key}")))


def remove(key: str) -> None:
    """Every link of the cluster with this key, and its rule in the packet filter."""
    bridge = f"jg{key}"
    for link in key_links(key):
        _delete(link)
    if shutil.which("iptables"):
        try:
            while True:  # as often as it is there
                run("iptables", "-w", "-D", *_rule(bridge))
        except CommandFailed:
            return


@contextmanager
def chosen(key: str) -> Iterator[Network]:
    """Choose an unused range for the length of the block: bring the network up in it. Raises ClusterError."""
    lock = os.open("/sys/class/net", os.O_RDONLY | os.O_DIRECTORY)  # one for the machine, and no file is left
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Network(key, choose(_used()))
    finally:
        os.close(lock)


def choose(used: Iterable[ipaddress.IPv4Network]) -> str:
    """The first two numbers of a range that overlaps none of these. Raises ClusterError."""
    taken = tuple(used)
    for candidate in CANDIDATES:
        if not any(candidate.overlaps(other) for other in taken):
            return ".".join(str(candidate).split(".")[:2])
    raise ClusterError("No range of private addresses is free for the cluster: this machine has routes to all of them.")


def _used() -> Iterator[ipaddress.IPv4Network]:
    """Return the ranges that this machine has a route to, other than the default route."""
    for route in json.loads(run("ip", "-j", "-4", "route", "show", "table", "all") or "[]"):
        if route["dst"] != "default":
            yield ipaddress.IPv4Network(route["dst"], strict=False)


def _rule(bridge: str) -> tuple[str, ...]:
    return ("FORWARD", "-i", bridge, "-o", bridge, "-m", "comment", "--comment", "jupyter-gpu testbed", "-j", "ACCEPT")


def _links() -> set[str]:
    return {link["ifname"] for link in json.loads(run("ip", "-j", "link", "show") or "[]")}


def _exists(link: str) -> bool:
    return link in _links()


def _delete(link: str) -> None:
    """Links go by themselves too, when the namespace of the other end does."""
    try:
        run("ip", "link", "del", link)
    except CommandFailed:
        if _exists(link):
            raise


def _hardware_address(address: str) -> str:
    """A bridge with no address of its own changes it as ports come and go, and its neighbours lose sight of it."""
    return "02:6a:" + ":".join(f"{int(number):02x}" for number in address.split("."))
