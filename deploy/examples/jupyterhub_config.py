"""Configuration of JupyterHub's KubeSpawner by which every user's server has GPUs on a slider.

Append it to the hub's configuration; for Zero to JupyterHub there are values beside this file (z2jh-values.yaml), which
say how. JupyterHub provides `c` in both. The service account `notebook` must be there, and the chart must let it ask:
`notebooks.namespaces=[{namespace: <namespace of the users' pods>, serviceAccounts: [notebook]}]`. KubeSpawner
writes into each pod whose it is; the hub's own service account needs the right to:
`hubs=[{namespace: hub, serviceAccount: hub, notebookNamespaces: [<namespace of the users' pods>]}]`.

That account can read nothing: users of one namespace do not see each other's pods.

With JUPYTER_GPU_HUB_SERVICE in the environment of servers, pods have no token at all, and the hub's service of GPU
limits writes their requests (z2jh-without-token.yaml). Then neither `notebooks.namespaces` nor the account is needed.
"""

# ruff: noqa: F821
from kubernetes_asyncio.client import ApiException


def beside(name, more):
    """Return a setting with more values, in addition to those of the configuration, such as a user's home volume."""
    known = c.KubeSpawner.get(name)
    if isinstance(known, list):
        return [*known, *more.values()]
    return {**known, **more} if isinstance(known, dict) else more


# Of your registry. It has jupyter-gpu, and jupyterhub in the hub's version: deploy/images/notebook, or your own.
c.KubeSpawner.image = c.KubeSpawner.get("image") or "registry.example/gpu/notebook:0.1.0"
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]  # the image's own command is a server that knows no hub

# Not a GPU: the right to have this server's GPUs changed. It starts with none.
c.KubeSpawner.extra_resource_limits = beside("extra_resource_limits", {"jupyter-gpu.io/slot": "1"})
c.KubeSpawner.scheduler_name = "jupyter-gpu-scheduler"  # leave it out if the cluster's own one asks our extender

c.KubeSpawner.automount_service_account_token = False
PROJECTED = {
    "defaultMode": 0o440,
    "sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ],
}
MOUNT = {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
VOLUME = "jupyter-gpu-token"
if "JUPYTER_GPU_HUB_SERVICE" in (c.KubeSpawner.get("environment") or {}):
    # The service writes requests for the token that the hub gives to each server, which may enter it.
    c.KubeSpawner.server_token_scopes = ["users:activity!user", "access:servers!server", "access:services!service=gpu"]
else:
    # The server asks for GPUs with the token of its own pod, which is good for nothing else.
    c.KubeSpawner.service_account = "notebook"
    c.KubeSpawner.volumes = beside("volumes", {VOLUME: {"name": VOLUME, "projected": PROJECTED}})
    c.KubeSpawner.volume_mounts = beside("volume_mounts", {VOLUME: {"name": VOLUME, **MOUNT}})

# Which pod this is: the server asks for GPUs for it and for no other.
FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_UID": "metadata.uid"}
OWN = {name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in FIELDS.items()}
c.KubeSpawner.environment = beside("environment", OWN)

# KubeSpawner writes the server's token for the hub into the pod, where every reader of pods reads it. Not in a Secret.
TOKENS = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN")


def secret_of(spawner):
    """Its name."""
    return f"{spawner.pod_name}-token"


async def forget_token(spawner):
    """Remove the Secret of an earlier server of that name."""
    try:
        await spawner.api.delete_namespaced_secret(secret_of(spawner), spawner.namespace)
    except ApiException as error:
        if error.status != 404:
            raise


async def hide_token(spawner, pod):
    """Put the token into a Secret, and its name in place of it into the pod."""
    (container,) = (each for each in pod.spec.containers if each.name == "notebook")
    tokens = [each for each in container.env if each.name in TOKENS]
    await forget_token(spawner)
    secret = {"metadata": {"name": secret_of(spawner)}, "stringData": {each.name: each.value for each in tokens}}
    await spawner.api.create_namespaced_secret(spawner.namespace, secret)
    for each in tokens:
        each.value = None
        each.value_from = {"secretKeyRef": {"name": secret_of(spawner), "key": each.name}}
    return pod


c.KubeSpawner.modify_pod_hook = hide_token
c.Spawner.post_stop_hook = forget_token

# An ordinary user's rights are enough. The policies refuse a slot to containers that could leave their cgroup.
c.KubeSpawner.uid = 1000
c.KubeSpawner.fs_gid = 100
c.KubeSpawner.allow_privilege_escalation = False
c.KubeSpawner.container_security_context = {"capabilities": {"drop": ["ALL"]}}

# How many GPUs servers start with. The hub writes that request when it makes the pod, which `hubs` allows as well.
# c.KubeSpawner.extra_annotations = {"jupyter-gpu.io/requested": "1"}

# Only nodes with such GPUs:
# c.KubeSpawner.node_selector = {"jupyter-gpu.io/gpu.model": "NVIDIA-H100-80GB-HBM3"}
