"""Which GPUs are this node's: those that it ever had."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpu_node.agent.inventory.own_gpus import OwnGpus

HERE, GONE, OTHER = "GPU-here", "GPU-gone", "GPU-other"


def test_what_the_node_never_had_is_foreign_from_the_second_start_on(tmp_path: Path) -> None:
    """One that is gone stays its own. At the first start the earlier GPUs are unknown."""
    path = tmp_path / "state" / "gpus.json"
    first = OwnGpus(path)
    first.learn([HERE, GONE])
    assert first.foreign([HERE, OTHER]) == frozenset()
    second = OwnGpus(path)
    second.learn([HERE])
    assert second.foreign([HERE, GONE, OTHER]) == frozenset({OTHER})
    second.learn([OTHER])
    assert second.foreign([OTHER]) == OwnGpus(path).foreign([OTHER]) == frozenset()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"uuids": 7}', '{"uuids": [7]}', "\0" * 2**21])
def test_a_file_that_cannot_be_used_makes_nothing_foreign(tmp_path: Path, text: str) -> None:
    """It is written anew."""
    path = tmp_path / "gpus.json"
    path.write_text(text)
    own = OwnGpus(path)
    assert own.foreign([OTHER]) == frozenset()
    own.learn([HERE])
    assert OwnGpus(path).foreign([HERE, OTHER]) == frozenset({OTHER})


def test_what_cannot_be_written_leaves_no_file_that_misses_a_gpu(tmp_path: Path) -> None:
    """The next start would take that GPU for foreign, and release it without a proof."""
    path = tmp_path / "gpus.json"
    OwnGpus(path).learn([HERE])
    path.with_suffix(".new").mkdir()
    OwnGpus(path).learn([HERE, OTHER])
    assert OwnGpus(path).foreign([OTHER]) == frozenset()
