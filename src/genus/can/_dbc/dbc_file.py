"""A DBC file, or one of another format, as event types: loaded to decode frames, or written as a Python module.

Programs that import the module have types that type checkers and editors know, and need neither the DBC file nor
cantools to read a recording: the types have the names and attributes of those that `load_dbc` declares.
"""

import json
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache, partial
from types import MappingProxyType
from weakref import WeakKeyDictionary

from genus.bus.internal import Rejected
from genus.can._dbc.database import Layouts, read_layouts
from genus.can._dbc.j1939 import AmbiguousGroup, GroupIndex, LongMessages
from genus.can._dbc.layout import MessageLayout, SignalLayout, masked_ids
from genus.can._dbc.message_types import (
    UNKNOWN_ID,
    CompiledDecoder,
    MessageDecoder,
    MessageEncoder,
    attributes_of,
    declare_kind,
    declare_type,
    describe,
    j1939_defaults,
    j1939_identifier,
    member_names,
)
from genus.can._wire.frame import Frame, padded_size
from genus.errors import DbcError, EventError, counted
from genus.model import Event, Kind, attributes, is_event_type, name_of, subtypes

WIDTH = 120
"""The longest line of a generated module."""


def load_dbc(
    path: str | os.PathLike[str],
    types: Iterable[type] = (),
    *,
    truncated: bool = False,
    j1939: bool | None = None,
    nmea2000: bool = False,
    reuse: bool = False,
) -> "Dbc":
    """Make event types of the messages of a DBC, ARXML, KCD or SYM file, or of the diagnostic data of a CDD file.

    The format is recognised by the content. Loading a file again declares its types again, unless you give `reuse`.
    Look at `problems` and `repairs` of the result before you trust a file that you did not write.

    Args:
        path: The file.
        types: Classes to use for its messages, from a module made from the file (`genus can types --python`).
        truncated: Whether frames that are shorter than their message are decoded as far as they reach. Then every
            attribute may be absent, so leave it out unless frames of the bus are short.
        j1939: Whether messages with 29-bit identifiers are J1939 messages; by default those of which the file says it.
        nmea2000: They are, and messages longer than a frame are sent in the fast packets of NMEA 2000.
        reuse: Use the classes that this process has declared for all of its messages before, if it has.

    Raises:
        DbcError: The file cannot be read, or a given class differs from its message.
    """
    layouts = read_layouts(path, truncated=truncated, j1939=j1939, nmea2000=nmea2000)
    return _reused(layouts, (*_declared_before(layouts), *types)) if reuse else Dbc(layouts, types)


@lru_cache(maxsize=8)
def _reused(layouts: Layouts, types: tuple[type, ...]) -> "Dbc":
    return Dbc(layouts, types)


class Dbc:
    """The event types of a DBC file, and the decoder of its frames; made by `load_dbc`."""

    def __init__(self, layouts: Layouts, types: Iterable[type] = ()) -> None:
        given = {name_of(cls): cls for cls in types}
        self._read = layouts
        self.path = layouts.path
        self.messages: tuple[MessageLayout, ...] = layouts.messages
        """The messages with the bits of their signals, in the order of the file."""
        self.all_messages = every = layouts.messages + layouts.standard
        """The messages of the file, and those that every J1939 bus has: address claims and requests."""
        self.dids: tuple[MessageLayout, ...] = layouts.dids
        """The diagnostic data of a CDD file, by the identifiers (DID) with which they are requested."""
        self.repairs: tuple[str, ...] = layouts.repairs
        """What was repaired or left out so that the file could be read, each with its line."""
        self.renamed: Mapping[str, str] = MappingProxyType(layouts.renamed)
        """Names of the file that could not be kept, and the new ones; signals as `Message.signal`."""
        self.problems: tuple[str, ...] = tuple(layouts.problems)
        """What is wrong with the file, such as signals that were left out."""
        self.kind: type[Kind] = given.get(layouts.name) or declare_kind(layouts.name)
        """The kind of all its types, which has the name of the file."""
        self.types: Mapping[str, type[Event]] = MappingProxyType(
            {m.type_name: _given_class(given, m) or _declared(m, self.kind) for m in (*every, *layouts.dids)}
        )
        """The event types by name: the message's name, unless it was renamed."""
        decoders = [MessageDecoder(m, self.types[m.type_name]) for m in every]
        self._by_id = {(m.frame_id, m.extended): each for m, each in zip(every, decoders, strict=True)}
        self._layouts = {m.type_name: m for m in every}
        self._encoders: dict[type, MessageEncoder] = {}
        self._by_did = {m.frame_id: MessageDecoder(m, self.types[m.type_name]) for m in layouts.dids}
        self._masked = masked_ids(every)
        self._decoders, self._groups = decoders, GroupIndex(every)

    @property
    def all_types(self) -> tuple[type, ...]:
        """The kind and the event types, as a catalog registers them."""
        return (self.kind, *self.types.values())

    def using(self, types: Iterable[type]) -> "Dbc":
        """Return the same messages with other classes for some of them; DbcError if one differs from its message."""
        return Dbc(self._read, [*self.all_types, *types])

    def message_of(self, frame_id: int, extended: bool = False) -> MessageLayout | None:
        """Return the message that frames with an identifier belong to; None if there is none.

        A J1939 frame belongs to a message by its parameter group too, whatever its priority and addresses are.
        """
        decoder = self._find(frame_id, extended)
        return decoder.layout if isinstance(decoder, MessageDecoder) else None

    def type_of(self, frame_id: int, extended: bool = False) -> type[Event] | None:
        """Return the event type of frames with an identifier; None if there is none."""
        decoder = self._find(frame_id, extended)
        return decoder.cls if isinstance(decoder, MessageDecoder) else None

    def decode(
        self,
        frame_id: int,
        data: bytes,
        extended: bool = False,
        *,
        time: datetime | None = None,
        place: str | None = None,
    ) -> Event | Rejected:
        """Return the event of a frame, or the reason why there is none; never raises.

        The event's `source` is the message's sender if there is only one; of a J1939 frame, the address of its sender.
        A J1939 message may have more data than a frame, as `long_messages` puts it together.
        """
        decoder = self._find(frame_id, extended)
        if not isinstance(decoder, MessageDecoder):
            return Rejected(UNKNOWN_ID if decoder is None else decoder.reason)
        if place is None and decoder.is_plain:
            return decoder.compiled(data, time)
        return decoder.event(frame_id, data, time, place)

    def decoder_of(self, frame_id: int, extended: bool = False) -> CompiledDecoder | None:
        """Return the function from data and time to the event, of frames with an identifier; None if they have none."""
        decoder = self._find(frame_id, extended)
        if not isinstance(decoder, MessageDecoder):
            return None
        return decoder.compiled if decoder.is_plain else partial(decoder.event, frame_id)

    def encode(self, event: Event) -> Frame:
        """Return the frame of an event of one of its types, or of a class with the name and attributes of one.

        A J1939 event says priority, source and destination of the identifier; its data may be longer than a frame.

        Raises:
            EventError: A value cannot be encoded, and is named; or the file has no such type.
            DbcError: The class has the name of a type of the file, but other attributes.
        """
        encoder = self._encoder(type(event))
        layout = encoder.layout
        data = encoder.data(event)
        padded = data.ljust(padded_size(len(data)), b"\0") if layout.fd else data
        identifier = j1939_identifier(layout, event) if layout.j1939 else layout.frame_id
        return Frame(identifier, padded, layout.fd, layout.extended)

    def knows(self, frame_id: int, extended: bool = False) -> bool:
        """Return whether frames with an identifier belong to a message, or could belong to several."""
        return self._find(frame_id, extended) is not None

    def layout_of(self, cls: type) -> MessageLayout | None:
        """Return the message of an event type, or of a class with the name and attributes of one; else None."""
        layout = self._layouts.get(name_of(cls)) if is_event_type(cls) else None
        if layout is not None and self.types[layout.type_name] is not cls:
            _given_class({layout.type_name: cls}, layout)
        return layout

    def _encoder(self, cls: type) -> MessageEncoder:
        found = self._encoders.get(cls)
        if found is None:
            layout = self.layout_of(cls)
            if layout is None:
                raise EventError(f"{cls.__name__} is no type of {self.path}")
            found = self._encoders[cls] = MessageEncoder(layout)
        return found

    def decode_did(
        self,
        did: int,
        data: bytes,
        *,
        time: datetime | None = None,
        source: str | None = None,
        place: str | None = None,
    ) -> Event | Rejected:
        """Return the event of diagnostic data that a node gave for an identifier, or why there is none; never raises.

        Args:
            did: The identifier in a CDD file.
            data: The data of the response, after the identifier.
            time: When the event happened.
            source: The node.
            place: Where it is.
        """
        decoder = self._by_did.get(did)
        if decoder is None:
            return Rejected(UNKNOWN_ID)
        values = decoder.values(data)
        if isinstance(values, Rejected):
            return values
        return decoder.cls(time=time, source=source, place=place, **values)

    def long_messages(self) -> LongMessages | None:
        """Return a new reassembler of messages longer than a frame; None if the file has no J1939 messages."""
        return LongMessages(self.all_messages) if self._groups else None

    def _find(self, frame_id: int, extended: bool) -> MessageDecoder | AmbiguousGroup | None:
        exact = self._by_id.get((frame_id, extended))
        if exact is not None or not extended:
            return exact
        for mask, numbers in self._masked.items():
            if (number := numbers.get(frame_id & mask)) is not None:
                return self._decoders[number]
        found = self._groups.find(frame_id)
        return self._decoders[found] if isinstance(found, int) else found

    def __repr__(self) -> str:
        return f"<Dbc {self.path}: {counted(len(self.messages), 'message')}>"


def _given_class(given: Mapping[str, type], message: MessageLayout) -> type[Event] | None:
    """Return the class that was given for a message, if there is one; it must have the attributes of the message."""
    cls = given.get(message.type_name)
    if cls is None:
        return None
    if not issubclass(cls, Event) or not _is_alike(cls, message):
        raise DbcError(
            f"{name_of(cls)} in {cls.__module__} differs from the DBC file; write the module again with "
            "`genus can types --python`"
        )
    return cls


def _declared(message: MessageLayout, kind: type[Kind]) -> type[Event]:
    cls = declare_type(message, kind)
    _LAYOUTS[cls] = message
    return cls


def _declared_before(layouts: Layouts) -> list[type]:
    """Return the classes of this process for the messages of a file, the latest if there are several; all or none."""
    found: list[type] = []
    messages = (*layouts.messages, *layouts.standard, *layouts.dids)
    for kind in subtypes(Kind):
        if name_of(kind) == layouts.name:
            below = {name_of(cls): cls for cls in subtypes(kind) if is_event_type(cls)}
            if all(_is_alike(below.get(message.type_name), message) for message in messages):
                found = [kind, *(below[message.type_name] for message in messages)]
    return found


_LAYOUTS: WeakKeyDictionary[type, MessageLayout] = WeakKeyDictionary()
"""State: the layout that each class is known to have the attributes of; comparing all of a large file takes long."""


def _is_alike(cls: type | None, message: MessageLayout) -> bool:
    if cls is None or _LAYOUTS.get(cls) is message:
        return cls is not None
    inherited = attributes(Event)
    is_alike = tuple(each for each in attributes(cls) if each not in inherited) == attributes_of(message)
    if is_alike:
        _LAYOUTS[cls] = message
    return is_alike


# -- Python source -----------------------------------------------------------------------------------------------------


def python_source(dbc: Dbc) -> str:
    """Return the text of a Python module that declares the types of a DBC file."""
    about = _docstring(f"The messages of {dbc.path.name} as event types.", "")
    return "\n\n\n".join([f"{about}\n\n{_imports(dbc)}", *_classes(dbc)]) + "\n"


def _imports(dbc: Dbc) -> str:
    """Return the imports that are needed; annotations are evaluated late, so that an attribute cannot hide a type."""
    messages = (*dbc.all_messages, *dbc.dids)
    signals = [signal for message in messages for signal in message.signals]
    has_optional = any(message.is_optional(signal) for message in messages for signal in message.signals)
    has_labels = any(signal.label is not None for signal in signals)
    has_units = any(signal.unit for signal in signals)
    has_j1939 = any(message.j1939 for message in dbc.all_messages)
    ours = {"Event", "Kind", *(signal.annotation for signal in signals)} - {"bytes", "float"}
    ours |= {"Unit"} if has_units else set()
    ours |= {"Maybe"} if has_labels or has_optional else set()
    ours |= {"Maybe", "UInt8", "UInt32"} if has_j1939 else set()
    standard = ["from enum import Enum"] * has_labels + ["from typing import Annotated"] * has_units
    parts = ["from __future__ import annotations", *(["\n".join(standard)] if standard else [])]
    return "\n\n".join([*parts, f"from genus import {', '.join(sorted(ours, key=_as_ruff_sorts))}"])


def _as_ruff_sorts(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def _classes(dbc: Dbc) -> Iterator[str]:
    kind = dbc.kind.__name__
    yield f"class {kind}(Kind):\n{_docstring(f'A message of {kind}.', '    ')}"
    for message in (*dbc.all_messages, *dbc.dids):
        yield from (_enumeration(signal) for signal in message.signals if signal.label is not None)
        yield "\n".join([f"class {message.type_name}(Event, {kind}):", *_body(message)])


def _enumeration(signal: SignalLayout) -> str:
    members = (f"    {name} = {_quote(label)}" for name, label in member_names(signal.labels))
    return "\n".join([f"class {signal.enumeration}(Enum):", *members])


def _body(message: MessageLayout) -> Iterator[str]:
    yield _docstring(describe(message), "    ")
    if message.signals or message.j1939:
        yield ""
    if message.j1939:
        yield from _j1939_attributes(message)
    for signal in message.signals:
        yield f"    {signal.attribute}: {_annotation(signal, message)}"
        if signal.comment:
            yield _docstring(" ".join(signal.comment.split()), "    ")
        if signal.label is not None:
            yield f"    {signal.label}: Maybe[{signal.enumeration}] = None"


def _j1939_attributes(message: MessageLayout) -> Iterator[str]:
    known = j1939_defaults(message)
    yield f"    source: UInt8 = {known['source']}  # type: ignore[assignment]"
    yield "    destination: Maybe[UInt8] = None"
    yield f"    priority: UInt8 = {known['priority']}"
    yield f"    pgn: UInt32 = {known['pgn']}"
    yield "    sender: Maybe[str] = None"


def _annotation(signal: SignalLayout, message: MessageLayout) -> str:
    note = f"Annotated[{signal.annotation}, Unit({_quote(signal.unit)})]" if signal.unit else signal.annotation
    return f"Maybe[{note}] = None" if message.is_optional(signal) else note


def _quote(text: str) -> str:
    """A text in double quotes: JSON's escapes are Python's, and characters that cannot be printed are escaped too."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)


def _docstring(text: str, indent: str) -> str:
    lines = textwrap.wrap(_quote(text)[1:-1], WIDTH - len(indent) - 6, break_long_words=False, break_on_hyphens=False)
    end = '"""' if len(lines) < 2 else '\n"""'
    return textwrap.indent('"""' + "\n".join(lines) + end, indent)
