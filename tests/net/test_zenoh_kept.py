"""Kept packets on zenoh: who subscribes later gets the newest of each key."""

import threading

import pytest

from genus.net._transport import Sending
from tests.waiting import wait_for

pytest.importorskip("zenoh", reason="zenoh comes with genus[zenoh]")

from tests.net.zenoh_network import free_port, participant, put_until

ROOT = "@genus/r/last"


@pytest.fixture
def address() -> str:
    return f"r?port={free_port()}"


def test_a_late_joiner_gets_the_newest_of_200_keys(address: str) -> None:
    with participant(address) as (a, _):
        for number in range(200):
            sender = a.sender(f"{ROOT}/Lamp/={number}", Sending(keep=True))
            sender.put(b"old", b"e")
            sender.put(b"%d" % number, b"envelope")
            sender.close()  # what it kept stays
        assert a.counters()["kept"] == 200
        with participant(address) as (b, at_b):
            b.subscribe(f"{ROOT}/Lamp/*", kept=True)
            wait_for(lambda: len(at_b.packets) >= 200)
            assert set(at_b.packets) == {
                (f"{ROOT}/Lamp/={number}", b"envelope", b"%d" % number) for number in range(200)
            }


def test_only_matching_keys_are_given_and_only_if_asked_for(address: str) -> None:
    with participant(address) as (a, _):
        lamp, door = (a.sender(f"{ROOT}/{each}/=1", Sending(keep=True)) for each in ("Lamp", "Door"))
        lamp.put(b"lamp", b"")
        door.put(b"door", b"")
        a.sender(f"{ROOT}/Lamp/=2", Sending()).put(b"not kept", b"")
        with participant(address) as (b, at_b), participant(address) as (c, at_c):
            c.subscribe(f"{ROOT}/**")
            b.subscribe(f"{ROOT}/Lamp/**", kept=True)
            wait_for(lambda: at_b.payloads)
            put_until(lamp, lambda: at_b.payloads[-1] == b"now" and at_c.payloads[-1:] == [b"now"], b"now")
            assert set(at_b.payloads) == {b"lamp", b"now"}
            assert set(at_c.payloads) == {b"now"}


def test_an_empty_packet_ends_the_keeping(address: str) -> None:
    with participant(address) as (a, _):
        first, second = (a.sender(f"{ROOT}/Lamp/={each}", Sending(keep=True)) for each in (1, 2))
        first.put(b"on", b"")
        second.put(b"on", b"")
        first.put(b"", b"")
        with participant(address) as (b, at_b):
            b.subscribe(f"{ROOT}/**", kept=True)
            wait_for(lambda: at_b.packets)
            assert {key for key, _, _ in at_b.packets} == {f"{ROOT}/Lamp/=2"}


def test_a_keeper_that_appears_after_the_subscriber_is_asked(address: str) -> None:
    with participant(address) as (b, at_b):
        b.subscribe(f"{ROOT}/**", kept=True)
        for name in (b"first", b"second"):
            with participant(address) as (a, _):
                a.sender(f"{ROOT}/Lamp/=1", Sending(keep=True)).put(name, b"")  # perhaps before they know each other
                wait_for(lambda: name in at_b.payloads)  # noqa: B023


def test_after_the_end_of_a_subscription_nothing_is_asked(address: str) -> None:
    with participant(address) as (b, at_b):
        end = b.subscribe(f"{ROOT}/**", kept=True)
        b.subscribe("r/live")
        end()
        with participant(address) as (a, _):
            a.sender(f"{ROOT}/Lamp/=1", Sending(keep=True)).put(b"kept", b"")
            put_until(a.sender("r/live", Sending()), lambda: at_b.packets)
            assert {key for key, _, _ in at_b.packets} == {"r/live"}


class Panic(BaseException):
    """As zenoh raises, which is no Exception."""


class PanickingQuery:
    """A question that cannot be answered for one key."""

    def __init__(self) -> None:
        self.key_expr = self
        self.answered: list[str] = []
        self.is_dropped = False

    def intersects(self, key: str) -> bool:
        return True

    def reply(self, key: str, payload: bytes, attachment: bytes) -> None:
        if key.endswith("bad"):
            raise Panic("key too long")
        self.answered.append(key)

    def drop(self) -> None:
        self.is_dropped = True
        raise Panic("poisoned")


def test_a_panic_of_zenoh_ends_neither_the_answer_nor_the_thread_that_answers() -> None:
    with participant(f"r?port={free_port()}") as (a, _):
        keys = [f"@genus/r/last/{name}" for name in ("a", "bad", "z")]
        for key in keys:
            a.sender(key, Sending(keep=True)).put(b"payload", b"")
        query = PanickingQuery()
        a._tasks.put(lambda: a._kept._answer(query))
        wait_for(lambda: query.is_dropped)
        assert query.answered == [keys[0], keys[2]]
        done = threading.Event()
        a._tasks.put(done.set)
        assert done.wait(20)
