"""Tokens of participants: lists that are compared, limits, and what is gone after a reconnect."""

import msgspec
import pytest

from genus.errors import BusError
from genus.net._mqtt.held import HOLD_S, HeldMessages
from genus.net._mqtt.mailbox import Mailbox
from genus.net._mqtt.tokens import CONFIRM_S, OtherTokens, OwnTokens
from genus.net._mqtt.wire import Message


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


def test_after_a_reconnect_tokens_stay_until_their_time_is_over() -> None:
    others = watching()
    list(others.heard("p", listing("a")))
    list(others.heard("q", listing("b")))
    others.doubt(100.0)
    assert others.timeout(100.0) == CONFIRM_S
    assert list(others.heard("q", listing("b"))) == []
    assert list(others.settle(100.0 + CONFIRM_S - 1)) == []
    assert list(others.settle(100.0 + CONFIRM_S)) == [("a", False)]
    assert others.timeout(200.0) is None


def test_own_tokens_are_counted_and_limited() -> None:
    own = OwnTokens()
    own.add("b")
    own.add("a")
    own.add("a")
    own.remove("a")
    assert own.payload() == listing("a", "b")
    own.remove("a")
    own.remove("b")
    assert own.payload() == b""
    for number in range(10_000):
        own.add(f"t/{number}")
    with pytest.raises(BusError, match="too many tokens"):
        own.add("one more")
    with pytest.raises(BusError, match="cannot be a token"):
        OwnTokens().add("a/#")


def message(number: int) -> Message:
    return str(number), b"", b"", 0


def names(mailbox: Mailbox) -> list[str]:
    return [each[0] for each in mailbox.take(0) or [] if isinstance(each, tuple)]


def test_a_full_mailbox_drops_by_its_policy_but_never_what_others_depend_on() -> None:
    for policy, kept in (("drop_oldest", ["0", "3", "4"]), ("drop_newest", ["0", "1", "2"])):
        mailbox = Mailbox(3, policy, lambda each: each[0] == "0")  # type: ignore[arg-type]
        mailbox.put_all([message(0), message(1)])
        mailbox.put_all([message(2), message(3), message(4)])
        assert names(mailbox) == kept
        assert mailbox.dropped == 2


def test_a_full_mailbox_that_blocks_asks_not_to_read() -> None:
    mailbox = Mailbox(2, "block", lambda _: False)
    mailbox.put_all([message(number) for number in range(3)])
    assert mailbox.pause()
    mailbox.be_lenient(True)
    assert not mailbox.pause()
    mailbox.be_lenient(False)
    assert names(mailbox) == ["0", "1", "2"]
    assert not mailbox.pause()


def test_messages_of_a_session_wait_for_their_subscription_but_not_for_ever() -> None:
    held = HeldMessages(capacity=3)
    assert not held.hold(message(0), 0.0)
    held.begin(0.0)
    assert [held.hold(message(number), 1.0) for number in range(5)] == [True] * 5
    assert held.dropped == 2
    assert list(held.subscribed("1", 2.0)) == [message(1)]
    assert not held.hold(message(1), 3.0)
    assert list(held.subscribed("#", HOLD_S + 1)) == []
    assert held.dropped == 4
    assert not held.is_holding
