"""Static against dynamic filters, type against topic checks, and what an event costs to make.

The dynamic filters are those of the type-based publish/subscribe paper: objects of a filter library that look up an
accessor by name on each event, call it and compare (its figure 19, `Equals("getSpeaker", null, "...")`); and, as the
quickest one can write in Python, a loop over (name, operator, constant) with `getattr`. Both call the handler as the
generated code does, a handler that raises stopping nobody.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import new_class
from typing import Any

import msgspec

from bench.dispatch import handlers
from bench.timing import Contestant, human, least_ns, markdown
from genus import Event, Subscription, open_bus, this
from genus.codes import LinePrimes
from genus.filters import TypesByName
from genus.targets import dispatch

SUBSCRIPTIONS = 1000


class Reading(Event):
    value: int

    def get_value(self) -> int:
        return self.value


EVENT = Reading(value=1)


@dataclass
class Equals:
    """A filter of a dynamic library: which accessor, its arguments, the required result."""

    accessor: str
    arguments: tuple[Any, ...]
    required: object

    def conforms(self, event: Event) -> bool:
        accessor = getattr(event, self.accessor)
        return bool(accessor(*self.arguments) == self.required)


def reflective(choices: int) -> Contestant:
    made = handlers(SUBSCRIPTIONS, False)
    subscribed = [(Equals("get_value", (), number % choices), handler) for number, handler in enumerate(made)]

    def publish(event: Event) -> None:
        for condition, handler in subscribed:
            if condition.conforms(event):
                try:
                    handler(event)
                except Exception as problem:
                    print(problem)

    return "publish(event)", {"publish": publish, "event": EVENT}


def getattr_loop(choices: int) -> Contestant:
    made = handlers(SUBSCRIPTIONS, False)
    subscribed = [("value", operator.eq, number % choices, handler) for number, handler in enumerate(made)]

    def publish(event: Event) -> None:
        for name, compare, constant, handler in subscribed:
            if compare(getattr(event, name), constant):
                try:
                    handler(event)
                except Exception as problem:
                    print(problem)

    return "publish(event)", {"publish": publish, "event": EVENT}


def genus(choices: int) -> Contestant:
    """The bus, which finds so many subscriptions by an index."""
    readings = open_bus("local:").collection(Reading)
    for number, handler in enumerate(handlers(SUBSCRIPTIONS, False)):
        readings.subscribe(handler, where=this.value == number % choices)
    return "readings.publish(event)", {"readings": readings, "event": EVENT}


class Entry:
    """A subscriber of generated code."""

    refuses = False
    counted = 0

    def __init__(self, subscription: Subscription, deliver: Callable[..., object]) -> None:
        self.subscription, self.deliver = subscription, deliver

    def failed(self, event: Event, problem: Exception) -> None:
        print(problem)


def generated(choices: int) -> Contestant:
    """Generated code with an `if` for each subscription, as in the paper."""
    made = handlers(SUBSCRIPTIONS, False)
    entries = [Entry(Subscription(Reading, where=this.value == n % choices), handler) for n, handler in enumerate(made)]
    return "deliver(event)", {"deliver": dispatch.compile(Reading, entries).deliver, "event": EVENT}


def run() -> dict[str, dict[str, float]]:
    """Nanoseconds per event at 25 % and 50 % match."""
    found: dict[str, dict[str, float]] = {}
    for share, choices in (("25 %", 4), ("50 %", 2)):
        found[share] = least_ns(
            {
                "genus": genus(choices),
                "static: one `if` each": generated(choices),
                "dynamic: getattr and operator in a loop": getattr_loop(choices),
                "dynamic: filter objects by reflection (the paper's)": reflective(choices),
            }
        )
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Times, and the ratio to the indexed and to the plain static code."""
    rows = []
    for name in next(iter(found.values())):
        cells = []
        for times in found.values():
            ours, static = times[name] / times["genus"], times[name] / times["static: one `if` each"]
            cells += [human(times[name]), f"{ours:.1f}×", f"{static:.1f}×"]
        rows.append([name, *cells])
    head = [""] + [f"{share}{what}" for share in found for what in ("", ": × genus", ": × static")]
    return markdown(head, rows)


# -- type against topic ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Topical:
    """A message that says what it is in an attribute."""

    topic: str
    value: int

    def get_topic(self) -> str:
        return self.topic


def run_checks() -> dict[str, float]:
    """Nanoseconds of one check whether an event belongs to something, less what an empty statement costs."""
    scheme = LinePrimes()
    wide, narrow = scheme.add("Event", ()), scheme.add("Reading", ("Event",))
    names = {"event": EVENT, "Reading": Reading, "message": Topical("/road/loop/camera", 1), "a": wide, "b": narrow}
    checks = {
        "empty": "pass",
        "type: isinstance": "isinstance(event, Reading)",
        "topic: get_topic().startswith": "message.get_topic().startswith('/road/loop')",
        "code: modulo": "b % a == 0",
        "etag: mask and compare": "b & 0x3FF0 == 0x100",
    }
    times = least_ns({name: (statement, names) for name, statement in checks.items()})
    return {name: max(ns - times["empty"], 0.1) for name, ns in times.items() if name != "empty"}


def checks_table(times: dict[str, float]) -> str:
    """One line each."""
    first = times["type: isinstance"]
    return markdown(["check", "ns", "× isinstance"], [[n, f"{ns:.0f}", f"{ns / first:.1f}"] for n, ns in times.items()])


# -- making events -----------------------------------------------------------------------------------------------------


class Plain(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    value: int
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    value: int
    place: str | None = None


def run_creation() -> dict[str, float]:
    """Nanoseconds to make an event with two attributes."""
    names = {"Reading": Reading, "Plain": Plain, "Frozen": Frozen}
    return least_ns(
        {
            "genus Event (5 context attributes more)": ("Reading(value=1, place='A8')", names),
            "msgspec Struct": ("Plain(value=1, place='A8')", names),
            "frozen dataclass with slots": ("Frozen(value=1, place='A8')", names),
        }
    )


def creation_table(times: dict[str, float]) -> str:
    """One line each."""
    ours = next(iter(times.values()))
    return markdown(["", "ns", "× genus"], [[name, f"{ns:.0f}", f"{ns / ours:.2f}"] for name, ns in times.items()])


# -- reading texts among many types ------------------------------------------------------------------------------------


def run_texts(counts: tuple[int, ...] = (10, 1000, 4000)) -> dict[int, dict[str, float]]:
    """Nanoseconds to parse a subscription while so many types are declared, by how its type is given."""
    found: dict[int, dict[str, float]] = {}
    types: list[type] = []
    for count in counts:
        types += [new_class(f"Bench{n}", (Reading,)) for n in range(len(types), count)]
        names = {"parse": Subscription.parse, "known": TypesByName(types), "types": types, "only": types[-1:]}
        text = f"parse('Bench{count - 1} where value > 30 and place == \\'A8\\''"
        found[count] = least_ns(
            {
                "its type given": (f"{text}, only)", names),
                "no types given: all declared": (f"{text})", names),
                "all given as `TypesByName`": (f"{text}, known)", names),
                "all given as a list": (f"{text}, types)", names),
            }
        )
    return found


def texts_table(found: dict[int, dict[str, float]]) -> str:
    """One line for each way to give types, with a column for each number of them."""
    rows = [[name, *(human(times[name]) for times in found.values())] for name in next(iter(found.values()))]
    return markdown(["parse one text", *(f"{count:,} types" for count in found)], rows)


if __name__ == "__main__":
    print(table(run()), checks_table(run_checks()), creation_table(run_creation()), sep="\n\n")
    print(texts_table(run_texts()))
