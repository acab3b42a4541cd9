"""Offer of slots to the kubelet, and the reasons to withhold it. Running pods are not affected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Literal

Kind = Literal["Normal", "Warning"]


class Topic(Enum):
    """A reason to withhold slots, with the reasons of the Events for its beginning and its end."""

    GUARD = ("GpusNotGuarded", "GpusGuarded", "Pods of this node can be guarded again.")
    GPUS = ("NoGpus", "GpusFound", "This node has GPUs that pods can use.")

    def __init__(self, wrong: str, right: str, relief: str) -> None:
        self.wrong = wrong
        self.right = right
        self.relief = relief

    @property
    def own_fault(self) -> bool:
        """Whether the plugin is unable to do its work then; a node without GPUs is no fault of its plugin."""
        return self is not Topic.GPUS


class Offer:
    """The problems that withhold slots. ``tell`` gets the text of all of them, empty while all is well.

    ``event`` publishes it as an Event of the node, and returns whether that was possible.
    """

    def __init__(self, tell: Callable[[str], None], event: Callable[[str, str, Kind], bool]) -> None:
        self._tell = tell
        self._event = event
        self._problems: dict[Topic, str] = {}
        self._heard: dict[Topic, str] = {}

    @property
    def problem(self) -> str:
        """Reason why no pod gets a slot now, in plain words; empty: slots are offered."""
        return self._words(Topic)

    @property
    def fault(self) -> str:
        """The same, without problems that the plugin can do nothing about (readiness)."""
        return self._words(topic for topic in Topic if topic.own_fault)

    def set_problem(self, topic: Topic, problem: str) -> bool:
        """Record the problem of a topic, or none; return whether it was published. Call it again until it was."""
        self._problems[topic] = problem
        self._tell(self.problem)
        if problem == self._heard.get(topic, ""):
            return True
        if problem:
            published = self._event(topic.wrong, f"{problem} No pod gets a slot until that is so no more.", "Warning")
        else:
            published = self._event(topic.right, topic.relief, "Normal")
        if published:
            self._heard[topic] = problem
        return published

    def _words(self, topics: Iterable[Topic]) -> str:
        return " ".join(filter(None, (self._problems.get(topic, "") for topic in topics)))
