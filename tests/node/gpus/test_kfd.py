"""The description of AMD's GPUs by their driver: what is read, and what is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.gpu import MAX_COMPUTE, Device, Gpu
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.gpus.rules import kfd
from jupyter_gpu_node.gpus.rules.kfd import Files, Node

GIB = 2**30
TEXT = (
    "simd_count 416\nunique_id 9970000000000000000\ndrm_render_minor 129\nlocation_id 768\ngfx_target_version 90402\n"
)
BANKS = ("heap_type 0\nsize_in_bytes 900\n", "heap_type 1\nsize_in_bytes 100\n", "heap_type 2\nsize_in_bytes 50\n")
NODE = Node(7, unique=255, minor=128, memory=64 * GIB, place=(0, 768), target="gfx90a")
FINE = Files(product="AMD Instinct MI210\n", numa="1\n", total=f"{64 * GIB}\n")
names = st.text(max_size=12)
numbers = st.integers(-10, 2**70).map(str) | st.sampled_from(["", "-1", "0x10", "1.5", "٣", "9" * 400, "a b"])
texts = st.none() | numbers.map("{}\n".format) | st.text(max_size=40)
many_files = st.builds(Files, texts, texts, texts, texts, texts, texts, texts)
nodes = st.builds(
    Node,
    st.integers(1, 3),
    unique=st.integers(1, 4),
    minor=st.integers(128, 140),
    memory=st.integers(1, 2**53 - 1),
    place=st.tuples(st.just(0), st.integers(0, 3)),
    hive=st.integers(0, 2**64 - 1),
    target=st.sampled_from(["", "gfx90a"]),
    compute=st.none() | st.integers(1, MAX_COMPUTE),
)


def test_node_of_a_gpu_is_read() -> None:
    """Its memory is what lies on the card, visible to the CPU or not."""
    found = kfd.node("51234\n", TEXT + "hive_id 17\ndomain 1\n", BANKS)
    assert found == Node(51234, 9970000000000000000, 129, 150, (1, 768), 17, "gfx942")
    assert found.uuid == f"GPU-{9970000000000000000:016x}"
    assert kfd.node("51234", TEXT, BANKS) == Node(51234, 9970000000000000000, 129, 150, (0, 768), 0, "gfx942")


@pytest.mark.parametrize("location", [49920, 49920 | 5, 49920 | 3 << 28])
def test_place_is_that_of_the_whole_gpu(location: int) -> None:
    """Partitions of a GPU have one place, wherever the kernel puts their numbers."""
    found = kfd.node("1", TEXT.replace("768", str(location)) + "domain 1\n", BANKS)
    assert found is not None
    assert (found.place, found.bus) == ((1, 49920), "0001:c3:00")


@pytest.mark.parametrize(
    ("lines", "compute"),
    [
        ("simd_per_cu 4\nmax_engine_clk_fcompute 1700\n", 22_630),
        ("simd_per_cu 2\nmax_engine_clk_fcompute 1700\n", 45_260),
        ("simd_per_cu 4\n", None),
        ("max_engine_clk_fcompute 1700\n", None),
        ("simd_per_cu 0\nmax_engine_clk_fcompute 0\n", None),
    ],
)
def test_compute_follows_from_units_and_clock(lines: str, compute: int | None) -> None:
    """An MI210 has 104 compute units of four SIMDs; a driver that does not tell all of it is no reason to refuse."""
    found = kfd.node("1", TEXT + lines, BANKS)
    assert found is not None
    assert found.compute == compute
    (shown,) = kfd.gpus([(found, FINE)])
    assert shown.compute == compute


def test_node_of_a_cpu_is_none() -> None:
    """It has no device, whatever else is in its files."""
    assert kfd.node("0\n", "nonsense", ["nonsense"]) is None


@pytest.mark.parametrize(
    ("version", "target"), [(90010, "gfx90a"), (90402, "gfx942"), (110001, "gfx1101"), (120000, "gfx1200"), (0, "")]
)
def test_architecture_has_the_usual_name(version: int, target: str) -> None:
    """The last two digits are hexadecimal."""
    found = kfd.node("1", TEXT.replace("90402", str(version)), BANKS)
    assert found is not None
    assert found.target == target


@pytest.mark.parametrize(
    ("gpu_id", "text", "banks", "words"),
    [
        ("", TEXT, BANKS, "gpu_id"),
        ("-3", TEXT, BANKS, "gpu_id"),
        (str(2**32), TEXT, BANKS, "gpu_id"),
        ("1", TEXT.replace("unique_id", "unique"), BANKS, "unique_id' is missing"),
        ("1", TEXT.replace("9970000000000000000", "0"), BANKS, "unique_id"),
        ("1", TEXT.replace("9970000000000000000", str(2**64)), BANKS, "unique_id"),
        ("1", TEXT.replace("9970000000000000000", "9" * 30), BANKS, "unique_id' is missing"),
        ("1", TEXT.replace("129", "-1"), BANKS, "drm_render_minor' is missing"),
        ("1", TEXT.replace("129", "1"), BANKS, "drm_render_minor"),
        ("1", TEXT.replace("129", "512"), BANKS, "drm_render_minor"),
        ("1", TEXT.replace("location_id", "place"), BANKS, "location_id' is missing"),
        ("1", TEXT + TEXT, BANKS, "there twice"),
        ("1", TEXT, BANKS[:1], "size_in_bytes"),
        ("1", TEXT, (), "size_in_bytes"),
        ("1", TEXT, ("heap_type 1\n",), "size_in_bytes' is missing"),
        ("1", TEXT, ("size_in_bytes 1\n",), "heap_type' is missing"),
        ("1", TEXT, (f"heap_type 1\nsize_in_bytes {2**53}\n",), "size_in_bytes"),
    ],
)
def test_node_that_is_not_understood_is_refused(gpu_id: str, text: str, banks: tuple[str, ...], words: str) -> None:
    """A value is missing, twice, or cannot be: such a GPU has no identity, no device or no memory to count on."""
    with pytest.raises(FieldError, match=words):
        kfd.node(gpu_id, text, banks)


@given(names | numbers, st.lists(st.tuples(names, numbers)), st.lists(st.tuples(names, numbers)))
def test_any_files_give_a_gpu_a_cpu_or_a_reason(
    gpu_id: str, about: list[tuple[str, str]], bank: list[tuple[str, str]]
) -> None:
    """Nothing else is raised, whatever the driver of a later version writes."""
    text, memory = ("\n".join(map(" ".join, lines)) for lines in (about, bank))
    try:
        found = kfd.node(gpu_id, TEXT + text, (*BANKS, memory))
    except FieldError:
        return
    assert found is None or (found.minor == 129 and found.memory >= 150)


def test_gpu_is_what_its_files_say() -> None:
    """Its uuid is that of ROCm, its device the one that renders."""
    (found,) = kfd.gpus([(NODE, FINE)])
    assert found == Gpu(
        uuid="GPU-00000000000000ff",
        index=0,
        model="AMD Instinct MI210",
        memory=64 * GIB,
        device=Device(226, 128),
        path="/dev/dri/renderD128",
        numa=1,
        vendor="amd",
    )


def test_gpu_without_a_name_is_named_by_its_architecture() -> None:
    """Cards for consumers have no product name; a machine with one memory node says -1."""
    (found,) = kfd.gpus([(NODE._replace(hive=0xAB), FINE._replace(product=None, numa="-1\n"))])
    assert (found.model, found.numa, found.island) == ("AMD gfx90a", None, "hive-ab")
    (found,) = kfd.gpus([(NODE._replace(target=""), FINE._replace(product=" \n"))])
    assert found.model == "AMD"


@pytest.mark.parametrize("total", [None, "", "0\n", "many\n", "-1\n", str(2**53)])
def test_gpu_whose_driver_does_not_tell_its_memory_is_unhealthy(total: str | None) -> None:
    """So it is while the driver resets it."""
    (found,) = kfd.gpus([(NODE, FINE._replace(total=total))])
    assert not found.healthy
    assert "does not answer" in found.health


def test_divided_gpu_is_unhealthy() -> None:
    """Its partitions have devices of their own: it cannot be given as a whole."""
    parts = [(NODE._replace(gpu_id=number, unique=number, minor=127 + number), FINE) for number in (3, 1, 2)]
    (found,) = kfd.gpus(parts)
    assert (found.device, found.healthy, found.health) == (Device(226, 128), False, kfd.DIVIDED)


@pytest.mark.parametrize("other", [NODE._replace(minor=129), NODE._replace(unique=256)])
def test_gpus_with_the_same_id_or_device_are_one_unhealthy_gpu(other: Node) -> None:
    """A grant of one would be a grant of the other."""
    other = other._replace(place=(0, 1024))
    (found,) = kfd.gpus([(NODE, FINE), (other, FINE)])
    assert (found.healthy, found.health) == (False, kfd.TWICE)


@given(st.lists(st.tuples(nodes, many_files), max_size=6))
def test_no_two_gpus_share_anything(found: list[tuple[Node, Files]]) -> None:
    """Whatever the files say: uuids, indexes and devices differ, and an inventory can carry each GPU."""
    gpus = kfd.gpus(found)
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    assert len({gpu.device for gpu in gpus}) == len(gpus)
    assert all(Gpu.from_json(gpu.to_json()) == gpu for gpu in gpus)
    for gpu in (gpu for gpu in gpus if gpu.healthy):
        (own,) = (node for node, _ in found if node.uuid == gpu.uuid)
        assert [node for node, _ in found if node.place == own.place or node.minor == own.minor] == [own]


def test_load_is_read_in_its_units() -> None:
    """Thousandths of a degree, millionths of a watt."""
    files = Files(busy="37\n", used=f"{3 * GIB}\n", celsius="41500\n", watts="97250000\n")
    assert kfd.load(files) == GpuLoad(37, 3 * GIB, 41, 97.25)


@given(many_files)
def test_any_load_is_one_that_can_be_shown(files: Files) -> None:
    """A value that cannot be is not known."""
    found = kfd.load(files)
    assert GpuLoad.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("files", "missing"), [(Files(celsius="9999999"), "temperature"), (Files(watts="9" * 20), "power")]
)
def test_impossible_sensor_is_not_known(files: Files, missing: str) -> None:
    """A sensor that is broken must not break the rest."""
    assert getattr(kfd.load(files), missing) is None


def test_kept_gpus_are_read_off_the_names_of_files() -> None:
    """For each process the driver has a file for each GPU that it keeps for it."""
    assert kfd.held(["vram_51234", "sdma_7", "pasid", "queues", "vram_", "vram_x", "vram_8"]) == {51234, 8}


@given(st.none() | st.binary(max_size=130), st.integers(0, 2**64 - 1))
def test_only_a_table_of_the_known_layout_makes_a_gpu_slow(other: bytes | None, why: int) -> None:
    """By its bits for temperatures; all bits together mean that the driver does not know."""
    table = struct.pack("<HBB108xQ", 120, 1, 3, why)
    assert kfd.slow(table) is (why != 2**64 - 1 and why >> 32 & 0xFFFF != 0)
    assert kfd.slow(table[:-1]) is False
    assert kfd.slow(b"\0\0\2\2" + table[4:]) is False
    assert kfd.slow(other) in (False, bool(other and other[2:4] == b"\1\3"))
