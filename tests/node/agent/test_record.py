"""The record of a pod that is deleted while it is written."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.pod import ManagedPod
from jupyter_gpu_node.agent.rules import pod_view
from jupyter_gpu_node.agent.steps import AgentSteps
from jupyter_gpu_node.agent.tools import Tools
from jupyter_gpu_node.holders.rules.rights import Rights

POD = {
    "metadata": {"uid": "uid", "name": "p", "namespace": "default", "resourceVersion": "7"},
    "spec": {},
    "status": {},
}


def test_pod_may_be_gone_when_its_record_is_written() -> None:
    """The API server's answer and the news of the end may come in any order; neither ends the plugin."""
    pod = ManagedPod("uid", attached=Attached(1, (GpuShare("GPU-0", 1000),)))
    pod.view = pod_view.read(POD)
    shown: list[object] = []

    async def write(*_: object) -> dict[str, Any]:
        pod.view = None  # as the watch says before the answer comes
        return POD

    reports = SimpleNamespace(
        publisher=SimpleNamespace(attached=write),
        pod_events=SimpleNamespace(update=shown.append),
        metrics=SimpleNamespace(attached=lambda ref, attached: shown.append((ref.uid, attached))),
    )
    steps = AgentSteps(cast("Tools", SimpleNamespace(reports=reports)), {"uid": pod}, lambda: Rights({}))
    asyncio.run(steps.record(pod))
    steps.close()
    assert shown == [POD, ("uid", pod.attached)]
    assert pod.record.attached == pod.attached
