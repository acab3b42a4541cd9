"""Images as nodes tell them: only the same repository's digest counts."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_scheduler.rules.state.images import pulled_image, slot_images

DIGEST = "sha256:" + "a" * 64


def body(image: Any, pulled: str = "", name: str = "c") -> dict[str, Any]:
    """Return a pod with a container that has a slot, after one without."""
    slot = {"name": "c", "image": image, "resources": {"limits": {"jupyter-gpu.io/slot": "1"}}}
    status = {"containerStatuses": [{"name": "x"}, 7, {"name": name, "imageID": pulled}]}
    return {"spec": {"containers": [{"name": "x", "image": "side"}, slot]}, "status": status}


@pytest.mark.parametrize(
    ("image", "pulled", "found"),
    [
        ("lab:1", f"docker.io/library/lab@{DIGEST}", {"lab:1", f"lab@{DIGEST}"}),
        (
            "my.org:50/lab",
            f"docker-pullable://my.org:50/lab@{DIGEST}",
            {f"my.org:50/lab@{DIGEST}"},
        ),
        ("ann/lab:1", f"docker.io/eve/lab@{DIGEST}", {"ann/lab:1"}),
        ("lab:1", "", {"lab:1"}),
    ],
)
def test_image_of_the_slot(image: str, pulled: str, found: set[str]) -> None:
    """As it is written, and by its digest."""
    assert slot_images(body(image, pulled)) >= found
    assert slot_images(body(image, pulled)) <= {image, *found}


def test_odd_pods_have_none() -> None:
    """Nothing is known of them."""
    assert slot_images({}) == frozenset()
    assert slot_images({**body("lab"), "status": 7}) == {"lab"}
    assert slot_images({**body("lab"), "status": {"containerStatuses": 7}}) == {"lab"}
    assert slot_images(body("lab", f"lab@{DIGEST}", name="other")) == {"lab"}
    assert pulled_image({}, {"image": 7}) == ""
