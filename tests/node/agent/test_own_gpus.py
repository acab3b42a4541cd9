"""The GPUs that this node ever had."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpu_node.agent.inventory.own_gpus import OwnGpus

HERE, GONE, OTHER = "GPU-here", "GPU-gone", "GPU-other"


def test_unknown_gpu_is_foreign_from_the_second_start_on(tmp_path: Path) -> None:
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
def test_unusable_file_makes_no_gpu_foreign(tmp_path: Path, text: str) -> None:
    """It is written anew."""
    path = tmp_path / "gpus.json"
    path.write_text(text)
    own = OwnGpus(path)
    assert own.foreign([OTHER]) == frozenset()
    own.learn([HERE])
    assert OwnGpus(path).foreign([HERE, OTHER]) == frozenset({OTHER})


def test_failed_write_leaves_no_incomplete_file(tmp_path: Path) -> None:
    """The next start would take that GPU for foreign, and release it without a proof."""
    path = tmp_path / "gpus.json"
    OwnGpus(path).learn([HERE])
    path.with_suffix(".new").mkdir()
    OwnGpus(path).learn([HERE, OTHER])
    assert OwnGpus(path).foreign([OTHER]) == frozenset()
