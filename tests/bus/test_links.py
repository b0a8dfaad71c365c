"""A link needs four methods; what else it can do it overrides, and states where a bus has to know it beforehand."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Soft, Subscription, this
from genus.bus import Bus, Capabilities, Link
from genus.bus._link import ProblemHandler
from genus.bus.types import Delivery
from genus.errors import BusError, QueueFull

NAMES = Capabilities.__struct_fields__
SOME = st.sets(st.sampled_from(NAMES))


class Lamp(Event):
    on: bool


class Plain(Link):
    """A link that can do nothing but send and deliver."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def open(self, deliver: Delivery) -> None:
        self.deliver = deliver

    def send(self, event: Event) -> None:
        self.sent.append(event)

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {"sent": len(self.sent)}


def method(*_: object) -> Any:
    raise NotImplementedError


def made(base: type[Link], methods: set[str], stated: set[str] | None) -> type[Link]:
    """A class of links with methods of these names, which states these capabilities, or those of its base."""
    states = {} if stated is None else {"capabilities": Capabilities(**dict.fromkeys(stated, True))}
    return type("Made", (base,), {**dict.fromkeys(methods, method), **states})


@given(SOME, SOME)
def test_a_class_of_links_states_what_it_has_methods_for_or_is_refused(methods: set[str], stated: set[str]) -> None:
    if methods == stated:
        assert made(Plain, methods, stated).capabilities == Capabilities(**dict.fromkeys(stated, True))
        return
    with pytest.raises(TypeError) as caught:
        made(Plain, methods, stated)
    advice = str(caught.value).rpartition("capabilities = ")[2]
    assert eval(advice) == Capabilities(**dict.fromkeys(methods, True))


@given(SOME, SOME)
def test_statements_are_inherited_with_the_methods(inherited: set[str], own: set[str]) -> None:
    base = made(Plain, inherited, inherited)
    assert made(base, set(), None).capabilities == base.capabilities
    assert made(base, own, inherited | own).capabilities == Capabilities(**dict.fromkeys(inherited | own, True))
    if own - inherited:
        with pytest.raises(TypeError, match="Made states the capabilities"):
            made(base, own, None)


def test_a_link_lacks_none_of_its_four_methods() -> None:
    class Half(Link):
        def send(self, event: Event) -> None: ...

    with pytest.raises(TypeError, match=r"abstract methods '?close'?, '?counters'?, '?open'?"):
        Half()  # type: ignore[abstract]


def test_four_methods_are_enough() -> None:
    """The bus does what the medium does not, or says that nobody can."""
    link = Plain()
    with Bus(link) as bus:
        inbox, shared = bus.collection(Lamp).inbox(), bus.collection(Lamp, "queue").inbox()
        assert bus.publish_all([Lamp(on=True), Lamp(on=False)]) == 2
        channel = bus.channel(Lamp)
        channel.announce()
        channel.publish(Lamp(on=True))
        link.deliver(Lamp(on=False))
        for each in (inbox, shared):
            assert [each.get(timeout=0).on for _ in range(4)] == [True, False, True, False]
        assert [event for event in link.sent if isinstance(event, Lamp)] == [
            Lamp(on=True),
            Lamp(on=False),
            Lamp(on=True),
        ]
        assert channel.slot is None
        assert (bus.types, bus.last_values(Subscription(Lamp)), bus.time().precision_ns) == ({}, [], None)
        with pytest.raises(BusError, match="keeps deadlines"):
            bus.channel(Lamp, Soft(deadline="1ms")).announce()
        with pytest.raises(BusError, match="keeps no last values"):
            bus.channel(Lamp, keep=True).announce()


def test_a_link_that_is_none_is_refused_with_what_to_write() -> None:
    with pytest.raises(BusError, match=r"object cannot be the link of a bus; derive it from genus\.bus\.Link"):
        Bus(object())  # type: ignore[arg-type]


# -- queues that processes share ---------------------------------------------------------------------------------------


class Sharing(Plain):
    """A link whose medium gives each event to one of the processes that share."""

    def __init__(self) -> None:
        super().__init__()
        self.shared: list[tuple[Subscription, Callable[[Event], bool], Callable[[], list[ProblemHandler]]]] = []
        self.ended = 0

    def share(
        self, subscription: Subscription, deliver: Callable[[Event], bool], on_problem: Any
    ) -> Callable[[], None] | None:
        self.shared.append((subscription, deliver, on_problem))
        return self.end

    def end(self) -> None:
        self.ended += 1


def test_consumers_of_a_queue_share_what_the_medium_gives_to_their_process() -> None:
    """In turn; the medium is asked once, and what this process publishes comes back from it alone."""
    link = Sharing()
    with Bus(link) as bus:
        lamps = bus.collection(Lamp, "queue")
        one, two = lamps.inbox(), lamps.inbox()
        lamps.publish(Lamp(on=True))
        assert len(one.queue) == len(two.queue) == 0
        ((subscription, take, _),) = link.shared
        assert subscription == Subscription(Lamp)
        assert [take(Lamp(on=True)) for _ in range(4)] == [True] * 4
        assert len(one.queue) == len(two.queue) == 2


def test_an_event_that_no_consumer_takes_is_lost_and_the_medium_is_told() -> None:
    """All queues are full, which is reported, or nobody is left. One that nobody wants is not lost."""
    link, told = Sharing(), list[Any]()
    with Bus(link, on_error=lambda listener, event, problem: told.append((event, type(problem)))) as bus:
        inbox = bus.collection(Lamp, "queue").inbox(where=this.on == True, capacity=1, overflow="raise")  # noqa: E712
        ((_, take, _),) = link.shared
        assert take(Lamp(on=False))
        assert take(Lamp(on=True))
        assert told == []
        assert not take(Lamp(on=True))
        assert told == [(Lamp(on=True), QueueFull)]
        assert len(inbox.queue) == 1
        inbox.cancel()
        assert not take(Lamp(on=True))
        assert len(told) == 1


def test_an_error_of_a_consumer_is_reported_and_its_event_is_not_lost() -> None:
    def fail(event: Lamp) -> None:
        raise LookupError

    link, told = Sharing(), list[Any]()
    with Bus(link, on_error=lambda listener, event, problem: told.append(type(problem))) as bus:
        bus.collection(Lamp, "queue").subscribe(fail)
        assert link.shared[0][1](Lamp(on=True))
    assert told == [LookupError]


def test_consumers_of_a_shared_queue_ask_the_same() -> None:
    """The medium gives an event to any of them."""
    with Bus(Sharing()) as bus:
        lamps = bus.collection(Lamp, "queue")
        lamps.inbox(where=this.on == True)  # noqa: E712
        lamps.inbox(where=this.on == True)  # noqa: E712
        with pytest.raises(BusError, match="a queue that processes share has consumers that ask the same: there is "):
            lamps.inbox()


def test_sharing_ends_with_the_last_consumer_and_begins_again() -> None:
    link = Sharing()
    with Bus(link) as bus:
        lamps = bus.collection(Lamp, "queue")
        one, two = lamps.inbox(), lamps.inbox()
        one.cancel()
        assert link.ended == 0
        two.cancel()
        assert (link.ended, len(link.shared)) == (1, 1)
        three = lamps.inbox()
        assert len(link.shared) == 2
        assert link.shared[1][1](Lamp(on=True))
        assert len(three.queue) == 1


def test_the_medium_knows_who_is_told_of_problems() -> None:
    """The consumers that there are."""
    link, told = Sharing(), list[object]()
    with Bus(link) as bus:
        lamps = bus.collection(Lamp, "queue")
        one = lamps.inbox(on_problem=told.append)
        lamps.inbox()
        ((_, _, handlers),) = link.shared
        assert [handler("late") for handler in handlers()] == [None]
        assert told == ["late"]
        one.cancel()
        assert handlers() == []


class Listening(Plain):
    """A link that remembers how it tells of problems, and what it listens to."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def listen(self, subscription: Subscription, on_problem: ProblemHandler | None) -> Callable[[], None]:
        self.on_problem = on_problem
        self.heard.append(str(subscription))
        return lambda: self.heard.remove(str(subscription))


def test_a_problem_is_told_to_all_consumers_of_a_queue(caplog: pytest.LogCaptureFixture) -> None:
    """Also if one of them fails, which is logged."""

    def fail(problem: object) -> None:
        raise LookupError

    link, told = Listening(), list[object]()
    with Bus(link) as bus:
        lamps = bus.collection(Lamp, "queue")
        lamps.inbox(on_problem=fail)
        lamps.inbox(on_problem=told.append)
        assert link.on_problem is not None
        link.on_problem("late")
    assert told == ["late"]
    assert [entry.getMessage() for entry in caplog.records] == ["a problem handler failed on 'late'"]


# -- what a link need not have -----------------------------------------------------------------------------------------


def test_a_link_that_overrides_nothing_more_knows_nothing_more() -> None:
    link, lamp = Plain(), Lamp(on=True)
    assert (link.is_connected, link.types, link.clock, link.participant) == (True, {}, None, None)
    assert (link.wanted_by(lamp), link.asked_of(Lamp), link.interest_delay_s, link.node_number) == (
        None,
        [],
        None,
        None,
    )
    assert (link.repeats(Lamp), link.last_values(Subscription(Lamp))) == (False, [])
    for end in (link.listen(Subscription(Lamp), None), link.on_interest(print), link.tap(print)):
        end()
    link.send_all([lamp, Lamp(on=False)])
    link.pass_on(lamp)
    assert link.sent == [lamp, Lamp(on=False), lamp]


def test_a_link_listens_to_what_there_are_listeners_for() -> None:
    link = Listening()
    with Bus(link) as bus:
        one, two = bus.subscribe(Lamp, lambda event: None), bus.inbox(Event)
        assert link.heard == ["Lamp", "Event"]
        one.cancel()
        assert link.heard == ["Event"]
        two.cancel()
        assert link.heard == []
