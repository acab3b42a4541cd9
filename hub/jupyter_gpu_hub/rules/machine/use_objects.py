"""Pure: the pods, the node and the accounts of a machine as the objects that a cluster would have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, tzinfo
from typing import Any

from jupyter_gpu.kube.rules.objects import SLOT
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, INVENTORY, REQUESTED, encode, held
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.calendar import in_force
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import GROUP, VERSION
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
from jupyter_gpu.model.limits.machine_use import MachinePod, MachineUse
from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner

from .identity import digest, versioned

NAMESPACE = "machine"
"""Namespace of all pods."""
NODE = "machine"
"""Name of the only node."""
_NO_HOURS: Mapping[date, int] = {}


def pod_objects(use: MachineUse, hub: str) -> dict[str, dict[str, Any]]:
    """Return the pods by uid; each is of its user in the hub."""
    return {pod.uid: _pod(pod, hub) for pod in use.pods}


def node_objects(use: MachineUse) -> dict[str, dict[str, Any]]:
    """Return the machine as the one node with its GPUs."""
    metadata = {"name": NODE, "uid": NODE, "annotations": {INVENTORY: encode(use.gpus)}}
    return {NODE: versioned({"apiVersion": "v1", "kind": "Node", "metadata": metadata})}


def account_objects(
    written: MachineAccounts, use: MachineUse, limits: LimitIndex, hub: str, now: float, zone: tzinfo
) -> dict[str, dict[str, Any]]:
    """Return the accounts by name: of all users who have, want, or lately had GPUs, with what is in force ``now``.

    ``now``: seconds since 1970, until which everything is counted.
    """
    known = {Owner("User", owner.name, hub): account for owner, account in written.accounts.items()}
    pods: dict[Owner, list[MachinePod]] = {owner: [] for owner in known}
    for pod in use.pods:
        pods.setdefault(Owner("User", pod.user, hub), []).append(pod)
    accounts = [_account(owner, known.get(owner), pods[owner], limits, now, zone) for owner in sorted(pods)]
    return {account.object_name: _account_object(account) for account in accounts}


def _pod(pod: MachinePod, hub: str) -> dict[str, Any]:
    states = {REQUESTED: pod.requested, ALLOCATED: pod.allocated, ATTACHED: pod.attached}
    notes = {key: encode(state) for key, state in states.items() if state is not None}
    metadata = {
        "name": f"{pod.pid}-{pod.uid[:6]}",  # the number alone may be that of another container's process, too
        "namespace": NAMESPACE,
        "uid": pod.uid,
        "annotations": {USERNAME: pod.user, HUB: hub, **notes},
    }
    container = {"name": "server", "resources": {"limits": {SLOT: "1"}}}
    status = {"phase": "Succeeded" if pod.ended else "Running"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    return versioned({**body, "status": status})


def _account(
    owner: Owner, known: Account | None, pods: list[MachinePod], limits: LimitIndex, now: float, zone: tzinfo
) -> Account:
    hours = known.hours if known else _NO_HOURS
    current = in_force(limits.effective(owner), now, zone, hours)
    alive = [pod for pod in pods if not pod.ended]
    told = [pod.allocated.limit for pod in alive if pod.allocated and pod.allocated.limit]
    ends = [limit.give_back_at for limit in told if limit.give_back_at is not None]
    return replace(
        known or Account(owner),
        owner=owner,
        max=current.max,
        until=None if current.until is None else int(current.until),
        used=sum(sum(held(pod.allocated, pod.attached).values()) for pod in pods),
        waiting=sum(map(_waiting, alive)),
        give_back_at=int(min(ends)) if ends else None,
        counted_until=int(now),
    )


def _waiting(pod: MachinePod) -> int:
    has = sum(share.milli for share in pod.allocated.shares) if pod.allocated else 0
    return max(0, (pod.requested.milli if pod.requested else 0) - has)


def _account_object(account: Account) -> dict[str, Any]:
    metadata = {"name": account.object_name, "uid": digest(account.object_name, 32)}
    head = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "GpuAccount", "metadata": metadata}
    return versioned({**head, "spec": account.spec(), "status": account.status()})
