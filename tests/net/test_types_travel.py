"""Types travel with events: programs of any age that share a network get every event that conforms to what they ask."""

import itertools
import json
import os
import random
import re
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from genus import BestEffort, Event, Kind, Maybe, Subscription, open_bus, read_recording, this
from genus.bus import Bus
from genus.catalog._statement import digest_of
from genus.errors import SyntaxProblem
from genus.model import attributes, name_of
from genus.net import Gateway, GatewaySide, NetLink
from genus.net._envelope import ENVELOPE
from genus.net._ipc.transport import IpcTransport
from genus.net._link.losses import MAX_HELD
from genus.net._transport import EventsLost, EventsUnread, Sending
from genus.targets.topics import ZENOH
from tests.net.evolving_process import Program
from tests.net.memory_network import MemoryNetwork
from tests.net.mqtt_servers import Mosquitto, running
from tests.net.recording_receiver import RecordingReceiver
from tests.net.zenoh_network import free_port
from tests.waiting import wait_for

# -- the law -----------------------------------------------------------------------------------------------------------

HEAD = """
from typing import Annotated
from genus import Event, Kind, Maybe
from genus.model import Renamed, Unit, UInt8, UInt16
import enum

Colour0 = enum.Enum("Colour", {"RED": "red"})
Colour1 = enum.Enum("Colour", {"RED": "red", "BLUE": "blue"})

class Wet(Kind): ...
class Hot(Kind): ...
"""


class Evolution:
    """Two ages of some types, by a seed: the newer has more types, kinds and attributes, renames and other units."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        tagged = self.random.choice(["", ', tagged=("place",)'])
        is_renamed, has_unit = self.random.random() < 0.5, self.random.random() < 0.5
        old_unit, new_unit = ("km/h", "m/s") if has_unit else ("", "")
        self.ages: list[dict[str, tuple[str, dict[str, str]]]] = [{}, {}]
        """By age and type: the bases, and the annotations of its attributes."""
        for age, unit in enumerate((old_unit, new_unit)):
            speed = f'Maybe[Annotated[float, Unit("{unit}")]]' if unit else "Maybe[float]"
            level = 'Maybe[Annotated[int, Renamed("height")]]' if age and is_renamed else "Maybe[int]"
            name = "level" if age and is_renamed else "height"
            probe = {"number": "int", "speed": speed, name: level}
            self.ages[age]["Probe"] = (f"Event{tagged}", probe)
            own = {
                "number": "int",
                "depth": "Maybe[float]",
                "colour": f"Maybe[Colour{age}]",
                "size": f"Maybe[UInt{8 << age}]",
            }
            self.ages[age]["Puddle"] = ("Event, Wet", own)
        self._grow()

    def _grow(self) -> None:
        """Add to the newer age: optional attributes, subtypes of any type, families, with kinds, some of them new."""
        new = self.ages[1]
        for step in range(self.random.randint(2, 5)):
            kind = self.random.choice(["", ", Wet", ", Hot", ", Wet, Hot"])
            above = self.random.choice(["Event", *new])
            own = {f"extra{step}": self.random.choice(["Maybe[int]", "Maybe[str]", "Maybe[bool]"])}
            if above == "Event":
                own = {"number": "int", **own}
            if self.random.random() < 0.3:
                name = self.random.choice([*self.ages[0]])
                new[name] = (new[name][0], {**new[name][1], **own, "number": "int"})
            else:
                kept = [each for each in kind.split(", ")[1:] if not self._has_kind(above, each)]
                new[f"New{step}"] = (", ".join([above, *kept]), own)
        only = self.random.choice([*new])
        if self.random.random() < 0.5:
            new["Fresh"] = (f"{only}, Brand", {"fresh": "Maybe[str]"})

    def _has_kind(self, name: str, kind: str) -> bool:
        return name in self.ages[1] and kind in self.above(1, name)

    def above(self, age: int, name: str) -> set[str]:
        """A type and all types above it."""
        if name not in self.ages[age]:
            return {name}
        bases = self.ages[age][name][0].partition(", tagged")[0].split(", ")
        return {name}.union(*(self.above(age, base) for base in bases))

    def attributes(self, age: int, name: str) -> dict[str, str]:
        """The annotations of all attributes of a type."""
        if name not in self.ages[age]:
            return {}
        bases, own = self.ages[age][name]
        return {**self.attributes(age, bases.split(",")[0]), **own}

    def text(self, age: int) -> str:
        """The module of an age."""
        brand = "class Brand(Kind): ...\n" if age else ""
        types = [
            f"class {name}({bases}):\n" + textwrap.indent("\n".join(f"{a}: {t}" for a, t in own.items()), "    ")
            for name, (bases, own) in self.ages[age].items()
        ]
        return "\n".join([HEAD, brand, *types, ""])

    def events(self, age: int, first: int, count: int) -> list[tuple[str, dict[str, Any]]]:
        """Events that a program of an age publishes, with numbers from `first` on; all types are among them."""
        names = [*self.ages[age]]
        made = []
        for number in range(first, first + count):
            name = names[number % len(names)]
            values = {each: self._value(note) for each, note in self.attributes(age, name).items()}
            chosen = {each: value for each, value in values.items() if self.random.random() < 0.8}
            if self.random.random() < 0.5:
                chosen["place"] = "A8"
            made.append((name, {**chosen, "number": number}))
        return made

    def _value(self, note: str) -> Any:
        choices: dict[str, list[Any]] = {"str": ["a", "b"], "bool": [True, False], "float": [0.0, 36.0, 72.0]}
        if "Colour" in note:
            return self.random.choice(["red", "blue"] if "Colour1" in note else ["red"])
        if "UInt" in note:
            return self.random.choice([1, 300] if "UInt16" in note else [1])
        for kind, values in choices.items():
            if kind in note:
                return self.random.choice(values)
        return self.random.randint(0, 100)

    def subscriptions(self, age: int) -> list[str]:
        """What a program of an age asks for: some of its types, some exactly, and kinds."""
        names = self.random.sample([*self.ages[age]], 2)
        return [
            "Probe",
            *names,
            f"exact {self.random.choice(names)}",
            self.random.choice(["Wet", "Wet & Probe", "Event"]),
        ]

    def expected(self, text: str, here: int, events: list[tuple[str, dict[str, Any]]], there: int) -> list[Any]:
        """The number, type and values that a subscription of one age gets of the events of another."""
        types, is_exact = set(text.removeprefix("exact ").split(" & ")), text.startswith("exact ")
        found = []
        for name, values in events:
            if types == {name} if is_exact else types <= self.above(there, name):
                declared = self.attributes(here if name in self.ages[here] else there, name)
                known = {"place", *(self._name(each, here) for each in declared)}
                values = {
                    a: v for a, v in values.items() if here or v not in ("blue", 300) or a not in ("colour", "size")
                }
                shared = {
                    self._name(each, here): self._converted(each, value, here, there) for each, value in values.items()
                }
                found.append((values["number"], name, {a: v for a, v in shared.items() if a in known}))
        return found

    def _name(self, attribute: str, here: int) -> str:
        """The name that an attribute of either age has for a program of an age, if its own class has it."""
        names = self.attributes(here, "Probe")
        if attribute in ("level", "height"):
            return "level" if "level" in names else "height"
        return attribute

    def _converted(self, attribute: str, value: Any, here: int, there: int) -> Any:
        notes = [self.attributes(age, "Probe")["speed"] for age in (there, here)]
        if attribute != "speed" or notes[0] == notes[1]:
            return value
        return pytest.approx(value / 3.6 if "m/s" in notes[1] else value * 3.6)


def run_law(address: str, folder: Path, seed: int) -> None:
    """Programs of both ages, restarted in a random order: each gets all that conforms to what it asked, once."""
    evolution = Evolution(seed)
    files = [folder / f"age{age}.py" for age in (0, 1)]
    for age, file in enumerate(files):
        file.write_text(evolution.text(age))
    ages = {"reader": evolution.random.randint(0, 1), "writer": evolution.random.randint(0, 1)}
    with ExitStack() as stack:
        programs: dict[str, Program] = {}

        def start(who: str, age: int) -> None:
            if who in programs:
                programs[who].end()
            ages[who] = age
            programs[who] = Program(address, files[age])
            stack.callback(programs[who].end)

        def subscribe() -> None:
            asked[:] = evolution.subscriptions(ages["reader"])
            programs["reader"].ask(subscribe=asked)
            wanted[:] = [[] for _ in asked]

        asked: list[str] = []
        wanted: list[list[Any]] = []
        for who in evolution.random.sample(["reader", "writer"], 2):
            start(who, ages[who])
            if who == "reader":
                subscribe()
        published = 0
        for turn in range(3):
            events = evolution.events(ages["writer"], published, 12)
            published += len(events)
            events = [
                each for each in events if "Event" in asked or is_asked(evolution, asked, each[0], ages["writer"])
            ]
            programs["writer"].ask(publish=events)
            for number, text in enumerate(asked):
                wanted[number] += evolution.expected(text, ages["reader"], events, ages["writer"])
            check(programs["reader"], asked, wanted)
            if turn < 2:
                who = evolution.random.choice(["reader", "writer"])
                start(who, 1 - ages[who])
                if who == "reader":
                    subscribe()


def is_asked(evolution: Evolution, asked: list[str], name: str, age: int) -> bool:
    above = evolution.above(age, name)
    return any(
        set(text.removeprefix("exact ").split(" & ")) <= above and (name in text or "exact" not in text)
        for text in asked
    )


def check(reader: Program, asked: list[str], wanted: list[list[Any]]) -> None:
    got, problems, counters = reader.ask(**{"await": sum(map(len, wanted))})
    for text, events, expected in zip(asked, got, wanted, strict=True):
        received = [(values["number"], name, values) for name, _, values in events]
        assert Counter(each[0] for each in received) == Counter(each[0] for each in expected), (text, counters)
        ours = [(number, name, values) for number, name, values in sorted(received)]
        assert ours == sorted(expected, key=lambda each: each[0]), text
    assert not [each for each in counters if each.startswith(("rejected", "lost", "delivered"))]
    assert not problems


def seeds(quick: int) -> list[Any]:
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.slow) for seed in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1))
def test_programs_of_any_age_get_all_that_conforms_between_processes(tmp_path: Path, seed: int) -> None:
    run_law(f"ipc:types-{os.getpid()}-{seed}", tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(0))
def test_programs_of_any_age_get_all_that_conforms_over_zenoh(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("zenoh")
    run_law(f"zenoh:types?port={free_port()}", tmp_path, seed)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "broker").mkdir()
    server = Mosquitto(tmp_path / "broker")
    with running(server):
        yield server.port


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1))
def test_programs_of_any_age_get_all_that_conforms_over_mosquitto(broker: int, tmp_path: Path, seed: int) -> None:
    run_law(f"mqtt://127.0.0.1:{broker}/types", tmp_path, seed)


# -- packets of types that this program does not have ------------------------------------------------------------------


class TravWet(Kind): ...


class TravProbe(Event, tagged=("place",)):
    value: Maybe[float] = None


ELSEWHERE = """
import json, sys
from genus import Event, Kind, Maybe
from genus.bus import Bus
from genus.catalog._statement import digest_of
from genus.net import NetLink
from genus.targets.topics import ZENOH
from tests.net.memory_network import MemoryNetwork, MemoryTransport

{types}

sent = []

class Spy(MemoryTransport):
    def put(self, key, envelope, payload):
        sent.append((key, envelope.hex(), payload.hex()))

now = [100.0]
link = NetLink(Spy(MemoryNetwork(ZENOH)), "city", medium="memory", now=lambda: now[0], runs=False)
with Bus(link) as bus:
    for number in range({count}):
        bus.publish({event})
    now[0] += 1
    link.tick()
print(json.dumps(sent))
"""
PROBE = "class TravProbe(Event, tagged=('place',)):\n    value: Maybe[float] = None\n"
WET = "class TravWet(Kind): ...\n"
Packet = tuple[str, bytes, bytes]


def packets_of(types: str, event: str, count: int = 5) -> list[Packet]:
    """The packets that a program with other types sends: statements, events and copies, a beat."""
    code = ELSEWHERE.format(types=types, event=event, count=count)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [
        (key, bytes.fromhex(envelope), bytes.fromhex(payload)) for key, envelope, payload in json.loads(done.stdout)
    ]


class Thermo:
    """A type below `TravProbe` that only the sender has; each time another, as generated classes stay in caches."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.name = f"TravThermo{next(self._numbers)}"
        self.text = f"{WET}{PROBE}class {self.name}(TravProbe, TravWet):\n    humidity: Maybe[float] = None\n"
        made = packets_of(self.text, f"{self.name}(value=float(number), humidity=2.0 * number, place='x')")
        self.statements, self.events, self.copies, self.beats = parts(made)


@pytest.fixture
def thermo() -> Thermo:
    return Thermo()


def parts(packets: list[Packet]) -> tuple[list[Packet], list[Packet], list[Packet], list[Packet]]:
    """Statements, events, copies of events, and beats."""
    roots = ("@genus/city/types/", "city/", "@genus/city/new/", "@genus/city/beat")
    statements, events, copies, beats = ([each for each in packets if each[0].startswith(root)] for root in roots)
    return statements, events, copies, beats


class Reader:
    """A program that has `TravProbe` and `TravWet`, in virtual time."""

    def __init__(self) -> None:
        self.time = 100.0
        network = MemoryNetwork(ZENOH)
        self.transport = network.transport()
        self.link = NetLink(self.transport, "city", medium="memory", now=lambda: self.time, runs=False)
        self.bus = Bus(self.link)
        self.problems: list[Any] = []

    def take(self, packets: Iterable[Packet]) -> None:
        for packet in packets:
            self.transport.give(*packet)

    def run(self, seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            self.time += 0.1
            self.link.tick()

    def subscribe(self, what: Any) -> list[Any]:
        got: list[Any] = []
        self.bus.subscribe(what, got.append, on_problem=self.problems.append)
        return got


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    with made.bus:
        yield made


def test_events_wait_for_the_statement_of_their_type_and_are_delivered_in_order(reader: Reader, thermo: Thermo) -> None:
    got, exact = reader.subscribe(TravProbe), reader.subscribe("exact TravProbe")
    reader.take(thermo.events[:3])
    reader.run(0.5)
    assert got == []
    reader.take(thermo.statements + thermo.events[3:] + thermo.beats)
    assert [(event.value, event.humidity, event.place) for event in got] == [(n, 2.0 * n, "x") for n in range(5)]
    assert isinstance(got[0], TravProbe)
    assert isinstance(got[0], TravWet)
    assert exact == []
    reader.run(10)
    assert reader.problems == []
    assert reader.bus.types[thermo.name] is type(got[0])


def test_losses_of_a_type_that_is_not_known_are_told(reader: Reader, thermo: Thermo) -> None:
    got = reader.subscribe(TravProbe)
    reader.run(4)
    reader.take([thermo.events[1], thermo.events[3], *thermo.beats, *thermo.statements])
    reader.run(3)
    assert [event.value for event in got] == [1.0, 3.0]
    assert sum(each.count for each in reader.problems) == 2  # they count from the first packet of a key
    assert {type(each) for each in reader.problems} == {EventsLost}


def test_without_a_statement_events_are_delivered_with_what_the_nearest_known_type_has(
    reader: Reader, thermo: Thermo
) -> None:
    got, exact = reader.subscribe(TravProbe), reader.subscribe("exact TravProbe")
    reader.take(thermo.events[:4])
    reader.run(1.3)
    assert [(name_of(type(event)), event.value, event.place) for event in got] == [
        (thermo.name, float(n), "x") for n in range(4)
    ]
    assert exact == []  # they are of a type below it
    counts = reader.bus.traffic().link
    assert counts[f"delivered as TravProbe: {thermo.name} is not known"] == 4
    assert thermo.name not in reader.bus.types
    reader.take(thermo.statements + thermo.events[3:])
    assert [getattr(event, "humidity", None) for event in got] == [None] * 4 + [8.0]  # once: numbers went on


def test_handlers_run_in_one_thread_also_with_events_that_have_waited(thermo: Thermo) -> None:
    threads: list[int] = []
    link, other = NetLink(IpcTransport(thermo.name), "city", medium="ipc"), IpcTransport(thermo.name)
    with Bus(link) as bus:
        bus.subscribe(TravProbe, lambda event: threads.append(threading.get_ident()))
        other.open(RecordingReceiver())
        try:
            for key, envelope, payload in [*thermo.events, *parts(packets_of(PROBE, "TravProbe(place='x')"))[1]]:
                other.sender(key, Sending()).put(payload, envelope)
            wait_for(lambda: len(threads) == 10)
        finally:
            other.close()
    assert len(set(threads)) == 1
    assert link.counters()[f"delivered as TravProbe: {thermo.name} is not known"] == 5


def test_what_does_not_fit_is_not_held_and_nothing_is_dropped(reader: Reader, thermo: Thermo) -> None:
    got = reader.subscribe(TravProbe)
    key, envelope, payload = thermo.events[0]
    origin, _, hops, sender, _ = ENVELOPE.unpack_from(envelope)
    for number in range(1, MAX_HELD + 100):
        reader.take([(key, ENVELOPE.pack(origin, number, hops, sender, number), payload)])
    assert len(got) == MAX_HELD + 99
    reader.run(3)
    assert reader.problems == []


def test_a_wider_version_of_a_type_is_read_whole(reader: Reader, thermo: Thermo) -> None:
    got = reader.subscribe(TravProbe)
    reader.take(thermo.statements + thermo.events)
    wider = packets_of(f"{thermo.text}    dew: Maybe[float] = None\n", f"{thermo.name}(value=1.0, dew=3.0)", 2)
    reader.take(wider)
    assert [event.dew for event in got[5:]] == [3.0, 3.0]
    assert got[-1].humidity is None
    reader.take(thermo.statements)  # the older statement again, as from a broker, changes nothing
    assert reader.bus.types[thermo.name] is type(got[-1])


def test_who_asks_for_a_kind_gets_the_first_events_of_a_new_class(reader: Reader) -> None:
    puddle = packets_of(f"{WET}class TravPuddle(Event, TravWet):\n    depth: float\n", "TravPuddle(depth=1.0)", 3)
    statements, events, copies, _ = parts(puddle)
    assert len(copies) == len(events) == 3
    got, other = reader.subscribe(TravWet), reader.subscribe(TravProbe)
    assert any(ZENOH.matches(pattern, copies[0][0]) for pattern in reader.transport.patterns)
    reader.take([copies[0], *statements, copies[1]])
    assert len(got) == 2
    reader.run(0.2)
    assert any(ZENOH.matches(pattern, events[0][0]) for pattern in reader.transport.patterns)
    reader.take([events[1], copies[1], events[2], copies[2]])
    assert [name_of(type(event)) for event in got] == ["TravPuddle"] * 3
    assert other == []


def test_predicates_name_attributes_that_only_the_wire_knows(reader: Reader, thermo: Thermo) -> None:
    with pytest.raises(SyntaxProblem, match=f"no event type is called {thermo.name}"):
        reader.subscribe(f"{thermo.name} where humidity > 3")
    reader.take(thermo.statements)
    by_text = reader.subscribe(f"{thermo.name} where humidity > 3")
    by_class = reader.subscribe(Subscription(reader.bus.types[thermo.name], where=this.humidity > 3))
    above = reader.subscribe("TravProbe where humidity > 3")
    reader.take(thermo.events)
    assert [event.humidity for event in by_text] == [4.0, 6.0, 8.0]
    assert by_text == by_class == above


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "event", "what"),
    [
        (
            "class TravProbe(Event, tagged=('place',)):\n    value: Maybe[str] = None\n",
            "TravProbe()",
            "TravProbe.value",
        ),
        ("class TravProbe(Event):\n    value: Maybe[float] = None\n", "TravProbe()", "tagged"),
        (f"{WET}class TravProbe(Event, TravWet):\n    value: Maybe[float] = None\n", "TravProbe()", "derives from"),
        (f"{PROBE}class Sub(TravProbe):\n    unknown: int\nclass TravWet(Sub): ...", "TravWet(unknown=1)", "kind"),
    ],
    ids=["another type", "another tag", "other parents", "a kind became a type"],
)
def test_a_statement_that_contradicts_the_program_is_refused_and_told(
    reader: Reader, caplog: pytest.LogCaptureFixture, types: str, event: str, what: str
) -> None:
    reader.subscribe(TravProbe)
    channel = reader.bus.channel(TravProbe, BestEffort(), on_problem=reader.problems.append)
    channel.announce()
    packets = packets_of(types, event, 1)
    reader.take(parts(packets)[0])
    reader.run(1)
    reader.take(parts(packets)[0])
    reader.run(1)
    assert {(type(each), each.count) for each in reader.problems} == {(EventsUnread, 0)}
    assert len(reader.problems) == 2  # the subscription and the channel, once each
    assert what in reader.problems[0].reason
    assert len([entry for entry in caplog.records if what in entry.getMessage()]) == 1


def test_what_cannot_be_read_is_told_to_the_subscriptions_concerned(
    reader: Reader, thermo: Thermo, caplog: pytest.LogCaptureFixture
) -> None:
    other: list[Any] = []
    reader.subscribe(TravProbe)
    reader.bus.subscribe("exact TravProbe", other.append, on_problem=other.append)
    reader.take(thermo.statements)
    reader.take((key, envelope, b"\x81\xa5value\xa3bad") for key, envelope, _ in thermo.events)
    reader.run(1)
    assert [(type(each), each.type, each.count) for each in reader.problems] == [(EventsUnread, thermo.name, 5)]
    assert other == []
    assert len([text for text in caplog.messages if f"5 events of {thermo.name} were not read" in text]) == 1
    assert any(thermo.name in reason for reason in reader.link.examples())


@pytest.mark.slow
def test_a_recording_is_read_by_programs_that_never_had_its_types(tmp_path: Path, thermo: Thermo) -> None:
    file = tmp_path / "thermo.genus"
    program = f"""
import sys
from genus import Event, Kind, Maybe
from genus.bus import RecordingWriter
{thermo.text}
with RecordingWriter(sys.argv[1]) as writer:
    for number in range(20_000):
        writer.write({thermo.name}(value=float(number), humidity=1.0), at_us=number)
"""
    subprocess.run([sys.executable, "-c", program, str(file)], check=True)
    recording = read_recording(file)
    events = [each.event for each in recording]
    assert len(events) == 20_000
    assert {type(event).__mro__[1] for event in events} == {TravProbe}
    assert [vars_of(each.event) for each in read_recording(file).read_from(19_999)] == [(19_999.0, 1.0)]
    assert len(list(read_recording(file, [TravProbe]))) == 20_000
    others = read_recording(file, [TravWetOnly])
    assert list(others) == []
    assert others.problems == {f"unknown type {thermo.name}": 20_000}


class TravWetOnly(Event): ...


def vars_of(event: Any) -> tuple[float, float]:
    return event.value, event.humidity


# -- gateways, commands, both sides ------------------------------------------------------------------------------------

OLDER = f"from genus import Event, Kind, Maybe\n{WET}{PROBE}"
NEWER = f"{OLDER}class TravFar(TravProbe, TravWet):\n    humidity: Maybe[float] = None\n"


def programs(stack: ExitStack, folder: Path, *started: tuple[str, str]) -> list[Program]:
    """Programs by address and the text of their types."""
    made = []
    for number, (address, text) in enumerate(started):
        (folder / f"{number}.py").write_text(text)
        made.append(Program(address, folder / f"{number}.py"))
        stack.callback(made[-1].end)
    return made


def test_types_cross_gateways_that_do_not_have_them(tmp_path: Path) -> None:
    """From one network to the next, with their statements: the receiver behind the gateway gets all attributes."""
    left, right = f"ipc:left-{os.getpid()}", f"ipc:right-{os.getpid()}"
    with ExitStack() as stack:
        sides = [GatewaySide(bus=stack.enter_context(open_bus(each)), name=each[4:]) for each in (left, right)]
        stack.enter_context(Gateway(*sides))
        writer, reader = programs(stack, tmp_path, (left, NEWER), (right, OLDER))
        reader.ask(subscribe=["TravProbe", "TravWet"])
        writer.ask(publish=[("TravFar", {"value": number, "humidity": 2 * number}) for number in range(5)])
        (probes, wet), problems, _ = reader.ask(**{"await": 10})
    assert [(name, values) for name, _, values in probes] == [
        ("TravFar", {"value": float(number), "humidity": 2.0 * number}) for number in range(5)
    ]
    assert wet == probes
    assert problems == []


@pytest.mark.slow
def test_a_contradiction_is_told_on_both_sides(tmp_path: Path) -> None:
    address = f"ipc:clash-{os.getpid()}"
    other = OLDER.replace("value: Maybe[float]", "value: Maybe[str]")
    with ExitStack() as stack:
        both = programs(stack, tmp_path, (address, OLDER), (address, other))
        for program in both:
            program.ask(subscribe=["TravProbe"])
        for program in both:
            _, problems, _ = program.ask(told=1)
            assert {(kind, type_, count) for kind, type_, count, _ in problems} == {("EventsUnread", "TravProbe", 0)}
            assert "TravProbe.value" in problems[0][3]


def test_commands_take_types_that_others_state(tmp_path: Path) -> None:
    """`genus sub` needs no module of the types, if a participant states them."""
    address = f"ipc:commands-{os.getpid()}"
    with ExitStack() as stack:
        (writer,) = programs(stack, tmp_path, (address, NEWER))
        command = [sys.executable, "-m", "genus", "sub", "--bus", address, "TravFar where humidity > 3", "--limit", "2"]
        writer.ask(subscribe=["TravFar"])  # which states it
        told = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "GENUS_TYPES": ""})
        writer.ask(publish=[("TravFar", {"value": number, "humidity": 2 * number}) for number in range(4)])
        out, _ = told.communicate(timeout=60)
    assert out.splitlines() == ["TravFar(value=2.0, humidity=4.0)", "TravFar(value=3.0, humidity=6.0)"]


def test_a_class_that_the_program_declares_later_goes_first(reader: Reader) -> None:
    """Whatever was stated, also with another type for the attribute."""
    later = f"{PROBE}class TravLater(TravProbe):\n    moisture: Maybe[float] = None\n"
    reader.take(packets_of(later, "TravLater(moisture=1.0)", 1))
    got = reader.subscribe(TravProbe)
    assert "TravLater" in reader.bus.types
    namespace: dict[str, Any] = {"TravProbe": TravProbe, "Maybe": Maybe}
    exec("class TravLater(TravProbe):\n    moisture: Maybe[str] = None\n", namespace)
    assert "TravLater" not in reader.bus.types
    reader.run(0.6)
    reader.bus.publish(namespace["TravLater"](moisture="high"))
    assert [event.moisture for event in got] == ["high"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_statements_of_any_content_do_no_harm(
    reader: Reader, thermo: Thermo, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """They are refused for a reason, or taken; the program's own types stay as they are."""
    chosen = random.Random(seed)
    (_, _, text), *_ = thermo.statements
    before = attributes(TravProbe)
    words = [
        '"Event"',
        '"TravProbe"',
        '"TravWet"',
        f'"{thermo.name}"',
        '"humidity"',
        '"float64"',
        "[]",
        "{}",
        "true",
        "1",
    ]
    for _ in range(400):
        pieces = re.split(r'("[^"]*"|[\[\]{},:])', text.decode())
        for _ in range(chosen.randint(1, 3)):
            pieces[chosen.randrange(len(pieces))] = chosen.choice([*words, "", chosen.choice(pieces)])
        made = "".join(pieces).encode()
        key = f"@genus/city/types/{digest_of(made)}/{thermo.name}"
        reader.transport.give(key, b"", made)
    assert attributes(TravProbe) == before
    assert not [entry for entry in caplog.records if entry.exc_info]
    counts = reader.bus.traffic().link
    assert sum(count for name, count in counts.items() if name.startswith("rejected: ")) > 200


@pytest.mark.slow
@pytest.mark.parametrize("format", ["cloudevents", "cloudevents-binary"])
def test_cloud_events_of_a_newer_program_are_read_with_all_that_the_two_share(tmp_path: Path, format: str) -> None:
    """Also those with values that the class here cannot read: these are absent, counted, and go on."""
    older, newer = tmp_path / "older.py", tmp_path / "newer.py"
    text = "import enum\nfrom genus import Event, Maybe\nfrom genus.model import UInt8, UInt16\n"
    older.write_text(
        text + "class CloudLamp(Event):\n    colour: enum.Enum('Colour', {'RED': 'red'})\n    n: Maybe[UInt8] = None\n"
    )
    newer.write_text(
        text
        + "class CloudLamp(Event):\n    colour: enum.Enum('Colour', {'RED': 'red', 'BLUE': 'blue'})\n"
        + "    n: Maybe[UInt16] = None\n    more: Maybe[str] = None\n"
    )
    address = f"ipc:test-cloud-{os.getpid()}?format={format}"
    sent: list[dict[str, Any]] = [{"colour": "red", "n": 7}, {"colour": "blue"}, {"colour": "red", "n": 300}]
    sent.append({"colour": "red", "n": 8, "more": "x", "place": "p", "source": "s"})
    old, new = Program(address, older), Program(address, newer)
    try:
        old.ask(subscribe=["CloudLamp"])
        new.ask(publish=[["CloudLamp", each] for each in sent])
        ((got,), told, counters) = old.ask(**{"await": len(sent)})
    finally:
        new.end()
        old.end()
    shared = [sent[0], {}, {"colour": "red"}, {name: value for name, value in sent[3].items() if name != "more"}]
    assert [values for _, _, values in got] == shared
    assert told == []
    unread = {name: count for name, count in counters.items() if name.startswith("not read")}
    assert unread == {f"not read: CloudLamp.{name}": 1 for name in ("colour", "n", "more")}
