"""The conditions that a user should know of this server beyond the GPUs themselves, in plain words; pure."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpu.model.view import Condition

MAX_MESSAGE = 1024


def soft(why: str, *, simulated: bool) -> Condition:
    """Say that nothing stops a process from opening a GPU that it was not granted.

    CUDA is not told of simulated ones.
    """
    told = (
        " Programs are told which GPUs are yours (CUDA_VISIBLE_DEVICES). That is not enforced: a program that finds "
        "the driver in a way of its own sees all of them."
    )
    said = f"Soft mode: GPUs are counted but not guarded. {why}".rstrip()
    return _condition("SoftMode", said if simulated else said + told)


def nested(why: str) -> Condition:
    """Say that GPUs are guarded, but not by this server alone."""
    return _condition("Nested", why)


def simulated(count: int) -> Condition:
    """Say that the GPUs are not real."""
    one = "The GPU is simulated: it can be opened and shows load, but computes nothing."
    all_of = f"All {count} GPUs are simulated: they can be opened and show load, but compute nothing."
    return _condition("Simulated", one if count == 1 else all_of)


def looking() -> Condition:
    """Say that the inventory is not there yet."""
    return _condition("LookingForGpus", "Looking for GPUs on this machine.")


def no_gpu(why: str) -> Condition:
    """Say that there is no GPU here."""
    return _condition("NoGpu", f"This machine has no GPU that can be used. {why}".rstrip())


def site_limit(value: str, what: str) -> Condition:
    """Say that the environment hides GPUs from this server."""
    return _condition(
        "SiteLimit",
        f"This server was started with CUDA_VISIBLE_DEVICES={value[:128]!r}, as sites and SLURM set it: {what} To use "
        "all, start it without, or set c.GpuExtension.follow_visible_devices = False.",
    )


def inventory_failed(why: str) -> Condition:
    """Say that there may be GPUs, but they cannot be asked."""
    return _condition("GpusNotReadable", f"The GPUs of this machine can't be read now. {why}".rstrip())


def out_of_order(gpus: Sequence[tuple[int, str]]) -> Condition:
    """Say which GPUs, by index and with the reason, this server cannot get however long it waits."""
    told = "; ".join(f"GPU {index} ({why.strip().rstrip('.')})" for index, why in gpus)
    some = "One GPU of this machine does" if len(gpus) == 1 else f"{len(gpus)} GPUs of this machine do"
    return _condition(
        "GpusOutOfOrder", f"{some} not work and cannot be given to anybody until that is repaired: {told}."
    )


def share_not_enforced(why: str) -> Condition:
    """Say that a fraction is held, and its time cannot be shared out."""
    return _condition(
        "ShareNotEnforced",
        "This server has a share of a GPU. Shares are counted, so that a GPU is never promised to more users than it "
        f"can serve, but running time is not limited: another user of the same GPU can slow you down ({why}).",
    )


def share_server_missing(why: str) -> Condition:
    """Say that there is no arbiter, or one that does not answer."""
    return _condition(
        "ShareServerMissing",
        "Programs that start to use a GPU wait: the process that shares out GPU time on this machine does not work. "
        f"{why} It is tried again, and they go on by themselves then.",
    )


def share_notice(why: str) -> Condition:
    """Tell the administrator of this machine about the rules of shares, or about the arbiter, if something is wrong."""
    return _condition("ShareNotice", why)


def share_taken_away(gpu: str, why: str) -> Condition:
    """Say that a share was lost by what its programs did."""
    return _condition("ShareTakenAway", f"Your share of {gpu} is lost, and the programs that used it were ended. {why}")


def held_by_server(indices: Sequence[int], command: str, pid: int) -> Condition:
    """Say that GPUs that are given back are open in the process that guards all of them, which is never ended."""
    *most, last = map(str, sorted(indices))
    gpus, it = (f"GPUs {', '.join(most)} and {last} are", "them") if most else (f"GPU {last} is", "it")
    return _condition(
        "HeldByServer",
        f"{gpus} given back, but not free: this Jupyter server itself has {it} open ({command}, process {pid}). An "
        "extension of the server uses CUDA, or code that runs inside the server. It is not ended, as it guards your "
        f"GPUs. Have that extension close {it}, or switch it off and start the server again.",
    )


def repaired(what: str) -> Condition:
    """Say that something in the state directory was damaged and was put right."""
    return _condition("StateRepaired", what)


def waiting_for_repair(count: int) -> Condition:
    """Say that a record cannot be read, so it is not known what its pod holds."""
    whose = "A record" if count == 1 else f"{count} records"
    return _condition(
        "StateDamaged",
        f"{whose} of other servers on this machine can't be read, so it is not known which GPUs they have. No more "
        "GPUs are handed out until they are written again or their programs have ended.",
    )


def state_unavailable(why: str) -> Condition:
    """Say that the state directory cannot be used now."""
    return _condition("StateUnavailable", why)


def limits_unusable(why: str) -> Condition:
    """Say that the limits of the machine's users can't be used as they are."""
    return _condition("LimitsUnusable", why)


def users_unknown(gpus: str) -> Condition:
    """Say that neither open files nor the driver tell who uses a GPU."""
    return _condition(
        "UsersUnknown",
        f"It can't be known which programs use {gpus}: there is no device of its own for each GPU, and the driver does "
        "not tell. What is given back counts as free at once: end what uses it first.",
    )


_SHARED = "a directory that all servers of the machine share"


def apart(path: str, why: str) -> Condition:
    """Say that others do not see our records, or we not theirs."""
    return _condition(
        "StateApart",
        f"The records of who has which GPU, {path}, may be this server's alone: {why}. Others that can open the same "
        f"GPUs would hand them out again. Set c.GpuExtension.state_dir to {_SHARED}, and mount it there where this "
        "server has mounts of its own.",
    )


def elsewhere(path: str, gpus: str) -> Condition:
    """Say that a server that we know nothing of gave a GPU of ours away."""
    return _condition(
        "StateApart",
        f"{gpus} in use by a Jupyter server that keeps its records of who has which GPU in another place than {path}: "
        f"both hand out the same GPUs. Set c.GpuExtension.state_dir of both to {_SHARED}.",
    )


def contained() -> Condition:
    """Say that the records may be shared, but processes outside cannot be seen."""
    return _condition(
        "Contained",
        "This server runs in a container: it sees no process outside it, so neither who else uses its GPUs nor that "
        "another server has ended. Start it with the machine's process numbers, as with docker run --pid=host.",
    )


def rules_failed(why: str) -> Condition:
    """Say that the operating system refused new device rules; the old ones stay."""
    return _condition("RulesNotApplied", f"The device rules could not be changed ({why}). It is tried again.")


def _condition(kind: str, message: str) -> Condition:
    return Condition(kind, message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…")
