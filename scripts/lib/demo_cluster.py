"""The demo on a Kubernetes cluster that is made for it: a notebook in a pod, a hub, or both. Used by `demo.py`."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scripts.lib import cluster_lab, demo_hub, demo_other_node
from scripts.lib.demo_hub import Hub
from scripts.lib.demo_other_node import OtherNode
from scripts.lib.lab import Lab, LabError
from tests.cluster.testbed import ClusterError, temporary_cluster

GRACE, BRIEF_GRACE = "1m", "15s"
"""The grace of a lowered limit: time to read the notice, and as long as the check waits for it."""


@contextmanager
def running(
    folder: Path, text: str, *, notebook: bool, hub: bool, brief: bool
) -> Iterator[tuple[Lab | None, OtherNode | None, Hub | None]]:
    """Run a cluster with what is wanted until the end of the block; ``text`` is the notebook, there and for each user.

    With ``notebook``, another one uses GPUs of another node. Raises LabError.
    """
    progress, files = cluster_lab.progress_line(), {"demo.ipynb": text}
    try:
        progress("Making a Kubernetes cluster with two nodes")
        with temporary_cluster(nodes=2) as cluster:
            with ExitStack() as stack:
                plan = demo_hub.plan(cluster) if hub else None
                more = (
                    demo_hub.values(plan, BRIEF_GRACE if brief else GRACE)
                    if plan
                    else {"notebooks": cluster_lab.notebooks()}
                )
                if notebook:
                    more |= demo_other_node.values(cluster, more["notebooks"])
                image = cluster_lab.install(cluster, progress, **more)
                lab = other = found = None
                if notebook:
                    lab = stack.enter_context(
                        cluster_lab.running(cluster, image, folder, files, progress, demo_other_node.beside(cluster))
                    )
                    other = stack.enter_context(demo_other_node.running(cluster, image, folder, progress))
                if plan:
                    found = stack.enter_context(demo_hub.running(plan, image, folder / "hub", files, progress))
                yield lab, other, found
            progress("Removing the cluster")
    except (ClusterError, AssertionError) as error:
        raise LabError(str(error)) from error
