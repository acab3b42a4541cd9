"""Findings from facts: what works, what to know, and what is wrong, with advice. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from jupyter_gpu.model.quantity import count_gpus
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import Mode, View

from .facts import Facts


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a fact, and advice where something can be done."""

    level: Level
    about: str
    """A word for programs."""
    text: str
    advice: str = ""
    """Advice for the user; empty: there is nothing to do."""

    def to_json(self) -> dict[str, Any]:
        """JSON object."""
        return asdict(self)


_WRONG = frozenset(
    ("NoGpu", "GpusNotReadable", "ShareServerMissing", "ShareTakenAway", "ShareTaken", "StateDamaged",
     "StateUnavailable", "RulesNotApplied", "NodePluginUnreachable", "ClusterUnreachable", "InvalidRequest", "PodGone")
)  # fmt: skip
"""Types of conditions that are problems; all others are notes."""
_GUARD_LATE = "It is set up when jupyter_gpu is imported there; import it before the first CUDA call."


def judge(here: Facts, there: Facts | None, view: View | None, lost: str) -> tuple[Finding, ...]:
    """Return the findings from the facts ``here``, and ``there`` in the server with its ``view``; ``lost``: why none
    answers.
    """
    server = there or here
    found = [*_installation(here), *_server(here, there, lost)]
    if there is not None and view is None:
        found.append(Finding(Level.PROBLEM, "gpus", lost))
    found += _gpus(here, view) if view else _driver(here)
    found += [*_nvml(here), *_environment(here, there), *_place(server, view), *_kernels(server)]
    return tuple(found)


def _installation(here: Facts) -> Iterator[Finding]:
    yield Finding(Level.OK, "version", f"jupyter-gpu {here.version}, Python {here.python} in {here.prefix}.")
    if here.gate:
        yield Finding(Level.OK, "gate", "The gate is there: GPU time can be shared out.")
    else:
        text = "This installation has no gate, so shares of a GPU are counted, but their time is not limited."
        yield Finding(Level.NOTE, "gate", text, "Build the wheel where there is a C compiler, and install that.")


def _server(here: Facts, there: Facts | None, lost: str) -> Iterator[Finding]:
    yield from _extension(there or here)
    yield from _labextension(there or here)
    if there is None:
        yield Finding(Level.PROBLEM, "server", lost)
    elif there.version != here.version:
        text = f"The server has jupyter-gpu {there.version}, and this command is {here.version}."
        yield Finding(Level.PROBLEM, "versions", text, "Install the same version in both, and restart the server.")
    else:
        yield Finding(Level.OK, "server", f"The server answers, with jupyter-gpu {there.version} in {there.prefix}.")


def _extension(facts: Facts) -> Iterator[Finding]:
    if facts.extension == "enabled":
        yield Finding(Level.OK, "extension", "The server extension is enabled.")
    else:
        state = "disabled" if facts.extension == "disabled" else "not enabled in any configuration"
        advice = "Run 'jupyter server extension enable jupyter_gpu', then restart the server."
        yield Finding(Level.PROBLEM, "extension", f"The server extension is {state} in {facts.prefix}.", advice)


def _labextension(facts: Facts) -> Iterator[Finding]:
    if not facts.labextension:
        text = f"The JupyterLab extension is not installed in {facts.prefix}, so there is no panel."
        yield Finding(Level.PROBLEM, "labextension", text, "Install the wheel again, and reload the page.")
    elif facts.labextension_disabled:
        advice = "Run 'jupyter labextension enable jupyter-gpu', and reload the page."
        yield Finding(
            Level.PROBLEM, "labextension", "The JupyterLab extension is disabled, so there is no panel.", advice
        )
    elif facts.labextension != facts.version:
        text = f"The JupyterLab extension has version {facts.labextension}, and the server {facts.version}."
        yield Finding(Level.PROBLEM, "labextension", text, "Install the wheel again, and reload the page.")
    else:
        yield Finding(Level.OK, "labextension", "The JupyterLab extension is installed and enabled.")


def _gpus(here: Facts, view: View) -> Iterator[Finding]:
    """Return findings about the GPUs, in the server's own words where it has any."""
    driver = f" NVIDIA's driver is {here.driver}." if here.driver and not view.simulated else ""
    if view.total:
        yield Finding(Level.OK, "gpus", f"{_where(view)}, now: {sentence(view)}.{driver}")
    if view.mode is Mode.ENFORCED:
        yield Finding(Level.OK, "mode", "Enforced: the operating system keeps notebooks from GPUs that are not theirs.")
    if view.status.phase is Phase.PENDING:
        text = "The request is recorded, and has not been decided yet."
        yield Finding(Level.NOTE, "request", text, "If it stays so, ask your administrator whether the scheduler runs.")
    for condition in view.conditions:
        level = Level.PROBLEM if condition.type in _WRONG else Level.NOTE
        yield Finding(level, condition.type, condition.message, _ADVICE.get(condition.type, ""))


def _where(view: View) -> str:
    """Say how many GPUs the server could have here, and on other nodes."""
    if not view.elsewhere:
        return f"{count_gpus(view.total)} here"
    return f"{count_gpus(max(0, view.total - view.elsewhere))} here and {count_gpus(view.elsewhere)} on other nodes"


_ADVICE = {
    "SoftMode": "To have GPUs guarded, run the server as root, or in a cluster; enforcement='soft' must not be set.",
    "NoGpu": "Look whether 'nvidia-smi' works here; to try things out, start with --GpuExtension.simulated_gpus=4.",
}


def _driver(here: Facts) -> Iterator[Finding]:
    if here.driver:
        yield Finding(Level.OK, "driver", f"NVIDIA's driver {here.driver} answers; {here.devices} GPUs are in /dev.")
    elif here.devices:
        text = f"There are {here.devices} GPUs in /dev, and the driver cannot be asked: {here.driver_trouble}."
        yield Finding(Level.PROBLEM, "driver", text, "Look what 'nvidia-smi' says.")
    else:
        text = f"There is no NVIDIA GPU here that can be seen ({here.driver_trouble or 'no driver'})."
        advice = "To try things out, start the server with --GpuExtension.simulated_gpus=4."
        yield Finding(Level.NOTE, "driver", text, advice)


def _nvml(here: Facts) -> Iterator[Finding]:
    """Return a finding about NVML where programs open it past the library that answers while their GPU is parked."""
    if here.nvml:
        text = f"Programs here open NVML at {here.nvml}, and so pass what jupyter-gpu puts in front of it."
        advice = "If a GPU is parked, what asks NVML waits until it is back. Put that folder last in LD_LIBRARY_PATH."
        yield Finding(Level.NOTE, "NVML", text, advice)


def _environment(here: Facts, there: Facts | None) -> Iterator[Finding]:
    """Return findings about GPUs that were chosen by hand; what is chosen for the server holds for all kernels."""
    for whose, facts in (("of the server", there), ("here", here)):
        if facts is not None and facts.visible:
            text = f"CUDA_VISIBLE_DEVICES is set to '{facts.visible}' {whose}, by somebody else, and is left as it is."
            advice = "Programs there see these GPUs and no others. If that is not wanted, unset it and start anew."
            yield Finding(Level.NOTE, "CUDA_VISIBLE_DEVICES", text, advice)
            return


def _place(facts: Facts, view: View | None) -> Iterator[Finding]:
    """Return findings about the place of records: a cluster, or a directory."""
    if facts.socket:
        if facts.socket_trouble:
            text = f"The node plugin does not answer at {facts.socket}: {facts.socket_trouble}."
            advice = "Ask your administrator whether the DaemonSet runs on this node; this pod may need to start again."
            yield Finding(Level.PROBLEM, "node-plugin", text, advice)
        else:
            yield Finding(Level.OK, "node-plugin", "The node plugin of this node answers.")
        if not facts.token:
            text = "This pod has no token, so it cannot ask for GPUs."
            advice = "Give it the service account of the guide, with automountServiceAccountToken: true."
            yield Finding(Level.PROBLEM, "token", text, advice)
    elif facts.state_trouble:
        text = f"The state directory {facts.state} cannot be used: {facts.state_trouble}."
        advice = "Correct its permissions, or choose another with c.GpuExtension.state_dir, the same for all servers."
        yield Finding(Level.PROBLEM, "state", text, advice)
    elif facts.state_private and not (view and view.simulated):
        text = f"Only this user can use the state directory {facts.state}: servers of others do not know of this one."
        yield Finding(
            Level.NOTE, "state", text, "If others have servers here, choose one that all of them can write to."
        )
    else:
        yield Finding(Level.OK, "state", f"The state directory is {facts.state}.")


def _kernels(facts: Facts) -> Iterator[Finding]:
    bare = [one for one in facts.kernels if one.why]
    if facts.kernels and not bare:
        count = len(facts.kernels)
        running = "The kernel that runs is" if count == 1 else f"All {count} kernels that run are"
        yield Finding(Level.OK, "kernels", f"{running} ready for GPUs that come later.")
    for one in bare:
        text = f"Kernel {one.name} ({one.kernel[:8]}) runs without the CUDA guard: {one.why}."
        yield Finding(Level.NOTE, "kernels", text, _GUARD_LATE)
