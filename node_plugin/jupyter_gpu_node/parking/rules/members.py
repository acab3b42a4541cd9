"""The processes of a bundle, as they say they are. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .messages import FromNode, ProcessState, State


class Send(NamedTuple):
    """A message for that process."""

    process: ProcessId
    message: FromNode


@dataclass(slots=True)
class Member:
    """One process of a bundle."""

    process: ProcessId
    state: State = State.RUNNING
    """The last one that it told, never one that passes: `asked` says that a step is under way."""
    order: int = 0
    """The one by which it is parked; 0: none."""
    size: int = 0
    """Bytes of its GPU memory that are parked, or would be."""
    contexts: int = 1
    host: int = 0
    """Bytes of host memory that are booked for it; 0: not yet, or by an earlier node side."""
    can: bool = False
    """Whether it said that a park could begin."""
    asked: bool = False
    """Whether it was told to park or to come back, and has not answered."""
    needs: bool = False
    """Whether a call of it waits for the GPUs."""

    @classmethod
    def found(cls, process: ProcessId, told: ProcessState) -> Member:
        """Return a process that tells its state to a node side that does not know it."""
        passes = told.state in (State.PARKING, State.RETURNING)
        state = State.PARKED if told.state is State.RETURNING else State.RUNNING if passes else told.state
        return cls(process, state, told.order, told.size, asked=passes)

    @property
    def is_parked(self) -> bool:
        """Whether it is parked, also while it returns."""
        return self.state is State.PARKED
