"""Policies: what settings mean, and what is wrong with bad ones."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.scoring.policy import ATTRIBUTES, PRESETS, TYPICAL, Policy, PolicyError, WorkloadKind
from tests.builders import GIB


def test_default_policy_is_fgd() -> None:
    """The default policy has the typical mix of wishes."""
    policy = Policy.from_settings({})
    assert (policy.name, policy.weights, policy.models) == ("fgd", PRESETS["fgd"], {})
    assert policy.workload == TYPICAL
    assert Policy().weights == policy.weights


def test_own_weights_override_those_of_the_policy() -> None:
    """Weights that are not named stay."""
    policy = Policy.from_settings({"name": "pack", "weights": {"cpu_free": 3, "gpu_free": -1.5}, "models": {"H100": 9}})
    assert policy.weights == {**PRESETS["pack"], "cpu_free": 3.0, "gpu_free": -1.5}
    assert policy.models == {"H100": 9.0}


def test_own_gpus_and_headroom_are_read() -> None:
    """Priorities are by uuid; the CPU to keep free is in cores, and 10 if nothing is said."""
    policy = Policy.from_settings({"gpus": {"GPU-1": 9, "GPU-2": 0}, "headroom": 2.5})
    assert (policy.gpus, policy.headroom) == ({"GPU-1": 9, "GPU-2": 0}, 2500)
    assert (Policy.from_settings({}).gpus, Policy.from_settings({}).headroom) == ({}, 10_000)


def test_own_mix_of_wishes_is_read() -> None:
    """A mix has the fields of a wish, CPU in cores, and pods that want no GPU."""
    policy = Policy.from_settings(
        {
            "workload": [
                {"share": 3, "gpus": 0.5, "cpu": 1.5},
                {"share": 1, "gpus": "2", "model": ["A100"], "memory": GIB, "topology": "island"},
                {"share": 0},
            ]
        }
    )
    assert policy.workload == (
        WorkloadKind(Wish(500), 3.0, 1500),
        WorkloadKind(Wish(2000, model=("A100",), memory=GIB, topology="island"), 1.0),
        WorkloadKind(None, 0.0),
    )


def test_every_weight_is_documented() -> None:
    """The table of the module names every weight, and presets name no other."""
    from jupyter_gpu_scheduler.rules.scoring import policy

    assert all(f"``{name}``" in (policy.__doc__ or "") for name in ATTRIBUTES)
    assert {name for weights in PRESETS.values() for name in weights} <= set(ATTRIBUTES)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"nam": "fgd"}, "policy has no nam; it has name, weights, models, gpus, headroom, workload."),
        ([], "policy must be an object with name, weights, models, gpus, headroom, workload."),
        ({"name": "best"}, "policy.name is 'best'; it must be one of fgd, pack, source, spread."),
        ({"name": 3}, "policy.name is 3; it must be one of fgd, pack, source, spread."),
        ({"weights": []}, "policy.weights must be an object of names and numbers."),
        ({"weights": {"gpu": 1}}, "policy.weights has no gpu; it has fragmentation, together,"),
        ({"weights": {"gpu_free": "1"}}, "policy.weights.gpu_free is '1'; it must be a number from -1000 to 1000."),
        ({"weights": {"gpu_free": True}}, "policy.weights.gpu_free is True;"),
        ({"weights": {"gpu_free": float("nan")}}, "policy.weights.gpu_free is nan;"),
        ({"models": {"A100": 11}}, "policy.models.A100 is 11; it must be a number from 0 to 10."),
        ({"gpus": []}, "policy.gpus must be an object of uuids and priorities."),
        ({"gpus": {"GPU-1": 10}}, "policy.gpus.GPU-1 is 10; it must be a whole number from 0 to 9."),
        ({"gpus": {"GPU-1": -1}}, "policy.gpus.GPU-1 is -1; it must be a whole number from 0 to 9."),
        ({"gpus": {"GPU-1": 1.0}}, "policy.gpus.GPU-1 is 1.0; it must be a whole number from 0 to 9."),
        ({"gpus": {"GPU-1": True}}, "policy.gpus.GPU-1 is True; it must be a whole number from 0 to 9."),
        ({"gpus": {"": 1}}, "policy.gpus names a GPU by ''; it must be a uuid of 1 to 96 characters."),
        ({"gpus": {"x" * 97: 1}}, "policy.gpus names a GPU by 'xxx"),
        ({"headroom": -1}, "policy.headroom is -1; it must be a number from 0 to 256."),
        ({"headroom": "6"}, "policy.headroom is '6'; it must be a number from 0 to 256."),
        ({"workload": []}, "policy.workload must be a list of 1 to 256 kinds of wishes."),
        ({"workload": "x"}, "policy.workload must be a list of 1 to 256 kinds of wishes."),
        ({"workload": 3}, "policy.workload must be a list of 1 to 256 kinds of wishes."),
        ({"workload": [{"share": 0}]}, "policy.workload needs a share above 0."),
        ({"workload": [{"gpus": 1}]}, "policy.workload[0].share is None; it must be a number from 0 to 1e+09."),
        ({"workload": [{"share": 1, "size": 2}]}, "policy.workload[0] has no size; it has share, gpus,"),
        ({"workload": [{"share": 1, "gpus": -1}]}, "policy.workload[0]: -1 is negative; ask for 0 GPUs or more."),
        ({"workload": [{"share": 1, "gpus": 1, "topology": "x"}]}, "policy.workload[0]: "),
        ({"workload": [{"share": 1}, 7]}, "policy.workload[1] must be an object with share, gpus,"),
    ],
)
def test_bad_policy_is_refused_in_words(settings: Any, words: str) -> None:
    """The message says where, what, and what to write instead."""
    with pytest.raises(PolicyError) as caught:
        Policy.from_settings(settings)
    assert str(caught.value).startswith(words)
