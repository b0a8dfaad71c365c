"""Types travel over CoAP: a server tells the entries of its types, and events of types that nobody here has declared
arrive whole, as instances of classes made from the entries."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum
from random import Random
from typing import Annotated, Any

import aiocoap
import cbor2
import pytest

from genus import Bus, Event, Maybe, Subscription, Unit, this
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.errors import BusError
from genus.model import attributes, vector
from genus.model.types import BoolType, ChoiceType, FloatType, IntType, TextType
from genus.net._coap import shared_catalog
from tests.generators import declare
from tests.waiting import wait_for

from .coap_network import (
    CoapFastLoop,
    CoapLamp,
    Heard,
    Vehicle,
    client,
    free_port,
    link_of,
    server,
    sums,
)
from .test_coap_bad_input import GET, POST, URI_QUERY, raw_client, segment


class CoapProbe(Event):
    depth: int
    note: Maybe[str] = None


class Surface(Enum):
    SAND = "sand"
    ROCK = "rock"


class CoapProbeTemplate(CoapProbe):
    speed: Maybe[Annotated[float, Unit("km/h")]] = None
    surface: Maybe[Surface] = None
    level: Maybe[int] = None


def elsewhere(name: str, template: type[Event] = CoapProbeTemplate, **changes: str) -> Any:
    """The class of a type in another program, as a template with changes of types: no class here has its name."""
    catalog = Catalog()
    catalog.register(template)
    text = catalog.text().replace(template.__name__, name)
    for attribute, type_ in changes.items():
        text = re.sub(rf'("name": "{attribute}", "type": )"\w+"', rf'\1"{type_}"', text)
    return Catalog.parse(text).declare(name, generated=True)


def read_types(port: int, query: str = "") -> Any:
    """What any client of CoAP reads."""

    async def get() -> Any:
        context = await aiocoap.Context.create_client_context(transports=["udp6"])
        request = aiocoap.Message(code=aiocoap.GET, uri=f"coap://127.0.0.1:{port}/types?{query}".rstrip("?"))
        response = await context.request(request).response
        await context.shutdown()
        return response

    response = asyncio.run(get())
    assert response.opt.content_format == 60
    return cbor2.loads(response.payload)


# -- the resource ------------------------------------------------------------------------------------------------------


def test_a_server_tells_the_entries_of_its_types() -> None:
    with server() as (hub, port):
        for cls in (CoapFastLoop, CoapLamp):
            hub.channel(cls).announce()
        found = read_types(port)
        assert Catalog.parse(json.dumps(found)).text() == link_of(hub).hub.shared.catalog.text()  # type: ignore[union-attr]
        types = {each["name"]: each for each in found["types"]}
        assert types["CoapLoop"]["parents"] == ["Event", "CoapRoadside"]
        assert types["CoapLoop"]["attributes"] == {"lane": "required", "speed": "optional", "vehicle": "optional"}
        assert types["CoapRoadside"]["kind"]
        attributes = next(each["vector"] for each in found["families"] if each["name"] == "CoapLoop")
        assert [each["name"] for each in attributes][5:] == ["lane", "speed", "vehicle", "limit"]
        assert attributes[7]["type"] == {"enum": [each.value for each in Vehicle]}


@pytest.mark.parametrize("form", ["rt={name}", "is={path}"])
def test_one_type_is_told_with_all_above_it(form: str) -> None:
    with server() as (hub, port):
        for cls in (CoapFastLoop, CoapLamp):
            hub.channel(cls).announce()
        catalog = link_of(hub).hub.shared.catalog  # type: ignore[union-attr]
        query = form.format(name="CoapFastLoop", path=encode_path_segment(catalog.code(CoapFastLoop)))
        read = Catalog.parse(json.dumps(read_types(port, query)))
        assert set(read.types) == {"Event", "CoapRoadside", "CoapLoop", "CoapFastLoop"}
        assert all(read.code(name) == catalog.code(name) for name in read.types)
        assert list(read.vector("CoapFastLoop")) == list(catalog.vector(CoapFastLoop))


@pytest.mark.parametrize(
    ("query", "expected"), [(b"rt=Nobody", "4.04"), (b"is=zz", "4.04"), (b"is=AA", "4.04"), (b"of=Event", "4.00")]
)
def test_a_question_for_no_type_is_refused(query: bytes, expected: str) -> None:
    with server() as (_, port), raw_client(port) as raw:
        assert raw.ask(GET, [segment("types"), (URI_QUERY, query)])[0] == expected


BAD_DOCUMENTS: dict[str, Any] = {
    "a text": "no catalog",
    "no types": {"format": "genus catalog", "version": 1},
    "another version": {"format": "genus catalog", "version": 99, "types": [], "families": []},
    "bytes": {"format": b"genus catalog"},
    "a cycle": cbor2.CBORTag(28, [cbor2.CBORTag(29, 0)]),
    "a deep one": [[[[[[[[]]]]]]]],
}


@pytest.mark.parametrize("name", BAD_DOCUMENTS)
def test_what_is_no_document_of_a_catalog_is_refused(name: str) -> None:
    with server() as (hub, port), raw_client(port) as raw:
        before = link_of(hub).hub.shared.digest  # type: ignore[union-attr]
        assert raw.ask(POST, [segment("types")], cbor2.dumps(BAD_DOCUMENTS[name]))[0] == "4.09"
        assert link_of(hub).hub.shared.digest == before  # type: ignore[union-attr]
        assert sums(hub, "refused") == 1


def publish_all(bus: Bus, classes: list[type[Event]]) -> None:
    for cls in classes:
        bus.publish(cls(depth=1))  # type: ignore[call-arg]


def test_the_types_of_clients_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_catalog, "MAX_TYPES", 12)
    with server() as (hub, port), client(port) as one:
        for number in range(5):
            one.publish(declare(f"CoapMany{number}", Event, {})())
        many = [declare(f"CoapMany{number}", CoapProbe, {}) for number in range(5, 15)]
        with pytest.raises(BusError, match="more than 12 types"):
            publish_all(one, many)
        assert len(link_of(hub).hub.shared.catalog.types) <= 12  # type: ignore[union-attr]


# -- types that nobody here has declared -------------------------------------------------------------------------------


def rock_of(cls: type[Event]) -> Any:
    """The member of the other program's enumeration."""
    return next(each for each in vector(cls).find("surface").type.enum if each.value == "rock")  # type: ignore[union-attr]


def check_whole(event: Any, sent: Event) -> None:
    """An event arrived as an instance of a class that is derived from the class here, with all its values."""
    assert isinstance(event, CoapProbe)
    assert type(event) is not type(sent)
    assert not isinstance(sent, CoapProbe)
    for name in ("depth", "speed", "place"):
        assert getattr(event, name) == getattr(sent, name)
    assert event.surface.value == sent.surface.value  # type: ignore[attr-defined]
    assert vector(type(event)).find("speed").unit == "km/h"


@pytest.mark.parametrize("way", ["to the server", "to a client", "through the server"])
def test_an_event_of_an_unknown_subtype_arrives_whole_at_a_running_subscriber(way: str) -> None:
    """All attributes are there, and predicates on the known ones hold."""
    heard = Heard()
    with server() as (hub, port), client(port) as one, client(port) as other:
        sender = hub if way == "to a client" else one
        receiver = hub if way == "to the server" else other
        receiver.subscribe(Subscription(CoapProbe, where=this.depth > 1), heard)
        newer = elsewhere("CoapDeepProbe")
        for depth in (1, 2):
            sent = newer(depth=depth, speed=2.5, surface=rock_of(newer), place="A8")
            sender.publish(sent)
        wait_for(lambda: len(heard) == 1)
        check_whole(heard[0], sent)
        assert sums(receiver, "rejected", "not read") == 0


@pytest.mark.parametrize("who", ["the server", "a client"])
def test_two_declarations_that_contradict_each_other_are_refused_and_told_with_the_attribute(who: str) -> None:
    heard = Heard()
    with server() as (hub, port), client(port) as one, client(port) as two:
        (one if who == "the server" else hub).subscribe(Subscription(CoapProbe), heard)
        first = elsewhere("CoapOther")(depth=1, level=7)
        (hub if who == "the server" else one).publish(first)
        with pytest.raises(BusError, match=r"CoapOther.*level"):
            two.publish(elsewhere("CoapOther", level="str")(depth=2, level="much"))
        wait_for(lambda: len(heard) == 1)
        assert hub.traffic().link["refused: types that cannot be added to the catalog"] == 1
        assert "level" in link_of(hub).examples()["types that cannot be added to the catalog"].detail


# -- the law -----------------------------------------------------------------------------------------------------------

Specs = dict[str, tuple[str, dict[str, Any]]]
"""The types of a program: by name, the type above, and annotations of attributes."""


class Evolution:
    """Two declarations of a family, by a seed: the newer one has more attributes, more values of enumerations, and
    further types below."""

    def __init__(self, seed: int, root: str) -> None:
        self.random, self.root = Random(seed), root
        texts = ["car", "truck", "bus", "tram"]
        known = self.random.randint(1, 3)
        kinds = {"count": int, "real": float, "text": str, "flag": bool}
        shared = {name: kinds[name] | None for name in self.random.sample(list(kinds), self.random.randint(1, 3))}
        added = {f"added{place}": self.random.choice([*kinds.values()]) | None for place in range(2)}
        self.old: Specs = {root: ("Event", {"number": int, **shared, "sort": self._enum(texts[:known]) | None})}
        self.new: Specs = {root: ("Event", {**self.old[root][1], "sort": self._enum(texts) | None, **added})}
        if self.random.random() < 0.5:
            self.old[f"{root}Sub"] = self.new[f"{root}Sub"] = root, {"more": int | None}
        for place in range(self.random.randint(1, 3)):
            above = self.random.choice(list(self.new))
            self.new[f"{root}New{place}"] = above, {f"own{place}": str | None}
        self.shared = ["number", *shared]
        self.sorts = texts[:known]

    def _enum(self, texts: list[str]) -> Any:
        return Enum("Sort", {text.upper(): text for text in texts})

    def program(self, specs: Specs, *, is_here: bool) -> list[type[Event]]:
        """The classes of a program; only one of them is here, that of the other is known by its catalog alone."""
        ending = "" if is_here else "Template"
        made: dict[str, type[Event]] = {"Event": Event}
        for name, (above, fields) in specs.items():
            made[name] = declare(f"{name}{ending}", made[above], fields)
        if is_here:
            return list(made.values())[1:]
        catalog = Catalog()
        catalog.register(*list(made.values())[1:])
        other = Catalog.parse(catalog.text().replace(ending, ""))
        return [other.declare(name, generated=True) for name in specs]

    def event(self, classes: list[type[Event]], number: int) -> Any:
        """A random event of one of the classes of a program."""
        cls = self.random.choice(classes)
        values: dict[str, Any] = {}
        for each in attributes(cls):
            match each.type:
                case ChoiceType(enum=enum) if enum is not None:
                    values[each.name] = self.random.choice([None, *enum])
                case IntType() | FloatType() | TextType() | BoolType() if each.name not in ("source", "place"):
                    pool: dict[type, list[Any]] = {
                        IntType: [1, -5],
                        FloatType: [0.5, 2.0],
                        TextType: ["a", "é"],
                        BoolType: [True, False],
                    }
                    values[each.name] = self.random.choice([None, *pool[type(each.type)]])
        return cls(**{**values, "number": number})

    def check(self, sent: Any, came: Any) -> None:
        """An event arrived with everything that the two declarations share."""
        for name in self.shared:
            assert getattr(came, name) == getattr(sent, name)
        sort = None if sent.sort is None or sent.sort.value not in self.sorts else sent.sort.value
        assert (None if came.sort is None else came.sort.value) == sort


def check_evolution(seed: int, *, is_older_here: bool) -> None:
    made = Evolution(seed, f"CoapGrow{seed}{'Old' if is_older_here else 'New'}")
    here, there = (made.old, made.new) if is_older_here else (made.new, made.old)
    own, others = made.program(here, is_here=True), made.program(there, is_here=False)
    port, heard, sent = free_port(), Heard(), dict[int, Any]()
    with ExitStack() as stack:
        open_one: dict[str, Callable[[], Any]] = {
            "server": lambda: server(port=port),
            "subscriber": lambda: client(port),
            "publisher": lambda: client(port),
        }
        buses: dict[str, Any] = {}
        stacks: dict[str, ExitStack] = {name: stack.enter_context(ExitStack()) for name in open_one}

        def start(name: str) -> None:
            stacks[name].close()
            found = stacks[name].enter_context(open_one[name]())
            buses[name] = found[0] if name == "server" else found
            if name == "subscriber":
                buses[name].subscribe(Subscription(own[0]), heard)

        start("server")
        for name in made.random.sample(["subscriber", "publisher"], 2):
            start(name)
        for turn in range(3):
            ready = lambda: len(link_of(buses["server"]).interests()) == 1 and link_of(buses["publisher"]).is_connected  # noqa: E731
            wait_for(ready)
            for number in range(turn * 5, turn * 5 + 5):
                sent[number] = made.event(others, number)
                buses["publisher"].publish(sent[number])
            wait_for(lambda: [event.number for event in heard] == list(sent))
            if turn < 2:
                start(made.random.choice(list(open_one)))
    assert all(isinstance(event, own[0]) for event in heard)
    for event in heard:
        made.check(sent[event.number], event)


@pytest.mark.parametrize("is_older_here", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_old_and_new_programs_understand_each_other(seed: int, is_older_here: bool) -> None:
    check_evolution(seed, is_older_here=is_older_here)


@pytest.mark.slow
@pytest.mark.parametrize("is_older_here", [True, False])
@pytest.mark.parametrize("seed", range(2, 22))
def test_old_and_new_programs_understand_each_other_in_many_evolutions(seed: int, is_older_here: bool) -> None:
    check_evolution(seed, is_older_here=is_older_here)
