"""One node with its scheduler in simulated time: users, the node side, and writes that can fail."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from jupyter_gpu.model.annotations import Attached, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.parking import Obstacle, ParkedShare, RestingShare, UnparkableShare
from jupyter_gpu_scheduler.rules.parking.candidates import ParkTimes, candidates
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import NODE, inventory

GPUS = 3
REST = HOLD = 120
TIMES = ParkTimes(rest=REST, hold=HOLD, retry=600)


class Site:
    """Pods ``a``, ``b``, … of different users on one node.

    Programs use all GPUs of their pod. ``bundled``: one process has all of them, otherwise each has one of its own.
    """

    def __init__(self, count: int, *, gpus: int = GPUS, fair: bool = False, bundled: bool = True) -> None:
        self.now = 0
        self.parks = 0
        self.refuses: set[str] = set()
        """Pods whose node side refuses the next orders."""
        self.pods = [chr(ord("a") + number) for number in range(count)]
        self._using: set[str] = set()
        """Pods that run a cell now, or want to."""
        self._fair, self._bundled = fair, bundled
        self._since: dict[str, dict[str, int]] = {uid: {} for uid in self.pods}
        """The time since which each GPU is attached."""
        self._snapshot = ClusterSnapshot(parks=True)
        self._snapshot.put_node(NODE, inventory(gpus))
        for uid in self.pods:
            self._put(PodState(uid, NODE, Requested(1, Wish(0)), owner=Owner("User", uid)))

    def state(self, uid: str) -> PodState:
        """Return the records of a pod."""
        found = self._snapshot.pod(uid)
        assert found
        return found

    def opens(self, uid: str) -> bool:
        """Tell whether a pod has a GPU open, or may open it."""
        return bool(self._attached(uid).shares)

    def _attached(self, uid: str) -> Attached:
        return self.state(uid).attached or Attached(0)

    def _put(self, state: PodState) -> None:
        standing = OwnerStanding(state.holds) if self._fair and state.lacks_gpus else None
        self._snapshot.put_pod(replace(state, standing=standing))

    def _write(self, uid: str, attached: Attached) -> None:
        self._put(replace(self.state(uid), attached=attached))

    # --- users --------------------------------------------------------------------------------------------------------

    def resize(self, uid: str, amount: int) -> None:
        """Wish another amount."""
        state = self.state(uid)
        assert state.requested
        self._put(replace(state, requested=Requested(state.requested.generation + 1, Wish(amount * 1000))))

    def use(self, uid: str) -> None:
        """Begin a cell: it works with what is attached, and needs all that is parked."""
        self._using.add(uid)
        attached = self._attached(uid)
        parked = tuple(share._replace(needed=True) for share in attached.parked)
        self._write(uid, replace(attached, resting=(), parked=parked))

    def stop(self, uid: str) -> None:
        """End the cell, or stop to wait for it: what is attached rests from now on."""
        self._using.discard(uid)
        attached = self._attached(uid)
        parked = tuple(share._replace(needed=False) for share in attached.parked)
        self._write(uid, replace(attached, parked=parked))
        self._rest(uid)

    def _rest(self, uid: str) -> None:
        attached = self._attached(uid)
        known = {share.uuid: share for share in attached.resting}
        resting = (
            known.get(share.uuid, RestingShare(share.uuid, self._bundle(share.uuid), self.now, 1))
            for share in attached.shares
        )
        self._write(uid, replace(attached, resting=() if uid in self._using else tuple(resting)))

    def _bundle(self, uuid: str) -> str:
        return "all" if self._bundled else uuid

    # --- the node side ------------------------------------------------------------------------------------------------

    def follow(self, uid: str) -> None:
        """Close what is not allocated any more, carry orders out, open and restore what is allocated."""
        state, attached = self.state(uid), self._attached(uid)
        decided = state.allocated
        if decided is None:
            return
        granted = {share.uuid: share for share in decided.shares}
        away = {share.uuid for share in attached.parked if not share.needed}
        shares = tuple(share for share in attached.shares if share.uuid in granted)
        had = {share.uuid for share in shares}
        shares += tuple(share for uuid, share in granted.items() if uuid not in had | away)
        opened = {share.uuid for share in shares}
        parked = tuple(share for share in attached.parked if share.uuid not in opened)
        resting = tuple(share for share in attached.resting if share.uuid in opened)
        self._since[uid] = {uuid: self._since[uid].get(uuid, self.now) for uuid in opened}
        after = replace(attached, shares=shares, parked=parked, resting=resting, revision=decided.revision)
        self._write(uid, after)
        self._rest(uid)
        self._carry_out(uid)

    def _carry_out(self, uid: str) -> None:
        """Park what is ordered and rests, each bundle as a whole, or say why not."""
        decided, attached = self.state(uid).allocated, self._attached(uid)
        assert decided
        ordered = {order.uuid for order in decided.park} & {share.uuid for share in attached.shares}
        if not ordered:
            return
        if uid in self.refuses:
            refused = tuple(UnparkableShare(uuid, Obstacle.IN_USE, self.now) for uuid in sorted(ordered))
            self._write(uid, replace(attached, unparkable=refused))
            return
        resting = {share.uuid: share for share in attached.resting}
        bundles = {self._bundle(uuid) for uuid in ordered}
        if ordered != {share.uuid for share in attached.shares if self._bundle(share.uuid) in bundles}:
            return  # more belongs to the bundle since it was decided
        if not ordered <= resting.keys():
            return  # in use again
        assert all(self.now - resting[uuid].since >= REST for uuid in ordered)
        assert all(self.now - self._since[uid][uuid] >= HOLD for uuid in ordered)
        self._park(uid, ordered)

    def _park(self, uid: str, uuids: set[str]) -> None:
        attached = self._attached(uid)
        gone = [share for share in attached.shares if share.uuid in uuids]
        self.parks += len({self._bundle(share.uuid) for share in gone})
        self._write(
            uid,
            replace(
                attached,
                shares=tuple(share for share in attached.shares if share not in gone),
                parked=(*attached.parked, *map(self._parked, gone)),
                resting=tuple(share for share in attached.resting if share.uuid not in uuids),
                unparkable=(),
            ),
        )

    def _parked(self, share: GpuShare) -> ParkedShare:
        return ParkedShare(share.uuid, share.milli, self._bundle(share.uuid), 1, self.now)

    def park_now(self, uid: str) -> None:
        """Park all that rests, as its user says so."""
        self.stop(uid)
        self._park(uid, {share.uuid for share in self._attached(uid).shares})
        self.step()

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Note what may be parked now."""
        for uid in self.pods:
            state = self.state(uid)
            found = candidates(state, TIMES, self.now, attached_since=self._since[uid])
            self._put(replace(state, parkable=found.parkable))

    def write(self, decisions: list[Decision], seen: dict[str, PodState]) -> None:
        """Write decisions that fit the records: nothing that another pod still holds, of no pod that changed."""
        for decision in decisions:
            state = self.state(decision.uid)
            if state.attached != seen[decision.uid].attached or state.requested != seen[decision.uid].requested:
                continue
            others = (
                sum(milli for uid, milli in self._snapshot.holders(share.uuid).items() if uid != decision.uid)
                + share.milli
                for share in decision.added
            )
            if all(milli <= 1000 for milli in others):
                self._put(replace(state, allocated=decision.allocated))

    def decide(self, chance: random.Random | None = None) -> None:
        """Decide and write, in any order; users and the node side may act in between."""
        self.look()
        seen = {uid: self.state(uid) for uid in self.pods}
        decisions = list(decide(self._snapshot, NODE))
        for each in decisions:
            bundles = [found.uuids for found in seen[each.uid].parkable]
            ordered = frozenset(order.uuid for order in each.allocated.park)
            assert ordered == frozenset().union(*(uuids for uuids in bundles if uuids & ordered)), "a part of a bundle"
        if chance:
            chance.shuffle(decisions)
            for uid in self.pods:
                if chance.random() < 0.1:
                    self.use(uid)
                elif chance.random() < 0.1:
                    self.follow(uid)
            decisions = decisions[: chance.randint(0, len(decisions))]
        self.write(decisions, seen)

    # --- all together -------------------------------------------------------------------------------------------------

    def act(self, action: str, number: int, amount: int, chance: random.Random) -> None:
        """Take one step of any of them."""
        uid = self.pods[number]
        if action == "wait":
            self.now += 60 * amount
        elif action == "decide":
            self.decide(chance)
        elif action == "resize":
            self.resize(uid, amount)
        elif action == "refuse":
            self.refuses ^= {uid}
        elif action == "park":
            self.stop(uid)
            self._park(uid, {share.uuid for share in self._attached(uid).shares})
        elif action == "interrupt":
            self.stop(uid)
        elif action == "follow":
            self.follow(uid)
        else:
            (self.use if action == "use" else self.stop)(uid)

    def step(self) -> None:
        """Have all act until nothing changes."""
        for _ in range(20):
            before = [self.state(uid) for uid in self.pods]
            self.decide()
            for uid in self.pods:
                self.follow(uid)
            if [self.state(uid) for uid in self.pods] == before:
                return
        raise AssertionError("it does not come to rest")

    def come_to_rest(self) -> None:
        """Have all programs rest, but for those that wait for their GPUs until they had them; time goes on."""
        self.refuses.clear()
        for uid in self.pods:
            if not any(share.needed for share in self._attached(uid).parked):
                self.stop(uid)
        for _ in range(40):
            self.now += REST + HOLD
            self.step()
            self.check()
            waiting = {uid for uid in self.pods if any(share.needed for share in self._attached(uid).parked)}
            for uid in self.pods:
                if uid not in waiting:
                    self.stop(uid)
            if not waiting:
                return

    def check(self) -> None:
        """Check that no GPU has two owners, in the books or in the devices' rules."""
        held, opened = Counter[str](), Counter[str]()
        for uid in self.pods:
            held.update(self.state(uid).held)
            opened.update({share.uuid: share.milli for share in self._attached(uid).shares})
        assert max(held.values(), default=0) <= 1000
        assert max(opened.values(), default=0) <= 1000
