"""The protocol messages: the same bytes for the same message, and nothing else is one."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._protocol.messages import (
    Announce,
    Claim,
    GetEtag,
    Heartbeat,
    Message,
    Nibble,
    NumberGrant,
    Objection,
    ObjectionReason,
    Prefix,
    QosClass,
    Question,
    QuestionKind,
    RefusalReason,
    Restart,
    Signature,
    Supply,
    SupplyHalf,
    parse_message,
)
from genus.can._protocol.time_service import follow_up_frame, sync_frame
from genus.can._wire.frame import ID_MASK, Frame, Priority, ProtocolEtag

LOOP = 0x95623E3A87C20C39

GOLDEN: list[tuple[Message, int, str]] = [
    (Nibble(15, 0xA), 0x1FBE8001, ""),
    (Nibble(8, 0), 0x1FA00001, ""),
    (Nibble(7, 0xF), 0x1F9FC001, ""),
    (Nibble(0, 0xD), 0x1F834001, ""),
    (Prefix(15, 0xA << 60), 0x1F9FC000, "a00000000000000f"),
    (Prefix(1, 0xABCD_EF01_2345_67A0), 0x1F9FC000, "abcdef01234567a1"),
    (Restart(), 0x1F9FC000, "0000000000000000"),
    (NumberGrant(0xABCD_EF01_2345_67AD, 5), 0x1F814000, "abcdef01234567ad"),
    (NumberGrant(0xABCD_EF01_2345_67AD, 0), 0x1F800000, "abcdef01234567ad"),
    (Claim(5, 0xABCD_EF01_2345_67AD), 0x1F614005, "abcdef01234567ad"),
    (Claim(127, 1), 0x1F7FC005, "0000000000000001"),
    (GetEtag(5, LOOP), 0x1FA14002, "95623e3a87c20c39"),
    (SupplyHalf(5, 0, 8208, QosClass.SOFT << 5 | 1 << 4 | 2, LOOP >> 32), 0x1F9FC004, "0564201095623e3a"),
    (SupplyHalf(5, 1, 8208, 0, LOOP & 0xFFFF_FFFF), 0x1F9FC004, "0501201087c20c39"),
    (Announce(5, 8208, QosClass.HARD, True, 12, 10_000), 0x1FA14006, "2010a00c00002710"),
    (Heartbeat(258, 0xCAFEF00D), 0x1F7FC00A, "00000102cafef00d"),
    (Heartbeat(258, 0xCAFEF00D, roll_call=True), 0x1F7FC00A, "01000102cafef00d"),
    (Question(5, 7, QuestionKind.VECTOR, LOOP >> 16), 0x1FA1400B, "010795623e3a87c2"),
    (Question(5, 8, QuestionKind.CATALOG, 0), 0x1FA1400B, "0308000000000000"),
    (Question(5, 0, QuestionKind.SIGNATURE, 0), 0x1FA1400B, "0400000000000000"),
    (Question(127, 5, QuestionKind.LAYOUT, 8208), 0x1FBFC00B, "0505000000002010"),
    (Question(5, 7, QuestionKind.CLASS, 8209), 0x1FA1400B, "0607000000002011"),
    (Signature(5, 8208, LOOP >> 40, 0xC0FFEE), 0x1F61400D, "201095623ec0ffee"),
    (Objection(3, 5, 8208, ObjectionReason.OTHER_TYPE, LOOP >> 32), 0x1F60C00E, "0501201095623e3a"),
]


@pytest.mark.parametrize(("message", "identifier", "data"), GOLDEN, ids=repr)
def test_golden_bytes(message: Message, identifier: int, data: str) -> None:
    assert message.frame() == Frame(identifier, bytes.fromhex(data))
    assert parse_message(Frame(identifier, bytes.fromhex(data))) == message


def test_the_documented_bytes_are_these() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "wire.md").read_text()
    rows = re.findall(r"\| `([0-9a-f]{8})` \| (?:`([0-9a-f ]+)`)? ?\|", page)
    assert len(rows) == 21 + 2  # and two of the clock
    clock = [sync_frame(3, 7, 0x1122_3344_5566_7788), follow_up_frame(3, 7, 0x1122_3344_5566_7788)]
    known = {row[1:] for row in GOLDEN} | {(frame.id, frame.data.hex()) for frame in clock}
    assert {(int(identifier, 16), data.replace(" ", "")) for identifier, data in rows} <= known


UIDS = st.integers(1, 2**64 - 1)
NODES = st.integers(1, 126)
ETAGS = st.integers(0, 2**14 - 1)


def prefixes(uid: int, stage: int) -> Prefix:
    return Prefix(stage, uid >> 4 * stage << 4 * stage)


MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Nibble, st.integers(0, 15), st.integers(0, 15)),
    st.builds(prefixes, UIDS, st.integers(1, 15)),
    st.just(Restart()),
    st.builds(NumberGrant, UIDS, st.integers(0, 126)),
    st.builds(Claim, st.integers(1, 127), UIDS),
    st.builds(GetEtag, NODES, UIDS),
    st.builds(SupplyHalf, NODES, st.integers(0, 1), ETAGS, st.integers(0, 127), st.integers(0, 2**32 - 1)),
    st.builds(
        Announce,
        NODES,
        ETAGS,
        st.sampled_from([QosClass.NONE, QosClass.SOFT, QosClass.HARD]),
        st.booleans(),
        st.integers(0, 255),
        st.integers(0, 2**32 - 1),
    ),
    st.builds(Heartbeat, st.integers(0, 2**24 - 1), st.integers(0, 2**32 - 1), st.booleans()),
    st.builds(Question, NODES, st.integers(0, 255), st.sampled_from(QuestionKind), st.integers(0, 2**48 - 1)),
)


@given(MESSAGES)
def test_what_is_packed_is_parsed(message: Message) -> None:
    assert parse_message(message.frame()) == message


@given(st.integers(0, ID_MASK), st.binary(max_size=8), st.booleans())
def test_what_is_parsed_was_packed(identifier: int, data: bytes, extended: bool) -> None:
    """A frame that is a message is exactly that message's frame, but for reserved bits of heartbeats and flags."""
    frame = Frame(identifier, data, extended=extended)
    message = parse_message(frame)
    if message is not None and not isinstance(message, Heartbeat | Announce):
        assert message.frame() == frame


@given(MESSAGES, st.integers(0, 8))
def test_another_length_is_no_message(message: Message, size: int) -> None:
    frame = message.frame()
    if size != len(frame.data):
        assert parse_message(Frame(frame.id, bytes(size))) is None


SPOILERS: list[Callable[[Frame], Frame]] = [
    lambda frame: Frame(frame.id, frame.data, fd=True),
    lambda frame: Frame(frame.id, frame.data, extended=False),
    lambda frame: Frame(frame.id & 0x1F_FFFF | Priority.SOFT_FIRST << 21, frame.data),
]


@given(MESSAGES, st.sampled_from(SPOILERS))
def test_another_format_or_priority_is_no_message(message: Message, spoil: Callable[[Frame], Frame]) -> None:
    assert parse_message(spoil(message.frame())) is None


@pytest.mark.parametrize("tag", [ProtocolEtag.SUPPLY_ETAG_FLAGS, ProtocolEtag.BROKER])
def test_messages_of_the_broker_are_accepted_from_its_number_only(tag: ProtocolEtag) -> None:
    for _, identifier, data in GOLDEN:
        if identifier & 0x3FFF == tag:
            for node in (0, 5, 126):
                assert parse_message(Frame(identifier & ~(0x7F << 14) | node << 14, bytes.fromhex(data))) is None


@pytest.mark.parametrize("tag", [ProtocolEtag.GET_ETAG, ProtocolEtag.ANNOUNCE, ProtocolEtag.QUESTION])
def test_requests_come_from_nodes_with_a_number(tag: ProtocolEtag) -> None:
    for node in (0, 127):
        assert parse_message(Frame(Priority.PROTOCOL << 21 | node << 14 | tag, bytes(8))) is None


def test_nibbles_of_a_later_stage_win_and_then_the_lowest() -> None:
    frames = [Nibble(stage, nibble).frame().id for stage in range(16) for nibble in range(16)]
    assert frames == sorted(frames)
    assert len(set(frames)) == 256


def test_replies_go_before_requests_and_claims_before_both() -> None:
    claim, reply, request = Claim(127, 1).frame(), Restart().frame(), GetEtag(1, 1).frame()
    assert claim.id < reply.id < request.id
    assert Claim(126, 1).frame().id < min(claim.id, Heartbeat(1, 1, roll_call=True).frame().id)


@given(UIDS, st.sampled_from(list(QosClass)), st.booleans(), st.integers(0, 15), st.booleans(), st.integers(1, 16383))
def test_a_reply_is_its_two_halves(
    subject: int, qos_class: QosClass, segmented: bool, width: int, deprecated: bool, etag: int
) -> None:
    supply = Supply(subject, etag, qos_class, segmented, width, deprecated)
    halves = [parse_message(frame) for frame in supply.frames(9)]
    assert isinstance(halves[0], SupplyHalf)
    assert isinstance(halves[1], SupplyHalf)
    assert Supply.join(halves[0], halves[1]) == supply
    assert Supply.join(halves[1], halves[0]) is None


@pytest.mark.parametrize("reason", RefusalReason)
def test_a_refusal_says_why(reason: RefusalReason) -> None:
    first, second = (parse_message(frame) for frame in Supply(LOOP, 0, reason=reason).frames(9))
    assert isinstance(first, SupplyHalf)
    assert isinstance(second, SupplyHalf)
    assert Supply.join(first, second) == Supply(LOOP, 0, reason=reason)


def test_halves_of_two_replies_do_not_join() -> None:
    first = SupplyHalf(5, 0, 8208, 0, 1)
    assert Supply.join(first, SupplyHalf(5, 1, 8209, 0, 2)) is None
    assert Supply.join(first, SupplyHalf(6, 1, 8208, 0, 2)) is None


@given(UIDS, UIDS, st.integers(1, 15))
def test_a_prefix_fits_the_uids_that_begin_with_it(uid: int, other: int, stage: int) -> None:
    prefix = prefixes(uid, stage)
    assert prefix.fits(uid)
    assert prefix.fits(other) == (other >> 4 * stage == uid >> 4 * stage)
