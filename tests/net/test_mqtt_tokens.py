"""Tokens of participants: lists that are compared, limits, leases; mailboxes, and what is remembered of messages."""

import threading
from pathlib import Path
from random import Random

import mqtt5
import msgspec
import pytest

from genus.errors import BusError
from genus.net._mqtt.session import (
    PENDING_S,
    REMEMBERED,
    HandledMessages,
    MessageMailbox,
    OtherTokens,
    OwnTokens,
    PendingMessages,
)
from genus.net._mqtt.wire import Decoder, Message

LEASE_15_S = bytes([0, 0, 0, 15])


def listing(*tokens: str) -> bytes:
    return msgspec.msgpack.encode(list(tokens))


def watching(pattern: str = "#") -> OtherTokens:
    others = OtherTokens()
    assert list(others.watch(pattern)) == []
    return others


def test_changes_of_a_list_are_told() -> None:
    others = watching()
    assert list(others.heard("p", listing("a", "b"))) == [("a", True), ("b", True)]
    assert list(others.heard("p", listing("b", "c"))) == [("c", True), ("a", False)]
    assert list(others.heard("p", b"")) == [("b", False), ("c", False)]


def test_only_watched_tokens_are_told_and_a_later_watch_gets_those_present() -> None:
    others = watching("want/+")
    assert list(others.heard("p", listing("want/x", "here/p"))) == [("want/x", True)]
    assert list(others.watch("here/#")) == [("here/p", True)]
    others.unwatch("here/#")
    assert list(others.heard("p", b"")) == [("want/x", False)]


def test_a_token_of_two_participants_is_gone_with_the_last() -> None:
    others = watching()
    assert list(others.heard("p", listing("a"))) == [("a", True)]
    assert list(others.heard("q", listing("a"))) == []
    assert list(others.heard("p", b"")) == []
    assert list(others.heard("q", b"")) == [("a", False)]


@pytest.mark.parametrize(
    "payload",
    [
        b"\xc1",
        b"text",
        msgspec.msgpack.encode({"a": 1}),
        msgspec.msgpack.encode([["nested"]]),
        msgspec.msgpack.encode(["a/#"]),
        b"\x91\xa1\xff",
        msgspec.msgpack.encode(["a"] * 10_001),
        msgspec.msgpack.encode(["a" * 1_100_000]),
    ],
)
def test_a_bad_list_is_counted_and_changes_nothing(payload: bytes) -> None:
    others = watching()
    list(others.heard("p", listing("a")))
    assert list(others.heard("p", payload)) == []
    assert others.bad == 1
    assert list(others.heard("p", b"")) == [("a", False)]


def beats(others: OtherTokens, start: float, count: int, beat_s: float = 5.0) -> list[tuple[str, bool]]:
    """What changes while this participant hears itself so many times."""
    return [change for beat in range(count) for change in others.heard_self(start + beat * beat_s, beat_s)]


def test_a_token_without_a_beat_is_gone_after_its_lease() -> None:
    others = watching()
    list(others.heard("p", listing("a"), LEASE_15_S))
    list(others.heard("q", listing("b"), LEASE_15_S))
    list(others.heard("for ever", listing("c")))
    assert beats(others, 100.0, 4) == []
    assert list(others.heard("q", listing("b"), LEASE_15_S)) == []
    assert beats(others, 120.0, 1) == [("a", False)]
    assert beats(others, 125.0, 3) == [("b", False)]
    assert beats(others, 140.0, 100) == []


def test_nobody_is_gone_because_this_process_was_late() -> None:
    others = watching()
    list(others.heard("p", listing("a"), LEASE_15_S))
    beats(others, 100.0, 1)
    assert beats(others, 500.0, 2) == []  # a pause counts as one beat
    many_changes = beats(others, 505.0, 1000, beat_s=0.001)
    assert many_changes == []


def test_after_a_reconnect_tokens_that_are_not_heard_of_again_are_gone_soon() -> None:
    others = watching()
    beats(others, 100.0, 1)
    list(others.heard("p", listing("a"), bytes(2) + b"\x0e\x10"))
    list(others.heard("q", listing("b")))
    list(others.heard("r", listing("c")))
    others.doubt()
    assert list(others.heard("q", listing("b"))) == []
    assert list(others.heard("r", b"")) == [("c", False)]
    assert beats(others, 105.0, 2) == []
    assert beats(others, 115.0, 1) == [("a", False)]
    assert beats(others, 120.0, 9) == []


@pytest.mark.parametrize("seed", range(20))
def test_what_is_present_is_what_beats(seed: int) -> None:
    """Law: whoever beats is present, whoever does not is gone after its lease; by any order of what is heard."""
    chance, others, present = Random(seed), watching(), set()
    heard_at = dict.fromkeys("pqrst", -100)
    beats(others, -5.0, 1)
    for beat in range(100):
        for owner in chance.sample("pqrst", 5):
            if chance.random() < (0.9 if owner < "r" else 0.2):
                heard_at[owner] = beat
                changes = list(others.heard(owner, listing(owner), LEASE_15_S))
                assert changes == [] if owner in present else [(owner, True)]
                present |= {owner}
        for token, _ in beats(others, beat * 5.0, 1):
            present -= {token}
        assert {owner for owner, at in heard_at.items() if beat - at < 3} == present


def test_own_tokens_are_counted_and_limited() -> None:
    own = OwnTokens()
    own.add("b")
    own.add("a")
    own.add("a")
    own.remove("a")
    [shown] = Decoder(1 << 20, fast=False).feed(own.packet("t", 15))
    assert isinstance(shown, mqtt5.PublishPacket)
    assert (shown.payload, shown.retain, shown.message_expiry_interval) == (listing("a", "b"), True, 15)
    assert shown.correlation_data == LEASE_15_S
    own.remove("a")
    own.remove("b")
    assert Decoder(1 << 20).feed(own.packet("t", 0)) == [("t", b"", b"", 0)]
    for number in range(10_000):
        own.add(f"t/{number}")
    with pytest.raises(BusError, match="too many tokens"):
        own.add("one more")
    with pytest.raises(BusError, match="cannot be a token"):
        OwnTokens().add("a/#")


def message(number: int) -> Message:
    return str(number), b"", b"", 0


def names(mailbox: MessageMailbox) -> list[str]:
    return [each[0] for each in mailbox.take(0) or [] if isinstance(each, tuple)]


def test_a_full_mailbox_drops_by_its_policy_but_never_what_others_depend_on() -> None:
    for policy, kept in (("drop_oldest", ["0", "3", "4"]), ("drop_newest", ["0", "1", "2"])):
        mailbox = MessageMailbox(3, policy, lambda each: each[0] == "0")  # type: ignore[arg-type]
        mailbox.put([message(0), message(1)])
        mailbox.put([message(2), message(3), message(4)])
        assert names(mailbox) == kept
        assert mailbox.dropped == 2


def test_a_full_mailbox_that_blocks_asks_not_to_read() -> None:
    mailbox = MessageMailbox(2, "block", lambda _: False)
    mailbox.put([message(number) for number in range(3)])
    assert mailbox.pause()
    with mailbox.lenient(lambda: None):
        assert mailbox.pause(), "this thread does not empty it"
    mailbox.thread = threading.current_thread()
    with mailbox.lenient(lambda: None):
        assert not mailbox.pause()
    assert mailbox.pause()
    assert names(mailbox) == ["0", "1", "2"]
    assert not mailbox.pause()


def test_messages_of_a_session_wait_for_their_subscription_but_not_for_ever() -> None:
    dropped: list[Message] = []
    pending = PendingMessages(3, dropped.extend)
    assert not pending.hold(message(0), 0.0)
    pending.begin(0.0)
    assert [pending.hold(message(number), 1.0) for number in range(5)] == [True] * 5
    assert dropped == [message(3), message(4)]
    assert pending.subscribed("1", 2.0) == [message(1)]
    assert not pending.hold(message(1), 3.0)
    pending.expire(PENDING_S - 1)
    assert pending.is_active
    pending.expire(PENDING_S)
    assert dropped == [message(3), message(4), message(0), message(2)]
    assert not pending.is_active
    assert pending.subscribed("#", PENDING_S + 1) == []


def test_a_file_remembers_what_an_earlier_process_handled(tmp_path: Path) -> None:
    file = tmp_path / "actuator.session"
    first = HandledMessages(file)
    messages: list[Message] = [("a", f"envelope {number}".encode(), b"", 1) for number in range(REMEMBERED + 10)]
    for each in messages:
        assert not first.had(each)
        first.add(each)
    first.add(("a", b"", b"without an envelope", 1))
    second = HandledMessages(file)  # the first is not closed, as after a kill
    assert [second.had(each) for each in messages] == [False] * 10 + [True] * REMEMBERED
    assert not second.had(("b", *messages[-1][1:]))
    assert not second.had(("a", b"", b"without an envelope", 1))
    second.add(("a", b"new", b"", 1))
    second.close()
    assert not HandledMessages(file).had(messages[10])


def test_a_file_that_is_another_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear Ann")
    with pytest.raises(BusError, match=r"letter\.txt is another file"):
        HandledMessages(file)
    assert file.read_text() == "Dear Ann"
    with pytest.raises(BusError, match="cannot be used"):
        HandledMessages(tmp_path)
