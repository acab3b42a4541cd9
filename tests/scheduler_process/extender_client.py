"""Asks the extender as kube-scheduler does."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any


class ExtenderClient:
    """A client of the extender on a port of this machine; with a context over TLS."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self._url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
        self._context = context

    def ask(self, verb: str, body: Mapping[str, Any]) -> Any:
        """The answer's JSON; ``None`` where there is none."""
        request = urllib.request.Request(f"{self._url}/{verb}", data=json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return None

    def filter(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Any:
        """Return the nodes that can take a pod."""
        return self.ask("filter", {"Pod": pod, "NodeNames": list(nodes)})

    def prioritize(self, pod: Mapping[str, Any], nodes: Sequence[str]) -> Any:
        """Return the scores of the nodes."""
        return self.ask("prioritize", {"Pod": pod, "NodeNames": list(nodes)})

    def preempt(self, pod: Mapping[str, Any], victims: Mapping[str, Sequence[str]]) -> Any:
        """Return, of the uids by node, those that may end for a pod; ``None`` where there is no answer."""
        meta = {node: {"Pods": [{"UID": uid} for uid in uids]} for node, uids in victims.items()}
        answer = self.ask("preempt", {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta})
        if answer is None:
            return None
        found = answer["NodeNameToMetaVictims"]
        return {node: [one["UID"] for one in chosen["Pods"]] for node, chosen in found.items()}

    def bind(self, pod: Mapping[str, Any], node: str) -> str:
        """Have a pod bound; empty when it is."""
        metadata = pod["metadata"]
        names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
        return str(self.ask("bind", {**names, "Node": node})["Error"])
