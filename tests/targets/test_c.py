"""The C target: the condition that each operator becomes, and what is left to the program.

`tests/devices` compiles such code and compares its answers with those of `Subscription.matches`; here is its text.
"""

from datetime import timedelta
from enum import Enum
from typing import Any

import pytest

from genus import Event, Kind, Maybe, Subscription, UInt8
from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.model import Float32, Int16, Int32
from genus.targets.c import compile
from genus.targets.c._compiler import Constants
from genus.targets.c._condition import ALWAYS, NEVER, all_of_these, any_of_these, opposite, present
from genus.targets.c._layout import EventLayout, c_name, constant_name, identifier


class Lamp(Enum):
    OFF = "off"
    RED = "red"
    GREEN = "green"


class Roadside(Kind): ...


class Lonely(Kind): ...


class Signal(Event, Roadside, name="CSignal"):
    lane: UInt8
    level: Maybe[Int16] = None
    mile: Maybe[Int32] = None
    count: Maybe[int] = None
    ratio: Maybe[Float32] = None
    share: Maybe[float] = None
    label: Maybe[str] = None
    note: Maybe[str] = None
    blob: Maybe[bytes] = None
    open: Maybe[bool] = None
    near: Maybe[bool] = None
    lamp: Maybe[Lamp] = None
    other: Maybe[Lamp] = None
    gap: Maybe[timedelta] = None


class Bell(Event, Roadside, name="CBell"): ...


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    made = Catalog()
    made.register(Signal, Bell, Lonely)
    return made


HERE = {
    "lane": "((e->present[0] & 0x20U) != 0U)",
    "level": "((e->present[0] & 0x40U) != 0U)",
    "lane and level": "((e->present[0] & 0x60U) == 0x60U)",
    "mile": "((e->present[0] & 0x80U) != 0U)",
    "lane and mile": "((e->present[0] & 0xA0U) == 0xA0U)",
    "count": "((e->present[1] & 0x01U) != 0U)",
    "level and count": "((e->present[0] & 0x40U) != 0U) && ((e->present[1] & 0x01U) != 0U)",
    "ratio": "((e->present[1] & 0x02U) != 0U)",
    "share": "((e->present[1] & 0x04U) != 0U)",
    "ratio and share": "((e->present[1] & 0x06U) == 0x06U)",
    "lane and share": "((e->present[0] & 0x20U) != 0U) && ((e->present[1] & 0x04U) != 0U)",
    "label": "((e->present[1] & 0x08U) != 0U)",
    "note": "((e->present[1] & 0x10U) != 0U)",
    "label and note": "((e->present[1] & 0x18U) == 0x18U)",
    "blob": "((e->present[1] & 0x20U) != 0U)",
    "open": "((e->present[1] & 0x40U) != 0U)",
    "open and near": "((e->present[1] & 0xC0U) == 0xC0U)",
    "lamp": "((e->present[2] & 0x01U) != 0U)",
    "lamp and other": "((e->present[2] & 0x03U) == 0x03U)",
    "gap": "((e->present[2] & 0x04U) != 0U)",
}
"""How the presence of attributes is tested: one test for each byte of presence bits."""

INTEGERS = [
    ("lane > 1", "lane", "(e->lane >= 2U)"),
    ("not lane > 1", "lane", "(e->lane <= 1U)"),
    ("2 > lane", "lane", "(e->lane <= 1U)"),
    ("lane >= 0", "lane", ""),
    ("lane != 3", "lane", "(e->lane != 3U)"),
    ("lane != 0", "lane", "(e->lane >= 1U)"),
    ("lane in (0, 255)", "lane", "((e->lane == 0U) || (e->lane == 255U))"),
    ("lane in (3, 4, 9)", "lane", "(((e->lane >= 3U) && (e->lane <= 4U)) || (e->lane == 9U))"),
    ("not lane in (3, 5, 9)", "lane",
     "((e->lane <= 2U) || (e->lane == 4U) || ((e->lane >= 6U) && (e->lane <= 8U)) || (e->lane >= 10U))"),
    ("level == -32768", "level", "(e->level == INT16_MIN)"),
    ("level < 30.5", "level", "(e->level <= 30)"),
    ("not level == 0.5", "level", ""),
    ("lane < 300.5", "lane", ""),
    ("lane <= 254.5", "lane", "(e->lane <= 254U)"),
    ("lane >= 0.5", "lane", "(e->lane >= 1U)"),
    ("lane > -1.5", "lane", ""),
    ("mile > -2147483648", "mile", "(e->mile >= (-2147483647L))"),
    ("count == 9007199254740992.0", "count",
     "((e->count >= INT64_C(9007199254740992)) && (e->count <= INT64_C(9007199254740993)))"),
    ("lane < level", "lane and level", "((int32_t)e->lane < (int32_t)e->level)"),
    ("level == count", "level and count", "((int64_t)e->level == e->count)"),
    ("lane == lane", "lane", ""),
    ("gap > 2s", "gap", "(e->gap >= INT64_C(2000001))"),
]  # fmt: skip
ARITHMETIC = [
    ("lane + level > 300", "lane and level", "(((int32_t)e->lane + (int32_t)e->level) >= 301L)"),
    ("lane - 300 < mile", "lane and mile", "(((int32_t)e->lane - 300L) < e->mile)"),
    ("mile * mile > 1", "mile", "(((int64_t)e->mile * (int64_t)e->mile) >= INT64_C(2))"),
    ("mile + 1 > 1", "mile", "(((int64_t)e->mile + (int64_t)1L) >= INT64_C(2))"),
    ("count + 1 > 5", "count", "genus_add64(e->count, (int64_t)1L, &t0) && (t0 >= INT64_C(6))"),
    ("count * 2 - 1 == 7", "count",
     "genus_multiply64(e->count, (int64_t)2L, &t0) && genus_subtract64(t0, (int64_t)1L, &t1) && (t1 == INT64_C(7))"),
    ("-count < 3", "count", "genus_subtract64((int64_t)0L, e->count, &t0) && (t0 <= INT64_C(2))"),
    ("-lane < 1", "lane", ""),
    ("-level == 32768", "level", "((0L - (int32_t)e->level) == 32768L)"),
    ("abs(level) >= 32768", "level", "(genus_absolute32((int32_t)e->level) == 32768L)"),
    ("abs(mile) == 5", "mile", "(genus_absolute64((int64_t)e->mile) == INT64_C(5))"),
    ("abs(count) > 2", "count", "genus_absolute_checked(e->count, &t0) && (t0 >= INT64_C(3))"),
    ("lane // 3 == 1", "lane", "(genus_floor_quotient32((int32_t)e->lane, 3L) == 1L)"),
    ("level // lane > 2", "lane and level",
     "(e->lane != 0) && (genus_floor_quotient32((int32_t)e->level, (int32_t)e->lane) >= 3L)"),
    ("count % level == 1", "level and count",
     "(e->level != 0) && (genus_remainder64(e->count, (int64_t)e->level) == INT64_C(1))"),
    ("count // 7 == 1", "count", "genus_floor_divide64(e->count, (int64_t)7L, &t0) && (t0 == INT64_C(1))"),
    ("lane + level == level + lane", "lane and level",
     "genus_keep((int64_t)((int32_t)e->lane + (int32_t)e->level), &t0) && "
     "((int32_t)t0 == ((int32_t)e->level + (int32_t)e->lane))"),
    ("gap + 1s > 2s", "gap", "genus_add64(e->gap, (int64_t)1000000L, &t0) && (t0 >= INT64_C(2000001))"),
    ("(if lane > 1 then level) < 7", "lane and level",
     "(e->lane >= 2U) && genus_keep((int64_t)e->level, &t0) && (t0 <= INT64_C(6))"),
]  # fmt: skip
FLOATS = [
    ("ratio > 0.1", "ratio", "genus_within32(genus_key32(e->ratio), 1036831949L, 2139095040L)"),
    ("not ratio > 0.1", "ratio", "genus_within32(genus_key32(e->ratio), (-2139095040L), 1036831948L)"),
    ("share > 0.1", "share",
     "genus_within64(genus_key64(e->share), INT64_C(4591870180066957723), INT64_C(9218868437227405312))"),
    ("ratio > -0.1", "ratio", "genus_within32(genus_key32(e->ratio), (-1036831948L), 2139095040L)"),
    ("ratio in (1.0, 2.0)", "ratio",
     "(genus_within32(genus_key32(e->ratio), 1065353216L, 1065353216L) || "
     "genus_within32(genus_key32(e->ratio), 1073741824L, 1073741824L))"),
    ("share <= inf", "share",
     "genus_within64(genus_key64(e->share), (-INT64_C(9218868437227405312)), INT64_C(9218868437227405312))"),
    ("-share < 2.0", "share",
     "genus_within64((-genus_key64(e->share)), (-INT64_C(9218868437227405312)), INT64_C(4611686018427387903))"),
    ("abs(ratio) > 1.5", "ratio", "genus_within32(genus_absolute32(genus_key32(e->ratio)), 1069547521L, 2139095040L)"),
    ("ratio < share", "ratio and share",
     "genus_is_number32(genus_key32(e->ratio)) && genus_is_number64(genus_key64(e->share)) && "
     "(genus_widen_key(genus_key32(e->ratio)) < genus_key64(e->share))"),
    ("ratio <= -ratio", "ratio",
     "genus_is_number32(genus_key32(e->ratio)) && genus_is_number32((-genus_key32(e->ratio))) && "
     "(genus_key32(e->ratio) <= (-genus_key32(e->ratio)))"),
    ("lane < share", "lane and share",
     "genus_is_number64(genus_key64(e->share)) && (genus_key_of_integer((int64_t)e->lane) < genus_key64(e->share))"),
    ("ratio == ratio", "ratio", "genus_is_number32(genus_key32(e->ratio))"),
    ("coalesce(ratio, 1.0 / 0.0) < inf", "ratio",
     "genus_is_number32(genus_key32(e->ratio)) && genus_keep(genus_widen_key(genus_key32(e->ratio)), &t0) && "
     "genus_within64(t0, (-INT64_C(9218868437227405312)), INT64_C(9218868437227405311))"),
]  # fmt: skip
OTHERS = [
    ("label == 'ab'", "label", "genus_equals(&e->label, constant_0, 2U)"),
    ("not label == 'ab'", "label", "!genus_equals(&e->label, constant_0, 2U)"),
    ("label < 'é'", "label", "(genus_compare(&e->label, constant_0, 2U) < 0)"),
    ("not label < 'ab'", "label", "(genus_compare(&e->label, constant_0, 2U) >= 0)"),
    ("label <= note", "label and note", "(genus_compare_values(&e->label, &e->note) <= 0)"),
    ("label in ('a', '')", "label",
     "(genus_equals(&e->label, constant_0, 1U) || genus_equals(&e->label, constant_1, 0U))"),
    ("not label in ('a', '')", "label",
     "!(genus_equals(&e->label, constant_0, 1U) || genus_equals(&e->label, constant_1, 0U))"),
    ("label startswith 'a'", "label", "genus_starts_with(&e->label, constant_0, 1U)"),
    ("not label endswith 'a'", "label", "!genus_ends_with(&e->label, constant_0, 1U)"),
    ("label contains 'a'", "label", "genus_contains(&e->label, constant_0, 1U)"),
    ("label like 'a_%'", "label", "genus_is_like(&e->label, constant_0, 3U)"),
    ("blob == x'00ff'", "blob", "genus_equals(&e->blob, constant_0, 2U)"),
    ("length(label) > 2", "label", "(genus_count_letters(&e->label) >= 3U)"),
    ("length(blob) == 2", "blob", "(genus_count_bytes(&e->blob) == 2U)"),
    ("open", "open", "e->open"),
    ("not open", "open", "!e->open"),
    ("open != near", "open and near", "(e->open != e->near_)"),
    ("lamp == 'red'", "lamp", "(e->lamp == 1U)"),
    ("lamp != 'red'", "lamp", "!(e->lamp == 1U)"),
    ("lamp in ('red', 'off')", "lamp", "((e->lamp == 1U) || (e->lamp == 0U))"),
    ("lamp == other", "lamp and other", "(e->lamp == e->other)"),
    ("note is present", "note", ""),
    ("note is present and label == note", "label and note", "(genus_compare_values(&e->label, &e->note) == 0)"),
]  # fmt: skip
TESTS = [*INTEGERS, *ARITHMETIC, *FLOATS, *OTHERS]


def contents(where: str, catalog: Catalog) -> str:
    """The condition of a predicate, of which nothing is left to the program."""
    made = compile(Subscription.parse(f"CSignal where {where}", [Signal]), catalog)
    assert made.residual is None
    assert not made.reasons
    return made.tests["CSignal"].contents.code()


@pytest.mark.parametrize(("where", "here", "code"), TESTS, ids=[where for where, *_ in TESTS])
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_predicate_tests_presence_then_the_smallest_intervals(
    where: str, here: str, code: str, catalog: Catalog
) -> None:
    """Integers in 32 bits where they fit, else in 64, with a check where these may not be enough."""
    assert contents(where, catalog) == f"{HERE[here]}{' && ' if code else ''}{code}"


@pytest.mark.parametrize(
    "where",
    ["lane < 0", "lane > 255", "ratio == 0.1", "lane != lane", "ratio < ratio", "lane % 0 == 1", "lane // (1 - 1) > 0",
     "note is present and note is absent", "lane == 1 and note is absent and note == 'a'", "1 > 2"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_what_is_never_true_is_false(where: str, catalog: Catalog) -> None:
    assert contents(where, catalog) == "false"


LANE, NOTE, LABEL = HERE["lane"], HERE["note"], HERE["label"]
CHOSEN = [
    ("lane > 1 or level < 0", f"(({LANE} && (e->lane >= 2U)) || ({HERE['level']} && (e->level <= (-1))))"),
    ("not (lane > 1 or level < 0)", f"{HERE['lane and level']} && (e->lane <= 1U) && (e->level >= 0)"),
    ("not (note is present and lane == 1)",
     f"((((e->present[1] & 0x10U) == 0x00U)) || ({LANE} && (e->lane != 1U)))"),
    ("coalesce(lane, 3) > 2",
     f"(({LANE} && genus_keep((int64_t)e->lane, &t0)) || (genus_keep((int64_t)3L, &t0))) && (t0 >= INT64_C(3))"),
    ("coalesce(ratio, 1.5) < inf",
     f"(({HERE['ratio']} && genus_is_number32(genus_key32(e->ratio)) && "
     "genus_keep(genus_widen_key(genus_key32(e->ratio)), &t0)) || (genus_keep(INT64_C(4609434218613702656), &t0))) && "
     "genus_within64(t0, (-INT64_C(9218868437227405312)), INT64_C(9218868437227405311))"),
    ("(if lane > 1 then level else mile) < 7",
     f"(({HERE['lane and level']} && (e->lane >= 2U) && genus_keep((int64_t)e->level, &t0)) || "
     f"({HERE['lane and mile']} && (e->lane <= 1U) && genus_keep((int64_t)e->mile, &t0))) && (t0 <= INT64_C(6))"),
    ("(if lane > 1 then note else label) == 'a'",
     f"(({LANE} && {NOTE} && (e->lane >= 2U) && genus_equals(&e->note, constant_0, 1U)) || "
     f"({LANE} && {LABEL} && (e->lane <= 1U) && genus_equals(&e->label, constant_0, 1U)))"),
    ("coalesce(note, 'a') == 'a'", f"(({NOTE} && genus_equals(&e->note, constant_0, 1U)) || (!({NOTE})))"),
    ("coalesce(note, label) startswith 'a'",
     f"(({NOTE} && genus_starts_with(&e->note, constant_0, 1U)) || "
     f"({LABEL} && !({NOTE}) && genus_starts_with(&e->label, constant_0, 1U)))"),
    ("coalesce(note, label) in ('a', 'b')",
     f"(({NOTE} && (genus_equals(&e->note, constant_0, 1U) || genus_equals(&e->note, constant_1, 1U))) || "
     f"({LABEL} && !({NOTE}) && (genus_equals(&e->label, constant_0, 1U) || "
     "genus_equals(&e->label, constant_1, 1U))))"),
    ("length(coalesce(note, label)) > 2",
     f"(({NOTE} && genus_keep((int64_t)genus_count_letters(&e->note), &t0)) || "
     f"({LABEL} && !({NOTE}) && genus_keep((int64_t)genus_count_letters(&e->label), &t0))) && (t0 >= INT64_C(3))"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "code"), CHOSEN, ids=[where for where, _ in CHOSEN])
def test_one_of_several_is_tested_with_what_chooses_it(where: str, code: str, catalog: Catalog) -> None:
    """Numbers are kept in a variable; of texts, bytes, bools and choices each is tested where it is the chosen one."""
    assert contents(where, catalog) == code


def test_each_text_is_an_array_once() -> None:
    """An empty one has a byte, as C has no empty arrays."""
    constants = Constants()
    assert [constants.name(each) for each in (b"ab", b"", b"ab", b"c")] == [
        "constant_0", "constant_1", "constant_0", "constant_2",
    ]  # fmt: skip
    assert constants.size == 2 + 1 + 1
    definition = "static const uint8_t constant_2[1] GENUS_ROM = {0x63};"
    assert constants.definitions("constant_2, constant_22") == [definition]


def test_texts_are_arrays_of_bytes_and_like_has_bytes_that_no_text_has(catalog: Catalog) -> None:
    made = compile(
        Subscription.parse("CSignal where label == 'é' or note like 'a_%' or label == ''", [Signal]), catalog
    )
    assert made.tests["CSignal"].constants == (
        "static const uint8_t constant_0[2] GENUS_ROM = {0xC3, 0xA9};",
        "static const uint8_t constant_1[3] GENUS_ROM = {0x61, 0xFE, 0xFF};",
        "static const uint8_t constant_2[1] GENUS_ROM = {0x00};",
    )


def test_a_constant_has_at_most_as_many_bytes_as_a_text_of_a_device(catalog: Catalog) -> None:
    for size, left in ((0xFFFF, None), (0x10000, "a text of a device has at most 65535 bytes, but its constant 65536")):
        made = compile(Subscription(Signal, where=f"label == '{'x' * size}'"), catalog)
        assert list(made.reasons.values()) == ([] if left is None else [left])
        assert (made.residual is None) is (left is None)


def test_arithmetic_of_floats_is_left_to_the_program(catalog: Catalog) -> None:
    """Also a division of integers, which gives a float; the other parts are tested."""
    asked = Subscription.parse("CSignal where lane / 2 > 1.0 and level == 3 and ratio * 2 > 1.0", [Signal])
    made = compile(asked, catalog)
    assert made.tests["CSignal"].contents.code() == f"{HERE['level']} && (e->level == 3)"
    assert str(made.residual) == "CSignal where lane / 2.0 > 1.0 and ratio * 2.0 > 1.0"
    why = "it computes with floats, and devices have no floating point"
    assert made.explain().endswith(
        "  residual: CSignal where lane / 2.0 > 1.0 and ratio * 2.0 > 1.0\n"
        "  flash: about 18 bytes for these tests; RAM: none\n"
        f"    lane / 2.0 > 1.0: {why}\n    ratio * 2.0 > 1.0: {why}"
    )


def test_explain_has_each_family_with_what_is_tested(catalog: Catalog) -> None:
    assert compile(Subscription(Roadside, has="place", lacks="source"), catalog).explain().splitlines() == [
        "c: Roadside has place lacks source",
        "  type: CSignal, by the event tag",
        "  attributes: ((e->present[0] & 0x06U) == 0x04U)",
        "  contents: nothing to test",
        "  type: CBell, by the event tag",
        "  attributes: ((e->present[0] & 0x06U) == 0x04U)",
        "  contents: nothing to test",
        "  residual: nothing",
        "  flash: about 12 bytes for these tests; RAM: none",
    ]
    assert compile(Subscription(Lonely), catalog).explain() == (
        "c: Lonely\n  no type of the catalog can match\n  residual: nothing"
    )


def test_a_subscription_to_a_kind_has_all_types_that_conform_and_an_exact_one_those_that_add_nothing(
    catalog: Catalog,
) -> None:
    assert {name: test.types for name, test in compile(Subscription(Roadside), catalog).tests.items()} == {
        "CSignal": ("CSignal",), "CBell": ("CBell",),
    }  # fmt: skip
    assert list(compile(Subscription(Roadside, exact=True), catalog).tests) == ["CBell"]


class Numbered(Event, Roadside, name="CNumbered"):
    """Its family has numbers as the source, which is a text elsewhere."""

    source: Maybe[UInt8] = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("source == 'a'", "false"),
        ("not source == 'a'", "false"),
        ("source != place", "false"),
        ("source < 'a'", "false"),
        ("not source startswith 'a'", "false"),
        ("length(source) > 1", "false"),
        ("coalesce(source, 'a') == 'b'", "false"),
        ("source is present", "false"),
        ("source is absent", "true"),
        ("coalesce(source, 'a') == 'a'", "true"),
        ("source == 'a' or time is absent", "((e->present[0] & 0x01U) == 0x00U)"),
    ],
)
def test_an_attribute_that_a_family_has_as_another_type_is_absent(where: str, code: str) -> None:
    catalog = Catalog()
    catalog.register(Numbered)
    made = compile(Subscription.parse(f"Roadside where {where}", [Roadside]), catalog)
    assert made.tests["CNumbered"].contents.code() == code
    for asked, presence in (
        (Subscription(Roadside, has="source"), "false"),
        (Subscription(Roadside, lacks="source"), "true"),
    ):
        assert compile(asked, catalog).tests["CNumbered"].attributes.code() == presence
    own = compile(Subscription(Numbered, where="source == 1"), catalog)
    assert own.tests["CNumbered"].contents.code() == "((e->present[0] & 0x02U) != 0U) && (e->source == 1U)"


class Longer(Enum):
    OFF = "off"
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Mast(Event, name="CMast"):
    lamp: Maybe[Lamp] = None
    other: Maybe[Lamp] = None


def test_choices_are_compared_by_value_where_their_lists_differ() -> None:
    """As one of two may have got more values in another program."""
    grown = Catalog()
    grown.register(Mast)
    metaclass: Any = type(Event)
    newer = {"__annotations__": {"lamp": Lamp | None, "other": Longer | None}, "__module__": __name__,
             "lamp": None, "other": None}  # fmt: skip
    program = Catalog.parse(grown.text())
    program.register(metaclass("Mast", (Event,), newer, name="CMast"))
    grown = Catalog.parse(program.text())
    code = {
        where: compile(Subscription.parse(f"CMast where {where}", [Mast]), grown).tests["CMast"].contents.code()
        for where in ("lamp == other", "lamp != other", "other == 'green'")
    }
    pairs = " || ".join(f"((e->lamp == {number}U) && (e->other == {number}U))" for number in range(3))
    both = "((e->present[0] & 0x60U) == 0x60U)"
    assert code["lamp == other"] == f"{both} && ({pairs})"
    assert code["lamp != other"] == f"{both} && !({pairs})"


def test_an_attribute_that_the_device_does_not_keep_cannot_be_tested(catalog: Catalog) -> None:
    vector = catalog.vector(Signal)
    for keep, kept in ((["level"], "level"), ([], "none")):
        with pytest.raises(SubscriptionError, match=rf"tests lane, which the device does not keep.*\(kept: {kept}\)"):
            compile(Subscription(Signal, where="lane == 1"), catalog, {"CSignal": EventLayout.of(vector, keep)})
    layout = EventLayout.of(vector, ["lane"])
    assert (layout.presence_bytes, EventLayout.of(vector).presence_bytes) == (1, 3)
    made = compile(Subscription(Signal, has="lane"), catalog, {"CSignal": layout})
    assert made.tests["CSignal"].attributes.code() == "((e->present[0] & 0x01U) != 0U)"


def test_conditions_that_exclude_each_other_are_never_true() -> None:
    assert all_of_these([present(3), present(3, wanted=False)]) == NEVER
    assert all_of_these([present(3), NEVER]) == NEVER
    assert all_of_these([]) == all_of_these([ALWAYS]) == ALWAYS
    assert any_of_these([NEVER, present(3), present(3)]) == present(3)
    assert any_of_these([]) == NEVER
    assert any_of_these([present(3), ALWAYS]) == ALWAYS
    assert (opposite(ALWAYS), opposite(NEVER)) == (NEVER, ALWAYS)
    both = all_of_these([present(9), present(1), present(8, wanted=False)])
    assert both.code() == "((e->present[0] & 0x02U) != 0U) && ((e->present[1] & 0x03U) == 0x02U)"


@pytest.mark.parametrize(
    ("text", "name"),
    [("a.b-c/d e", "a_b_c_d_e"), ("", "_"), ("9", "_9"), ("ß", "_u00df"), ("_x", "_x"), ("a#", "a_u0023")],
)
def test_an_identifier_has_letters_and_digits_of_ascii(text: str, name: str) -> None:
    assert identifier(text) == name


def test_words_of_c_and_names_in_capitals_get_an_underscore() -> None:
    assert [c_name(text) for text in ("int", "Int", "near", "PORT", "P_1", "Port")] == [
        "int_", "Int", "near_", "PORT_", "P_1_", "Port",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "name"),
    [("20 °C", "20_DEGREE_C"), ("a%", "A_PERCENT"), ("a&b", "A_AMPERSAND_B"), ("ä", "U00E4"), ("a\tb", "A_B"),
     ("+", "PLUS"), ("1 + 1", "1_PLUS_1"), ("a-1", "A_1"), ("a -1", "A_MINUS_1"), (-7, "MINUS_7"),
     ("..", "FULL_STOP_FULL_STOP")],
)  # fmt: skip
def test_a_constant_is_spelled_in_words(value: str | int, name: str) -> None:
    assert constant_name(value) == name
