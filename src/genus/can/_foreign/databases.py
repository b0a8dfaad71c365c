"""The databases of a bus as one: which classes their messages have, and which message a frame belongs to.

A program gets its classes from `load_dbc`, from a module that `genus can types --python` wrote, or from the bus. All of
them have the same names, so classes that exist when the bus is opened are used, and others when somebody subscribes to
them: a frame becomes an event of the class that the program knows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

from genus.bus.internal import Rejected
from genus.can._dbc import Dbc, MessageLayout
from genus.can._dbc.j1939 import INCOMPLETE
from genus.can._dbc.message_types import UNKNOWN_ID
from genus.can._wire.frame import Frame
from genus.errors import BusError, DbcError, EventError
from genus.filters import Subscription
from genus.model import Event, is_event_type, name_of, parents, subtypes


class Databases:
    """State: the databases of a bus, and the class of each of their messages."""

    def __init__(self, databases: Iterable[Dbc]) -> None:
        self._databases = list(databases)
        self._named: dict[str, type] = {}
        """Classes that somebody subscribed to by name; another one of the same name is refused."""
        self._long = [long for database in self._databases if (long := database.long_messages()) is not None]
        """The messages in progress that are longer than a frame."""
        self.types: Mapping[str, type] = {}
        """The kinds and event types of all databases, by name."""
        self._check_names()
        self._set_types()

    def _set_types(self) -> None:
        self.types = {name_of(cls): cls for database in self._databases for cls in database.all_types}

    def _check_names(self) -> None:
        seen: dict[str, Path] = {}
        for database in self._databases:
            for cls in database.all_types:
                if (other := seen.setdefault(name_of(cls), database.path)) != database.path:
                    raise DbcError(
                        f"{other} and {database.path} both have a type {name_of(cls)}; a bus can have one of them: "
                        "rename the message, or the file if it is its kind"
                    )

    @property
    def messages(self) -> Iterator[MessageLayout]:
        return (message for database in self._databases for message in database.all_messages)

    @property
    def problems(self) -> Iterator[str]:
        return (f"{database.path}: {problem}" for database in self._databases for problem in database.problems)

    def __str__(self) -> str:
        return " and ".join(str(database.path) for database in self._databases)

    # -- classes -----------------------------------------------------------------------------------------------------

    def use_classes(self, subscription: Subscription) -> None:
        """Use the classes of a subscription for the types of their names.

        BusError if two classes of one name are subscribed to, DbcError if one differs from its message.
        """
        for cls in subscription.types:
            if cls is not Event and self.owns(cls):
                self._use(cls)

    def owns(self, cls: type) -> bool:
        return name_of(cls) in self.types

    def _use(self, cls: type) -> None:
        if self.types[name_of(cls)] is not cls:
            family = {name_of(each): each for each in (*_family(cls), cls) if self.owns(each)}
            if not is_event_type(cls) and not self._is_complete(cls, family):
                raise BusError(f"{name_of(cls)} in {cls.__module__} lacks types of its database; use bus.types")
            for name, each in family.items():
                if (other := self._named.get(name, each)) is not each:
                    raise BusError(
                        f"two classes are named {name}, in {other.__module__} and in {each.__module__}; "
                        "subscribe to those of one module on a bus"
                    )
            self._databases = [
                database.using(family.values()) if _has(database, cls) else database for database in self._databases
            ]
            self._set_types()
        self._named[name_of(cls)] = cls

    def _is_complete(self, kind: type, family: Mapping[str, type]) -> bool:
        """Return whether classes below a kind stand for all types of the database that has its name."""
        database = next(each for each in self._databases if _has(each, kind))
        return all(name_of(cls) in family for cls in database.all_types)

    def layout_of(self, cls: type) -> MessageLayout | None:
        found = (database.layout_of(cls) for database in self._databases)
        return next((layout for layout in found if layout is not None), None)

    def accepted_by(self, subscription: Subscription) -> Iterator[MessageLayout]:
        for database in self._databases:
            for message in database.all_messages:
                if subscription.accepts(database.types[message.type_name]):
                    yield message

    # -- frames ------------------------------------------------------------------------------------------------------

    def knows(self, frame: Frame) -> bool:
        return self.is_part(frame) or any(each.knows(frame.id, frame.extended) for each in self._databases)

    def is_part(self, frame: Frame) -> bool:
        return bool(self._long) and frame.extended and any(each.is_part(frame.id) for each in self._long)

    def receive_part(self, frame: Frame, now_us: int) -> Frame | None:
        """Take a part of a long message; returns the message as one frame if that completes it."""
        for long in self._long:
            long.expire(now_us)
            found = long.receive(None, frame.id, frame.data, now_us)
            if found is not None:
                return Frame(found.frame_id, found.data)
        return None

    @property
    def incomplete(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for long in self._long:
            counts.update({f"{INCOMPLETE}{reason}": times for reason, times in long.counts.items()})
        return counts

    def message_of(self, frame: Frame) -> MessageLayout | None:
        for database in self._databases:
            message = database.message_of(frame.id, frame.extended)
            if message is not None:
                return message
        return None

    def decoder_of(self, frame: Frame) -> Callable[[bytes, datetime | None], Event | Rejected] | None:
        found = (database.decoder_of(frame.id, frame.extended) for database in self._databases)
        return next((decode for decode in found if decode is not None), None)

    def decode(self, frame: Frame, time: datetime) -> Event | Rejected:
        for database in self._databases:
            found = database.decode(frame.id, frame.data, frame.extended, time=time)
            if not isinstance(found, Rejected) or found.reason != UNKNOWN_ID:
                return found
        return Rejected(UNKNOWN_ID)

    def encode(self, event: Event) -> Frame:
        for database in self._databases:
            if database.layout_of(type(event)) is not None:
                return database.encode(event)
        raise EventError(f"{type(event).__name__} is no type of {self}")


def _has(database: Dbc, cls: type) -> bool:
    return any(name_of(each) == name_of(cls) for each in database.all_types)


def _family(cls: type) -> Iterator[type]:
    """Yield the kinds of a class, and what was declared below these: one module has the classes of all messages."""
    kinds = [cls] if not is_event_type(cls) else [each for each in parents(cls) if not is_event_type(each)]
    for kind in kinds:
        yield from subtypes(kind)
