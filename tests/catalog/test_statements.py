"""Statements: a type as text, read by programs that do not have its class, and the classes they get from it."""

import itertools
import json
from enum import Enum
from typing import Annotated, Any

import pytest

from genus import Event, Kind, Maybe, Renamed, Unit
from genus.catalog import Catalog, _statement
from genus.catalog._statement import (
    MAX_LENGTH,
    StatedClasses,
    Statement,
    is_stand_in,
    known_above,
    read_statement,
    state_type,
)
from genus.errors import CatalogConflict, CatalogDamaged, DeclarationError
from genus.model import attributes, is_generated, name_of, parents, tagged_attributes

from .declaring import event_type, kind

_numbers = itertools.count()


class StatedWet(Kind): ...


class StatedHot(Kind): ...


class StatedProbe(Event, StatedWet, tagged=("place",)):
    value: Maybe[Annotated[float, Unit("km/h")]] = None
    count: Maybe[int] = None


def text_of(cls: type, **names: str) -> bytes:
    """The statement of a class by a program in which some types have other names."""
    text = state_type(cls)
    assert text is not None
    for here, there in names.items():
        text = text.replace(f'"{here}"'.encode(), f'"{there}"'.encode())
    return text


def stated(cls: type, **names: str) -> Statement:
    return read_statement(text_of(cls, **names))


def new_name() -> str:
    """A name that no type has; each time another, as generated classes stay in caches."""
    return f"StatedNew{next(_numbers)}"


def new_probe(fields: dict[str, Any], *kinds: type) -> Any:
    """A new class like `StatedProbe`, in a family of its own, with other attributes."""
    return event_type(new_name(), Event, *(kinds or (StatedWet,)), fields=fields, tagged=("place",))


OWN = {"value": Annotated[float, Unit("km/h")] | None, "count": int | None}


def names_and_types(cls: type) -> dict[str, str]:
    return {each.name: str(each.type.describe()) for each in attributes(cls)[5:]}


# -- the text ----------------------------------------------------------------------------------------------------------


def test_a_statement_says_what_a_type_and_all_above_it_have() -> None:
    far = event_type("StatedFar", StatedProbe, StatedHot, fields={"humidity": int})
    statement = stated(far)
    assert statement.name == "StatedFar"
    assert {*statement.table.types} == {"Event", "StatedWet", "StatedProbe", "StatedHot", "StatedFar"}
    assert statement.table.attributes_of("StatedFar")["humidity"] is True
    assert statement.table.attributes_of("StatedFar")["value"] is False
    assert statement.table.tagged == {"StatedProbe": ("place",)}


def test_units_and_other_names_must_be_known_to_understand_values() -> None:
    fields = {"b": Annotated[float, Unit("m/s")], "a": Annotated[int, Renamed("old", "older")], "c": int}
    statement = stated(event_type("StatedTerms", fields=fields))
    assert statement.units() == {"b": "m/s"}
    assert statement.terms() == [("a", None, ("old", "older")), ("b", "m/s", ())]
    assert stated(StatedWet).terms() == []
    assert stated(StatedWet).units() == {}


def test_a_statement_that_is_too_long_is_not_made() -> None:
    def length(size: int) -> int:
        text = state_type(event_type("StatedLong", fields={"x": Enum("X", {"ONE": "x" * size})}))
        return 0 if text is None else len(text)

    room = MAX_LENGTH - length(1)
    assert length(room + 1) == MAX_LENGTH
    assert length(room + 2) == 0


def test_what_no_catalog_can_have_is_not_stated() -> None:
    """Two types above it have one name, or one above it has its own."""
    one, other = kind("StatedTwin", StatedHot), kind("StatedTwin", StatedWet)
    assert state_type(event_type("StatedBoth", Event, one)) is not None
    assert state_type(event_type("StatedBoth", Event, one, other)) is None
    assert state_type(event_type("StatedTwin", Event, one)) is None
    assert state_type(event_type("StatedProbe", StatedProbe)) is None


def edited(**changes: Any) -> bytes:
    """The statement of `StatedProbe` with some keys replaced; of lists, what is added to them."""
    data = json.loads(text_of(StatedProbe))
    for key, value in changes.items():
        data[key] = data[key] + value if isinstance(value, list) and value else value
    return json.dumps(data).encode()


KIND = {"name": "StatedOther", "parents": [], "kind": True}
CAMERA = {"name": "StatedCamera", "parents": ["Event"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff", "a statement that cannot be read: "),
        (b"{", "a statement that cannot be read: line 1 column 2: not JSON"),
        (Catalog().text().encode(), "a statement that cannot be read: format: Invalid enum value 'genus catalog'"),
        (edited(types=[], families=[]), "a statement without a type"),
        (edited(types=[KIND | {"code": "7"}]), r"types\[3\]: has numbers, which only a catalog gives"),
        (edited(types=[CAMERA | {"etags": [[8192, 8192]]}]), r"types\[3\]: has numbers, which only a catalog gives"),
        (edited(types=[KIND]), "a statement of StatedOther with types that are not above it"),
        (
            edited(types=[CAMERA], families=[{"name": "StatedCamera", "vector": []}]),
            r"types\[3\]\.attributes: 'time' is not in the vector of family 'StatedCamera'",
        ),
    ],
)
def test_a_text_that_states_no_type_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(CatalogDamaged, match=message):
        read_statement(text)


def test_a_statement_has_nothing_beside_the_line_of_its_type() -> None:
    """Neither types nor vectors of other families."""
    data = json.loads(text_of(StatedProbe))
    event, wet, probe = data["types"]
    beside = {"name": "StatedBeside", "parents": ["Event"], "attributes": {}}
    vectors = [*data["families"], data["families"][0] | {"name": "StatedBeside"}]
    for types in ([event, wet, beside, probe], [event, wet, probe, beside]):
        text = json.dumps(data | {"types": types, "families": vectors}).encode()
        with pytest.raises(CatalogDamaged, match="with types that are not above it"):
            read_statement(text)


def test_a_statement_is_read_up_to_its_greatest_length() -> None:
    text = text_of(StatedProbe)
    assert read_statement(text.ljust(MAX_LENGTH)).name == "StatedProbe"
    with pytest.raises(CatalogDamaged, match="a statement of 65,537 bytes; at most 65,536 are read"):
        read_statement(text.ljust(MAX_LENGTH + 1))


def test_a_statement_is_no_catalog() -> None:
    with pytest.raises(CatalogDamaged, match="format: Invalid enum value 'genus type'"):
        Catalog._parse("memory", text_of(StatedProbe).decode())
    types = Catalog().text().replace('"code": "2", ', "")
    with pytest.raises(CatalogDamaged, match=r"types\[0\]: Object missing required field `code`"):
        Catalog._parse("memory", types)


# -- classes -----------------------------------------------------------------------------------------------------------


def test_a_type_of_the_program_has_its_own_class() -> None:
    classes = StatedClasses()
    assert classes.take(stated(StatedProbe)) is StatedProbe
    assert classes.take(stated(StatedWet)) is StatedWet
    assert classes.take(stated(Event)) is Event
    assert classes.named() == {}


def test_a_type_that_the_program_does_not_have_is_generated_below_its_classes() -> None:
    """Once: the same statement gives the same class, also to another reader."""
    far = event_type("StatedFar", StatedProbe, kind("StatedNear", StatedHot), fields={"humidity": int})
    name, near = new_name(), new_name()
    statement = stated(far, StatedFar=name, StatedNear=near)
    classes, others = StatedClasses(), StatedClasses()
    made: Any = classes.take(statement)
    assert name_of(made) == name
    assert is_generated(made)
    assert issubclass(made, StatedProbe)
    assert [name_of(each) for each in parents(made)] == ["StatedProbe", near]
    assert parents(parents(made)[1]) == (StatedHot,)
    assert names_and_types(made) == {"value": "float64", "count": "int64", "humidity": "int64"}
    assert made(humidity=3, value=2.0).humidity == 3
    assert classes.take(statement) is others.take(statement) is made
    assert classes.named() == others.named() == {name: made, near: parents(made)[1]}


def test_of_several_statements_of_a_type_the_class_has_the_attributes_of_all() -> None:
    """Also if one that was stated earlier is not in a later one; the class is another only if there is a new one."""
    name, classes, probe = new_name(), StatedClasses(), new_probe(OWN)
    small, large, other = (
        stated(event_type("StatedGrown", probe, fields=fields), StatedGrown=name)
        for fields in ({"x": int | None}, {"x": int | None, "y": str | None}, {"z": bool | None})
    )
    first = classes.take(small)
    second = classes.take(large)
    assert names_and_types(first).keys() == {"value", "count", "x"}
    assert names_and_types(second).keys() == {"value", "count", "x", "y"}
    assert classes.take(small) is second
    third = classes.take(other)
    assert names_and_types(third).keys() == {"value", "count", "x", "y", "z"}
    assert classes.named() == {name: third}


def test_what_types_above_were_stated_to_have_is_in_the_class() -> None:
    """The program has an older class above it: the one below has what only the statement knows."""
    older, newer = new_probe(OWN), new_probe({"value": OWN["value"], "battery": int | None})
    cls = event_type("StatedBelow", newer, fields={"own": str | None})
    made = StatedClasses().take(stated(cls, **{newer.__name__: older.__name__, "StatedBelow": new_name()}))
    assert issubclass(made, older)
    assert names_and_types(made) == {"value": "float64", "count": "int64", "battery": "int64", "own": "str"}
    assert "battery" not in names_and_types(older)


def test_other_widths_and_units_that_can_be_converted_are_no_contradiction() -> None:
    """Below a class of the program, the attribute is as the program has it."""
    fields = {"value": Annotated[float, Unit("m/s")] | None, "count": float | None}
    newer = new_probe(fields)
    names = {newer.__name__: "StatedProbe", "StatedBelow": new_name()}
    statement = stated(event_type("StatedBelow", newer), **names)
    assert statement.units() == {"value": "m/s"}
    made = StatedClasses().take(statement)
    assert {each.name: each.unit for each in attributes(made)[5:]} == {"value": "km/h", "count": None}
    assert names_and_types(made)["count"] == "int64"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"value": str | None}, r"StatedProbe\.value is float64, but str"),
        ({"value": Annotated[float, Unit("kg")] | None}, r"StatedProbe\.value is in km/h, but in kg"),
        ({"value": float, "count": int}, r"StatedProbe\.value "),
    ],
)
def test_a_statement_that_contradicts_a_class_of_the_program_is_refused(fields: dict[str, Any], message: str) -> None:
    newer, classes = new_probe(fields), StatedClasses()
    statement = stated(newer, **{newer.__name__: "StatedProbe"})
    with pytest.raises(CatalogConflict, match=message):
        classes.take(statement)
    assert classes.named() == {}


def test_a_statement_that_contradicts_an_earlier_one_is_refused() -> None:
    """In the type of an attribute, in the parents, or in the family."""
    name, classes, probe, other = new_name(), StatedClasses(), new_probe(OWN), new_probe(OWN)
    first = event_type("StatedFirst", probe, fields={"x": int | None})
    made = classes.take(stated(first, StatedFirst=name))
    others = {
        rf"{name}\.x is int64, but str": event_type("StatedFirst", other, fields={"x": str | None}),
        "derives from": event_type("StatedFirst", probe, StatedHot, fields={"x": int | None}),
        "is of family": event_type("StatedFirst", StatedProbe, fields={"x": int | None}),
    }
    for message, cls in others.items():
        with pytest.raises(CatalogConflict, match=message):
            classes.take(stated(cls, **{"StatedFirst": name, other.__name__: probe.__name__}))
    assert classes.named() == {name: made}


def test_of_several_classes_of_the_program_the_latest_that_agrees_is_given() -> None:
    """That there are several is an error of the program elsewhere: events are still read."""
    name = new_name()
    first, second, third = (event_type(name, fields={"x": note}) for note in (int, int, str))
    assert StatedClasses().take(stated(second)) is second
    assert StatedClasses().take(stated(third)) is third
    with pytest.raises(CatalogConflict, match=rf"{name}\.x is str, but bool"):
        StatedClasses().take(stated(event_type("StatedBool", fields={"x": bool}), StatedBool=name))
    assert first is not second


def test_of_several_classes_of_the_program_the_one_below_the_class_of_the_type_above_is_given() -> None:
    above, below = new_name(), new_name()
    first, latest = event_type(above), event_type(above)
    near, far = event_type(below, latest), event_type(below, first)
    classes = StatedClasses()
    assert classes.take(stated(far)) is near
    assert classes.take(stated(first)) is latest


def test_a_class_that_the_program_declares_later_is_not_named() -> None:
    name, classes = new_name(), StatedClasses()
    made = classes.take(stated(event_type("StatedLater"), StatedLater=name))
    assert classes.named() == {name: made}
    written = event_type(name)
    assert classes.named() == {}
    assert classes.take(stated(written)) is written


def test_a_reader_generates_so_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_statement, "MAX_CLASSES", 2)
    classes = StatedClasses()
    statements = [stated(event_type("StatedLater"), StatedLater=new_name()) for _ in range(3)]
    made = [classes.take(each) for each in statements[:2]]
    with pytest.raises(DeclarationError, match="more than 2 types were stated"):
        classes.take(statements[2])
    assert [classes.take(each) for each in statements[:2]] == made


def test_statements_add_so_many_attributes_to_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_statement, "MAX_ATTRIBUTES", 9)  # with the seven of the class above
    for count in (2, 3):
        fields = {f"x{number}": int | None for number in range(count)}
        older, newer = new_probe(OWN), new_probe(OWN)
        names = {newer.__name__: older.__name__, "StatedWide": new_name()}
        statement = stated(event_type("StatedWide", newer, fields=fields), **names)
        if count == 2:
            assert len(attributes(StatedClasses().take(statement))) == 9
        else:
            with pytest.raises(DeclarationError, match="more than 9 attributes were stated of its family"):
                StatedClasses().take(statement)


# -- types without a statement -----------------------------------------------------------------------------------------


def test_of_a_type_without_a_statement_a_class_stands_in_below_the_nearest_that_is_known() -> None:
    classes, names = StatedClasses(), [new_name(), new_name()]
    made = classes.stand_in(["StatedProbe", *names], 1)
    assert made is not None
    assert [name_of(each) for each in made.__mro__[:3]] == [names[1], names[0], "StatedProbe"]
    assert is_stand_in(made)
    assert not is_stand_in(StatedProbe)
    assert known_above(made) == known_above(StatedProbe) == "StatedProbe"
    assert tagged_attributes(made) == ("place",)
    assert state_type(made) is None
    assert classes.named() == {}
    assert classes.take(stated(event_type("StatedLater", StatedProbe), StatedLater=names[0])) not in made.__mro__


def test_a_class_stands_in_below_one_that_was_stated() -> None:
    classes, name = StatedClasses(), new_name()
    above = classes.take(stated(event_type("StatedLater", StatedProbe), StatedLater=name))
    made = classes.stand_in(["StatedProbe", name, new_name()], 1)
    assert made is not None
    assert issubclass(made, above)
    assert known_above(made) == name


@pytest.mark.parametrize(("family", "tagged", "above"), [("StatedProbe", 1, "StatedProbe"), ("", 0, "Event")])
def test_a_class_stands_in_only_where_the_tagged_attributes_are_as_many(family: str, tagged: int, above: str) -> None:
    """Those of a family that is not known are not known either, unless there are none."""
    line = [family or new_name(), new_name()]
    made = StatedClasses().stand_in(line, tagged)
    assert made is not None
    assert known_above(made) == above
    for other in {0, 1, 2} - {tagged}:
        assert StatedClasses().stand_in([line[0], new_name()], other) is None


def test_a_type_of_the_name_at_another_place_is_not_the_nearest() -> None:
    """`StatedProbe` is known, but not as a type below another family."""
    made = StatedClasses().stand_in([new_name(), "StatedProbe", new_name()], 0)
    assert made is not None
    assert not issubclass(made, StatedProbe)
    assert known_above(made) == "Event"
    assert StatedClasses().stand_in([new_name(), "StatedProbe", new_name()], 1) is None


def test_a_reader_has_so_many_classes_without_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_statement, "MAX_STAND_INS", 2)
    classes = StatedClasses()
    assert classes.stand_in([new_name()], 0) is not None
    assert classes.stand_in([new_name()], 0) is not None
    assert classes.stand_in([new_name()], 0) is None
