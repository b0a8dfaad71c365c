"""Subject uids: what a type is called before it has an event tag."""

from hypothesis import given
from hypothesis import strategies as st

from genus.can._wire.frame import subject_uid


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
