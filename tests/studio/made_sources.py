"""A source that tests fill as they like."""

from collections.abc import Callable, Collection, Mapping

from genus.model import Event
from genus.studio._source import Receive, Source
from genus.studio.types import ChannelRow, Row, SourceRow, Tables


class MadeSource:
    """State: rows, types and counters that a test sets; `emit` gives an event to those who tap."""

    def __init__(self, name: str = "made", types: Collection[type] = ()) -> None:
        self.name = name
        self.tables: dict[str, dict[str, Row]] = {
            "sources": {name: SourceRow(kind="bus", address="made:", health="fine")},
            "channels": {},
        }
        self.asked: list[frozenset[str]] = []
        self.declared: list[type] = list(types)
        self.counted: dict[str, int] = {}
        self.receivers: list[Receive] = []
        self.published: list[Event] = []
        self.is_closed = False
        self.part_of: Source | None = None

    def rows(self, wanted: Collection[str]) -> Tables:
        self.asked.append(frozenset(wanted))
        return {table: dict(rows) for table, rows in self.tables.items() if table in wanted}

    def types(self) -> Collection[type]:
        return self.declared

    def counts(self) -> Mapping[str, int]:
        return self.counted

    def tap(self, receive: Receive) -> Callable[[], None]:
        self.receivers.append(receive)
        return lambda: self.receivers.remove(receive)

    def emit(self, event: Event, at_ms: float = 0.0, publisher: str | None = None) -> None:
        for receive in list(self.receivers):
            receive(round(at_ms * 1e6), event, publisher)

    def publish(self, event: Event) -> None:
        self.published.append(event)
        self.emit(event)

    def close(self) -> None:
        self.is_closed = True

    def set_channel(self, type_: str, **cells: object) -> None:
        self.tables["channels"][f"{self.name}|{type_}|"] = ChannelRow(source=self.name, type=type_, **cells)  # type: ignore[arg-type]


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
