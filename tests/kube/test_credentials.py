"""The sources of credentials, and the error if there are none."""

from pathlib import Path

import pytest

from jupyter_gpu.kube import Unauthorized, credentials, in_cluster, kubeconfig, load
from jupyter_gpu.kube.credentials import NoCredentials, TokenFile

HOST = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def account(folder: Path) -> Path:
    """A service account's folder."""
    folder.mkdir(exist_ok=True)
    for name, text in (("token", "abc"), ("ca.crt", "x"), ("namespace", "ns\n")):
        (folder / name).write_text(text)
    return folder


def test_credentials_of_a_pod_are_read(tmp_path: Path) -> None:
    """Address, CA, token file and namespace come from the pod; IPv6 addresses stand in brackets."""
    found = in_cluster(account(tmp_path), HOST)
    assert (found.server, found.namespace, found.token) == ("https://10.0.0.1:6443", "ns", tmp_path / "token")
    assert in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "fd00::1"}).server == "https://[fd00::1]:443"
    (tmp_path / "namespace").unlink()
    assert in_cluster(tmp_path, HOST).namespace == ""


def test_missing_credentials_are_named(tmp_path: Path) -> None:
    """The error names the missing pod, token or kubeconfig."""
    with pytest.raises(NoCredentials, match="does not run in a Kubernetes pod"):
        in_cluster(account(tmp_path / "a"), {})
    (tmp_path / "a" / "token").unlink()
    with pytest.raises(NoCredentials, match=r"token not found .*automountServiceAccountToken"):
        in_cluster(tmp_path / "a", HOST)
    with pytest.raises(NoCredentials, match="no kubeconfig at"):
        kubeconfig(tmp_path / "none")


def test_credentials_are_found_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is named comes first, then the pod's, then that of KUBECONFIG, then that of the home directory."""
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path / "none")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("named", "first"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'first'}:{tmp_path / 'second'}")
    assert load(tmp_path / "named").config == tmp_path / "named"
    assert load().config == tmp_path / "first"
    monkeypatch.delenv("KUBECONFIG")
    with pytest.raises(NoCredentials, match=r"\.kube/config"):
        load()


def test_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    """The kubelet swaps a link; a file that is away for a moment does no harm, one that never was does."""
    link = tmp_path / "token"
    token = TokenFile(link)
    with pytest.raises(Unauthorized, match="can't be read"):
        token.read()
    for text in ("one", "two"):
        (tmp_path / text).write_text(f"{text}\n")
        new = tmp_path / "new"
        new.symlink_to(tmp_path / text)
        new.replace(link)
        assert token.read() == text
    link.unlink()
    assert token.read() == "two"
    link.write_bytes(b"\xff")
    assert token.read(again=True) == "two"
