"""Service addresses without kube-proxy: TCP connections to them are passed on to a pod that is ready.

Runs as a process of its own beside the API server: `python -m tests.cluster.testbed.services FOLDER BRIDGE`. Each
service's address is put on the machine's bridge, so pods and this machine reach it alike; where a connection goes to is
looked up when it is made. To a pod it comes from this machine. Not done: UDP, node ports, session affinity.
"""

import asyncio
import itertools
import json
import ssl
import sys
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.cluster.testbed.commands import ClusterError, run
from tests.cluster.testbed.daemons import Daemons

PARTS = ("services",)
PERIOD_SECONDS = 0.5
CONNECT_SECONDS = 5
API_SERVER = ("default", "kubernetes")
"""The service that is no forwarding: the API server itself listens on its address."""

Address = tuple[str, int]
Table = dict[Address, tuple[Address, ...]]
"""Address of a service → those of its ready pods."""


def table(services: Iterable[Mapping[str, Any]], slices: Iterable[Mapping[str, Any]]) -> Table:
    """Return the pods behind each address, from the objects of the API server."""
    ready: dict[tuple[str, str, str], list[Address]] = {}
    for each in slices:
        owner = each["metadata"].get("labels", {}).get("kubernetes.io/service-name", "")
        hosts = [
            host
            for endpoint in each.get("endpoints") or ()
            if endpoint.get("conditions", {}).get("ready", True)
            for host in endpoint["addresses"][:1]
        ]
        for port in each.get("ports") or ():
            key = (each["metadata"]["namespace"], owner, port.get("name") or "")
            ready.setdefault(key, []).extend((host, int(port["port"])) for host in hosts)
    found: Table = {}
    for service in services:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        host = service["spec"].get("clusterIP", "None")
        if host in ("", "None") or (namespace, name) == API_SERVER:
            continue
        for port in service["spec"].get("ports") or ():
            if port.get("protocol", "TCP") == "TCP":
                found[host, int(port["port"])] = tuple(ready.get((namespace, name, port.get("name") or ""), ()))
    return found


class Forwarder:
    """Listens on the addresses of the table, and follows its changes."""

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge
        self._table: Table = {}
        self._servers: dict[Address, asyncio.Server] = {}
        self._turns = itertools.count()

    async def follow(self, wanted: Table) -> None:
        """Listen where the table says, and nowhere else."""
        self._table = wanted
        for address in self._servers.keys() - wanted.keys():
            self._servers.pop(address).close()
        for host in {host for host, _ in wanted} - {host for host, _ in self._servers}:
            await asyncio.to_thread(run, "ip", "addr", "replace", f"{host}/32", "dev", self._bridge)
        for address in wanted.keys() - self._servers.keys():
            self._servers[address] = await asyncio.start_server(self._connected, *address)
            print(f"Service address {address[0]}:{address[1]}", flush=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, passed on to the next pod in turn that takes it; closed where none does."""
        pods = self._table.get(writer.get_extra_info("sockname")[:2], ())
        turn = next(self._turns)
        for number in range(len(pods)):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    there, back = await asyncio.open_connection(*pods[(turn + number) % len(pods)])
            except (OSError, TimeoutError):
                continue
            with suppress(OSError):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
            back.close()
            break
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, until its sender has no more. Raises OSError."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


class Api:
    """Reads lists of objects as administrator."""

    def __init__(self, folder: Path) -> None:
        self._url = json.loads((folder / "admin.kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
        self._context = ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
        self._context.load_cert_chain(folder / "pki" / "admin.crt", folder / "pki" / "admin.key")

    def list(self, path: str) -> Any:
        """The objects. Raises OSError."""
        with urllib.request.urlopen(self._url + path, timeout=10, context=self._context) as answer:
            return json.load(answer)["items"]


async def serve(folder: Path, bridge: str) -> None:
    """Until killed; while the API server is away, what was known goes on."""
    api, forwarder, told = Api(folder), Forwarder(bridge), ""
    while True:
        try:
            services = await asyncio.to_thread(api.list, "/api/v1/services")
            slices = await asyncio.to_thread(api.list, "/apis/discovery.k8s.io/v1/endpointslices")
            await forwarder.follow(table(services, slices))
            told = ""
        except (OSError, ValueError, ClusterError) as error:
            if told != str(error):
                told = str(error)
                print(told, flush=True)
        await asyncio.sleep(PERIOD_SECONDS)


class Services(Daemons):
    """The process that does it for the cluster whose files are below `state`."""

    def __init__(self, state: Path, bridge: str) -> None:
        super().__init__(state, PARTS)
        self._bridge = bridge

    def start(self, part: str) -> None:
        """Start it unless it runs; what it listens on follows soon."""
        if not self.running(part):
            root = f"PYTHONPATH={Path(__file__).parents[3]}"
            self._spawn(part, ["/usr/bin/env", root, sys.executable, "-m", __name__, self._state, self._bridge])


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
