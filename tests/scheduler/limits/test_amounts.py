"""The plain maxima of an owner."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.limits.amount import UNLIMITED
from jupyter_gpu.model.limits.calendar import LimitsInForce
from jupyter_gpu.model.limits.effective import EffectiveLimits
from jupyter_gpu.model.limits.source import Source, Sourced, SourceKind
from jupyter_gpu_scheduler.rules.limits.amounts import lowered, owner_limits
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits

GROUP, CAP = Source(SourceKind.GROUP, "ml"), Source(SourceKind.CAP)


def test_maxima_come_with_their_sources() -> None:
    """The maximum is the one that is in force; models that are unlimited have none."""
    limits = EffectiveLimits(
        max=Sourced(4000, GROUP),
        models={"A100": Sourced(1000, CAP), "H100": Sourced(UNLIMITED, GROUP)},
        memory=Sourced(10**9, CAP),
        guaranteed=Sourced(3000, GROUP),
        weight=Sourced(7, GROUP),
        grace=Sourced(60, GROUP),
    )
    found = owner_limits(limits, LimitsInForce(Sourced(2000, CAP), Sourced(1500)))
    assert (found.guaranteed, found.weight) == (1500, 7)
    rest = OwnerLimits(Maximum(2000, CAP), {"A100": Maximum(1000, CAP)}, Maximum(10**9, CAP), 60.0, CAP)
    assert replace(found, guaranteed=0, weight=1) == rest
    free = owner_limits(EffectiveLimits(), LimitsInForce(Sourced(UNLIMITED, GROUP), Sourced(0)))
    assert (free.gpus, free.models, free.memory, free.source) == (None, {}, None, GROUP)


def test_any_lower_maximum_counts_as_lowered() -> None:
    """A maximum that is less than before, or new; not one that is the same, more or gone."""
    before = OwnerLimits(Maximum(2000), {"A100": Maximum(1000)}, Maximum(10**9))
    assert not lowered(before, before)
    assert not lowered(before, OwnerLimits())
    assert not lowered(before, OwnerLimits(Maximum(3000), {"A100": Maximum(1000)}, Maximum(10**9)))
    assert lowered(before, OwnerLimits(Maximum(1000), {"A100": Maximum(1000)}, Maximum(10**9)))
    assert lowered(before, OwnerLimits(Maximum(2000), {"A100": Maximum(500)}, Maximum(10**9)))
    assert lowered(before, OwnerLimits(Maximum(2000), {"H100": Maximum(9000)}, Maximum(10**9)))
    assert lowered(before, OwnerLimits(Maximum(2000), {}, Maximum(10)))
