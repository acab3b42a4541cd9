"""The text of `/proc/<pid>/stat` is parsed whatever the name of the program is."""

import os

from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.common.rules import proc_stat
from jupyter_gpu_node.processes import proc


@given(st.binary(max_size=15))
@example(b") Z 1 ((")
def test_program_name_never_shifts_the_fields(name: bytes) -> None:
    """Blanks, brackets and newlines in the name say nothing about the fields behind it."""
    fields = [b"R", *(b"%d" % number for number in range(4, 53))]
    found = proc_stat.parse(b"7 (" + name + b") " + b" ".join(fields) + b"\n")
    assert (found.state, found.parent, found.flags, found.start) == ("R", 4, 9, 22)
    assert found.command == name.decode(errors="replace")
    assert found.has_environment


def test_stat_of_this_process_is_parsed() -> None:
    """The kernel's own text has the fields where they are expected."""
    found = proc.read_stat(os.getpid())
    assert (found.state, found.parent) == ("R", os.getppid())
    assert found.start == proc.process_start_time(os.getpid())
    assert found.has_environment
    assert not proc.read_stat(2).has_environment  # kthreadd
