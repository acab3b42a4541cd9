"""Graphs: built, captured, launched, changed."""

from tests.gate.standin.conftest import Machine

PREAMBLE = """
import ctypes, time
from tests.gate.standin.driver import *
start()

class Kernel(ctypes.Structure):
    _fields_ = [("function", Pointer), ("sizes", ctypes.c_uint * 7), ("parameters", Pointer), ("extra", Pointer),
                ("kernel", Pointer), ("context", Pointer)]

def of(name, blocks=1):
    return Kernel(kernel(name), (ctypes.c_uint * 7)(blocks, 1, 1, 1, 1, 1, 0))

def added(graph, form, *rest):
    return new(form, graph, None, 0, *rest)

graph = new("cuGraphCreate", 0)
"""


def test_graph_is_one_piece_of_work(machine: Machine) -> None:
    """At each launch it takes as long as its kernels together, including those of child graphs."""
    machine.run(
        f"""{PREAMBLE}
child = new("cuGraphCreate", 0)
added(child, "cuGraphAddKernelNode_v2", ctypes.byref(of("work_us100")))
added(graph, "cuGraphAddKernelNode", ctypes.byref(of("work_us200")))
added(graph, "cuGraphAddKernelNode_v2", ctypes.byref(of("work_usx", 50)))
added(graph, "cuGraphAddChildGraphNode", child)
added(graph, "cuGraphAddEmptyNode")
for form, rest in ("cuGraphInstantiateWithFlags", (0,)), ("cuGraphInstantiate_v2", (None, None, 0)):
    for launched in "cuGraphLaunch", "cuGraphLaunch_ptsz":
        call(launched, new(form, graph, *rest), 0)
"""
    )
    log = machine.board().log()
    assert [(work.end - work.start, work.kernels) for work in log] == [(350, 3)] * 4


def test_graph_does_copies_and_host_functions(machine: Machine) -> None:
    """Copies, fills and host functions happen at each launch; a graph without kernels is no work."""
    out = machine.run(
        f"""{PREAMBLE}
class Fill(ctypes.Structure):
    _fields_ = [("to", ctypes.c_uint64), ("pitch", Size), ("value", ctypes.c_uint), ("size", ctypes.c_uint),
                ("width", Size), ("height", Size)]
class Host(ctypes.Structure):
    _fields_ = [("function", ctypes.CFUNCTYPE(None, Pointer)), ("data", Pointer)]
calls = []
host = Host(ctypes.CFUNCTYPE(None, Pointer)(calls.append), 7)
got, data = new("cuMemAlloc_v2", 8), ctypes.create_string_buffer(8)
added(graph, "cuGraphAddMemsetNode", ctypes.byref(Fill(got, 0, 0x41424344, 4, 2, 1)), None)
added(graph, "cuGraphAddHostNode", ctypes.byref(host))
executable = new("cuGraphInstantiateWithFlags", graph, 0)
for _ in range(2):
    call("cuMemsetD8_v2", got, 0, 8)
    call("cuGraphLaunch", executable, 0)
    call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", data, got, 8)
    print(data.raw, calls)
"""
    ).splitlines()
    assert out == ["b'DCBADCBA' [7]", "b'DCBADCBA' [7, 7]"]
    assert machine.board().log() == []


def test_kernels_of_a_graph_can_be_changed(machine: Machine) -> None:
    """In the executable graph alone, or by an update from the other one."""
    machine.run(
        f"""{PREAMBLE}
node = added(graph, "cuGraphAddKernelNode_v2", ctypes.byref(of("work_us10")))
executable = new("cuGraphInstantiateWithFlags", graph, 0)
call("cuGraphExecKernelNodeSetParams_v2", executable, node, ctypes.byref(of("work_us20")))
call("cuGraphLaunch", executable, 0)
call("cuGraphKernelNodeSetParams_v2", node, ctypes.byref(of("work_us30")))
call("cuGraphLaunch", executable, 0)
call("cuGraphExecUpdate_v2", executable, graph, (ctypes.c_int * 8)())
call("cuGraphLaunch", executable, 0)
call("cuGraphExecDestroy", executable)
call("cuGraphDestroy", graph)
"""
    )
    assert [work.end - work.start for work in machine.board().log()] == [20, 20, 30]


def test_one_function_adds_nodes_of_all_types(machine: Machine) -> None:
    """cuGraphAddNode takes the type with the parameters, and refuses types that are not simulated."""
    out = machine.run(
        f"""{PREAMBLE}
class Node(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("zero", ctypes.c_int * 3), ("kernel", Kernel), ("rest", ctypes.c_char * 160)]
added(graph, "cuGraphAddNode", ctypes.byref(Node(type=0, kernel=of("work_us10"))))
new("cuGraphAddNode_v2", graph, None, None, 0, ctypes.byref(Node(type=0, kernel=of("work_us5"))))
print(raw("cuGraphAddNode", ctypes.byref(Pointer()), graph, None, 0, ctypes.byref(Node(type=6))))
call("cuGraphLaunch", new("cuGraphInstantiateWithFlags", graph, 0), 0)
"""
    )
    assert out == "801\n"
    assert [work.end - work.start for work in machine.board().log()] == [15]


def test_captured_stream_runs_nothing(machine: Machine) -> None:
    """Launches on it, and on a stream that waits for its event, are in the graph and run with it."""
    out = machine.run(
        f"""{PREAMBLE}
one, two, event = new("cuStreamCreate", 1), new("cuStreamCreate", 1), new("cuEventCreate", 2)
status = ctypes.c_int()
call("cuStreamBeginCapture_v2", one, 1)
call("cuStreamIsCapturing", one, ctypes.byref(status))
print(status.value, raw("cuStreamSynchronize", one), raw("cuStreamBeginCapture_v2", one, 1))
launch(kernel("work_us10"), stream=one)
call("cuEventRecord", event, one)
call("cuStreamWaitEvent", two, event, 0)
launch(kernel("work_us5"), stream=two)
recorded = ctypes.c_uint64()
call("cuStreamEndCapture", one, ctypes.byref(recorded))
call("cuStreamIsCapturing", two, ctypes.byref(status))
launch(kernel("work_us1"), stream=two)
print(status.value)
call("cuGraphLaunch", new("cuGraphInstantiateWithFlags", recorded.value, 0), one)
"""
    ).split()
    assert out == ["1", "900", "900", "0"]
    assert [(work.end - work.start, work.kernels) for work in machine.board().log()] == [(1, 1), (15, 2)]


def test_capture_adds_to_an_existing_graph(machine: Machine) -> None:
    """Launches are added to what the graph had."""
    machine.run(
        f"""{PREAMBLE}
added(graph, "cuGraphAddKernelNode_v2", ctypes.byref(of("work_us10")))
stream, recorded = new("cuStreamCreate", 1), ctypes.c_uint64()
call("cuStreamBeginCaptureToGraph", stream, graph, None, None, 0, 1)
launch(kernel("work_us5"), stream=stream)
call("cuStreamEndCapture", stream, ctypes.byref(recorded))
assert recorded.value == graph
call("cuGraphLaunch", new("cuGraphInstantiateWithFlags", graph, 0), 0)
"""
    )
    assert [work.end - work.start for work in machine.board().log()] == [15]
