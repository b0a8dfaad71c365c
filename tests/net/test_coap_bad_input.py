"""Bad input: a CoAP error or a count, never a crash, never an exception in user code, never silence."""

import asyncio
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random

import aiocoap
import pytest

from genus import Subscription
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.net import EventsLost
from genus.net._addresses import CoapOptions, Place
from genus.net._coap.datagrams import Malformed, WellFormed, check_datagram
from genus.net._coap.endpoint import Endpoint
from genus.net._coap.values import (
    Notified,
    ObservationMark,
    Put,
    join_pairs,
    read_body,
    read_mark,
    read_notified,
    read_put,
    write_cbor,
    write_mark,
    write_notified,
    write_put,
)
from genus.net._envelope import Origin
from tests.waiting import wait_for

from .coap_network import CoapLamp, CoapLoop, Heard, client, link_of, server, sums

CON, NON, ACK, RST = range(4)
GET, POST, PUT, DELETE, FETCH = range(1, 6)
OBSERVE, URI_PATH, CONTENT_FORMAT, URI_QUERY, ACCEPT, BLOCK2, BLOCK1 = 6, 11, 12, 15, 17, 23, 27


def uint(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def datagram(
    code: int,
    options: list[tuple[int, bytes]],
    payload: bytes = b"",
    *,
    token: bytes = b"t",
    kind: int = CON,
    mid: int = 1,
) -> bytes:
    """A message as bytes; options need not be sensible."""
    made = bytearray(struct.pack(">BBH", 0x40 | kind << 4 | len(token), code, mid) + token)
    before = 0
    for number, value in sorted(options, key=lambda each: each[0]):
        fields, extra = [], b""
        for amount in (number - before, len(value)):
            if amount < 13:
                fields.append(amount)
            elif amount < 269:
                fields.append(13)
                extra += bytes((amount - 13,))
            else:
                fields.append(14)
                extra += (amount - 269).to_bytes(2, "big")
        made += bytes((fields[0] << 4 | fields[1],)) + extra + value
        before = number
    return bytes(made) + (b"\xff" + payload if payload else b"")


def payload_of(answer: bytes) -> bytes:
    """Return the payload of a datagram; its id, token and options may have the byte of the payload marker."""
    return bytes(aiocoap.Message.decode(answer).payload)


def segment(text: str) -> tuple[int, bytes]:
    return URI_PATH, text.encode()


class Raw:
    """A client that sends any bytes."""

    def __init__(self, port: int) -> None:
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.connect(("127.0.0.1", port))
        self.sock.settimeout(30)
        self._mid = 100

    def ask(self, code: int, options: list[tuple[int, bytes]], payload: bytes = b"") -> tuple[str, bytes]:
        """The code of the answer, and its payload."""
        self._mid += 1
        self.sock.send(datagram(code, options, payload, token=self._mid.to_bytes(2, "big"), mid=self._mid))
        while True:
            answer = self.sock.recv(65_536)
            if answer[2:4] == self._mid.to_bytes(2, "big"):
                return f"{answer[1] >> 5}.{answer[1] & 31:02}", payload_of(answer)

    def send(self, data: bytes) -> None:
        self.sock.send(data)

    def wait_until_read(self) -> None:
        """Return when the server has read all datagrams sent before, from this socket or others."""
        assert self.ask(GET, [segment(".well-known"), segment("core")])[0] == "2.05"

    def close(self) -> None:
        self.sock.close()


@contextmanager
def raw_client(port: int) -> Iterator[Raw]:
    made = Raw(port)
    try:
        yield made
    finally:
        made.close()


def code_path(cls: type) -> str:
    catalog = Catalog()
    catalog.register(cls)
    return encode_path_segment(catalog.code(cls))


LOOP = code_path(CoapLoop)
ONE_LOOP = write_cbor({5: 3})

REFUSED = {
    "code 0": (GET, [segment("AA")], b"", "4.04"),
    "padding": (GET, [segment(f"{LOOP}==")], b"", "4.04"),
    "leading zero byte": (GET, [segment("AAw")], b"", "4.04"),
    "bits behind the last byte": (GET, [segment("DB")], b"", "4.04"),
    "wrong alphabet": (GET, [segment("e+I")], b"", "4.04"),
    "one sign": (GET, [segment("x")], b"", "4.04"),
    "no path": (GET, [], b"", "4.04"),
    "empty segment": (GET, [segment("")], b"", "4.04"),
    "very long": (GET, [segment("A" * 255)], b"", "4.04"),
    "two segments": (GET, [segment(LOOP), segment(LOOP)], b"", "4.04"),
    "code of no type": (GET, [segment(encode_path_segment(7919))], b"", "4.04"),
    "unknown critical option": (GET, [segment(LOOP), (2049, b"x")], b"", "4.02"),
    "If-Match": (PUT, [segment(LOOP), (1, b"x")], ONE_LOOP, "4.02"),
    "critical option too long": (GET, [segment(LOOP), (ACCEPT, b"1234")], b"", "4.02"),
    "doubled critical option": (GET, [segment(LOOP), (ACCEPT, uint(60)), (ACCEPT, uint(60))], b"", "4.02"),
    "proxy": (GET, [segment(LOOP), (39, b"coap")], b"", "5.05"),
    "block of BERT": (GET, [segment(LOOP), (BLOCK2, uint(7))], b"", "4.00"),
    "block that was not begun": (PUT, [segment(LOOP), (BLOCK1, uint(0x26))], b"x" * 1024, "4.08"),
    "unknown query": (GET, [segment(LOOP), (URI_QUERY, b"z=1")], b"", "4.00"),
    "masks that are none": (GET, [segment(LOOP), (URI_QUERY, b"h=0")], b"", "4.00"),
    "masks outside the vector": (GET, [segment(LOOP), (URI_QUERY, b"h=ffffffffff")], b"", "4.00"),
    "where that is none": (GET, [segment(LOOP), (URI_QUERY, b"w=lane >")], b"", "4.00"),
    "where of another attribute": (GET, [segment(LOOP), (URI_QUERY, b"w=weight > 1")], b"", "4.00"),
    "query of a put": (PUT, [segment(LOOP), (URI_QUERY, b"h=1")], ONE_LOOP, "4.00"),
    "Accept of text": (GET, [segment(LOOP), (ACCEPT, b"")], b"", "4.06"),
    "observation with Accept of text": (GET, [segment(LOOP), (OBSERVE, b""), (ACCEPT, b"")], b"", "4.06"),
    "observation of a wrong path": (GET, [segment("AA"), (OBSERVE, b"")], b"", "4.04"),
    "put of text": (PUT, [segment(LOOP), (CONTENT_FORMAT, b"")], b"three", "4.15"),
    "put of JSON": (PUT, [segment(LOOP), (CONTENT_FORMAT, uint(50))], b"{}", "4.15"),
    "put of no CBOR": (PUT, [segment(LOOP), (CONTENT_FORMAT, uint(60))], b"\x9f", "4.00"),
    "put of nothing": (PUT, [segment(LOOP), (CONTENT_FORMAT, uint(60))], b"", "4.00"),
    "put of a number": (PUT, [segment(LOOP)], b"\x01", "4.00"),
    "put of two items": (PUT, [segment(LOOP)], ONE_LOOP * 2, "4.00"),
    "put without what is required": (PUT, [segment(LOOP)], write_cbor({6: 1.0}), "4.00"),
    "put of a wrong type": (PUT, [segment(LOOP)], write_cbor({5: "three"}), "4.00"),
    "put of names": (PUT, [segment(LOOP)], write_cbor({"lane": 3}), "4.00"),
    "put of too large a number": (PUT, [segment(LOOP)], write_cbor({5: 1 << 70}), "4.00"),
    "put of no choice": (PUT, [segment(LOOP)], write_cbor({5: 1, 7: -1}), "4.00"),
    "put of a pair that is not below": (PUT, [segment(LOOP)], join_pairs([(5, b"\xa0")]), "4.00"),
    "put of no pair": (PUT, [segment(LOOP)], write_cbor([[1, 2, 3]]), "4.00"),
    "option of Genus that is damaged": (PUT, [segment(LOOP), (65_052, b"\x01")], ONE_LOOP, "4.00"),
    "another server": (PUT, [segment(LOOP), (65_052, write_put(Put(b"12345678", b"old!", ())))], ONE_LOOP, "4.12"),
    "observation of another server": (
        GET,
        [segment(LOOP), (OBSERVE, b""), (65_052, write_mark(ObservationMark(b"12345678", 1, b"old!")))],
        b"",
        "4.12",
    ),
    "discovery of no code": (GET, [segment(".well-known"), segment("core"), (URI_QUERY, b"is=AA")], b"", "4.00"),
    "put to discovery": (PUT, [segment(".well-known"), segment("core")], b"x", "4.05"),
    "DELETE": (DELETE, [segment(LOOP)], b"", "4.05"),
    "FETCH": (FETCH, [segment(LOOP)], b"", "4.05"),
    "a method that is none": (31, [segment(LOOP)], b"", "4.05"),
    "catalog that is none": (POST, [segment("types")], b"no catalog", "4.09"),
    "put to wants": (PUT, [segment("w")], b"x", "4.05"),
}


def test_values_that_cannot_be_read_are_absent_and_counted_by_few_names() -> None:
    heard = Heard()
    with server() as (hub, port), raw_client(port) as raw:
        hub.subscribe(Subscription(CoapLoop), heard)
        for strange in ({7: 9}, {0: 1 << 62}, dict.fromkeys(range(100, 300), 1)):
            assert raw.ask(PUT, [segment(LOOP)], write_cbor({5: 1, **strange}))[0] == "2.04"
        for first in range(300, 3000, 100):
            assert (
                raw.ask(PUT, [segment(LOOP)], write_cbor(dict.fromkeys((5, *range(first, first + 100)), 1)))[0]
                == "2.04"
            )
        wait_for(lambda: len(heard) == 30)
        assert set(heard) == {CoapLoop(lane=1)}
        found = hub.traffic().link
        assert found["not read: CoapLoop.vehicle"] == found["not read: CoapLoop.time"] == 1
        assert found["not read: CoapLoop.unknown attributes"] == 2900
        assert len(found) < 10


def test_requests_that_are_wrong_get_an_error_and_are_counted() -> None:
    heard = Heard()
    with server() as (hub, port), raw_client(port) as raw:
        hub.subscribe(Subscription(CoapLoop), heard)
        for number, (name, (code, options, payload, expected)) in enumerate(REFUSED.items(), 1):
            found, reason = raw.ask(code, list(options), payload)
            assert found == expected, f"{name}: {reason.decode(errors='replace')}"
            wait_for(lambda number=number: sums(hub, "refused: ") == number, name)  # type: ignore[misc]
        assert heard == []
        assert raw.ask(PUT, [segment(LOOP)], ONE_LOOP)[0] == "2.04"
        wait_for(lambda: heard == [CoapLoop(lane=3)])


def test_bodies_that_are_too_large_are_refused() -> None:
    with server("largest=2000") as (hub, port), raw_client(port) as raw:
        hub.channel(CoapLoop).announce()
        assert raw.ask(PUT, [segment(LOOP)], b"x" * 2001)[0] == "4.13"
        assert raw.ask(PUT, [segment(LOOP), (BLOCK1, uint(0x0E))], b"x" * 1024)[0] == "2.31"
        assert raw.ask(PUT, [segment(LOOP), (BLOCK1, uint(0x1E))], b"x" * 1024)[0] == "4.13"
        assert sums(hub, "refused: more than 2000 bytes") == 2


MESSAGES = {
    "get": datagram(GET, [segment(LOOP), (URI_QUERY, b"w=lane > 2"), (URI_QUERY, b"h=20"), (ACCEPT, uint(60))]),
    "observe": datagram(GET, [segment(LOOP), (OBSERVE, b""), (65_052, write_mark(ObservationMark(b"12345678", 1)))]),
    "put": datagram(PUT, [segment(LOOP), (CONTENT_FORMAT, uint(60))], write_cbor({5: 1, 6: 2.5, 7: 1})),
    "pairs": datagram(POST, [segment("Ag"), (CONTENT_FORMAT, uint(60))], join_pairs([(12, ONE_LOOP)] * 3)),
    "discovery": datagram(GET, [segment(".well-known"), segment("core"), (URI_QUERY, b"is=Ag")]),
    "response": datagram(69, [(OBSERVE, b"\x05"), (CONTENT_FORMAT, uint(60)), (14, b"\x3c")], ONE_LOOP, kind=NON),
    "block": datagram(PUT, [segment(LOOP), (BLOCK1, uint(0x0E))], b"y" * 64),
    "empty": struct.pack(">BBH", 0x40, 0, 7),
    "acknowledgement": struct.pack(">BBH", 0x60, 0, 7),
    "reset": struct.pack(">BBH", 0x70, 0, 7),
}


def test_every_truncation_of_every_kind_of_message_is_counted_or_answered() -> None:
    """What is cut off is no message, or another that is answered; the server goes on."""
    heard = Heard()
    with server() as (hub, port), raw_client(port) as raw, raw_client(port) as pace:
        hub.subscribe(Subscription(CoapLoop), heard)
        malformed = 0
        for whole in MESSAGES.values():
            for length in range(1, len(whole)):
                malformed += isinstance(check_datagram(whole[:length]), Malformed)
                raw.send(whole[:length])
            pace.wait_until_read()
        assert malformed > 100
        wait_for(lambda: sums(hub, "rejected: ") >= malformed)
        assert raw.ask(PUT, [segment(LOOP)], ONE_LOOP)[0] == "2.04"
        wait_for(lambda: heard.lanes()[-1:] == [3])
        assert sums(hub, "rejected: a message that could not be handled", "refused: an error of the server") == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_damaged_datagrams_do_no_harm(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random = Random(seed)
    heard = Heard()
    malformed = 0
    with server() as (hub, port), client(port) as one, raw_client(port) as raw, raw_client(port) as pace:
        one.subscribe(Subscription(CoapLoop), heard)
        for number in range(1500):
            whole = bytearray(random.choice(list(MESSAGES.values())))
            for _ in range(random.randint(1, 4)):
                whole[random.randrange(len(whole))] = random.randrange(256)
            data = bytes(whole[: random.randint(1, len(whole))] if random.random() < 0.2 else whole)
            malformed += isinstance(check_datagram(data), Malformed)
            raw.send(data)
            if number % 50 == 49:  # a socket's buffer holds some 250 datagrams
                pace.wait_until_read()
        raw.close()
        hub.publish(CoapLoop(lane=77))
        wait_for(lambda: 77 in heard.lanes())
        assert sums(hub, "rejected: a message that could not be handled", "refused: an error of the server") == 0
        assert malformed > 50
        assert sums(hub, "rejected: ") >= malformed
        assert len(hub.traffic().link) < 100
    assert len(caplog.messages) <= 5, "once for each reason"
    assert "Traceback" not in caplog.text


def test_tokens_over_eight_bytes_are_rejected_with_a_reset() -> None:
    with server() as (hub, port), raw_client(port) as raw:
        raw.send(datagram(GET, [segment(LOOP)], token=b"123456789"))
        assert raw.sock.recv(100) == struct.pack(">BBH", 0x70, 0, 1)
        assert hub.traffic().link["rejected: a token of more than 8 bytes"] == 1


def test_a_reset_of_a_request_that_was_given_up_does_not_stop_those_after_it() -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(30)
        place = Place(*peer.getsockname())
        endpoint = Endpoint(CoapOptions((place,)), logging.getLogger("genus.coap"))
        endpoint.open(None)
        try:
            given_up = endpoint.call(endpoint.request(endpoint.message(place, code=aiocoap.GET), 10))
            asked, address = peer.recvfrom(100)
            given_up.cancel()
            endpoint.call(asyncio.sleep(0)).result()
            peer.sendto(bytes((0x70, 0)) + asked[2:4], address)
            wait_for(lambda: not endpoint.manager._active_exchanges)  # type: ignore[union-attr]
            again = endpoint.call(endpoint.request(endpoint.message(place, code=aiocoap.GET), 10))
            asked, address = peer.recvfrom(100)
            peer.sendto(bytes((asked[0] | 0x20, 69)) + asked[2:], address)
            assert again.result(10).code == aiocoap.CONTENT
        finally:
            endpoint.close()


def test_a_client_counts_what_a_server_says_wrongly() -> None:
    """Damaged notifications are rejected by reason, and do not disturb the events around them."""
    heard = Heard()
    with server() as (hub, port), client(port) as one:
        one.subscribe(Subscription(CoapLoop), heard)
        peer = link_of(one).peers[0]
        observation = next(iter(peer.observations.values()))
        origin = Origin(b"12345678", 1)
        taken = peer.received
        good = Notified(taken.session, taken.last + 1, (origin,))
        cases = [
            (b"\x9f", good),
            (b"\x01", good),
            (write_cbor([[1, {}]]), good),
            (join_pairs([(12, ONE_LOOP)] * 2), good),
            (ONE_LOOP, Notified(b"othr", 1, (origin,))),
        ]
        for body, notified in cases:
            taken.take(observation, notified, body)
        assert sums(one, "rejected: ") == len(cases)
        hub.publish(CoapLoop(lane=5))
        wait_for(lambda: heard.lanes() == [5])


def test_an_event_that_cannot_be_read_is_told_and_kept_as_an_example() -> None:
    heard, told, other = Heard(), Heard(), Heard()
    with server() as (_, port), client(port) as one:
        one.subscribe(Subscription(CoapLoop), heard, on_problem=told)
        one.subscribe(Subscription(CoapLamp), heard, on_problem=other)
        peer = link_of(one).peers[0]
        observation = next(iter(peer.observations.values()))
        notified = Notified(peer.received.session, peer.received.last + 1, (Origin(b"12345678", 1),))
        peer.received.take(observation, notified, write_cbor([[observation.code, {5: "three"}]]))
        wait_for(lambda: bool(told))
        reason = "not a CoapLoop: lane is no int"
        assert told == [
            EventsLost("CoapLoop", 1, b"12345678".hex(), link_of(one).uid.hex(), f"could not be read: {reason}")
        ]
        assert one.traffic().link[f"rejected: {reason}"] == 1
        assert link_of(one).examples()[reason].topic == hex(observation.code)
        assert not other
        assert not heard


# -- the strict test itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MESSAGES)
def test_whole_messages_are_well_formed(name: str) -> None:
    assert isinstance(check_datagram(MESSAGES[name]), WellFormed)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "shorter than a header"),
        (b"\x80\x01\x00\x01", "another version of CoAP"),
        (b"\x40\x00\x00\x01x", "an empty message with content"),
        (b"\x40\x21\x00\x01", "a code of a reserved class"),
        (b"\x44\x01\x00\x01abc", "a token that is cut off"),
        (b"\x40\x01\x00\x01\xff", "a payload marker without a payload"),
        (b"\x40\x01\x00\x01\xf0", "an option with a reserved or missing length"),
        (b"\x40\x01\x00\x01\xb1\xff", "an option that is no text"),
        (b"\x40\x01\x00\x01\xe0\xff\xff\xe0\xff\xff", "an option number over 65535"),
    ],
)
def test_what_is_no_message_has_a_reason(data: bytes, reason: str) -> None:
    found = check_datagram(data)
    assert isinstance(found, Malformed)
    assert found.reason == reason


def test_any_bytes_are_read_or_refused() -> None:
    """Options and bodies of Genus: random and damaged bytes never raise."""
    random = Random(5)
    origin = Origin(b"12345678", 7, 1)
    good = [
        write_mark(ObservationMark(b"12345678", 3, b"epoc", b"abcd", 9, b"87654321", 2)),
        write_put(Put(b"12345678", b"epoc", (origin,))),
        write_notified(Notified(b"abcd", 5, (origin, origin))),
        join_pairs([(12, ONE_LOOP)] * 30),
        write_cbor({5: 1, 6: float("nan")}),
    ]
    for _ in range(10_000):
        data = bytearray(random.choice(good))
        for _ in range(random.randint(0, 3)):
            data[random.randrange(len(data))] = random.randrange(256)
        part = bytes(data[: random.randint(0, len(data))])
        for read in (read_mark, read_put, read_notified, lambda body: read_body(12, body)):
            read(part)
    assert read_mark(good[0]) == ObservationMark(b"12345678", 3, b"epoc", b"abcd", 9, b"87654321", 2)
    assert read_put(good[1]) == Put(b"12345678", b"epoc", (origin,))
    assert read_notified(good[2]) == Notified(b"abcd", 5, (origin, origin))
