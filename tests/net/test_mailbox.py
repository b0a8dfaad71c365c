"""The bounded queue of packets that arrived: nothing is lost uncounted, and reading always goes on."""

from typing import Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.bus.types import Overflow
from genus.net import _mailbox
from genus.net._mailbox import Call, Mailbox

Packet: TypeAlias = tuple[str, bytes, bytes]
DropPolicy: TypeAlias = Literal["drop_oldest", "drop_newest"]
DROPS: list[DropPolicy] = ["drop_oldest", "drop_newest"]


class Counting(Mailbox[Packet]):
    """A mailbox that remembers what it lost."""

    def __init__(self, capacity: int, overflow: Overflow, at_once: int = 3) -> None:
        super().__init__(capacity, overflow, at_once, lambda packet: packet[0] == "must")
        self.lost: list[Packet] = []

    def _lose(self, packets: list[Packet]) -> None:
        super()._lose(packets)
        self.lost += packets

    def take_all(self) -> list[Packet | Call]:
        """All that waits."""
        found: list[Packet | Call] = []
        while batch := self.take(0):
            assert len(batch) <= 3
            found += batch
        return found


def packets(*numbers: int, key: str = "key", size: int = 0) -> list[Packet]:
    return [(key, b"%d" % number, bytes(size)) for number in numbers]


STEPS = st.lists(st.tuples(st.sampled_from(["put", "must", "call", "take"]), st.integers(1, 6)), max_size=30)


@given(overflow=st.sampled_from(["block", *DROPS]), capacity=st.integers(1, 5), steps=STEPS)
def test_what_is_put_is_handled_in_order_or_counted_as_lost(
    overflow: Overflow, capacity: int, steps: list[tuple[str, int]]
) -> None:
    mailbox, put, handled, number = Counting(capacity, overflow), list[Packet | Call](), list[Packet | Call](), 0
    for step, count in steps:
        if step == "take":
            handled += mailbox.take(0) or []
        elif step == "call":
            put.append(lambda: None)
            mailbox.call(put[-1])  # type: ignore[arg-type]  # it was just added
        else:
            some = packets(*range(number, number + count), key=step)
            number += count
            put += some
            mailbox.put(some)
            waiting = [item for item in mailbox._items if isinstance(item, tuple) and item[0] != "must"]
            assert overflow == "block" or len(waiting) <= capacity
    handled += mailbox.take_all()
    assert handled == [item for item in put if item not in mailbox.lost]
    assert mailbox.dropped == len(mailbox.lost)
    assert all(packet[0] != "must" for packet in mailbox.lost)
    assert overflow != "block" or not mailbox.lost


@pytest.mark.slow
@given(capacity=st.integers(1, 5), steps=STEPS)
def test_a_reader_that_was_told_to_pause_is_told_once_to_read_on(capacity: int, steps: list[tuple[str, int]]) -> None:
    """Also if the packets of another connection fitted in the meantime."""
    mailbox, is_paused, number = Counting(capacity, "block"), False, 0
    for step, count in steps:
        if step == "take":
            mailbox.take(0)
            if mailbox.may_read_on():
                assert is_paused
                is_paused = False
        elif not mailbox.put(packets(*range(number, number + count))):
            is_paused = True
    mailbox.take_all()
    assert mailbox.may_read_on() == is_paused
    assert not mailbox.may_read_on()


@pytest.mark.parametrize("full", DROPS)
def test_bytes_are_bounded_too_and_one_large_packet_passes(full: DropPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mailbox, "MAX_BYTES", 100)
    mailbox = Counting(1000, full)
    for number in range(50):
        mailbox.put(packets(number, size=30))
        assert sum(len(item[2]) for item in mailbox._items if isinstance(item, tuple)) < 100 + 30
    assert mailbox.dropped == 50 - 4
    mailbox.take_all()
    mailbox.put(packets(50, size=1000))
    assert len(mailbox.take_all()) == 1


def test_calls_go_before_packets_or_behind_them() -> None:
    mailbox, order = Counting(1, "drop_oldest"), list[str]()
    mailbox.put(packets(1))
    mailbox.call(lambda: order.append("behind"))
    mailbox.call_first(lambda: order.append("before"))
    mailbox.put(packets(2))
    for item in mailbox.take_all():
        if isinstance(item, tuple):
            order.append(item[1].decode())
        else:
            item()
    assert order == ["before", "behind", "2"]
    assert mailbox.lost == packets(1)
    mailbox.close(0)
    assert mailbox.take() is None
