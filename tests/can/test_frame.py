"""Identifiers and their fields, and subject uids: what a type is called before it has an event tag."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._wire.frame import (
    ID_MASK,
    Frame,
    Identifier,
    Priority,
    ProtocolEtag,
    arbitration_key,
    subject_uid,
)
from tests.examples import examples


@examples(60)
@given(st.integers(0, 255), st.integers(0, 127), st.integers(0, 2**14 - 1))
def test_the_fields_of_an_identifier_are_read_back(priority: int, node: int, etag: int) -> None:
    packed = Identifier(priority, node, etag).pack()
    assert f"{packed:029b}" == f"{priority:08b}{node:07b}{etag:014b}"
    assert Identifier.unpack(packed) == (priority, node, etag)
    frame = Frame(packed)
    assert (frame.priority, frame.node, frame.etag) == (priority, node, etag)


@pytest.mark.parametrize(
    "fields", [(256, 0, 0), (-1, 0, 0), (0, 128, 0), (0, -1, 0), (0, 0, 2**14), (0, 0, -1), (256, 128, 2**14)]
)
def test_each_field_of_an_identifier_must_fit_its_bits(fields: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="does not fit 8, 7 and 14 bits"):
        Identifier(*fields).pack()


def test_the_largest_identifier_has_all_bits() -> None:
    assert Identifier(255, 127, 2**14 - 1).pack() == ID_MASK
    assert Identifier(0, 0, 0).pack() == 0


def test_priorities_and_event_tags_of_the_middleware_never_change() -> None:
    """They are on the wire."""
    assert {each.name: each.value for each in Priority} == {
        "HARD": 0, "SOFT_FIRST": 1, "SOFT_LAST": 250, "SYSTEM": 251, "PROTOCOL": 253, "NONE": 254, "BULK": 255,
    }  # fmt: skip
    assert [each.name for each in ProtocolEtag] == [
        "SSI", "RSI", "GET_ETAG", "SUPPLY_ETAG", "SUPPLY_ETAG_FLAGS", "CLAIM", "ANNOUNCE", "REPORT", "SYNC",
        "FOLLOW_UP", "BROKER", "QUESTION", "ANSWER", "SIGNATURE", "OBJECTION",
    ]  # fmt: skip
    assert [each.value for each in ProtocolEtag] == list(range(15))


def arbitration_bits(frame: Frame) -> str:
    """As they are on the wire: of an extended frame SRR and IDE are recessive, and RTR is dominant in both."""
    if frame.extended:
        return f"{frame.id >> 18:011b}11{frame.id & 0x3FFFF:018b}0"
    return f"{frame.id:011b}00".ljust(32, "0")


frames = st.builds(
    lambda base, low, extended: Frame(base << 18 | low if extended else base, extended=extended),
    st.integers(0, 3) | st.just(0x7FF),
    st.sampled_from([0, 1, 0x3FFFF]),
    st.booleans(),
)


@examples(60)
@given(frames, frames)
def test_the_frame_with_the_first_dominant_bit_wins(one: Frame, other: Frame) -> None:
    wins = arbitration_bits(one) < arbitration_bits(other)
    assert (arbitration_key(one) < arbitration_key(other)) is wins


def test_a_frame_is_shown_with_its_identifier_in_hexadecimal_and_its_data() -> None:
    assert repr(Frame(0x12, b"\x01\xff", fd=True)) == "Frame(0x00000012, 01ff, fd)"
    assert repr(Frame(0x12, extended=False)) == "Frame(0x012, )"


def test_a_name_has_the_same_uid_on_every_node() -> None:
    """Golden values: they are on the wire, so they never change."""
    assert subject_uid("Loop") == 0x95623E3A87C20C39
    assert subject_uid("Lärm") == 0xD88BAF4120861FEE


@given(st.text())
def test_a_uid_has_64_bits_and_is_never_zero(name: str) -> None:
    assert 0 < subject_uid(name) < 2**64


def test_names_that_differ_little_have_uids_that_differ() -> None:
    names = [f"Sensor{number}" for number in range(10_000)]
    assert len({subject_uid(name) for name in names}) == len(names)
