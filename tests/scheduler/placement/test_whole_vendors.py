"""Nodes with GPUs of several vendors: those of vendors without shares are given as a whole."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu_scheduler.rules.queue.decide import decide
from tests.builders import NODE, apply, cluster, inventory, pod

vendors = st.lists(st.sampled_from(["nvidia", "amd", "acme"]), min_size=1, max_size=5)
amounts = st.lists(st.sampled_from([0.25, 0.5, 1, 1.5, 2, 2.25, 3]), min_size=1, max_size=4)


@given(vendors, amounts, st.none() | st.sampled_from(["nvidia", "amd"]), st.sampled_from([None, 500]))
def test_only_gpus_of_nvidia_are_shared(
    kinds: list[str], wants: list[float], vendor: str | None, each: int | None
) -> None:
    """Whatever is asked for at once; and a pod that is alone, with a wish that is not refused, gets all of it."""
    gpus = tuple(replace(gpu, vendor=kind) for gpu, kind in zip(inventory(len(kinds)), kinds, strict=True))
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    wishes = [Wish(int(1000 * amount), each=each if amount % 0.5 == 0 else None, vendor=vendor) for amount in wants]
    pods = [pod(f"pod{number}", wants=wish, has=[], node=NODE) for number, wish in enumerate(wishes)]
    for some in (pods, pods[:1]):
        snapshot = cluster({NODE: gpus}, some)
        apply(snapshot, decide(snapshot, NODE))
        for one in snapshot.pods(NODE):
            for share in one.allocated.shares if one.allocated else ():
                assert share.exclusive or by_uuid[share.uuid].vendor == "nvidia"
                assert vendor in (None, by_uuid[share.uuid].vendor)
    (alone,) = snapshot.pods(NODE)
    granted = sum(share.milli for share in alone.allocated.shares) if alone.allocated else 0
    if refuse(wishes[0], limit=None, gpus=gpus) is None:
        assert granted == wishes[0].milli
    else:
        assert granted < wishes[0].milli
