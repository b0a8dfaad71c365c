"""Types travel with events: programs of any age that share a network get every event that conforms to what they ask."""

import os
import random
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.net.evolving_process import Program
from tests.net.mqtt_servers import Mosquitto, running
from tests.net.zenoh_network import free_port

# -- the law -----------------------------------------------------------------------------------------------------------

HEAD = """
from typing import Annotated
from genus import Event, Kind, Maybe
from genus.model import Renamed, Unit

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
            self.ages[age]["Puddle"] = ("Event, Wet", {"number": "int", "depth": "Maybe[float]"})
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
        for kind, values in {"str": ["a", "b"], "bool": [True, False], "float": [0.0, 36.0, 72.0]}.items():
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
    got, troubles, counters = reader.ask(**{"await": sum(map(len, wanted))})
    for text, events, expected in zip(asked, got, wanted, strict=True):
        received = [(values["number"], name, values) for name, _, values in events]
        assert Counter(each[0] for each in received) == Counter(each[0] for each in expected), (text, counters)
        ours = [(number, name, values) for number, name, values in sorted(received)]
        assert ours == sorted(expected, key=lambda each: each[0]), text
    assert not [each for each in counters if each.startswith(("rejected", "lost", "delivered"))]
    assert not troubles


def seeds(quick: int) -> list[Any]:
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.slow) for seed in range(20)]


@pytest.mark.parametrize("seed", seeds(2))
def test_programs_of_any_age_get_all_that_conforms_between_processes(tmp_path: Path, seed: int) -> None:
    run_law(f"ipc:types-{os.getpid()}-{seed}", tmp_path, seed)


@pytest.mark.parametrize("seed", seeds(1))
def test_programs_of_any_age_get_all_that_conforms_over_zenoh(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("zenoh")
    run_law(f"zenoh:types?port={free_port()}", tmp_path, seed)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "broker").mkdir()
    server = Mosquitto(tmp_path / "broker")
    with running(server):
        yield server.port


@pytest.mark.parametrize("seed", seeds(1))
def test_programs_of_any_age_get_all_that_conforms_over_mosquitto(broker: int, tmp_path: Path, seed: int) -> None:
    run_law(f"mqtt://127.0.0.1:{broker}/types", tmp_path, seed)
