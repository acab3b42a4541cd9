"""Tests touch an existing cluster only if it is named to them, and leave foreign objects there alone."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.testbed import ClusterError, ControlPlane, Existing, control_plane
from tests.cluster.testbed.existing import ALLOWED, OWN, choose

CONTEXT = "testbed"
"""As every kubeconfig of the testbed calls its own."""


@pytest.mark.parametrize(
    ("environment", "current", "answers", "context", "said"),
    [
        ({}, "prod", True, "", ""),
        ({"KUBECONFIG": "k"}, "prod", True, "", "left alone"),
        ({"KUBECONFIG": "", ALLOWED: "prod"}, "prod", True, "", "KUBECONFIG is not"),
        ({ALLOWED: "prod"}, "prod", True, "", "KUBECONFIG is not"),
        ({"KUBECONFIG": "k", ALLOWED: ""}, "", True, "", "left alone"),
        ({"KUBECONFIG": "k", ALLOWED: "test"}, "prod", True, "", "current context of KUBECONFIG is 'prod'"),
        ({"KUBECONFIG": "k", ALLOWED: "test"}, "", True, "", "current context of KUBECONFIG is ''"),
        ({"KUBECONFIG": "k", ALLOWED: "test"}, "test", False, "", "does not answer"),
        ({"KUBECONFIG": "k", ALLOWED: "test"}, "test", True, "test", "existing cluster of 'test'"),
    ],
)
def test_only_the_named_cluster_is_used(
    environment: dict[str, str], current: str, answers: bool, context: str, said: str
) -> None:
    """In every other case tests make their own, and say why where it may surprise."""
    found = choose(environment, lambda: current, lambda: answers)
    assert found.context == context
    assert said in found.why
    assert bool(found.why) == bool(environment)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Yield a foreign cluster, with controllers that empty a namespace that is removed."""
    with control_plane(("etcd", "apiserver", "controller-manager")) as made:
        made.kubectl("create", "namespace", "somebody")
        yield made


@pytest.fixture
def cluster(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Existing:
    """Return the cluster as tests see it that borrow it."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    return Existing(CONTEXT, tmp_path)


@pytest.mark.cluster
def test_foreign_namespaces_are_neither_used_nor_removed(plane: ControlPlane, cluster: Existing) -> None:
    """The tests' own is the same if made twice, and is removed in the end with all in it."""
    with pytest.raises(ClusterError, match="that tests did not make"):
        cluster.namespace("somebody")
    cluster.namespace("ours")
    cluster.namespace("ours")
    cluster.kubectl("create", "configmap", "something", "--namespace", "ours")
    cluster.clear()
    names = [each["metadata"]["name"] for each in json.loads(plane.kubectl("get", "ns", "-o", "json"))["items"]]
    assert "somebody" in names
    assert "ours" not in names


@pytest.mark.cluster
def test_cluster_with_the_product_is_refused(plane: ControlPlane, cluster: Existing) -> None:
    """Its notebooks' GPUs are not the tests' to give away."""
    cluster.check_clean()
    plane.kubectl("create", "clusterrole", "jupyter-gpu-node", "--verb=get", "--resource=pods")
    try:
        with pytest.raises(ClusterError, match="is installed on testbed already"):
            cluster.check_clean()
    finally:
        plane.kubectl("delete", "clusterrole", "jupyter-gpu-node")


@pytest.mark.cluster
def test_part_that_needs_an_own_cluster_says_so(cluster: Existing, tmp_path: Path) -> None:
    """Stopping parts, files of nodes and images for nodes need a cluster of the tests' own."""
    for attempt in (
        lambda: cluster.stop("apiserver"),
        lambda: cluster.kill("kubelet@node1"),
        lambda: cluster.nodes,
        lambda: cluster.plane,
        lambda: cluster.network,
        cluster.down,
    ):
        with pytest.raises(ClusterError, match=OWN):
            attempt()
    with pytest.raises(ClusterError, match="JUPYTER_GPU_IMAGES"):
        cluster.load_image(tmp_path / "image.tar")
    with pytest.raises(ClusterError, match="Tests need 2 nodes"):
        assert cluster.node_names


@pytest.mark.cluster
def test_address_for_the_extender_is_free_and_stays(plane: ControlPlane, cluster: Existing) -> None:
    """A service may have it, and none is left that was made to find it."""
    address = cluster.service_ip(200)
    assert address == cluster.service_ip(200)
    plane.kubectl("create", "service", "clusterip", "first", "--tcp=443", f"--clusterip={address}")
    names = plane.kubectl("get", "services", "--all-namespaces", "--output", "name").split()
    assert sorted(names) == ["service/first", "service/kubernetes"]
