"""The main job: a slider in a browser changes the GPUs of a notebook in a pod while a cell runs in it."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from scripts.lib.demo import CHECK_SECONDS
from scripts.lib.lab import QUIET
from tests.cluster.testbed import until
from tests.cluster.whole import faults, pods
from tests.cluster.whole.judge import Verdict
from tests.cluster.whole.world import NOTEBOOKS, SECONDS, Product, World, world
from tests.deploy import product as chart

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]  # the first of all installs the product

ROOT = Path(__file__).parents[3]
ITEMS = [{"key": str(number), "path": f"{plugin}.jupyterlab-settings"} for number, plugin in enumerate(QUIET)]
"""Files of the settings: names of ConfigMaps' entries have no slash."""
ATTEMPTS = 1_000_000


def test_slider_in_a_browser_changes_gpus_of_a_running_kernel(product: Product, tmp_path: Path) -> None:
    """One kernel process gains and loses GPUs; then all around it is restarted; no device opens without right."""
    with world(product, NOTEBOOKS[0]) as found:
        demo(found)
        files = {
            pods.PROGRAMS: "programs",
            "/home/jovyan/work": "demo",
            "/settings": {"name": "settings", "items": ITEMS},
        }
        found.run(pods.notebook("lab", product.notebook, node="node1", files=files, probe=found.devices("node1")))
        browse(found, tmp_path)
        found.ask("lab", 1)  # the script gives back what it had
        assert found.has("lab", 1000)
        restart_everything(found)
        verdict = enough(found)
    print(f"\n{verdict.attempts} attempts to open a device, {verdict.successes} spans open, none wrong")
    assert not verdict.wrong, verdict.wrong[:10]
    assert verdict.attempts >= ATTEMPTS


def demo(found: World) -> None:
    """Return the pod's files: the prober, the demo's notebook with a shorter cell, and settings without questions."""
    text = (ROOT / "binder" / "demo.ipynb").read_text()
    assert "seconds = 60" in text
    notebook = pods.config_map("demo", {"demo.ipynb": text.replace("seconds = 60", f"seconds = {CHECK_SECONDS}")})
    settings = pods.config_map("settings", {str(n): json.dumps(value) for n, value in enumerate(QUIET.values())})
    found.programs()
    for each in (notebook, settings):
        found.kubectl("apply", "-f", "-", stdin=json.dumps(each))


def browse(found: World, pictures: Path) -> None:
    """The demo's own script, in a real browser, on the page of the pod."""
    address = found.pod("lab").address
    page = f"http://{address}:8888/lab/tree/work/demo.ipynb?token={pods.TOKEN}"
    words = ["node", str(ROOT / "scripts" / "lib" / "demo_check.mjs"), page, "enforced", str(pictures)]
    done = subprocess.run(words, env=browser(), capture_output=True, text=True, timeout=4 * SECONDS, check=False)
    print(f"\n{done.stdout}")
    assert done.returncode == 0, (
        f"{done.stdout}\n{done.stderr}\n{found.kubectl('logs', 'lab')[-4000:]}\n{found.report()}"
    )


def browser() -> dict[str, str]:
    """The environment with the browser's path, as scripts/test sets it."""
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    assert path, "There is no browser: scripts/test installs one."
    return {**os.environ, "CHROMIUM": path}


def restart_everything(found: World) -> None:
    """One after the other; after each the GPU is still there, and a resize works."""
    product, wants = found.product, 1
    for what, fault in (
        ("container", crash_container),
        ("node plugin killed", kill_agent),
        ("node plugin's pod deleted", delete_agent),
        ("kubelet", restart_kubelet),
        ("schedulers", kill_schedulers),
    ):
        begun = time.monotonic()
        fault(product, found)
        wants = 3 - wants
        found.ask("lab", wants)
        found.has("lab", 1000 * wants)
        print(f"{what} restarted, and {wants} attached after {time.monotonic() - begun:.1f} s")


def crash_container(product: Product, found: World) -> None:
    """Its first process is killed as from outside; the kubelet starts the container again."""
    state = found.pod("lab")
    (first,) = faults.processes(product.cluster, "jupyter", f"pod{state.uid}/", first=True)
    faults.end([first])
    found.until(
        lambda: found.pod("lab").restarts > state.restarts and found.pod("lab").ready, "the container to be back"
    )


def kill_agent(product: Product, found: World) -> None:
    """Kill the node plugin of the pod's node."""
    faults.end(faults.processes(product.cluster, "jupyter_gpu_node --settings", found.node_of("lab").cgroup))


def delete_agent(product: Product, found: World) -> None:
    """Delete the node plugin of the pod's node; another takes its place."""
    for pod in product.component("node"):
        if pod["spec"]["nodeName"] == found.pod("lab").node:
            product.cluster.kubectl("delete", "pod", "-n", chart.NAMESPACE, pod["metadata"]["name"])


def restart_kubelet(product: Product, found: World) -> None:
    """Kill and start the kubelet of the pod's node."""
    product.cluster.kill(f"kubelet@{found.pod('lab').node}")
    product.cluster.start(f"kubelet@{found.pod('lab').node}")


def kill_schedulers(product: Product, _: World) -> None:
    """All replicas at once."""
    faults.end(faults.processes(product.cluster, "jupyter_gpu_scheduler"))


def enough(found: World) -> Verdict:
    """The judge's word as soon as the prober has tried often enough."""
    state = found.pod("lab")
    until(lambda: found.attempts(state) >= ATTEMPTS, 2 * SECONDS, f"{ATTEMPTS} attempts", every=1)
    return found.probed("lab")
