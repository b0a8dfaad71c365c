"""Event types declared from layouts: a message becomes a type, a signal an attribute.

Every message is a family of its own below `Event`, because two messages may use one signal name for different things;
all of a file share a kind named after it. A signal with a value table has two attributes: its number, which is always
exact, and the label of that number, which is absent when the table has none. So a table that names only "not
available" leaves a number to compare, and a value outside the table costs nothing.
"""

from collections.abc import Iterable
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any

from genus.can._dbc.layout import MEMBER_WORDS, MessageLayout, Names, SignalLayout
from genus.model import Attribute, Event, Float32, Int8, Int16, Int32, Int64, Kind, Maybe, UInt8, UInt16, UInt32, Unit
from genus.model._event import EventMeta, KindMeta
from genus.model._types import read_annotation

ANNOTATIONS: MappingProxyType[str, Any] = MappingProxyType(
    {"Int8": Int8, "Int16": Int16, "Int32": Int32, "Int64": Int64, "UInt8": UInt8, "UInt16": UInt16, "UInt32": UInt32}
    | {"Float32": Float32, "float": float, "bytes": bytes}
)
"""What the names of annotations stand for."""


def declare_kind(name: str) -> type[Kind]:
    """The kind that all messages of a file have."""
    kind: type[Kind] = KindMeta(name, (Kind,), {"__module__": name, "__doc__": f"A message of {name}."})
    return kind


def declare_type(message: MessageLayout, kind: type[Kind]) -> type[Event]:
    """The event type of a message.

    >>> from genus.model import vector
    >>> lamp = SignalLayout("watts", "watts", 0, 8, 0, False, False, False, unit="W", scale=0.5)
    >>> cls = declare_type(MessageLayout("Lamp", "Lamp", 0x10, False, 1, (lamp,)), declare_kind("House"))
    >>> cls(watts=7.5), issubclass(cls, Event), vector(cls).find("watts").unit
    (Lamp(watts=7.5), True, 'W')
    """
    notes = annotations_of(message, kind.__module__)
    place = {"__module__": kind.__module__, "__qualname__": message.type_name}
    namespace = {"__annotations__": notes, "__doc__": describe(message), **place}
    cls: type[Event] = EventMeta(message.type_name, (Event, kind), namespace)
    return cls


def attributes_of(message: MessageLayout) -> tuple[Attribute, ...]:
    """The attributes that the type of a message declares, without declaring it."""
    notes = annotations_of(message, message.type_name)
    return tuple(Attribute(name, *read_annotation(note)) for name, note in notes.items())


def annotations_of(message: MessageLayout, module: str) -> dict[str, object]:
    """The attributes of a message's type with their annotations."""
    notes: dict[str, object] = {}
    for signal in message.signals:
        notes[signal.attribute] = _annotation(signal)
        if signal.label is not None:
            notes[signal.label] = _optional(declare_labels(signal, module))
    return notes


def declare_labels(signal: SignalLayout, module: str) -> type[Enum]:
    """The enumeration of a signal's labels, in the order of their raw values."""
    assert signal.enumeration is not None
    make: Any = Enum  # a call with members makes a class, which its type does not tell
    labels: type[Enum] = make(signal.enumeration, list(member_names(signal.labels)), module=module)
    return labels


def member_names(labels: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Labels with names that members of an enumeration can have.

    >>> list(member_names(["OFF", "not available", "100 %"]))
    [('OFF', 'OFF'), ('not_available', 'not available'), ('x100__', '100 %')]
    """
    names = Names(MEMBER_WORDS)
    return ((names.give(label), label) for label in labels)


def describe(message: MessageLayout) -> str:
    """What is said about a message, for its type's docstring."""
    kind = "FD frame" if message.fd else "frame"
    about = f"{kind} {message.frame_id:#0{10 if message.extended else 5}x}, {message.length} bytes"
    sent = f" from {', '.join(message.senders)}" if message.senders else ""
    cycle = f" every {message.cycle_time_ms} ms" if message.cycle_time_ms else ""
    comment = " ".join((message.comment or "").split())
    return f"{comment or message.name} ({about}{sent}{cycle})"


def _annotation(signal: SignalLayout) -> object:
    plain = ANNOTATIONS[signal.annotation]
    noted: Any = Annotated[plain, Unit(signal.unit)] if signal.unit else plain
    return _optional(noted) if signal.multiplexer is not None else noted


def _optional(note: Any) -> object:
    maybe: Any = Maybe
    return maybe[note]
