"""The cost of GPUs of other nodes is their notebook's user's: in the account, and in the counters of users."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from jupyter_gpu_scheduler.metrics import SchedulerMetrics
from jupyter_gpu_scheduler.usage_counters import UsageCounters
from tests.scheduler_process.notebook_stage import Cluster

HOUR = 3600


def test_gpus_of_workers_are_used_by_the_notebooks_user() -> None:
    """One GPU here and two elsewhere for an hour are three GPU-hours of one user; nobody else used any."""
    world = Cluster()
    world.notebook("a", 3)
    world.settle()
    assert (world.has("a"), world.whole("a")) == (1000, 3000)
    owner, seconds = world.state("a").owner, 0
    world.cache.counters = counters = UsageCounters(world.cache.snapshot, elapsed=lambda: seconds * 10**9)
    counters.begin()
    seconds += HOUR
    world.time += HOUR
    account = world.cache.owners.account(owner)
    assert (account.used, account.waiting) == (3000, 0)
    assert sum(account.hours.values()) == 3 * HOUR * 1000
    assert world.cache.owners.known() == (owner,)
    text = SchedulerMetrics(world.cache.snapshot, counters.text).text().decode()
    held = {
        (sample.labels["username"], sample.labels["kind"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "jupyter_gpu_user_gpu_seconds_total"
    }
    assert held == {("ann", "owned"): 3 * HOUR}
