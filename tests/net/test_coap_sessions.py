"""Sessions of a server in all orders of events, acknowledgements and outages: each event once, or a gap that tells."""

from random import Random
from typing import Any

import pytest

from genus import Subscription
from genus.catalog import Catalog
from genus.net._coap.inbox import BATCH, LINGER_S, Batch, Observer, Session, Sessions
from genus.net._coap.values import ObservationMark, Outgoing
from genus.net._envelope import Origin
from genus.targets.coap import QueryFilter, compile, read_query

from .coap_network import CoapFastLoop, CoapLamp, CoapLoop, CoapRoadside

CATALOG = Catalog()
CATALOG.register(CoapLoop, CoapFastLoop, CoapLamp)
UID = b"12345678"


def outgoing(lane: int, cls: type = CoapLoop, size: int = 10) -> Outgoing:
    event = cls(lane=lane) if cls is not CoapLamp else cls(watts=float(lane))
    return Outgoing(event, CATALOG.code(cls), CATALOG.tag(event), b"a" * size, Origin(b"publishr", lane))


def filter_of(subscription: Subscription[Any]) -> QueryFilter:
    made = compile(subscription, CATALOG)
    assert made.code is not None
    found = read_query(made.code, made.query, CATALOG)
    assert isinstance(found, QueryFilter)
    return found


def observer(subscription: Subscription[Any], number: int = 1) -> Observer:
    return Observer(filter_of(subscription), lambda answer: None, "remote", ObservationMark(UID, number))


def session(*subscriptions: Subscription[Any], capacity: int = 1000, uid: bytes | None = UID) -> Session:
    made = Session(uid, capacity)
    for number, subscription in enumerate(subscriptions, 1):
        made.observers[number] = observer(subscription, number)
    return made


def lanes(batch: Batch | None) -> list[int]:
    assert batch is not None
    return [entry.outgoing.origin.number for entry in batch.entries]


def test_an_event_that_two_observations_match_is_queued_once() -> None:
    made = session(Subscription(CoapLoop), Subscription(CoapRoadside))
    made.put(outgoing(1))
    assert lanes(made.take()) == [1]
    assert made.waiting == 1
    assert made.take() is None, "the first was not acknowledged"


def test_events_that_wait_go_together() -> None:
    made = session(Subscription(CoapLoop))
    for lane in range(200):
        made.put(outgoing(lane, size=1))
    found = []
    while (batch := made.take()) is not None:
        found.append(lanes(batch))
        made.done(batch)
    assert [lane for some in found for lane in some] == list(range(200))
    assert max(map(len, found)) <= BATCH
    assert len(found) < 20


def test_plain_clients_get_one_event_at_a_time() -> None:
    made = session(Subscription(CoapLoop), uid=None)
    for lane in range(3):
        made.put(outgoing(lane))
    assert lanes(made.take()) == [0]


def test_what_finds_no_room_leaves_a_gap_in_the_numbers() -> None:
    made = session(Subscription(CoapLoop), capacity=3)
    dropped = [made.put(outgoing(lane)) for lane in range(5)]
    assert [None if one is None else one.origin.number for one in dropped] == [None, None, None, 0, 1]
    batch = made.take()
    assert lanes(batch) == [2, 3, 4]
    assert batch is not None
    assert [entry.number for entry in batch.entries] == [3, 4, 5]


def test_an_observation_that_was_ended_leaves_no_gap() -> None:
    made = session(Subscription(CoapLamp), Subscription(CoapLoop))
    made.put(outgoing(1, CoapLamp))
    made.put(outgoing(2))
    del made.observers[1]
    batch = made.take()
    assert lanes(batch) == [2]
    assert batch is not None
    assert batch.entries[0].number == 1


def test_what_was_not_acknowledged_is_sent_again_when_the_client_is_back() -> None:
    made = session(Subscription(CoapLoop))
    made.put(outgoing(1))
    made.put(outgoing(2))
    first = made.take()
    assert first is not None
    made.detach(first.observer, 5.0)
    assert made.gone_at == 5.0
    assert made.take() is None
    made.observers[1] = observer(Subscription(CoapLoop))
    made.resume(last=1)
    assert lanes(made.take()) == [2]


@pytest.mark.parametrize("seed", range(40))
def test_a_client_gets_each_event_once_or_knows_how_many_are_missing(seed: int) -> None:
    """Random orders of events, acknowledgements that come or do not, outages and returns, with little room."""
    random = Random(seed)
    made = session(Subscription(CoapLoop), Subscription(CoapRoadside, where="place is present"), capacity=8)
    received: list[int] = []
    last = missing = sent = 0
    for _ in range(300):
        match random.randrange(4):
            case 0 | 1:
                sent += 1
                made.put(outgoing(sent, random.choice([CoapLoop, CoapFastLoop])))
            case 2 if (batch := made.take()) is not None:
                has_come, is_acknowledged = random.random() < 0.8, random.random() < 0.7
                if has_come:
                    for entry in batch.entries:
                        missing += max(0, entry.number - last - 1)
                        if entry.number > last:
                            last = entry.number
                            received.append(entry.outgoing.origin.number)
                if has_come and is_acknowledged:
                    made.done(batch)
                else:
                    made.detach(batch.observer, 1.0)
            case 3:
                for number, one in list(made.observers.items()):
                    if one.send is None:
                        made.observers[number] = Observer(one.filter, lambda answer: None, "remote", one.mark)
                        made.resume(last)
    for number, one in list(made.observers.items()):
        if one.send is None:
            made.observers[number] = Observer(one.filter, lambda answer: None, "remote", one.mark)
            made.resume(last)
    while (batch := made.take()) is not None:
        for entry in batch.entries:
            missing += max(0, entry.number - last - 1)
            if entry.number > last:
                last = entry.number
                received.append(entry.outgoing.origin.number)
        made.done(batch)
    assert received == sorted(set(received)), "in order, and once"
    assert len(received) + missing == sent


def test_sessions_end_with_their_last_observation_or_when_they_are_overdue() -> None:
    sessions = Sessions(10)
    first, second = ObservationMark(UID, 1), ObservationMark(UID, 2)
    made = sessions.attach(first, observer(Subscription(CoapLoop)))
    assert sessions.attach(second, observer(Subscription(CoapLamp), 2)) is made
    assert sessions.end(first)
    assert sessions.find(UID) is made
    assert sessions.end(second)
    assert not sessions.end(second)
    assert len(sessions) == 0
    plain = sessions.attach(None, observer(Subscription(CoapLoop)))
    assert plain is not None
    plain.detach(plain.observers[0], 1.0)
    assert sessions.overdue(1.0 + LINGER_S - 0.1) == []
    assert sessions.overdue(1.0 + LINGER_S) == [plain]
    sessions.drop(plain)
    assert len(sessions) == 0


def test_a_client_that_does_not_know_its_session_gets_what_was_not_acknowledged() -> None:
    """The answer to its registration names the last number before that, so that it is not taken for old."""
    made = session(Subscription(CoapLoop))
    for lane, before in ((1, 0), (2, 1)):
        made.put(outgoing(lane))
        assert made.settled == before, "not sent yet"
        batch = made.take()
        assert batch is not None
        assert (made.settled, made.number) == (before, lane), "in flight"
        if lane == 1:
            made.done(batch)
    made.detach(made.observers[1], 0.0)
    assert (made.settled, made.number) == (1, 2), "to be sent again"
