"""The CoAP target: paths that are codes, queries, and what is left to the receiver."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Kind, Maybe, Subscription, all_of, this
from genus.catalog import Catalog
from genus.codes import encode_path_segment, parse_path_segment
from genus.errors import NotRegistered
from genus.targets.coap import MAX_TEXT, ServerTests, compile, format_mask, parse_mask, read_query
from tests.examples import examples

from .test_topic_sweep import random_system


class CoapSide(Kind): ...


class CoapInner(Kind): ...


class CoapCounter(Event, CoapSide):
    lane: int
    note: Maybe[str] = None


class CoapRadar(CoapCounter, CoapInner):
    speed: Maybe[float] = None


@pytest.fixture
def catalog() -> Catalog:
    made = Catalog()
    made.register(CoapCounter, CoapRadar)
    return made


# -- paths and masks ---------------------------------------------------------------------------------------------------


@examples(500)
@given(st.integers(1, 1 << 200))
def test_a_path_is_read_back(code: int) -> None:
    assert parse_path_segment(encode_path_segment(code)) == code


@examples(2000)
@given(st.text(alphabet="ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ é", max_size=12))
def test_every_code_has_one_path(text: str) -> None:
    """What is read at all is what would be written."""
    code = parse_path_segment(text)
    assert code is None or encode_path_segment(code) == text


@pytest.mark.parametrize("text", ["", "A", "AA", "AAE", "AQ==", "AR", "e+I", "e/I", "ÅA", "A" * 341, "AQ\n", " AQ"])
def test_what_is_no_canonical_code_is_refused(text: str) -> None:
    assert parse_path_segment(text) is None


@pytest.mark.parametrize("code", [0, -5, 1 << 2040])
def test_what_is_no_code_has_no_path(code: int) -> None:
    with pytest.raises(ValueError, match=r"a code (is a positive integer|of 256 bytes does not fit)"):
        encode_path_segment(code)


@examples(200)
@given(st.integers(1, 1 << 64))
def test_masks_are_read_back(mask: int) -> None:
    assert parse_mask(format_mask(mask)) == mask
    assert parse_mask(f"0{format_mask(mask)}") is None


@pytest.mark.parametrize("text", ["", "0", "00", "-1", "0x1", "G", "1 ", "１", "f" * 257])
def test_what_is_no_mask_is_refused(text: str) -> None:
    assert parse_mask(text) is None


# -- subscriptions -----------------------------------------------------------------------------------------------------


def test_types_divide_what_is_below_them(catalog: Catalog) -> None:
    counter, radar = catalog.code(CoapCounter), catalog.code(CoapRadar)
    made = compile(Subscription(CoapCounter), catalog)
    assert [made.accepts(code, 0) for code in (counter, radar, counter + 1)] == [True, True, False]
    assert made.query == ()
    assert made.residual is None


def test_all_of_is_the_least_common_multiple(catalog: Catalog) -> None:
    made = compile(Subscription(all_of(CoapCounter, CoapInner)), catalog)
    assert made.accepts(catalog.code(CoapRadar), 0)
    assert not made.accepts(catalog.code(CoapCounter), 0)


def test_exact_is_a_query_for_classes_and_a_residual_for_kinds(catalog: Catalog) -> None:
    assert compile(Subscription(CoapCounter, exact=True), catalog).query == ("x",)
    kind = compile(Subscription(CoapSide, exact=True), catalog)
    assert kind.query == ()
    assert kind.residual == Subscription(CoapSide, exact=True)


def test_each_part_of_a_predicate_is_a_part_of_the_query(catalog: Catalog) -> None:
    asked = Subscription(
        CoapRadar, lacks="place", where=(this.lane > 1) & (this.speed > 30) & this.note.startswith("a")
    )
    made = compile(asked, catalog)
    assert made.query == ("h=e0", "l=4", "w=lane > 1", "w=speed > 30.0", "w=note startswith 'a'")
    masks = compile(asked, catalog, "masks")
    assert masks.query == ("h=e0", "l=4")
    assert masks.residual == Subscription(CoapRadar, where=asked.where)
    types = compile(asked, catalog, "type")
    assert types.query == ()
    assert types.residual == asked


def test_a_text_that_fits_no_option_is_left_to_the_receiver(catalog: Catalog) -> None:
    long = Subscription(CoapCounter, where=(this.note == "x" * (MAX_TEXT + 1)) & (this.lane == 2))
    made = compile(long, catalog)
    assert made.where == ("lane == 2",)
    assert made.residual == Subscription(CoapCounter, where=this.note == "x" * (MAX_TEXT + 1))


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_what_can_never_match_has_no_path(catalog: Catalog) -> None:
    made = compile(Subscription(CoapCounter, lacks="note", where=this.note == "x"), catalog)
    assert made.path is None
    assert not made.accepts(catalog.code(CoapCounter), 0)
    assert "nothing can match" in made.explain()


def test_a_type_outside_the_catalog_is_an_error() -> None:
    with pytest.raises(NotRegistered, match="CoapCounter"):
        compile(Subscription(CoapCounter), Catalog())


def test_tests_that_there_are_not_are_an_error(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="none of where, masks, type"):
        compile(Subscription(CoapCounter), catalog, "all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (["v=1"], "there is no query 'v'"),
        (["h=1", "h=2"], "h is given twice"),
        (["h=xyz"], "h is no presence bits"),
        (["x=1"], "x takes no value"),
        (["w=lane >"], "w cannot be read: expected a value"),
        (["w=weight > 1"], "w cannot be read: CoapCounter has no attribute 'weight'"),
        (["w=" + "(" * 5000], "w cannot be read"),
        (["w=lane > 1"] * 65, "more than 64 parts"),
    ],
)
def test_a_query_that_cannot_be_read_has_a_reason(catalog: Catalog, query: list[str], reason: str) -> None:
    found = read_query(catalog.code(CoapCounter), query, catalog)
    assert isinstance(found, str)
    assert found.startswith(reason)


def test_as_many_parts_as_are_allowed_are_all_tested(catalog: Catalog) -> None:
    code = catalog.code(CoapCounter)
    asked = read_query(code, [f"w=lane > {bound}" for bound in range(64)], catalog)
    assert not isinstance(asked, str)
    assert [asked.accepts(code, 0, CoapCounter(lane=lane)) for lane in (63, 64)] == [False, True]


def test_a_query_tests_the_code_and_each_bit_and_each_text(catalog: Catalog) -> None:
    counter, radar = catalog.code(CoapCounter), catalog.code(CoapRadar)
    event = CoapCounter(lane=3)

    def passes(*query: str, code: int = counter, tag: int = 0b1010) -> bool:
        asked = read_query(counter, query, catalog)
        assert not isinstance(asked, str), asked
        return asked.accepts(code, tag, event)

    assert passes()
    assert [passes(code=code) for code in (radar, counter + 1)] == [True, False]
    assert [passes("x", code=code) for code in (counter, radar)] == [True, False]
    assert [passes(f"h={mask}") for mask in ("a", "2", "6", "1")] == [True, True, False, False]
    assert [passes(f"l={mask}") for mask in ("5", "1", "6", "a")] == [True, True, False, False]
    assert [passes("h=2", "l=4", f"w=lane > {bound}") for bound in (2, 3)] == [True, False]
    assert [passes("w=lane > 2", f"w=lane < {bound}") for bound in (4, 3)] == [True, False]


def test_a_value_of_another_type_is_left_to_the_receiver(catalog: Catalog) -> None:
    """The server passes what it cannot test."""
    asked = read_query(catalog.code(CoapCounter), ["w=lane > 2"], catalog)
    assert not isinstance(asked, str)
    assert asked.accepts(catalog.code(CoapCounter), 0, CoapCounter(lane="three"))  # type: ignore[arg-type]


def test_a_filter_accepts_codes_that_it_divides_with_its_bits(catalog: Catalog) -> None:
    counter, radar = catalog.code(CoapCounter), catalog.code(CoapRadar)
    made = compile(Subscription(CoapCounter, has="place", lacks="time"), catalog)
    assert (made.has, made.lacks) == (4, 1)
    assert [made.accepts(counter, tag) for tag in (4, 0b1100, 0, 5, 1)] == [True, True, False, False, False]
    exact = compile(Subscription(CoapCounter, exact=True), catalog)
    assert [exact.accepts(code, 0) for code in (counter, radar)] == [True, False]


def test_explain_has_the_request_and_what_is_left_to_the_receiver(catalog: Catalog) -> None:
    asked = Subscription(CoapCounter, exact=True, has="place", where=this.lane > 1)
    code = catalog.code(CoapCounter)
    path = encode_path_segment(code)
    assert compile(asked, catalog).explain() == (
        "coap: exact CoapCounter has place where lane > 1\n"
        f"  GET /{path}?x&h=24&w=lane > 1, Observe\n"
        f"  type: code {code} exactly\n"
        "  residual: nothing"
    )
    assert compile(asked, catalog, "type").explain() == (
        "coap: exact CoapCounter has place where lane > 1\n"
        f"  GET /{path}, Observe\n"
        f"  type: code {code}, and all that it divides\n"
        "  residual: exact CoapCounter has place where lane > 1"
    )


def test_parts_beyond_those_of_a_query_are_left_to_the_receiver(catalog: Catalog) -> None:
    where = " and ".join(f"lane != {number}" for number in range(70))
    made = compile(Subscription(CoapCounter, where=where), catalog)
    assert made.residual is not None
    assert str(made.residual) == "CoapCounter where " + " and ".join(f"lane != {n}" for n in range(len(made.where), 70))
    assert len(made.where) == 61
    assert not isinstance(read_query(made.code or 0, made.query, catalog), str)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 60))])
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_random_systems_of_types(seed: int) -> None:
    """Random kinds and types: servers of every ability, with their receiver, agree with the oracle."""
    system = random_system(seed, 40)
    for subscription in system.subscriptions:
        for tests in get_args(ServerTests):
            made = compile(subscription, system.catalog, tests)
            asked = None if made.code is None else read_query(made.code, made.query, system.catalog)
            assert not isinstance(asked, str), f"{subscription}: {asked}"
            for event in system.events:
                named = system.catalog.code(type(event)), system.catalog.tag(event), event
                passes = asked is not None and asked.accepts(*named)
                answer = passes and (made.residual is None or made.residual.matches(event))
                assert answer is subscription.matches(event), f"{made.explain()} on {event!r}"
