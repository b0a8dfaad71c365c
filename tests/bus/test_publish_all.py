"""Many events by one call: the same events, the same order and the same errors as one after the other."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import pytest
from msgspec.structs import replace

from genus import Event, Kind, all_of, open_bus, this
from genus.bus import Bus, Capabilities, Link
from genus.bus.types import Delivery
from genus.errors import BusError, EventError, QueueFull


class Roadside(Kind): ...


class Loop(Event, Roadside):
    lane: int


class Lamp(Event):
    on: bool


class Batches(Link):
    """A link that takes batches, and remembers what it was given and what had been delivered by then."""

    capabilities = Capabilities(send_all=True)

    def __init__(self) -> None:
        self.sent: list[list[Event]] = []
        self.delivered: list[Event] = []
        self.delivered_before: list[int] = []
        self.problem: Exception | None = None

    def open(self, deliver: Delivery) -> None: ...

    def send(self, event: Event) -> None:
        self.send_all([event])

    def send_all(self, events: Sequence[Event]) -> None:
        if self.problem is not None:
            raise self.problem
        self.sent.append(list(events))
        self.delivered_before.append(len(self.delivered))

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {}


@pytest.fixture(params=["one by one", "at once"])
def bus(request: pytest.FixtureRequest) -> Iterator[Bus]:
    with Bus(Batches() if request.param == "at once" else None, source="here", check=True) as made:
        yield made


def notes(problem: BaseException) -> str:
    return " ".join(problem.__notes__)


def test_all_events_are_published_in_their_order(bus: Bus) -> None:
    seen: list[Event] = []
    bus.collection(Event).subscribe(seen.append)
    fast = bus.collection(Loop).inbox(where=this.lane > 1)
    events = [Loop(lane=1), Lamp(on=True), Loop(lane=2), Loop(lane=3)]
    assert bus.publish_all(iter(events)) == 4
    assert seen == [replace(event, source="here") for event in events]
    assert [fast.get(timeout=0).lane for _ in range(2)] == [2, 3]
    assert bus.traffic().published == {"Loop": 3, "Lamp": 1}
    assert bus.publish_all([]) == 0


def test_a_collection_takes_events_of_its_type(bus: Bus) -> None:
    seen: list[Event] = []
    bus.collection(Event).subscribe(seen.append)
    assert bus.collection(all_of(Loop, Roadside)).publish_all(Loop(lane=lane) for lane in range(3)) == 3
    assert len(seen) == 3
    with pytest.raises(EventError, match="it is no Loop"):
        bus.collection(Loop).publish_all([Loop(lane=3), Lamp(on=True)])  # type: ignore[list-item]
    with pytest.raises(EventError, match="cannot publish a str"):
        bus.publish_all(["Loop"])  # type: ignore[list-item]


def test_an_error_says_which_event_failed_and_what_became_of_the_others(bus: Bus) -> None:
    seen: list[Event] = []
    bus.collection(Event).subscribe(seen.append)
    events = [Loop(lane=1), Loop(lane=2), Loop(lane="three"), Loop(lane=4)]  # type: ignore[arg-type]
    with pytest.raises(EventError, match="is 'three', but must be int64") as caught:
        bus.publish_all(events)
    if bus._is_batching:
        assert notes(caught.value) == "publish_all refused event 2, Loop(lane='three'); none was published"
        assert not seen
    else:
        assert notes(caught.value) == (
            "publish_all stopped at event 2, Loop(lane='three'); those before it were published"
        )
        assert len(seen) == 2


def test_a_full_queue_is_told_and_costs_nobody_else_an_event(bus: Bus) -> None:
    seen: list[Event] = []
    full = bus.collection(Loop).inbox(capacity=1, overflow="raise")
    bus.collection(Loop).subscribe(seen.append)
    with pytest.raises(QueueFull) as caught:
        bus.publish_all([Loop(lane=lane) for lane in range(3)])
    assert full.counters.waiting == 1
    assert "event 1, Loop(" in notes(caught.value)
    assert len(seen) == (3 if bus._is_batching else 2)
    assert ("all 3 were sent" in notes(caught.value)) == bus._is_batching


def test_errors_of_the_iterable_are_its_own(bus: Bus) -> None:
    def events() -> Iterator[Event]:
        yield Loop(lane=1)
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more") as caught:
        bus.publish_all(events())
    assert not hasattr(caught.value, "__notes__")


def test_a_closed_bus_publishes_nothing(bus: Bus) -> None:
    bus.close()
    with pytest.raises(BusError, match="closed"):
        bus.publish_all([Loop(lane=1)])


def test_a_link_gets_a_batch_before_anything_is_delivered() -> None:
    link = Batches()
    with Bus(link, source="here") as bus:
        bus.collection(Event).subscribe(link.delivered.append)
        bus.publish_all([Loop(lane=1), Lamp(on=True)])
        bus.publish(Lamp(on=False))
        assert [[event.source for event in batch] for batch in link.sent] == [["here", "here"], ["here"]]
        assert link.delivered_before == [0, 2]
        assert all(sent is got for sent, got in zip(chain(*link.sent), link.delivered, strict=True))
        link.problem = QueueFull("the link is full")
        with pytest.raises(QueueFull, match="the link is full"):
            bus.publish_all([Loop(lane=3)])
        assert len(link.delivered) == 3


def test_a_bus_without_link_takes_batches_one_by_one() -> None:
    with open_bus("local:") as bus:
        assert not bus._is_batching
