"""The node publishes which open GPUs of a pod rest.

In a file of its own: the audit of another node plugin with the same devices would end the processes.
"""

import pytest

from tests.agent.stage import PATIENCE, Api, Node
from tests.agent.test_use import audits
from tests.cluster.testbed import ControlPlane, until

pytestmark = [pytest.mark.root, pytest.mark.cluster]


def test_rest_is_published_until_the_first_use(plane: ControlPlane, api: Api) -> None:
    """A simulated GPU rests while the process that has it open computes nothing; a new node plugin writes no change."""
    node = Node(plane, api, restSeconds=1)
    try:
        node.start()
        pod, child = node.running()
        pod.allocate(*node.uuids[:2])
        pod.until_has(*node.uuids[:2])
        child.run(f"held = open_device({str(node.nodes[1])!r})")

        def told() -> tuple[tuple[str, ...], tuple[str, ...]] | None:
            return (pod.attached.open, pod.attached.rests) if pod.attached else None

        both = ((node.uuids[1],), (node.uuids[1],))
        until(lambda: told() == both, PATIENCE, "the open GPU to rest")
        version = pod.json()["metadata"]["resourceVersion"]
        node.kill()
        node.start()
        before = float(audits(node))
        until(lambda: float(audits(node)) > before + 8, PATIENCE, "some seconds to pass")
        assert pod.json()["metadata"]["resourceVersion"] == version
        child.run(
            "go = True\n"
            "def work():\n    while go: pass\n"
            "thread = threading.Thread(target=work, daemon=True)\nthread.start()"
        )
        until(lambda: told() == ((node.uuids[1],), ()), PATIENCE, "its use to be told")
        child.run("go = False")
        until(lambda: told() == both, PATIENCE, "it to rest again")
        child.run("os.close(held)")
        until(lambda: told() == ((), ()), PATIENCE, "that nothing is open")
    finally:
        node.close()
