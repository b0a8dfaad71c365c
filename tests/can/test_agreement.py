"""Nodes with different catalogs: grown ones understand each other, contradicting ones are refused and told."""

from collections.abc import Iterable
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Float32, Int16, Maybe, Soft, Subscription, UInt8, UInt32, Unit, open_bus
from genus.can._node.channels import Announcement
from genus.can._node.node import Node
from genus.can._node.problems import BindingFailed, DeliveryProblem, NodeIdLost, WrongCatalog
from genus.can._protocol.broker import Broker
from genus.can._protocol.broker_tables import EtagSource, FileEtags, MemoryStore
from genus.can._protocol.messages import (
    Claim,
    Objection,
    ObjectionReason,
    Question,
    QuestionKind,
    Signature,
    parse_message,
)
from genus.can._protocol.notices import ChannelConflict
from genus.can._protocol.signatures import Layout, conflict_between
from genus.can._sim.bus import SimBus
from genus.can._sim.controller import Controller
from genus.can._sim.simulation import Host
from genus.can._wire.frame import Frame, Timing
from genus.can._world.world import World
from genus.errors import BusError
from genus.model import attributes, name_of
from tests.examples import examples

MS = 1_000_000


def catalog_of(*types: type) -> Catalog:
    """A catalog that was given types one by one, with their event tags; so it is older than one of more types."""
    made = Catalog()
    for each in types:
        made.register(each)
        made.give_etags(each)
    return made


def maybe(kind: Any) -> Any:
    """The annotation of an attribute that may be absent, where it is not in a class."""
    return Maybe[kind]  # type: ignore[misc]


def make_type(name: str, fields: dict[str, Any], base: type = Event) -> type[Event]:
    """An event type as another program declares it: the same name, maybe other attributes."""
    optional = {field: None for field, kind in fields.items() if type(None) in get_args(kind)}
    namespace = {"__annotations__": fields, "__module__": __name__, "__qualname__": name, **optional}
    return type(base)(name, (base,), namespace)


class Bench:
    """A simulated bus on which every node has a catalog of its own."""

    def __init__(self) -> None:
        self.bus = SimBus(Timing(1_000_000))
        self._hosts = 0

    def node(
        self,
        catalog: Catalog,
        number: int | None = None,
        *,
        asks_broker: bool = False,
        etags: EtagSource | None = None,
    ) -> "Seat":
        self._hosts += 1
        seat = Seat(self)
        seat.node = Node(
            1000 + self._hosts, timing=Timing(1_000_000), catalog=catalog, synchronised=False, on_event=seat.take,
            number=None if asks_broker else number or self._hosts, etags=etags,
        )  # fmt: skip
        seat.host = self.host(seat.node)
        seat.host.call(seat.node.start)
        return seat

    def broker(self, catalog: Catalog) -> tuple[Broker, list[object]]:
        notices: list[object] = []
        broker = Broker(1, catalog, MemoryStore(), notify=notices.append)
        self.host(broker)
        return broker, notices

    def host(self, machine: Node | Broker) -> Host:
        return Host(machine, self.bus.attach(Controller(100 + self.bus.now % 7 + self._hosts)), self.bus)

    def run(self, milliseconds: float) -> None:
        self.bus.run(self.bus.now + round(milliseconds * MS))


class Seat:
    """A program on a node: the events and troubles it got."""

    node: Node
    host: Host
    announcement: Announcement

    def __init__(self, bench: Bench) -> None:
        self.events: list[Event] = []
        self.told: list[DeliveryProblem] = []
        self._bench = bench

    def announce(self, cls: type[Event]) -> None:
        qos = Soft(deadline="20ms")
        self.announcement = self.host.call(lambda now: self.node.announce(cls, qos, now, on_problem=self.told.append))
        self._bench.run(2)

    def publish(self, *events: Event) -> None:
        for event in events:
            self.host.call(partial(self.node.publish, event))
            self._bench.run(1)

    def subscribe(self, cls: type) -> None:
        self.host.call(lambda now: self.node.subscribe(Subscription(cls), now, on_problem=self.told.append))

    def take(self, event: Event) -> None:
        self.events.append(event)

    def reasons(self, kind: type[BindingFailed] | type[WrongCatalog]) -> list[str]:
        return [
            each.reason for each in self.told if isinstance(each, BindingFailed | WrongCatalog) and type(each) is kind
        ]


def values_of(event: Event) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(event).items() if value is not None}


class Loop(Event):
    lane: UInt8
    speed: Maybe[UInt8] = None


class Radar(Event):
    angle: UInt8


class Gate(Event):
    open: UInt8


# -- catalogs that contradict each other -------------------------------------------------------------------------------


def test_a_new_publisher_is_refused_if_a_reader_has_the_event_tag_for_another_type() -> None:
    """Two programs registered their types in another order: the same event tag is a Loop here and a Radar there."""
    bench = Bench()
    reader = bench.node(catalog_of(Radar))
    publisher = bench.node(catalog_of(Loop))
    reader.subscribe(Radar)
    publisher.announce(Loop)
    bench.run(5)
    assert publisher.announcement.state == "refused"
    (reason,) = publisher.reasons(BindingFailed)
    assert "node 1 has another catalog: event tag 8208 is another type there, and Loop here" in reason
    assert "use the same catalog file" in reason
    with pytest.raises(BusError, match="Loop cannot be published: node 1 has another catalog"):
        publisher.publish(Loop(lane=1))
    (told,) = reader.reasons(WrongCatalog)
    assert "event tag 8208 is another type there, and Radar here" in told
    assert reader.events == []


def test_a_publisher_that_was_there_before_is_told_and_goes_on_for_those_who_agree() -> None:
    bench = Bench()
    publisher, friend = bench.node(catalog_of(Loop, Radar)), bench.node(catalog_of(Loop, Radar))
    friend.subscribe(Loop)
    publisher.announce(Loop)
    bench.run(1500)
    stranger = bench.node(catalog_of(Radar, Loop))
    stranger.subscribe(Radar)
    bench.run(20)
    publisher.publish(Loop(lane=1), Loop(lane=2))
    assert publisher.announcement.state == "ready"
    assert friend.events == [Loop(lane=1), Loop(lane=2)]
    assert stranger.events == []
    (reason,) = publisher.reasons(WrongCatalog)
    assert "node 3 has another catalog: event tag 8208 is Radar there, and Loop here" in reason
    (told,) = stranger.reasons(WrongCatalog)
    assert "event tag 8208 is Loop there, and Radar here" in told
    assert stranger.node.counts().dropped["Radar of a node with another catalog"] == 2


def test_a_subscriber_of_a_type_with_another_event_tag_is_told_that_nothing_will_come() -> None:
    bench = Bench()
    publisher, reader = bench.node(catalog_of(Loop)), bench.node(catalog_of(Radar, Loop))
    reader.subscribe(Loop)
    publisher.announce(Loop)
    bench.run(10)
    assert any("event tag 8208 is Loop there, and Radar here" in reason for reason in reader.reasons(WrongCatalog))
    assert publisher.announcement.state == "refused"


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Swapped(Enum):
    GREEN = "green"
    RED = "red"


class More(Enum):
    RED = "red"
    GREEN = "green"
    BLUE = "blue"


LAMP = {"number": UInt8, "colour": maybe(Colour)}


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"number": UInt32, "colour": maybe(Colour)}, "number: uint32 (required) there, and number: uint8"),
        ({"colour": maybe(Colour), "number": UInt8}, "colour: red|green there, and number"),
        ({"number": UInt8, "colour": Colour}, "(required) there"),
        ({"number": maybe(UInt8), "colour": maybe(Colour)}, "number: uint8 there, and number: uint8 (required) here"),
        ({"number": UInt8, "colour": maybe(Swapped)}, "green|red there, and colour: red|green here"),
        ({"number": UInt8, "colour": maybe(Colour), "volts": Float32}, "volts: float32 (required) there, and missing"),
        ({"number": UInt8}, None),
        ({"number": UInt8, "colour": maybe(More)}, None),
        ({"number": UInt8, "colour": maybe(Colour), "volts": maybe(Float32)}, None),
    ],
)
def test_the_same_type_with_another_layout_is_a_conflict_unless_it_has_grown(
    other: dict[str, Any], difference: str | None
) -> None:
    """Name and event tag are the same; only the layout differs, which the reader asks the publisher for."""
    here, there = make_type("Lamp", LAMP), make_type("Lamp", other)
    bench = Bench()
    reader, publisher = bench.node(catalog_of(here)), bench.node(catalog_of(there))
    reader.subscribe(here)
    publisher.announce(there)
    bench.run(50)
    reasons = reader.reasons(WrongCatalog)
    if difference is not None:
        (reason,) = reasons
        assert difference in reason
        assert publisher.announcement.state == "refused"
        assert "Lamp has other attributes there" in publisher.reasons(BindingFailed)[0]
    else:
        assert reasons == []
        assert publisher.told == []
        sent = there(number=7)  # type: ignore[call-arg]
        publisher.publish(sent)
        assert [values_of(event) for event in reader.events] == [{"number": 7}]


def test_another_unit_is_a_conflict() -> None:
    slow, fast = (make_type("Wind", {"speed": Annotated[Float32, Unit(unit)]}) for unit in ("m/s", "km/h"))
    found = conflict_between(catalog_of(slow), catalog_of(fast), "Wind")
    assert found is not None
    assert "speed: float32 in km/h (required) there, and speed: float32 in m/s" in found


def test_of_two_publishers_with_different_catalogs_the_later_one_is_refused() -> None:
    bench = Bench()
    first, second = bench.node(catalog_of(Loop)), bench.node(catalog_of(Radar))
    first.announce(Loop)
    bench.run(1500)
    second.announce(Radar)
    bench.run(5)
    assert (first.announcement.state, second.announcement.state) == ("ready", "refused")
    assert first.reasons(WrongCatalog)
    assert second.reasons(BindingFailed)


def test_a_new_subscription_is_told_of_a_conflict_that_is_known() -> None:
    bench = Bench()
    publisher, reader = bench.node(catalog_of(Loop)), bench.node(catalog_of(Radar))
    publisher.announce(Loop)
    bench.run(10)
    reader.subscribe(Radar)
    bench.run(10)
    reader.subscribe(Radar)
    bench.run(10)
    assert len(reader.reasons(WrongCatalog)) == 2


# -- catalogs of one system --------------------------------------------------------------------------------------------


def test_older_and_newer_catalogs_of_one_system_understand_each_other(tmp_path: Any) -> None:
    """A catalog that only grew is no conflict, whoever has the newer one."""
    old, new = catalog_of(Loop), catalog_of(Loop)
    new.register(make_type("Ramp", {"slope": maybe(Int16)}, Loop), Gate)
    new.give_etags("Ramp", Gate)
    assert new.extends(old)
    for publishing, reading in ((old, new), (new, old)):
        bench = Bench()
        publisher, reader = bench.node(publishing), bench.node(reading)
        reader.subscribe(Loop)
        publisher.announce(Loop)
        bench.run(50)
        publisher.publish(Loop(lane=3, speed=80))
        assert reader.events == [Loop(lane=3, speed=80)]
        assert reader.told == publisher.told == []


def test_a_type_that_the_reader_does_not_know_is_no_conflict() -> None:
    bench = Bench()
    reader, publisher = bench.node(catalog_of(Loop)), bench.node(catalog_of(Loop, Gate))
    reader.subscribe(Event)
    publisher.announce(Gate)
    bench.run(50)
    publisher.publish(Gate(open=1))
    assert reader.told == publisher.told == []
    assert reader.node.counts().dropped["unknown event tag"] == 1


def test_nodes_that_share_a_catalog_file_ask_for_no_layout(tmp_path: Path) -> None:
    """The publisher gives the event tag in the file; the reader takes it over when it hears the signature."""
    path = tmp_path / "city.json"
    Catalog.update(path, Loop)
    bench = Bench()
    reader, publisher = (bench.node(Catalog.load(path), etags=FileEtags(path)) for _ in range(2))
    heard: list[Frame] = []
    bench.bus.attach(Controller(90)).connect(receive=lambda frame, now: heard.append(frame))
    reader.subscribe(Event)
    publisher.announce(Loop)
    publisher.publish(Loop(lane=1))
    assert list(map(repr, reader.events)) == ["Loop(lane=1)"], "of a class that the catalog may have declared"
    messages = [parse_message(frame) for frame in heard]
    assert Signature in map(type, messages)
    assert Objection not in map(type, messages)
    assert not any(isinstance(each, Question) and each.kind is QuestionKind.LAYOUT for each in messages)


# -- with a broker -----------------------------------------------------------------------------------------------------


def test_the_broker_decides_who_is_wrong() -> None:
    """A wrong reader does not stop a publisher that the broker agrees with; a wrong publisher has to stop at once."""
    bench = Bench()
    right = catalog_of(Loop, Radar)
    _, notices = bench.broker(right)
    bench.run(1000)
    stranger, publisher, wrong = bench.node(catalog_of(Radar, Loop)), bench.node(right), bench.node(catalog_of(Gate))
    stranger.subscribe(Radar)
    bench.run(1500)
    publisher.announce(Loop)
    wrong.announce(Gate)
    bench.run(50)
    assert publisher.announcement.state == "ready"
    assert publisher.reasons(WrongCatalog)
    assert wrong.announcement.state == "refused"
    assert "the broker has another catalog: event tag 8208 is Loop there, and Gate here" not in wrong.reasons(
        BindingFailed
    )
    assert any("the broker has another catalog" in reason for reason in wrong.reasons(BindingFailed))
    (conflict,) = [each for each in notices if isinstance(each, ChannelConflict)]
    assert (conflict.node, conflict.etag) == (3, 8208)
    assert "event tag 8208 is another type there, and Loop here; use the same catalog file" in conflict.reason


def test_a_node_that_asks_a_broker_with_another_catalog_is_refused_what_differs() -> None:
    bench = Bench()
    bench.broker(catalog_of(Loop, Radar))
    wrong = bench.node(catalog_of(Radar, Loop), asks_broker=True)
    wrong.subscribe(Radar)
    wrong.announce(Loop)
    bench.run(2000)
    assert wrong.announcement.state == "refused"
    reasons = wrong.reasons(BindingFailed)
    assert any("Loop has event tag" in reason for reason in reasons)
    assert any("Radar has event tag" in reason for reason in reasons)


# -- as programs see it ------------------------------------------------------------------------------------------------


def test_programs_with_wrong_catalog_files_in_a_world(tmp_path: Path) -> None:
    """A program whose catalog file contradicts the others' cannot publish, and is told why."""
    catalog_of(Loop, Radar).save(tmp_path / "right.json")
    catalog_of(Radar, Loop).save(tmp_path / "wrong.json")
    with World("town", catalog=tmp_path / "right.json"):
        logger = open_bus("sim:town?name=logger")
        sensor = open_bus(f"sim:town?name=sensor&catalog={tmp_path / 'wrong.json'}")
        told: list[DeliveryProblem] = []
        inbox = logger.collection(Radar).inbox(on_problem=told.append)
        with pytest.raises(BusError, match=r"Loop cannot be announced: node 1 has another catalog: .* is Radar there"):
            sensor.channel(Loop, "soft:20ms").announce()
        assert [type(each) for each in told] == [WrongCatalog]
        with pytest.raises(TimeoutError):
            inbox.get(timeout=1)


def test_without_a_trouble_handler_a_conflict_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog_of(Radar).save(tmp_path / "wrong.json")
    with World("town", catalog=catalog_of(Loop)) as world:
        open_bus("sim:town?name=sensor").channel(Loop).announce()
        world.run("2s")
        open_bus(f"sim:town?name=logger&catalog={tmp_path / 'wrong.json'}").collection(Radar).inbox()
        world.run("1.5s")
    assert "Loop: node 2 has another catalog" in caplog.text
    assert "Radar: event tag 8208 is another type there, and Radar here" in caplog.text


def test_a_node_without_a_broker_that_lost_its_number_says_so() -> None:
    bench = Bench()
    catalog = catalog_of(Loop)
    first, second = bench.node(catalog, 5), bench.node(catalog, 6)
    first.announce(Loop)
    bench.run(20)
    second.host.call(lambda now: first.node.receive(Claim(5, 7).frame(), now))
    first.host.call(lambda now: None)
    with pytest.raises(BusError, match=r"lost its number 5 to the node with uid 0{15}7, and no broker has given it an"):
        first.publish(Loop(lane=1))
    assert [type(each) for each in first.told] == [NodeIdLost]
    assert "give each node a number of its own, or start a broker" in first.node.why_without_number


# -- messages ----------------------------------------------------------------------------------------------------------


def test_an_older_node_that_signs_nothing_is_understood_after_three_questions() -> None:
    """Frames of a node that was made before there were signatures: its questions stay without an answer."""
    bench = Bench()
    catalog = catalog_of(Loop)
    reader = bench.node(catalog)
    reader.subscribe(Loop)
    bench.run(5)

    def hear(frame: Frame) -> None:
        reader.host.call(lambda now: reader.node.receive(frame, now))
        bench.run(120)

    etag = catalog.etag(Loop)
    hear(Frame(0x1F600007 | 9 << 14, etag.to_bytes(2, "big") + bytes(6)))
    for sequence in range(6):
        hear(Frame(1 << 21 | 9 << 14 | etag, bytes((sequence << 5, 4))))
    assert 0 < len(reader.events) < 6
    assert reader.events[-1] == Loop(lane=4)
    assert reader.told == []


@given(
    st.builds(Signature, st.integers(1, 126), st.integers(0, 0x3FFF), *[st.integers(0, 2**24 - 1)] * 2)
    | st.builds(
        Objection, st.integers(1, 127), st.integers(0, 127), st.integers(0, 0x3FFF), st.sampled_from(ObjectionReason),
        st.integers(0, 2**32 - 1),
    )
    | st.builds(
        Question, st.integers(1, 127), st.integers(0, 255),
        st.sampled_from([QuestionKind.SIGNATURE, QuestionKind.LAYOUT]), st.integers(0, 2**48 - 1),
    )
)  # fmt: skip
def test_messages_are_parsed_as_they_were_packed(message: Signature | Objection | Question) -> None:
    assert parse_message(message.frame()) == message


@given(st.binary(max_size=80))
def test_bytes_that_are_no_layout_are_none(data: bytes) -> None:
    assert Layout.parse(data) is None or isinstance(Layout.parse(data), Layout)


# -- the law -----------------------------------------------------------------------------------------------------------

KINDS: list[Any] = [UInt8, Int16, Float32, maybe(UInt8), maybe(Int16), maybe(Colour), maybe(Swapped), maybe(More)]
FIELDS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(KINDS), max_size=3)
TYPES = st.dictionaries(st.sampled_from(["Ant", "Bee", "Cat"]), FIELDS, min_size=1)


@st.composite
def programs(draw: st.DrawFn) -> list[dict[str, type[Event]]]:
    """The types of two programs, by name and in the order of registration: the second's may be those of the first."""
    first = draw(TYPES)
    second = draw(st.just(first) | TYPES | TYPES.map(lambda more: {**first, **more}))
    return [{name: make_type(name, fields) for name, fields in each.items()} for each in (first, second)]


def sample_event(cls: type[Event], draw: Any) -> Event:
    given = {}
    for attribute in attributes(cls):
        if attribute.name in Event.__struct_fields__ or (attribute.optional and draw(st.booleans())):
            continue
        values = getattr(attribute.type, "enum", None)
        given[attribute.name] = draw(st.sampled_from(list(values))) if values is not None else draw(st.integers(0, 100))
    return cls(**given)


def plain(event: Event, names: Iterable[str]) -> tuple[str, dict[str, Any]]:
    shown = {name: value.value if isinstance(value, Enum) else value for name, value in values_of(event).items()}
    return name_of(type(event)), {name: value for name, value in shown.items() if name in names}


def check_law(draw: Any) -> None:
    """Every delivered event is as it was published, as far as the reader knows its attributes, or both are told."""
    made = draw(programs())
    bench = Bench()
    publisher, reader = (bench.node(catalog_of(*types.values())) for types in made)
    if draw(st.booleans()):
        bench.run(1500)
    sent_type = made[0][draw(st.sampled_from(sorted(made[0])))]
    reader.subscribe(draw(st.sampled_from([Event, *made[1].values()])))
    publisher.announce(sent_type)
    bench.run(draw(st.sampled_from([0, 30, 1500])))
    sent = []
    for _ in range(3):
        event = sample_event(sent_type, draw)
        try:
            publisher.publish(event)
        except BusError:
            break
        sent.append(event)
    bench.run(30)
    known = {attribute.name for event in reader.events for attribute in attributes(type(event))}
    wanted = [plain(event, known) for event in sent]
    assert all(plain(event, known) in wanted for event in reader.events)
    assert bool(reader.reasons(WrongCatalog)) == bool(
        publisher.reasons(WrongCatalog) + publisher.reasons(BindingFailed)
    )
    if not reader.told and reader.events:
        assert len(reader.events) == len(sent)


@examples(150)
@given(st.data())
def test_every_delivered_event_is_as_published_or_both_sides_are_told(data: st.DataObject) -> None:
    check_law(data.draw)


@pytest.mark.slow
@examples(1500)
@given(st.data())
def test_the_same_for_many_catalogs(data: st.DataObject) -> None:
    check_law(data.draw)
