"""The effective limits of an owner as the plain maxima that are in force at one moment."""

from __future__ import annotations

from jupyter_gpu.model.limits.amount import Amount
from jupyter_gpu.model.limits.calendar import LimitsInForce
from jupyter_gpu.model.limits.effective import EffectiveLimits
from jupyter_gpu.model.limits.source import Sourced

from .owner_limits import Maximum, OwnerLimits


def owner_limits(effective: EffectiveLimits, in_force: LimitsInForce) -> OwnerLimits:
    """Return the limits of an owner; `UNLIMITED` is no maximum."""
    models = {word: found for word, most in effective.models.items() if (found := _maximum(most))}
    return OwnerLimits(
        gpus=_maximum(in_force.max),
        models=models,
        memory=_maximum(effective.memory),
        guaranteed=in_force.guaranteed.value,
        weight=effective.weight.value,
        grace=float(effective.grace.value),
        source=in_force.max.source,
    )


def lowered(before: OwnerLimits, after: OwnerLimits) -> bool:
    """Tell whether any maximum is lower than it was, so that a new grace begins."""
    pairs = [(before.gpus, after.gpus), (before.memory, after.memory)]
    pairs += [(before.models.get(word), most) for word, most in after.models.items()]
    return any(new and (old is None or new.amount < old.amount) for old, new in pairs)


def _maximum(most: Sourced[Amount]) -> Maximum | None:
    return Maximum(most.value, most.source) if isinstance(most.value, int) else None
