"""One watch of a test: every state that pods were in, with times, kept by a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpu.kube import credentials
from jupyter_gpu.kube.client import Kube
from jupyter_gpu.kube.reflector import ObjectChange, Reflector, Selection
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.annotations import ALLOCATED
from tests.cluster.whole.states import Moment, PodState, broken_rules, pod_state, written

T = TypeVar("T")


class History:
    """The history of the pods of a namespace. Made by :func:`watching`."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._now: dict[str, PodState] = {}
        self._failed: BaseException | None = None
        self._pods: Reflector
        self.moments: list[Moment] = []
        """All changes, in order."""
        self.broken: list[str] = []
        """Rules that did not hold at one of these moments."""

    def pods(self, name: str = "") -> tuple[PodState, ...]:
        """Return the pods as they are now; with a name, those of that name (none or one, as a rule)."""
        with self._changed:
            return tuple(pod for pod in self._now.values() if name in ("", pod.name))

    def pod(self, name: str) -> PodState:
        """The newest with this name; raises LookupError where there is none."""
        found = self.pods(name)
        if not found:
            raise LookupError(f"There is no pod {name}.")
        return found[-1]

    def of(self, uid: str) -> list[Moment]:
        """All moments of one pod."""
        with self._changed:
            return [moment for moment in self.moments if moment.state.uid == uid]

    def first(self, name: str, condition: Callable[[PodState], object], after: int = 0) -> Moment:
        """The first moment of a pod of this name where the condition is true; raises LookupError."""
        with self._changed:
            for moment in self.moments[after:]:
                if moment.state.name == name and condition(moment.state):
                    return moment
        raise LookupError(f"No moment of {name} is like that.")

    def wait(self, condition: Callable[[], T], seconds: float) -> T | None:
        """The first true answer of the condition, asked at once and after each change; None when the time is over."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                if self._failed is not None:
                    raise self._failed
                with contextlib.suppress(LookupError):
                    if answer := condition():
                        return answer
                left = end - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 1))

    def follow(self, kubeconfig: Path, namespace: str, ended: threading.Event) -> None:
        """The thread's work."""
        try:
            asyncio.run(self._follow(kubeconfig, namespace, ended))
        except BaseException as error:  # raised in the test, which would wait in vain
            with self._changed:
                self._failed = error
                self._changed.notify_all()

    async def _follow(self, kubeconfig: Path, namespace: str, ended: threading.Event) -> None:
        async with Kube(credentials.load(kubeconfig)) as kube:
            self._pods = Reflector(kube, Selection(paths.pods(namespace)), on_change=self._take, newest=True)
            task = asyncio.create_task(self._pods.run())
            while not ended.is_set() and not task.done():
                await asyncio.sleep(0.05)
            if task.done():
                task.result()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _take(self, change: ObjectChange) -> None:
        heard, wall = time.monotonic(), time.time()
        pod: dict[str, Any] = change.object
        state = pod_state(pod)
        with self._changed:
            earliest = min(heard, heard - wall + written(pod, ALLOCATED))
            self.moments.append(Moment(len(self.moments), change.kind, earliest, heard, state))
            # Of one instant: where a list brought several changes, those reported so far are not.
            self._now = {uid: pod_state(each) for uid, each in self._pods.objects.items()}
            self.broken += broken_rules(self._now.values())
            self._changed.notify_all()


@contextmanager
def watching(kubeconfig: Path, namespace: str) -> Iterator[History]:
    """A history that is kept while the block lasts."""
    history, ended = History(), threading.Event()
    thread = threading.Thread(target=history.follow, args=(kubeconfig, namespace, ended), daemon=True)
    thread.start()
    try:
        yield history
    finally:
        ended.set()
        thread.join(30)
