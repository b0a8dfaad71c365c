"""What others may invent, in any number: memory stays bounded, and what is real works on."""

import pytest

from genus import Event
from genus.bus import Bus
from genus.net._envelope import ENVELOPE
from genus.net._link import foreign, presence
from genus.net._link.foreign import ForeignArrivals, ForeignEvent
from genus.net._link.messages import Ping, Pong, control_key, encode_message, encode_payload, encode_text
from genus.net._link.netlink import NetLink
from tests.net.memory_network import MemoryNetwork


class RainDrop(Event):
    size: int


def link_on(network: MemoryNetwork) -> NetLink:
    link = NetLink(network.transport(), "city", medium="memory", runs=False)
    Bus(link)
    return link


def test_invented_participants_and_tokens_are_limited_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "MAX_TOKENS", 100)
    network = MemoryNetwork()
    link = link_on(network)
    real = link_on(network)
    network.deliver()
    told: list[tuple[str, bool]] = []
    link.watch("gate", lambda uid, _, is_present: told.append((uid, is_present)))
    hostile = network.transport()
    fake = [control_key("city", what, f"{n:016x}", encode_text("{}")) for n in range(300) for what in ("here", "gate")]
    for token in [*fake, "@genus/city/here/nobody/_", f"@genus/city/feast/{0:016x}/_"]:
        link.token(token, True)
    assert (len(link.participants()), len(told)) == (100, 100)
    assert real.uid.hex() in {each.uid for each in link.participants()}
    counts = link.counters()
    assert counts["rejected: more than 100 tokens `here`"] == 201
    assert counts["rejected: more than 100 tokens `gate`"] == 200
    assert counts["rejected: a token that cannot be read"] == 2
    for token in fake:
        link.token(token, False)
    assert [each.uid for each in link.participants()] == [real.uid.hex()]
    assert len(told) == 200  # what was not known is not gone
    for each in (link, real, hostile):
        each.close()


def test_answers_that_nobody_asked_for_are_not_kept() -> None:
    network = MemoryNetwork()
    link = link_on(network)
    other = network.transport()
    pong = control_key("city", "pong", link.uid.hex())
    for number in range(1000):
        link.packet(pong, b"", encode_message(Pong("x", number, number)))
    assert link._round_trips._answers == []
    sent = link.transport.counters()["sent"]
    for asker in ("*", "**", "a/b", "x" * 16, ""):
        link.packet(control_key("city", "ping"), b"", encode_message(Ping(asker, 1)))
    assert link.transport.counters()["sent"] == sent
    link.close()
    other.close()


def test_topics_of_others_are_limited_and_numbers_of_one_uid_never_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "MAX_TOPICS", 10)
    arrivals = ForeignArrivals()
    seen: set[tuple[bytes, int]] = set()
    uids: dict[str, bytes] = {}
    topics = [*(f"t{number}" for number in range(10)), *(f"t{number % 37}" for number in range(500))]
    for topic in topics:
        for each in (topic, "steady"):
            arrival = arrivals.arrive(ForeignEvent(RainDrop(size=1)), each)
            assert arrival is not None
            assert (arrival.origin.uid, arrival.origin.number) not in seen
            seen.add((arrival.origin.uid, arrival.origin.number))
            uids.setdefault(each, arrival.origin.uid)
    assert len(arrivals._numbers) == 10
    assert (uids["steady"], 510) in seen  # who speaks is not forgotten


def test_a_captured_envelope_with_any_number_silences_nobody() -> None:
    """A packet with the uid of a publisher and its number + 2^30 had dropped its next events as duplicates."""
    network = MemoryNetwork()
    heard: list[int] = []
    publisher, receiver = link_on(network), NetLink(network.transport(), "city", medium="memory", runs=False)
    Bus(receiver).collection(RainDrop).subscribe(lambda event: heard.append(event.size))
    network.deliver()
    uid = publisher.uid
    for size in range(1000):
        publisher.send(RainDrop(size=size))
        network.deliver()
        if size % 100 == 5:
            for number in (size + 2, size + 2**30, size + 2**31 - 1, size + 2**31 + 1):
                envelope = ENVELOPE.pack(uid, number, 0, uid, number)
                receiver.packet("city/RainDrop", envelope, encode_payload(RainDrop(size=-1)))
                receiver.packet("city/RainDrop", envelope, b"no event")
    assert [size for size in heard if size >= 0] == list(range(1000))
    assert receiver.counters()["conflicting numbers"] == 10
    publisher.close()
    receiver.close()
