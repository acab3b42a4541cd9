"""Key pairs of a notebook for its workers."""

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.service import Relation, Service, WorkerPart
from jupyter_gpu.server.rules.pairing import KeyPair, kept, lacking, own, ways
from tests.model.test_service import KEY

READY = WorkerPart("w1", "node2", 2000, Relation.SWITCH, "p", "u", "10.0.2.7", 47100, KEY, revision=3)
PAIR = KeyPair("public", "secret")
names = st.sets(st.sampled_from([f"w{number}" for number in range(1, 9)]))


@given(names, names)
def test_each_worker_has_a_pair_of_its_own(named: set[str], had: set[str]) -> None:
    """Those that are gone have none; all others keep theirs."""
    service = Service(1, tuple(WorkerPart(name, "n") for name in sorted(named)))
    pairs = {name: KeyPair(name, "s") for name in had}
    left = kept(service, pairs)
    assert left.keys() == named & had
    assert set(lacking(service, left)) == named - had
    assert own(left).keys == tuple(sorted((name, name) for name in named & had))


def test_without_workers_there_are_no_pairs() -> None:
    """Also while what is written of them cannot be read."""
    assert kept(None, {"w1": PAIR}) == {}
    assert lacking(None, {}) == ()
    assert ways(None, {"w1": PAIR}) == {"workers": []}


def test_ways_lead_to_workers_that_can_be_reached() -> None:
    """With the keys of both ends; without address or key of its worker, or a pair of ours, there is no way."""
    service = Service(1, (READY, WorkerPart("w2", "node3"), WorkerPart("w3", "n", address="::1", port=1, key=KEY)))
    (way,) = ways(service, {"w1": PAIR, "w2": PAIR})["workers"]
    about = {"id": "w1", "node": "node2", "milli": 2000, "relation": "switch", "address": "10.0.2.7", "port": 47100}
    assert way == {**about, "key": KEY, "revision": 3, "public": "public", "secret": "secret"}
    assert "secret" not in repr(PAIR).replace("secret=", "")
