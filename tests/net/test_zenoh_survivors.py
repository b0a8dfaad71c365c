"""zenoh without a server: whichever process is killed or paused, the others and those that come back go on.

The law: what a process has received from another one and what it was told to have lost are all that was sent, counted
from the first event that it received, or from the very first if it had subscribed before. Each publishes all the time.
"""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from genus import Bus, Event, open_bus
from genus.net import EventsLost, NetLink

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.fault_counts import Counts
from tests.net.zenoh_network import Process, free_port, participant
from tests.programs import needs
from tests.waiting import wait_for

TICK_S = 0.002
QUICK_LEASE_MS = 400


class Tick(Event):
    number: int


class Member:
    """State: a bus that publishes numbers, and counts those of others and the losses that it was told of."""

    def __init__(self, address: str) -> None:
        self.bus = open_bus(address)
        self.uid = link(self.bus).uid.hex()
        self.sent = 0
        self.first: dict[str, int] = {}
        self.delivered: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.doubled = 0
        self._last: dict[str, int] = {}
        self._stop = threading.Event()
        self.bus.collection(Tick).subscribe(self._take, on_problem=self._lose)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _take(self, tick: Tick) -> None:
        origin = str(tick.source)
        if origin == self.uid:
            return
        self.first.setdefault(origin, tick.number)
        self.delivered[origin] += 1
        self.doubled += tick.number <= self._last.get(origin, 0)
        self._last[origin] = tick.number

    def _lose(self, problem: object) -> None:
        assert isinstance(problem, EventsLost)
        self.lost[problem.sender] += problem.count

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            self.sent += 1
            self.bus.publish(Tick(number=self.sent, source=self.uid))

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()
        self._thread.join()

    def state(self) -> str:
        """All that was counted, as JSON."""
        return json.dumps(
            {
                "uid": self.uid,
                "sent": self.sent,
                "first": self.first,
                "delivered": self.delivered,
                "lost": self.lost,
                "lost by receivers": link(self.bus).counters().get("lost by receivers", 0),
                "doubled": self.doubled,
                "others": len(link(self.bus).participants()),
                "connected": link(self.bus).is_connected,
            }
        )


def link(bus: Bus) -> NetLink:
    assert isinstance(bus.link, NetLink)
    return bus.link


PROGRAM = """
import sys
from genus.net import _zenoh_session as session
session._COMMON["transport/link/tx/lease"] = int(sys.argv[2])
from tests.net.test_zenoh_survivors import Member
member = Member(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("stop"):
        member.stop()
    print(member.state(), flush=True)
member.stop()
"""


class Members:
    """State: the processes of a network, and those that were killed."""

    def __init__(self, lease_ms: int) -> None:
        self.address = f"zenoh:survivors?port={free_port()}"
        self.lease_ms = lease_ms
        self.alive: list[Process] = []

    def add(self) -> None:
        self.alive.append(Process(PROGRAM, self.address, self.lease_ms))
        assert self.alive[-1].line() == "ready"

    def states(self, text: str = "?") -> list[dict[str, Any]]:
        return [json.loads(each.ask(text)) for each in self.alive]

    def meet(self) -> None:
        """Wait until each gets what all others send now."""

        def all_get_news() -> bool:
            before, after = self.states(), self.states()
            return all(
                sum(new["delivered"].get(other["uid"], 0) > old["delivered"].get(other["uid"], 0) for other in after)
                == len(after) - 1
                for old, new in zip(before, after, strict=True)
            )

        wait_for(all_get_news, seconds=75)  # most connect again within 2 s, some only after 20

    def kill(self, member: Process) -> None:
        self.alive.remove(member)
        member.kill()

    def pause(self, member: Process, seconds: float) -> None:
        member.signal(signal.SIGSTOP)
        time.sleep(seconds)  # how long it hears nothing is what is tested
        member.signal(signal.SIGCONT)

    def check(self) -> Counts:
        """Stop publishing, and test the law; returns the counts of all pairs of processes that live."""
        self.states("stop")
        wait_for(lambda: not _missing(self.states()), f"{_missing(self.states())}")
        states = self.states()
        assert all(state["connected"] and state["others"] == len(states) - 1 for state in states)
        uids = {state["uid"] for state in states}
        delivered, lost = (
            sum(count for state in states for uid, count in state[name].items() if uid in uids)
            for name in ("delivered", "lost")
        )
        told = sum(state["lost by receivers"] for state in states)
        return Counts(delivered + lost, delivered, sum(state["doubled"] for state in states), lost, told).check()


def _missing(states: list[dict[str, Any]]) -> dict[tuple[object, object], int]:
    """Events that were neither delivered nor told as lost, by receiver and sender."""
    found = {}
    for at in states:
        for of in states:
            uid = of["uid"]
            if uid != at["uid"]:
                known = at["delivered"].get(uid, 0) + at["lost"].get(uid, 0)
                first = of["sent"] - at["first"].get(uid, 1) + 1 - known
                found[at["uid"], uid] = first if first > 0 or known > of["sent"] else 0
    return {pair: count for pair, count in found.items() if count}


@pytest.fixture
def members() -> Iterator[Members]:
    found = Members(QUICK_LEASE_MS)
    yield found
    for each in list(found.alive):
        found.kill(each)


@pytest.mark.slow
def test_a_receiver_that_pauses_after_the_first_process_has_ended_hears_all_or_is_told(members: Members) -> None:
    for _ in range(3):
        members.add()
    members.meet()
    members.kill(members.alive[0])
    members.meet()
    members.pause(members.alive[1], 3 * QUICK_LEASE_MS / 1000)
    members.meet()
    assert members.check().told_receiver > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lease_ms", [QUICK_LEASE_MS, 2000])
def test_each_process_is_killed_or_paused_in_turn(seed: int, lease_ms: int) -> None:
    kill_or_pause_in_turn(seed, lease_ms)


def kill_or_pause_in_turn(seed: int, lease_ms: int = 2000) -> Counts:
    """A process comes for each one that was killed; pauses are shorter, as long and longer than the lease."""
    members = Members(lease_ms)
    try:
        return _kill_or_pause_in_turn(members, random.Random(seed))
    finally:
        for each in list(members.alive):
            members.kill(each)


def _kill_or_pause_in_turn(members: Members, chance: random.Random) -> Counts:
    lease_ms = members.lease_ms
    for _ in range(4):
        members.add()
    members.meet()
    for place in chance.sample(range(4), 4):
        if chance.random() < 0.4:
            members.kill(members.alive[place % len(members.alive)])
            members.add()
        else:
            members.pause(members.alive[place], chance.choice((0.5, 1.0, 1.05, 2.0)) * lease_ms / 1000)
        if chance.random() < 0.7:
            members.meet()
    members.meet()
    return members.check()


def _connections(pid: int) -> set[tuple[str, str]]:
    """The TCP connections of a process: its own ends and the other ones."""
    lines = subprocess.run(["ss", "-tnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    return {(words[3], words[4]) for words in map(str.split, lines) if f"pid={pid}," in words[-1]}


@pytest.mark.slow
@needs("ss")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can cut a connection, with ss -K")
def test_two_processes_whose_connection_is_cut_connect_again(members: Members) -> None:
    """Both still have all other connections, so nothing but the gap shows that one is missing."""
    for _ in range(3):
        members.add()
    members.meet()
    second, third = (_connections(each._process.pid) for each in members.alive[1:])
    between = [(own, other) for own, other in second if (other, own) in third]
    assert between
    for own, other in between:
        subprocess.run(["ss", "-K", "-tn", "src", own, "dst", other], capture_output=True, check=True)
    members.meet()
    members.check()


def test_the_connection_is_told_as_it_is() -> None:
    """A process alone is connected to its own meeting place, is told when that is gone, and takes it again."""
    port = free_port()
    with participant(f"r?port={port}") as (transport, alone):
        wait_for(lambda: alone.connections == [True])
        assert transport._place is not None
        transport._place.close()
        wait_for(lambda: alone.connections[-2:] == [False, True])
