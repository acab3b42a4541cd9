"""The rights of a notebook in a pod, and that they are enough."""

import json

import pytest

from tests.cluster.testbed.commands import until
from tests.cluster.whole import faults, pods
from tests.cluster.whole.test_running import rest, settled
from tests.cluster.whole.world import NOTEBOOKS, SECONDS, Product, world

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

READS = """
import os, ssl, urllib.error, urllib.request
from pathlib import Path
account = Path("/var/run/secrets/kubernetes.io/serviceaccount")
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
pods = f"{server}/api/v1/namespaces/{(account / 'namespace').read_text()}/pods"
for path in ("/alone", "", "?watch=true&timeoutSeconds=5"):
    request = urllib.request.Request(pods + path)
    request.add_header("Authorization", f"Bearer {(account / 'token').read_text()}")
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=account / "ca.crt")) as answer:
            print(answer.status)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def test_notebook_reads_no_pods(product: Product) -> None:
    """Its token is refused get, list and watch; it sees its own GPUs all the same, and says when it cannot."""
    with world(product, NOTEBOOKS[0]) as found:
        found.run(pods.notebook("alone", product.notebook, node=found.one))
        assert found.exec("alone", "python3", "-c", READS).split() == ["403"] * 3
        with found.forwarded("alone", 8888) as local:
            until(lambda: rest(local, "GET", "status"), SECONDS, "the Jupyter server to answer")

            def said() -> str:
                return json.dumps(rest(local, "GET", "status"))

            rest(local, "PUT", "request", {"gpus": 1})
            found.has("alone", 1000)
            found.until(lambda: rest(local, "GET", "status")["amounts"] == settled(1000), "the server to see it")
            assert "NodePluginUnreachable" not in said()
            node = found.node_of("alone")
            faults.hit("the node plugin", lambda: faults.agents(found, node))
            found.until(lambda: "NodePluginUnreachable" in said(), "the server to say that nothing new is seen")
            found.ask("alone", 2)
            found.has("alone", 2000)
            found.until(lambda: rest(local, "GET", "status")["amounts"] == settled(2000), "the server to see that")
            assert "NodePluginUnreachable" not in said()
