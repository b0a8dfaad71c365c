"""Requests and replies: the first reply that names a request; time-out, no receiver and refusal are told apart."""

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from genus import Event, Int32, Kind, Maybe, Subscription, UInt8, UInt32, all_of, open_bus, this
from genus.bus import Bus, Declined, Link, Reply
from genus.bus._requests import SEQUENCE, Exchange
from genus.bus.types import Delivery, ProblemHandler
from genus.can import World
from genus.errors import BusError, EventError, NoReceiver, RequestRefused, RequestTimeout, SpanError


class Movable(Kind): ...


class Move(Event, Movable):
    axis: UInt8
    request: Maybe[UInt32] = None


class Answer(Event):
    request: UInt32 = 0


class Moved(Answer):
    axis: UInt8 = 0


class Stopped(Answer): ...


@pytest.fixture
def bus() -> Iterator[Bus]:
    with open_bus("local:") as opened:
        yield opened


def answer(move: Move) -> Moved:
    return Moved(axis=move.axis)


# -- one reply ---------------------------------------------------------------------------------------------------------


def test_a_request_returns_the_reply_that_names_it(bus: Bus) -> None:
    moves = bus.collection(Move)
    moves.serve(answer)
    seen = bus.collection(Event).inbox()
    reply = moves.request(Move(axis=3), Answer, timeout="60s")
    assert (type(reply), reply) == (Moved, Moved(axis=3, request=reply.request))
    assert reply.request > 0
    assert sorted(type(seen.get(timeout=0)).__name__ for _ in range(2)) == ["Move", "Moved"]
    assert bus.traffic().requests == {"requests": 1}


async def test_a_coroutine_waits_for_a_reply_without_blocking_others() -> None:
    async with open_bus("local:") as bus:
        moves, release = bus.collection(Move), asyncio.Event()

        @moves.serve
        async def answer_later(move: Move) -> Moved:
            if move.axis == 0:
                await release.wait()
            return Moved(axis=move.axis)

        first = asyncio.create_task(moves.request_async(Move(axis=0), Answer, timeout=60.0))
        await asyncio.sleep(0)
        release.set()
        second = asyncio.create_task(moves.request_async(Move(axis=1), Moved, timeout="60s"))
        assert [(await task).axis for task in (first, second)] == [0, 1]  # type: ignore[attr-defined]


def test_a_thread_may_reply_later(bus: Bus) -> None:
    moves, threads = bus.collection(Move), []

    def reply_later(move: Move) -> None:
        assert move.request is not None
        threads.append(threading.Thread(target=bus.publish, args=(Moved(axis=1, request=move.request),)))
        threads[-1].start()

    moves.serve(reply_later)  # returns None: no reply by itself
    reply = moves.request(Move(axis=1), Moved, timeout="60s")
    assert (reply.axis, bus.requester().has_made(reply.request)) == (1, True)
    threads[0].join(60)


def test_a_server_answers_what_its_condition_matches(bus: Bus) -> None:
    moves = bus.collection(all_of(Move, Movable))

    @moves.serve(where=this.axis < 2)
    def low(move: Move) -> Answer:
        return Stopped()

    moves.serve(answer, where=this.axis >= 2)
    assert type(moves.request(Move(axis=1), Answer)) is Stopped
    assert type(moves.request(Move(axis=2), Answer)) is Moved
    low.cancel()
    with pytest.raises(NoReceiver):
        moves.request(Move(axis=1), Answer)


def test_the_type_of_the_reply_can_be_named(bus: Bus) -> None:
    moves = bus.collection(Move)
    moves.serve(lambda move: Stopped())
    moves.serve(answer)
    assert moves.request(Move(axis=5), Moved).axis == 5
    assert bus.traffic().requests == {"requests": 1}  # the other reply was not even received
    with pytest.raises(RequestTimeout):
        moves.request(Move(axis=5), Declined, timeout="1ms")


def test_late_and_second_replies_are_ignored_and_counted(bus: Bus) -> None:
    moves = bus.collection(Move)
    for _ in range(3):
        moves.serve(answer)
    reply = moves.request(Move(axis=1), Answer)
    bus.publish(Moved(request=reply.request))
    bus.publish(Moved(request=bus.requester().first + SEQUENCE))  # of another bus: not even received
    assert bus.traffic().requests == {"requests": 1, "replies ignored": 3}


def test_a_queue_of_servers_shares_the_requests(bus: Bus) -> None:
    moves, handled = bus.collection(Move, "queue"), list[str]()

    def server(name: str) -> Callable[[Move], Answer]:
        def handle(move: Move) -> Answer:
            handled.append(name)
            return Moved()

        return handle

    for name in "ab":
        moves.serve(server(name))
    for _ in range(4):
        moves.request(Move(axis=1), Answer)
    assert handled == ["a", "b", "a", "b"]
    assert "replies ignored" not in bus.traffic().requests


def test_an_event_without_a_number_is_handled_and_not_replied_to(bus: Bus) -> None:
    handled: list[Move] = []

    def handle(move: Move) -> Answer:
        handled.append(move)
        return Moved()

    bus.collection(Move).serve(handle)
    replies = bus.collection(Answer).inbox()
    bus.publish(Move(axis=1))
    assert (len(handled), replies.counters.waiting) == (1, 0)


# -- no reply ----------------------------------------------------------------------------------------------------------


def test_no_reply_in_time(bus: Bus) -> None:
    moves = bus.collection(Move)
    moves.serve(lambda move: None)
    with pytest.raises(RequestTimeout, match=r"no reply to Move\(axis=1, request=\d+\) within 0.02 s") as caught:
        moves.request(Move(axis=1), Answer, timeout="20ms")
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, BusError)
    assert bus.traffic().requests == {"requests": 1, "timed out": 1}


async def test_no_reply_in_time_for_a_coroutine() -> None:
    async with open_bus("local:") as bus:
        moves = bus.collection(Move)
        moves.serve(lambda move: None)
        with pytest.raises(RequestTimeout, match="no reply to Move"):
            await moves.request_async(Move(axis=1), Answer, timeout=0.02)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await moves.request_async(Move(axis=1), Answer, timeout="60s")
        assert not bus.requester()._waiting


def test_nobody_subscribed(bus: Bus) -> None:
    moves, published = bus.collection(Move), bus.collection(Event).subscribe(print, where=this.place == "elsewhere")
    with pytest.raises(NoReceiver, match=r"nobody subscribed to Move.*by bus.collection\(Move\).serve"):
        moves.request(Move(axis=1), Answer, timeout="60s")
    bus.collection(Move, "queue").serve(answer, where=this.axis == 2)
    with pytest.raises(NoReceiver, match="it does not match what others ask for: Move where axis == 2"):
        moves.request(Move(axis=1), Answer, timeout="60s")
    assert type(moves.request(Move(axis=2), Answer, timeout="60s")) is Moved
    assert bus.traffic().requests == {"requests": 3, "no receiver": 2}
    assert bus.traffic().published["Move"] == 1
    assert published.counters.delivered == 0


def test_receivers_are_found_among_very_many_subscriptions(bus: Bus) -> None:
    moves = bus.collection(Move)
    for axis in range(200):
        moves.serve(answer, where=this.axis == axis)
    assert moves.request(Move(axis=7), Moved).axis == 7
    with pytest.raises(NoReceiver):
        moves.request(Move(axis=201), Answer)


def test_a_request_that_is_refused(bus: Bus) -> None:
    moves = bus.collection(Move)

    def refuse(move: Move) -> Answer:
        raise RequestRefused("the axis is locked" if move.axis else "")

    moves.serve(refuse)
    with pytest.raises(RequestRefused, match="Move was refused: the axis is locked") as caught:
        moves.request(Move(axis=1), Answer)
    assert caught.value.reason == "the axis is locked"
    with pytest.raises(RequestRefused, match="no reason given"):
        moves.request(Move(axis=0), Moved)
    assert bus.traffic().requests == {"requests": 2, "refused": 2}


@pytest.mark.parametrize("result", [ValueError("no"), "a text", Move(axis=1)])
def test_a_handler_that_fails_is_reported_and_the_requester_need_not_wait(result: object) -> None:
    reported: list[Exception] = []
    with open_bus("local:", on_error=lambda _, __, problem: reported.append(problem)) as bus:

        def handle(move: Move) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        listener = bus.collection(Move).serve(handle)
        with pytest.raises(RequestRefused, match="Move was refused: failed"):
            bus.collection(Move).request(Move(axis=1), Answer, timeout="60s")
        assert listener.counters.failed == len(reported) == 1
        assert reported[0] is result or "cannot be a reply" in str(reported[0]) or "is not an event" in str(reported[0])


async def test_a_coroutine_function_refuses_and_fails_alike(caplog: pytest.LogCaptureFixture) -> None:
    async with open_bus("local:") as bus:
        moves = bus.collection(Move)

        @moves.serve
        async def handle(move: Move) -> Answer:
            await asyncio.sleep(0)
            if move.axis:
                raise RequestRefused("locked")
            raise KeyError(move.axis)

        with pytest.raises(RequestRefused, match="locked"):
            await moves.request_async(Move(axis=1), Answer, timeout="60s")
        with caplog.at_level(logging.ERROR, "genus.bus"), pytest.raises(RequestRefused, match="failed"):
            await moves.request_async(Move(axis=0), Answer, timeout="60s")
        assert "KeyError" in caplog.text


def test_closing_the_bus_ends_the_wait() -> None:
    bus = open_bus("local:")
    moves, waiting = bus.collection(Move), threading.Event()
    moves.serve(lambda move: waiting.set())
    problems: list[BaseException] = []

    def request() -> None:
        try:
            moves.request(Move(axis=1), Answer, timeout="600s")
        except BusError as problem:
            problems.append(problem)

    thread = threading.Thread(target=request)
    thread.start()
    assert waiting.wait(60)
    bus.close()
    thread.join(60)
    assert not thread.is_alive()
    assert "the bus was closed before a reply to Move(" in str(problems[0])
    with pytest.raises(BusError, match="closed"):
        moves.request(Move(axis=1), Answer)


# -- what is refused ---------------------------------------------------------------------------------------------------


class Plain(Event):
    axis: UInt8


class Narrow(Event):
    request: Maybe[Int32] = None


class Wide(Event):
    request: int = 0


def test_a_request_type_needs_an_attribute_for_the_number(bus: Bus) -> None:
    with pytest.raises(BusError, match=r"Plain cannot be a request.*has none; declare `request: Maybe\[UInt32\]"):
        bus.collection(Plain).request(Plain(axis=1), Answer)
    with pytest.raises(BusError, match=r"Narrow cannot be a request.*has int32"):
        bus.collection(Narrow).serve(lambda event: None)
    with pytest.raises(EventError, match="cannot publish"):
        bus.collection(Plain).request(Wide(), Answer)  # type: ignore[arg-type]
    bus.collection(Wide).serve(lambda event: Moved())
    assert type(bus.collection(Wide).request(Wide(), Answer)) is Moved


async def test_blocking_the_event_loop_is_refused() -> None:
    async with open_bus("local:") as bus:
        with pytest.raises(BusError, match="would block the event loop"):
            bus.collection(Move).request(Move(axis=1), Answer)


def test_a_timeout_that_is_no_time_is_refused(bus: Bus) -> None:
    with pytest.raises(SpanError, match="timeout is 'soon'; write seconds"):
        bus.collection(Move).request(Move(axis=1), Answer, timeout="soon")
    assert not bus.requester()._waiting


class AxisMoved(Event):
    position: int
    request: UInt32 = 0


class DriveMoved(Event):
    position: float
    request: UInt32 = 0


class OldMoved(Reply):
    place_mm: int = 0


class Farther(Move): ...


@pytest.mark.parametrize("reply", [AxisMoved(position=3), DriveMoved(position=0.5), OldMoved(place_mm=7), Wide()])
def test_a_reply_is_of_any_family(bus: Bus, reply: Any) -> None:
    """Two makers may have a `position` of different types; an old one may go on below `Reply`."""
    moves = bus.collection(Move)
    moves.serve(lambda move: reply)
    got = moves.request(Move(axis=1), type(reply))
    assert type(got) is type(reply)
    assert replace(got, request=0) == reply


def test_replies_that_several_subscriptions_get_are_counted_once(bus: Bus) -> None:
    moves = bus.collection(Move)
    moves.serve(answer)
    for wanted in (Moved, Answer, Stopped, Answer):
        if wanted is Stopped:
            with pytest.raises(RequestTimeout):
                moves.request(Move(axis=1), wanted, timeout=0)
        else:
            moves.request(Move(axis=1), wanted)
    assert bus.traffic().requests == {"requests": 4, "timed out": 1, "replies ignored": 1}
    bus.publish(Moved(request=bus.requester().first + 1))
    bus.publish(Declined(request=bus.requester().first + 1))
    assert bus.traffic().requests["replies ignored"] == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Plain, r"Plain cannot be a reply: it needs .* declare `request: UInt32 = 0` in Plain"),
        (Narrow, "Narrow cannot be a reply.*has int32"),
        (Movable, "cannot be a reply; give the event type"),
        (Moved(), "cannot be a reply; give the event type"),
        (None, "None cannot be a reply"),
        ([Moved], "cannot be a reply"),
        (Move, "Move cannot be a reply to Move: one is a subtype of the other"),
        (Farther, "Farther cannot be a reply to Move"),
    ],
)
def test_what_cannot_be_a_reply_is_refused_before_anything_is_published(bus: Bus, reply: Any, message: str) -> None:
    bus.collection(Move).serve(answer)
    with pytest.raises(BusError, match=message):
        bus.collection(Move).request(Move(axis=1), reply)
    assert bus.traffic().published == {}


async def test_a_server_answers_many_requests_at_a_time() -> None:
    """Ten requests to a server that answers when all ten have come; with one at a time, none would be answered."""
    async with open_bus("local:") as bus:
        moves, here, all_here = bus.collection(Move), 0, asyncio.Event()

        async def answer_together(move: Move) -> Moved:
            nonlocal here
            here += 1
            if here == 10:
                all_here.set()
            await all_here.wait()
            return Moved(axis=move.axis)

        moves.serve(answer_together)
        replies = [moves.request_async(Move(axis=axis), Moved, timeout="60s") for axis in range(10)]
        assert [reply.axis for reply in await asyncio.gather(*replies)] == list(range(10))


async def test_a_server_may_answer_one_request_at_a_time() -> None:
    async with open_bus("local:") as bus:
        moves, order = bus.collection(Move), list[str]()

        @moves.serve(concurrency=1)
        async def answer_in_order(move: Move) -> Moved:
            order.append(f"begin {move.axis}")
            await asyncio.sleep(0)
            order.append(f"end {move.axis}")
            return Moved(axis=move.axis)

        await asyncio.gather(*(moves.request_async(Move(axis=axis), Moved, timeout="60s") for axis in range(3)))
        assert order == [f"{step} {axis}" for axis in range(3) for step in ("begin", "end")]


def test_a_function_answers_one_request_at_a_time(bus: Bus) -> None:
    moves = bus.collection(Move)
    with pytest.raises(BusError, match="concurrency=4 needs a coroutine function"):
        moves.serve(answer, concurrency=4)
    moves.serve(answer, concurrency=1)
    assert moves.request(Move(axis=2), Moved).axis == 2


# -- many --------------------------------------------------------------------------------------------------------------


def test_one_subscription_serves_all_requests_of_a_bus(bus: Bus) -> None:
    moves = bus.collection(Move)
    moves.serve(answer)
    for number in range(2 * SEQUENCE):  # the numbers come round
        assert moves.request(Move(axis=number % 256), Moved).axis == number % 256
    assert sum(subscription.type is Moved for subscription in bus.subscriptions()) == 1


def test_a_bus_has_so_many_requests_at_a_time(bus: Bus) -> None:
    requester = bus.requester()
    for number in range(1, SEQUENCE - 1):
        requester._waiting[requester.first + number] = Exchange(Move(axis=1), number, Answer)
    bus.collection(Move).serve(answer)
    assert bus.collection(Move).request(Move(axis=1), Answer).request == requester.first + SEQUENCE - 1
    requester._waiting[requester.first + SEQUENCE - 1] = Exchange(Move(axis=1), 1, Answer)
    with pytest.raises(BusError, match="4095 requests of this bus wait"):
        bus.collection(Move).request(Move(axis=1), Answer)


def test_threads_get_their_own_replies(bus: Bus) -> None:
    moves, wrong = bus.collection(Move), []
    moves.serve(answer)

    def request(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(150):
            axis = rng.randrange(256)
            if moves.request(Move(axis=axis), Moved, timeout="60s").axis != axis:
                wrong.append(axis)

    threads = [threading.Thread(target=request, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert bus.traffic().requests == {"requests": 600}


# -- links -------------------------------------------------------------------------------------------------------------


def forget(known: dict[object, Any], key: object) -> None:
    known.pop(key, None)


class Net:
    """A network within the process, whose participants learn of each other when the test says so."""

    def __init__(self) -> None:
        self.members: list[NetLink] = []
        self.is_told = True
        self.knows = True
        self.watchers: dict[object, Callable[[], None]] = {}

    def tell(self) -> None:
        """Let everybody know what is subscribed to now."""
        for member in self.members:
            member.told = list(member.asked.values())
        for changed in list(self.watchers.values()):
            changed()


class NetLink(Link):
    def __init__(self, net: Net, name: str) -> None:
        self.net, self.name = net, name
        self.asked: dict[object, Subscription] = {}
        self.told: list[Subscription] = []
        self.sent: list[Event] = []
        self.has_sent = threading.Event()

    def open(self, deliver: Delivery) -> None:
        self.deliver = deliver
        self.net.members.append(self)

    def send(self, event: Event) -> None:
        self.sent.append(event)
        self.has_sent.set()
        for member in self.net.members:
            if member is not self and any(each.matches(event) for each in member.told):
                member.deliver(event)

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        key = object()
        self.asked[key] = subscription
        if self.net.is_told:
            self.net.tell()
        return partial(forget, self.asked, key)

    def wanted_by(self, event: Event) -> Collection[str] | None:
        if not self.net.knows:
            return None
        others = [member for member in self.net.members if member is not self]
        return [member.name for member in others if any(each.matches(event) for each in member.told)]

    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self.net.watchers[key] = changed
        return partial(forget, self.net.watchers, key)

    def close(self) -> None:
        self.net.members.remove(self)

    def counters(self) -> Mapping[str, int]:
        return {}


@pytest.fixture
def net() -> Net:
    return Net()


def test_requests_cross_a_link(net: Net) -> None:
    with Bus(NetLink(net, "client")) as client, Bus(NetLink(net, "server")) as server:
        server.collection(Move).serve(answer)
        assert client.collection(Move).request(Move(axis=4), Moved, timeout="60s").axis == 4
        assert not net.watchers


def test_a_receiver_that_becomes_known_late_gets_the_request(net: Net) -> None:
    """And its reply waits until it knows of the requester."""
    with Bus(NetLink(net, "client")) as client, Bus(NetLink(net, "server")) as server:
        net.is_told = False
        server.collection(Move).serve(answer)
        replies: list[Answer] = []
        thread = threading.Thread(
            target=lambda: replies.append(client.collection(Move).request(Move(axis=4), Answer, timeout="60s"))
        )
        thread.start()
        while not net.watchers:
            assert thread.is_alive()
        link = client.link
        assert isinstance(link, NetLink)
        server_link = net.members[1]
        server_link.told = list(server_link.asked.values())  # the client learns of the server, not yet the other way
        for changed in list(net.watchers.values()):
            changed()
        while not link.sent:
            assert thread.is_alive()
        while not net.watchers:  # the reply waits
            assert thread.is_alive()
        assert not server_link.sent
        net.tell()
        thread.join(60)
        assert [type(reply) for reply in replies] == [Moved]
        assert not net.watchers


def test_a_reply_is_published_after_a_while_if_its_requester_stays_unknown(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("genus.bus._requests.GRACE_S", 0.01)
    with Bus(NetLink(net, "server")) as server:
        link = server.link
        assert isinstance(link, NetLink)
        server.collection(Move).serve(answer)
        link.deliver(Move(axis=1, request=77))
        assert link.has_sent.wait(60)
        assert link.sent == [Moved(axis=1, request=77)]
        assert not net.watchers


def test_nobody_on_the_network_subscribed(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genus.bus._requests.GRACE_S", 0.01)
    link = NetLink(net, "client")
    with Bus(link) as client:
        with pytest.raises(NoReceiver):
            client.collection(Move).request(Move(axis=4), Answer, timeout="60s")
        assert not link.sent
        net.knows = False
        with pytest.raises(RequestTimeout):
            client.collection(Move).request(Move(axis=4), Answer, timeout="10ms")
        assert len(link.sent) == 1
        assert not net.watchers


def test_a_logger_beside_requester_or_server_does_not_hide_that_the_other_is_unknown(net: Net) -> None:
    with Bus(NetLink(net, "client")) as client, Bus(NetLink(net, "server")) as server:
        net.is_told = False
        for bus in (client, server):
            bus.collection(Event).inbox()
        server.collection(Move).serve(answer)
        replies: list[Answer] = []
        thread = threading.Thread(
            target=lambda: replies.append(client.collection(Move).request(Move(axis=4), Answer, timeout="60s"))
        )
        thread.start()
        while not net.watchers:
            assert thread.is_alive()
        assert not net.members[0].sent
        net.tell()
        thread.join(60)
        assert [type(reply) for reply in replies] == [Moved]


def test_a_handler_that_is_no_server_may_answer(bus: Bus) -> None:
    def handle(move: Move) -> None:
        assert move.request is not None
        bus.publish(Moved(axis=move.axis, request=move.request))

    bus.collection(Move).subscribe(handle)
    assert bus.collection(Move).request(Move(axis=4), Moved).axis == 4


async def test_a_coroutine_waits_for_a_receiver_to_become_known(net: Net) -> None:
    async with Bus(NetLink(net, "client")) as client, Bus(NetLink(net, "server")) as server:
        net.is_told = False
        server.collection(Move).serve(answer)
        task = asyncio.create_task(client.collection(Move).request_async(Move(axis=4), Moved, timeout="60s"))
        while not net.watchers:
            await asyncio.sleep(0)
        net.tell()
        assert (await task).axis == 4


def test_requests_between_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two buses of one process; that is all the same to their sockets."""
    address = f"ipc:requests-{os.getpid()}"
    with open_bus(address) as client, open_bus(address) as server:
        moves = client.collection(Move)

        def handle(move: Move) -> Answer:
            if move.axis > 8:
                raise RequestRefused("no such axis")
            return Moved(axis=move.axis)

        server.collection(Move).serve(handle)
        assert moves.request(Move(axis=4), Moved, timeout="60s").axis == 4
        with pytest.raises(RequestRefused, match="no such axis"):
            moves.request(Move(axis=9), Answer, timeout="60s")
        server.collection(Move).cancel()
        monkeypatch.setattr("genus.bus._requests.GRACE_S", 0.2)
        with pytest.raises(BusError) as caught:  # a time-out if the client has not heard of it yet
            moves.request(Move(axis=4), Answer, timeout="500ms")
        assert isinstance(caught.value, NoReceiver | RequestTimeout)


# -- CAN ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Iterator[World]:
    with World("requests", catalog=[Move, Moved, Declined], seed=3) as made:
        yield made


def test_requests_and_replies_on_a_can_bus_take_virtual_time(world: World) -> None:
    client, server = open_bus("sim:requests?name=client"), open_bus("sim:requests?name=server")

    def handle(move: Move) -> Answer:
        if move.axis > 8:
            raise RequestRefused("no")
        server.sleep("50ms")
        return Moved(axis=move.axis)

    moves = client.collection(Move)
    with pytest.raises(RequestTimeout, match="within 10 s"):
        moves.request(Move(axis=1), Answer, timeout="10s")
    assert 9.99 < world.now_ns / 1e9 < 11
    server.collection(Move).serve(handle)
    world.run("1s")
    began = world.now_ns
    assert moves.request(Move(axis=3), Moved, timeout="5s").axis == 3
    assert 0.05 < (world.now_ns - began) / 1e9 < 1
    with pytest.raises(RequestRefused, match="no"):
        moves.request(Move(axis=9), Answer, timeout="5s")


def test_coroutines_request_on_a_can_bus_in_virtual_time(world: World) -> None:
    client, server = open_bus("sim:requests?name=client"), open_bus("sim:requests?name=server")
    server.collection(Move).serve(answer, where=this.axis != 7)
    world.run("1s")

    async def main() -> list[int]:
        moves = client.collection(Move)
        with pytest.raises(RequestTimeout):
            await moves.request_async(Move(axis=7), Answer, timeout="30s")
        return [(await moves.request_async(Move(axis=axis), Moved, timeout="5s")).axis for axis in (1, 2)]

    assert world.run_async(main()) == [1, 2]
    assert 31 < world.now_ns / 1e9 < 33


def test_numbers_in_the_simulator_are_the_same_at_every_run() -> None:
    def run() -> int:
        with World("requests", catalog=[Move, Moved], seed=3) as world:
            client, server = open_bus("sim:requests?name=client"), open_bus("sim:requests?name=server")
            server.collection(Move).serve(answer)
            world.run("1s")
            return client.collection(Move).request(Move(axis=1), Answer, timeout="5s").request

    first = run()
    assert first == run()
    assert first // SEQUENCE > 1  # of the uid, which other segments behind a gateway do not have
