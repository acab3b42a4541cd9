"""The view, which panel, code and terminal show."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import NVIDIA, Gpu, Holder
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import Condition, GpuLoad, GpuState, GpuUser, Mode, PodGpu, Sample, View, steps

from . import strategies as any_
from .test_share import ONE as SHARE

pytestmark = pytest.mark.uncounted(after=25)


@given(any_.views)
def test_view_survives_a_round_trip(view: View) -> None:
    """Any view is read as it was written, over text."""
    assert View.from_json(strict.loads(strict.dumps(view.to_json()), 10**6)) == view


@given(any_.views)
def test_computed_fields_are_not_believed(view: View) -> None:
    """Fields that are computed for other readers are what the model computes, and are ignored when read."""
    body = view.to_json()
    now = view.status
    assert (body["phase"], body["reason"], body["settled"]) == (now.phase, now.reason, now.settled)
    assert View.from_json({**body, "phase": "Nonsense", "amounts": None}) == view
    assert view.generation == (view.requested.generation if view.requested else 0)


@given(any_.views)
def test_what_one_process_can_use(view: View) -> None:
    """The amount that works on one node is never more than all that is attached, and all of it if nothing is broken."""
    workers = [worker.usable for worker in view.workers]
    assert view.together <= max([view.here, *workers])
    gpus = tuple(gpu for gpu in view.gpus if gpu.state is not GpuState.UNHEALTHY)
    works = replace(view, gpus=gpus, workers=tuple(worker._replace(health=()) for worker in view.workers))
    assert works.together == max([view.here, *workers])
    broken = [worker._replace(health=("broken",) * len(worker.gpus)) for worker in view.workers]
    assert replace(works, workers=tuple(broken), attached=None).together == 0
    assert view.here + sum(workers) == view.status.attached


@given(any_.views)
def test_every_view_has_a_sentence(view: View) -> None:
    """Every view has a sentence of one line."""
    assert len(sentence(view).splitlines()) == 1


@given(
    any_.json_values | st.dictionaries(st.sampled_from(["instance", "gpus", "steps", "requested"]), any_.json_values)
)
def test_any_json_is_read_or_refused(value: object) -> None:
    """Any JSON value is a view or a FieldError."""
    with pytest.raises(FieldError):
        View.from_json(value)


@given(any_.views, st.sampled_from(["instance", "version", "mode", "requested", "allocated", "gpus"]), any_.json_values)
def test_any_field_is_read_or_refused(view: View, key: str, value: object) -> None:
    """Whatever stands in a field, the view is read or refused by name."""
    field = key
    try:
        View.from_json({**view.to_json(), key: value})
    except FieldError as error:
        field = error.field
    assert field


ODD = "py\x1b]0;owned\x07\ntho\udcffn\u202e"
CLEAN = "py�]0;owned��tho�n�"


def test_odd_names_do_no_harm() -> None:
    """No name of a process or a file makes a view unreadable or writes to a terminal."""
    user = GpuUser(1, ODD, False, "k", f"dir/{ODD * 1000}.ipynb")
    gpu = PodGpu(Gpu("a", 0, "m", 1, health=ODD * 100), 1000, GpuState.ATTACHED, (user, GpuUser(2, "")))
    view = View("i", 1, Mode.SOFT, False, "local", 1000, 1000, (0,), gpus=(gpu,), conditions=(Condition("t", ODD),))
    text = strict.dumps(view.to_json())
    text.encode()
    again = View.from_json(strict.loads(text, 10**6))
    assert [u.command for u in again.gpus[0].users] == [CLEAN, "?"]
    assert len(again.gpus[0].users[0].notebook or "") == 4096
    assert len(again.gpus[0].gpu.health) == 512
    assert again.conditions[0].message == CLEAN
    assert Holder.from_json(Holder(1, ODD).to_json()) == Holder(1, CLEAN)


@pytest.mark.parametrize(
    ("user", "name"),
    [
        (GpuUser(5, "python", notebook="a/b/c.ipynb"), "c.ipynb"),
        (GpuUser(5, "python", notebook="c.ipynb"), "c.ipynb"),
        (GpuUser(5, "python"), "python (process 5)"),
        (GpuUser(0, "python", foreign=True), "python"),
    ],
)
def test_holder_has_a_readable_name(user: GpuUser, name: str) -> None:
    """A notebook is called by its file, a process by its number where it has one here."""
    assert user.name == name


def test_sample_is_plain_json() -> None:
    """A sample is plain JSON."""
    sample = Sample(1.5, {"a": GpuLoad(50.0, 1024), "b": GpuLoad(None, None)})
    loads = {"a": {"utilisation": 50.0, "memory": 1024}, "b": {"utilisation": None, "memory": None}}
    assert sample.to_json() == {"time": 1.5, "gpus": loads}
    assert Sample.from_json(sample.to_json()) == sample


def test_sample_has_the_use_of_shares() -> None:
    """The use of a share stands beside the load of its GPU; a bad field is named."""
    sample = Sample(1.5, {"GPU-1": GpuLoad(50, 1024)}, {"GPU-1": SHARE})
    body = sample.to_json()
    assert body["shares"] == {"GPU-1": SHARE.to_json()}
    assert Sample.from_json(strict.loads(strict.dumps(body), 10**6)) == sample
    with pytest.raises(FieldError, match="another GPU"):
        Sample.from_json({**body, "shares": {"GPU-2": SHARE.to_json()}})


@given(st.sampled_from(["time", "gpus", "shares"]), any_.json_values)
def test_any_field_of_a_sample_is_read_or_refused(key: str, value: object) -> None:
    """Whatever stands in a field, the sample is read or refused."""
    body = {**Sample(1.5, {"GPU-1": GpuLoad(50, 1024)}, {"GPU-1": SHARE}).to_json(), key: value}
    try:
        again = Sample.from_json(body)
    except FieldError:
        return
    assert Sample.from_json(again.to_json()) == again


@given(st.integers(0, 16_000), st.lists(st.integers(1, 999), max_size=4).map(tuple))
def test_steps_ascend_to_the_limit(limit: int, fractions: tuple[int, ...]) -> None:
    """Steps ascend without doubles from 0 to the limit: all whole GPUs and fractions up to it, nothing else."""
    offered = steps(limit, fractions)
    assert list(offered) == sorted(set(offered))
    assert (offered[0], offered[-1]) == (0, limit)
    assert {*range(0, limit + 1, 1000), *(f for f in fractions if f <= limit)} == set(offered) - (
        {limit} - set(range(0, limit + 1, 1000)) - set(fractions)
    )


@given(st.integers(0, 16_000), st.lists(any_.gpu_kinds, min_size=1, max_size=3))
def test_steps_are_whole_gpus_where_no_gpu_has_shares(limit: int, kinds: list[GpuKind]) -> None:
    """One kind with shares is enough for fractions."""
    offered = steps(limit, (250, 500), kinds)
    shares = any(kind.vendor == NVIDIA for kind in kinds)
    assert offered == (steps(limit, (250, 500)) if shares else tuple(range(0, limit + 1, 1000)))
