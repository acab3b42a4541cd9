"""Builds the gate with the package: the wheel is then for one platform, and installing it needs no compiler.

If the gate cannot be built, the package comes without it, and a warning says so: everything else works, but programs do
not keep to their time shares. ``JUPYTER_GPU_REQUIRE_GATE=1`` makes that an error, for wheels and images to publish.
"""

import importlib.util
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_spec = importlib.util.spec_from_file_location("gate_build", Path(__file__).with_name("build.py"))
assert _spec is not None
assert _spec.loader is not None
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)


class GateHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook of the wheel; installed in place, the gate lies in the working tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build both libraries, and set the platform of the wheel."""
        in_place = version == "editable"
        self._work = tempfile.TemporaryDirectory(prefix="jupyter-gpu-gate-")
        tree = Path(self.root) / "node_plugin" / "jupyter_gpu_node" / "lib"
        folder = tree if in_place else Path(self._work.name) / "lib"
        try:
            platform = build.both(folder)
        except (build.BuildError, OSError) as error:
            if os.environ.get("JUPYTER_GPU_REQUIRE_GATE") == "1":
                raise
            self.app.display_warning(f"{error}\n{WITHOUT}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        if not in_place:
            build_data["force_include"][str(folder)] = "jupyter_gpu_node/lib"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Clean up after the build."""
        self._work.cleanup()

    def clean(self, versions: list[str]) -> None:  # noqa: ARG002
        """Remove what was built in the working tree."""
        shutil.rmtree(Path(self.root) / "node_plugin" / "jupyter_gpu_node" / "lib", ignore_errors=True)


WITHOUT = (
    "jupyter-gpu is built WITHOUT its gate: programs of this installation do not keep to their time shares of a GPU. "
    "Install a C compiler (on Debian and Ubuntu: gcc and libc6-dev) and build it again."
)
