"""Vendors: those that are built in, those of installed packages, and the GPUs of several as one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.common.settings_file import SettingsError
from jupyter_gpu.model.details import Reading
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node import __main__ as plugin
from jupyter_gpu_node.gpus import nvml, vendors
from jupyter_gpu_node.gpus.amd import AmdSource
from jupyter_gpu_node.gpus.joined import JoinedSources
from jupyter_gpu_node.gpus.registry import NVIDIA, Registry
from jupyter_gpu_node.gpus.rules.managed import Choice
from jupyter_gpu_node.gpus.rules.vendor import Host, Vendor, mistake
from jupyter_gpu_node.gpus.simulated import SimulatedGpus
from jupyter_gpu_node.gpus.source import OurGpus
from jupyter_gpu_node.settings import Simulated
from tests.node.test_settings import read

ACME = """
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.gpus.rules.vendor import Host, Vendor

class Source:
    simulated = False
    note = ""

    def inventory(self):
        return (Gpu("ACME-1", 0, "Acme One", 2**30, Device(240, 0), "/dev/acme0", vendor="acme"),)

    def loads(self, uuids):
        return {}

    details = loads

    def processes(self):
        return frozenset()

    def close(self):
        pass

acme = Vendor("acme", lambda host: Source(), frozenset({Device(240, 0)}), control=("/dev/acmectl",))
other = Vendor("other", acme.open, acme.devices)
word = "acme"
open = acme._replace(devices=frozenset())
"""


class Source:
    """GPUs that are what the test says."""

    simulated = False

    def __init__(self, *gpus: Gpu, note: str = "") -> None:
        self.gpus, self.note = gpus, note
        self.closed = 0

    def inventory(self) -> tuple[Gpu, ...]:
        return self.gpus

    def loads(self, uuids: Collection[str]) -> Mapping[str, GpuLoad]:
        return {gpu.uuid: GpuLoad(gpu.index, 0) for gpu in self.gpus if gpu.uuid in uuids}

    def details(self, uuids: Collection[str]) -> Mapping[str, Reading]:
        return {}

    def processes(self) -> frozenset[int]:
        return frozenset({len(self.gpus)})

    def close(self) -> None:
        self.closed += 1


class Telling(Source):
    """A source that can tell everything."""

    def instances(self) -> Mapping[str, frozenset[str] | None]:
        return dict.fromkeys(gpu.uuid for gpu in self.gpus)

    def users(self, uuids: Collection[str]) -> Mapping[str, frozenset[int]]:
        return dict.fromkeys(uuids, frozenset({7}))

    holders = users

    def peaks(self, uuids: Collection[str], seconds: float) -> Mapping[str, int]:
        return dict.fromkeys(uuids, int(seconds))

    def buses(self) -> Mapping[str, str]:
        return {one.uuid: f"0000:0{one.index}:00" for one in self.gpus}


def gpu(uuid: str, index: int) -> Gpu:
    """A GPU of any vendor."""
    return Gpu(uuid, index, "M", 2**30, Device(240, index))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs packages whose entry points lead to vendors."""

    def install(name: str, **points: str) -> None:
        folder = tmp_path / name
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir(parents=True)
        (folder / f"{name}_gpus.py").write_text(ACME)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = (f"{key} = {value}\n" for key, value in points.items())
        (about / "entry_points.txt").write_text(f"[{vendors.GROUP}]\n{''.join(lines)}")
        monkeypatch.syspath_prepend(str(folder))

    yield install
    for module in [name for name in sys.modules if name.endswith("_gpus") and name.startswith("made")]:
        del sys.modules[module]


def test_nvidia_alone_is_the_default(tmp_path: Path) -> None:
    """And is covered whatever is chosen."""
    assert read(tmp_path, {}).vendors == (vendors.NVIDIA,)
    assert plugin.managed(read(tmp_path, {})) == NVIDIA
    assert plugin.managed(read(tmp_path, {"vendors": ["amd"]})) == NVIDIA | vendors.AMD.devices


def test_vendors_are_chosen_by_name(tmp_path: Path) -> None:
    """In the order in which their GPUs are counted."""
    assert read(tmp_path, {"vendors": ["amd", "nvidia"]}).vendors == (vendors.AMD, vendors.NVIDIA)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ([], "one vendor or several"),
        (["amd", "amd"], "each once"),
        (["acme"], r"no installed package has the vendor 'acme'\. Known are amd, nvidia"),
        ("amd", "a list"),
        ([7], "text"),
        (["v"] * 9, "at most 8"),
    ],
)
def test_vendor_that_is_not_there_is_refused(tmp_path: Path, names: Any, words: str) -> None:
    """The plugin does not start: it would leave open what nobody described."""
    with pytest.raises(SettingsError, match=words):
        read(tmp_path, {"vendors": names})


def test_installed_package_brings_a_vendor(tmp_path: Path, package: Callable[..., None]) -> None:
    """Its GPUs are found beside the others, its devices are denied, and containers get its control devices."""
    package("made1", acme="made1_gpus:acme")
    settings = read(tmp_path, {"vendors": ["acme"]})
    assert [vendor.name for vendor in settings.vendors] == ["acme"]
    assert Device(240, 0) in plugin.managed(settings)
    registry = Registry(lambda: plugin.source(settings), plugin.managed(settings))
    registry.take()
    assert [gpu.uuid for gpu in registry.gpus] == ["ACME-1"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("made2_gpus:missing", "cannot be loaded from made2_gpus:missing"),
        ("made2_none:acme", "cannot be loaded from made2_none:acme: No module named 'made2_none'"),
        ("made2_gpus:other", "made2_gpus:other is not the vendor 'acme'"),
        ("made2_gpus:word", "made2_gpus:word is not the vendor 'acme'"),
        ("made2_gpus:open", "made2_gpus:open is no vendor whose GPUs can be guarded. It names no devices"),
    ],
)
def test_entry_point_that_leads_to_no_vendor_is_refused(
    tmp_path: Path, package: Callable[..., None], value: str, words: str
) -> None:
    """With what it says and where."""
    package("made2", acme=value)
    with pytest.raises(SettingsError, match=words):
        read(tmp_path, {"vendors": ["nvidia", "acme"]})


def test_vendor_of_two_packages_is_refused(package: Callable[..., None]) -> None:
    """One of them may be no friend; a package cannot replace a vendor that is built in."""
    package("made3", acme="made3_gpus:acme", nvidia="made3_gpus:acme")
    package("made4", acme="made4_gpus:acme")
    with pytest.raises(FieldError, match=r"2 installed packages have the vendor 'acme'\. Known are acme, amd, nvidia"):
        vendors.read(["acme"], "vendors")
    assert vendors.read(["nvidia"], "vendors") == (vendors.NVIDIA,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "Acme"}, "lower-case"),
        ({"name": ""}, "lower-case"),
        ({"name": "a" * 33}, "at most 32"),
        ({"devices": frozenset()}, "nothing could guard"),
        ({"optional": ("/dev/x",)}, "not among"),
    ],
)
def test_vendor_that_could_not_be_guarded_is_none(changes: dict[str, Any], words: str) -> None:
    """Its mistake is said."""
    assert words in str(mistake(vendors.AMD._replace(**changes)))


@pytest.mark.parametrize("vendor", vendors.BUILT_IN.values(), ids=vendors.BUILT_IN)
def test_built_in_vendor_has_no_mistake(vendor: Vendor) -> None:
    """It is not checked again at each start."""
    assert mistake(vendor) is None


def test_own_vendors_open_their_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NVIDIA's with what it must know of the program that asks; simulated GPUs replace all."""
    asked: list[Any] = []

    def made(leave: Any, bare: Callable[[], bool]) -> Source:
        asked.append((leave, bare()))
        return Source()

    monkeypatch.setattr(nvml, "NvmlSource", made)
    assert isinstance(vendors.open_sources((vendors.NVIDIA,), Host(print, lambda: True)), Source)
    assert isinstance(vendors.open_sources((vendors.AMD,), Host()), AmdSource)
    assert isinstance(vendors.open_sources((vendors.NVIDIA, vendors.AMD), Host()), JoinedSources)
    assert asked == [(print, True), (None, False)]
    settings = replace(read(tmp_path, {"vendors": ["amd"]}), simulated=Simulated(0), state=tmp_path)
    assert isinstance(plugin._every(settings), SimulatedGpus)


def test_source_that_cannot_be_opened_closes_the_others() -> None:
    """Nothing stays behind when the program starts again."""
    first = Source()

    def fail(_host: Host) -> Any:
        raise OSError("no such GPUs")

    made = [vendors.AMD._replace(open=lambda _host: first), vendors.AMD._replace(name="other", open=fail)]
    with pytest.raises(OSError, match="no such GPUs"):
        vendors.open_sources(made, Host())
    assert first.closed == 1


def test_indexes_go_on_and_never_move_back() -> None:
    """A GPU that falls off the bus does not change the numbers of another vendor's."""
    first, second = Source(gpu("a", 0), gpu("b", 2), note="one."), Source(gpu("c", 0), note="two.")
    joined = JoinedSources((first, second))
    assert [(gpu.uuid, gpu.index) for gpu in joined.inventory()] == [("a", 0), ("b", 2), ("c", 3)]
    first.gpus = first.gpus[:1]
    assert [(gpu.uuid, gpu.index) for gpu in joined.inventory()] == [("a", 0), ("c", 3)]
    assert joined.note == "one. two."
    joined.close()
    assert (first.closed, second.closed) == (1, 1)


def test_each_source_tells_what_it_can() -> None:
    """One that cannot tell something does not keep the other from it, in front of the choice of GPUs either."""
    joined = JoinedSources((Source(gpu("a", 3)), Telling(gpu("b", 4))))
    joined.inventory()
    assert joined.loads(["a", "b"]) == {"a": GpuLoad(3, 0), "b": GpuLoad(4, 0)}
    assert joined.details(["a", "b"]) == {}
    assert joined.instances() == {"b": None}
    assert joined.users(["b"]) == joined.holders(["b"]) == {"b": {7}}
    assert joined.peaks(["b"], 5) == {"b": 5}
    assert joined.processes() == {1}
    assert OurGpus(joined, Choice()).holders(["b"]) == {"b": {7}}
    assert joined.buses() == OurGpus(joined, Choice()).buses() == {"b": "0000:04:00"}
    assert OurGpus(Source(), Choice()).buses() == {}
    assert OurGpus(Source(), Choice()).holders(["b"]) == {}
    registry = Registry(lambda: Source(gpu("a", 0)))
    registry.take()
    assert registry.holders(["a"]) == {}
