"""All that the service knows, and what it makes of it for pages: tables, one user, the cluster."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from jupyter_gpu.kube import ObjectStore
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.preview import preview
from jupyter_gpu.model.message import gettext, sentences
from jupyter_gpu_hub.rules import accounts, audit, limit_rows, people, subjects, usage
from jupyter_gpu_hub.rules.audit import AuditRow
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.limit_rows import LimitRow
from jupyter_gpu_hub.rules.machine.limit_document import at_home, in_file
from jupyter_gpu_hub.rules.paging import Page, PageQuery
from jupyter_gpu_hub.rules.people import UserRow
from jupyter_gpu_hub.rules.place import CLUSTER, MACHINE
from jupyter_gpu_hub.rules.removed import is_record
from jupyter_gpu_hub.rules.subjects import SubjectRow
from jupyter_gpu_hub.rules.usage import ClusterUse, PodUse
from jupyter_gpu_hub.settings import HubServiceSettings

from .copy import Copy
from .feed import Feed
from .hub_api import HubApi, HubUnavailable
from .large_table import LargeTable
from .mirror import Mirror
from .removals import Removals
from .server_pods import ServerPods
from .writer import LimitWriter

T = TypeVar("T")

PAGES_OF_ONE = 20
"""Pages that one person may have open."""

_log = logging.getLogger(__name__)


class Site:
    """The copies of limits, accounts, pods and nodes, the hub's users and groups, and the writers.

    ``mirrored`` returns the members that the mirror wrote last into a limit, where there may be others beside them.
    """

    def __init__(
        self,
        store: ObjectStore,
        hub: HubApi,
        name: str,
        settings: HubServiceSettings,
        *,
        mirrored: Callable[[str], frozenset[str]] | None = None,
    ) -> None:
        self.hub = name
        """Name of the hub."""
        self.place = MACHINE if settings.store == "machine" else CLUSTER
        """The words for where the GPUs are."""
        self.time_zone = settings.time_zone
        """Time zone of hours and budgets."""
        self.feed = Feed(most=settings.pages, most_of_one=PAGES_OF_ONE)
        self._api = hub
        self._settings = settings
        self._mirrored = mirrored
        somewhere = self.place.is_machine  # where the process that writes pods and GPUs may not run
        self.limits = Copy(store, paths.limits(), _read_limit, self._limits_changed, optional=True)
        self.accounts = Copy(store, paths.accounts(), accounts.read, self._use_changed, optional=True)
        self.pods = Copy(store, paths.pods(), usage.read_pod, self._use_changed, optional=somewhere)
        self.nodes: Copy[tuple[Gpu, ...]] = Copy(
            store, paths.nodes(), usage.read_node, self._use_changed, optional=somewhere
        )
        self.mirror = Mirror(
            store,
            hub,
            name,
            self._mirrored_limits,
            every=settings.mirror_seconds,
            shared=settings.mirror_shared,
            writes=settings.mirror,
            properties=settings.edit,
            changed=lambda: self.feed.changed("limits"),
        )
        self.writer = LimitWriter(store, lambda: self.known, home=self.home, cap=self.place.cap)
        self.removals = Removals(store)
        self.server_pods = ServerPods(store, self.pods, self.pods_of)
        self._users: frozenset[str] = frozenset()
        self._users_read: float | None = None  # by the clock of the event loop
        self._reading: asyncio.Task[None] | None = None
        self._seen: list[Limit] = []
        self._index = LimitIndex()
        self._table = LargeTable()
        self._index_count = 0
        self._users_count = 0
        self._kept: dict[str, tuple[Any, Any]] = {}

    async def run(self) -> None:
        """Keep everything up to date until cancelled."""
        parts: list[Coroutine[Any, Any, None]] = [copy.reflector.run() for copy in self._copies()]
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
            await self.limits.reflector.synced.wait()  # else every group would look as if it had no limit
            tasks.create_task(self.mirror.run())

    def problem(self) -> str:
        """Return why answers may be out of date or incomplete; empty: they are not."""
        if self.limits.reflector.absent:
            return self.place.no_limits
        for copy in self._copies():
            trouble = copy.reflector.trouble
            if not copy.ready:
                return sentences(self.place.unknown, trouble)
            if trouble:
                return self.place.unheard(trouble)
        return gettext("Groups are as they were: %1", self.mirror.trouble) if self.mirror.trouble else ""

    @property
    def ready(self) -> bool:
        """Whether all is known that answers are made of."""
        return all(copy.ready for copy in self._copies())

    # --- what pages show ----------------------------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, KnownLimit]:
        """All limits by the name of their object."""
        return self._once("known", self.limits.version, lambda: {item.name: item for item in self.limits})

    @property
    def index(self) -> LimitIndex:
        """The limits by the owners that they are for."""
        self._once("seen", self.limits.version, self._see_limits)
        return self._index

    def _see_limits(self) -> None:
        """Keep the results where no limit says anything else: the scheduler writes what is used into each."""
        now = self.plain_limits()
        if now != self._seen:
            self._seen, self._index = now, LimitIndex(now)
            self._index_count += 1

    @property
    def accounts_by_owner(self) -> Mapping[Owner, Account]:
        """The scheduler's accounts."""
        return self._once("accounts", self.accounts.version, lambda: {item.owner: item for item in self.accounts})

    def cluster(self) -> ClusterUse:
        """Return the GPUs of the cluster."""
        version = (self.nodes.version, self.pods.version)
        return self._once("cluster", version, lambda: usage.cluster(self.nodes, self._uses))

    async def users(self, query: PageQuery) -> Page:
        """Return a page of the table of users. Rows of other pages are made only to be compared, and not kept."""
        await self.refresh_users()
        key = self._user_key(query.sort, people.SORTS[query.sort], "users")
        return await self._table.page(self._user_names(), query, str, key, self.user)

    def _user_names(self) -> list[str]:
        index = self.index
        version = (self._index_count, self._users_count, self.pods.version)
        return self._once("names", version, lambda: people.names(self.hub, self._users, index, self._by_owner))

    def _user_key(self, sort: str, key: Callable[[UserRow], Any], table: str) -> Callable[[str], Any]:
        """Return the function by which users are sorted, which looks at no limit where none is needed."""
        if sort == "name":
            return str
        if sort in people.BY_USE:
            return lambda name: key(self.user(name)) if Owner("User", name, self.hub) in self._by_owner else 0
        return self._table.kept((table, sort), self.index, lambda name: key(self.user(name)))

    def limit_rows(self) -> list[LimitRow]:
        """Return the rows of all limits."""
        limits, groups = self.known.values(), self.mirror.groups.values()
        return self._once("limits", self._limit_rows_version, lambda: limit_rows.rows(limits, groups, self.hub))

    @property
    def _limit_rows_version(self) -> tuple[int, int]:
        return self.limits.version, self.mirror.version

    async def subjects(self, query: PageQuery, only: SubjectKind | None = None) -> Page:
        """Return a page of the table of all subjects: the default, the cap, groups, users; ``only``: of that kind."""
        await self.refresh_users()
        version = (self.limits.version, self.mirror.version, self.pods.version)
        others = self._once("others", version, self._other_subjects)
        names = self._user_names() if only in (None, SubjectKind.USER) else []
        key = subjects.SORTS[query.sort]

        def of_row(row: UserRow) -> Any:
            return key(subjects.user_row(row, self.hub, ()))

        of_user = self._kind_of_user if query.sort == "kind" else self._user_key(query.sort, of_row, "subjects")

        def make(item: SubjectRow | str) -> SubjectRow:
            return self._subject(item) if isinstance(item, str) else item

        items: list[SubjectRow | str] = [*(row for row in others if only in (None, row.subject.kind)), *names]
        return await self._table.page(
            items,
            query,
            lambda item: item if isinstance(item, str) else item.name,
            lambda item: of_user(item) if isinstance(item, str) else key(item),
            make,
        )

    @staticmethod
    def _kind_of_user(_: str) -> int:
        return subjects.KINDS[SubjectKind.USER]

    def _other_subjects(self) -> list[SubjectRow]:
        owners = (owner for owner in self._by_owner if owner.kind == "User" and owner.hub == self.hub)
        active = [self.user(owner.name) for owner in owners]
        return subjects.rows(self.limit_rows(), self.mirror.groups, self.hub, active)

    def _subject(self, name: str) -> SubjectRow:
        """Return the row of a user in the table of subjects."""
        rows = self._once("rows by name", self._limit_rows_version, self._limit_rows_by_name)
        own = [rows[limit.object_name] for limit in self.index.of(Owner("User", name, self.hub))]
        return subjects.user_row(self.user(name), self.hub, own)

    def _limit_rows_by_name(self) -> Mapping[str, LimitRow]:
        return {row.known.name: row for row in self.limit_rows() if row.known}

    def user(self, name: str) -> UserRow:
        """Return the row of one user, who need not be known."""
        owner = Owner("User", name, self.hub)
        return people.row(
            owner, self.index, self.pods_of(owner), known=name in self._users, accounts=self.accounts_by_owner
        )

    def pods_of(self, owner: Owner) -> list[PodUse]:
        """Return the pods of an owner, by namespace and name."""
        return sorted(self._by_owner.get(owner, ()), key=lambda pod: (pod.namespace, pod.name))

    @property
    def _by_owner(self) -> Mapping[Owner, list[PodUse]]:
        return self._once("pods", self.pods.version, self._pods_by_owner)

    @property
    def _uses(self) -> Sequence[PodUse]:
        """The pods, and workers as pods of their notebooks' owners."""
        return self._once("uses", self.pods.version, lambda: usage.with_workers(self.pods))

    def _pods_by_owner(self) -> Mapping[Owner, list[PodUse]]:
        found: dict[Owner, list[PodUse]] = {}
        for pod in self._uses:
            found.setdefault(pod.owner, []).append(pod)
        return found

    async def preview(self, after: Sequence[Limit]) -> dict[str, Any]:
        """Return the effects of a change of limits, beside the event loop: it takes a while for thousands of users."""
        known = list(self.accounts)
        models = usage.models_held(self.nodes, self._uses)
        before, zone = self.index, self._settings.zone
        found = await asyncio.to_thread(preview, before, after, known, time.time(), zone, models=models)
        return found.to_json(self.cluster().total)

    async def refresh_users(self) -> None:
        """Read the hub's users again if they are old; who asks first waits, later ones get the last list at once."""
        now = asyncio.get_running_loop().time()
        old = self._users_read is None or now - self._users_read > self._settings.users_seconds
        if old and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read_users())
        if self._users_read is None and self._reading is not None:
            await asyncio.shield(self._reading)

    async def _read_users(self) -> None:
        with suppress(HubUnavailable):  # the mirror tells of it; the last list counts
            found = await self._api.users()
            self._users_read = asyncio.get_running_loop().time()
            if found != self._users:
                self._users = found
                self._users_count += 1
                self.feed.changed("users")

    # --- changes ------------------------------------------------------------------------------------------------------

    def _limits_changed(self, before: KnownLimit | None, after: KnownLimit | None) -> None:
        self.feed.changed("limits")
        self.feed.changed("users")
        if _of_group(before) != _of_group(after):  # its members are looked up at once, and not in ten seconds
            self.mirror.wake()

    def _use_changed(self, _before: object, _after: object) -> None:
        self.feed.changed("users")
        self.feed.changed("cluster")

    async def audit(self) -> list[AuditRow]:
        """Return all recorded changes, with those of limits that were removed. Raises `KubeError`."""
        removed = await self.removals.read()
        there = {item.uid for item in self.limits}
        return audit.rows([*self.limits, *(item.known() for item in removed if item.uid not in there)])

    def plain_limits(self) -> list[Limit]:
        """Return what all limits say."""
        return [item.limit for item in self.limits]

    def home(self, subject: Subject) -> Subject:
        """Return a subject as limits here have it: all users and groups of a machine are of this hub."""
        return at_home(subject, self.hub) if self.place.is_machine else subject

    def exported(self) -> list[Limit]:
        """Return what all limits say, for use elsewhere."""
        if not self.place.is_machine:
            return self.plain_limits()
        return [
            replace(limit, subject=limit.subject and in_file(limit.subject, self.hub)) for limit in self.plain_limits()
        ]

    def _mirrored_limits(self) -> list[Limit]:
        """Return the limits with those members alone that the mirror wrote."""
        limits = self.plain_limits()
        if self._mirrored is None:
            return limits
        return [replace(limit, members=self._mirrored(limit.object_name)) for limit in limits]

    def _copies(self) -> tuple[Copy[Any], ...]:
        return self.limits, self.accounts, self.pods, self.nodes

    def _once(self, name: str, version: Any, make: Callable[[], T]) -> T:
        """Return what was made for this version, or make it."""
        if name not in self._kept or self._kept[name][0] != version:
            self._kept[name] = version, make()
        found: T = self._kept[name][1]
        return found


def _read_limit(item: Mapping[str, Any]) -> KnownLimit | None:
    return None if is_record(item) else KnownLimit.of(item)


def _of_group(item: KnownLimit | None) -> bool:
    return bool(item and item.limit.subject and item.limit.subject.kind is SubjectKind.GROUP)
