"""The file that tells a process where to die."""

import subprocess
import sys
from pathlib import Path

from jupyter_gpu.common import faults

PROGRAM = "from jupyter_gpu.common import faults\nfor name in ('one', 'two'): faults.point(name)"


def test_file_is_consumed_by_the_process_that_dies(tmp_path: Path) -> None:
    """A process dies at the point that the file names and at no other; the next one lives; without a file nothing
    happens.
    """
    file = tmp_path / "die-at"

    def status() -> int:
        environ = {faults.VARIABLE: f"@{file}", "PATH": ""}
        return subprocess.run([sys.executable, "-c", PROGRAM], env=environ, check=False).returncode

    assert status() == 0
    file.write_text("elsewhere")
    assert status() == 0
    assert file.exists()
    file.write_text("two")
    assert status() == -9
    assert not file.exists()
    assert status() == 0
