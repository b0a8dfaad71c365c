"""A gateway as a source: its sides, what crosses to each, and what is lost."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from genus.bus import shown_address
from genus.studio._figures import Rates, counted, three_digits
from genus.studio.types import GatewayRow, Row, SourceRow, Tables

if TYPE_CHECKING:
    from genus.bus import Bus
    from genus.net import Gateway
    from genus.net.types import GatewayStatus, SideStatus

_ALL = ""


class GatewaySource:
    """State: a gateway, and what its counters were before.

    Args:
        gateway: The gateway; it is not closed with this source.
        name: Its name on the page.
        address: What it is shown with, such as the path of its file.
        addresses: How the bus of each side was opened, without passwords, by the name of the side.
        types: The event types that it carries, if they are known.
        clock: Replaces `time.monotonic`.
        close: Is called when this source is closed.
    """

    def __init__(
        self,
        gateway: "Gateway",
        *,
        name: str,
        address: str = "",
        addresses: Mapping[str, str] | None = None,
        types: Collection[type] = (),
        clock: Callable[[], float] = time.monotonic,
        close: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self._gateway, self._address, self.addresses = gateway, address, dict(addresses or {})
        self._types = tuple(types) or _types_of(gateway)
        self._clock, self._close = clock, close
        self._rates = Rates()

    @property
    def buses(self) -> "list[tuple[str, Bus]]":
        """The buses of the sides, by the names of the sides."""
        return [(name, side.bus) for name, side in self._gateway.sides.items()]

    def rows(self, wanted: Collection[str]) -> Tables:
        status, now = self._gateway.status(), self._clock()
        self._rates.note(_ALL, sum(status.events.values()), now)
        for side in status.sides:
            self._rates.note(f"|{side.name}", side.crossed, now)
        found: dict[str, Mapping[str, Row]] = {"sources": {self.name: self._source_row(status)}}
        if "gateways" in wanted:
            found["gateways"] = {f"{self.name}|{side.name}": self._side_row(status, side) for side in status.sides}
        return found

    def types(self) -> Collection[type]:
        return self._types

    def counts(self) -> Mapping[str, int]:
        return self._gateway.status().events

    def close(self) -> None:
        """Close what this source has opened; a second call does nothing."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def _source_row(self, status: "GatewayStatus") -> SourceRow:
        return SourceRow(
            kind="gateway",
            address=self._address or ", ".join(self.addresses.values()),
            state="ended" if self._gateway.is_closed else "live",
            note="; ".join(self._notes(status)),
            events=sum(status.events.values()),
            rate=self._rate(_ALL),
            lost=sum(side.lost for side in status.sides),
            has_events=False,
        )

    def _notes(self, status: "GatewayStatus") -> Iterator[str]:
        if self._gateway.is_closed:
            yield "closed"
            return
        if not status.is_active:
            yield f"standing by; {counted(status.held, 'event')} not seen to cross yet"
        if status.unconfirmed:
            yield f"{counted(status.unconfirmed, 'event')} not seen to cross in time"
        for side in status.sides:
            if not side.is_connected:
                waiting = f", waiting to cross: {counted(side.waiting, 'event')}" if side.waiting else ""
                yield f"{side.name} is not connected{waiting}"

    def _rate(self, key: str) -> float:
        return 0.0 if self._gateway.is_closed else three_digits(self._rates.rate(key))

    def _side_row(self, status: "GatewayStatus", side: "SideStatus") -> GatewayRow:
        counters = {name: getattr(side, name) for name in side.__struct_fields__ if name != "name"}
        return GatewayRow(
            source=self.name,
            side=side.name,
            address=self.addresses.get(side.name, ""),
            is_active=status.is_active and not self._gateway.is_closed,
            rate=self._rate(f"|{side.name}"),
            **counters,
        )


def open_gateway_source(
    path: str | os.PathLike[str],
    load_types: Callable[[str], Iterable[type]] | None = None,
    *,
    name: str | None = None,
) -> "tuple[GatewaySource, list[tuple[str, Bus]]]":
    """Run a gateway by its file, as `genus gateway` does, until the source is closed.

    Args:
        path: The file.
        load_types: Loads what an entry of `types` names; by default a module or a `.py` file.
        name: The name of the source; by default that of the gateway, or of the file.

    Returns:
        The source, and the buses of the sides with their names; closing the source closes them.

    Raises:
        BusError: The file cannot be read or is wrong, or a bus cannot be opened.
    """
    from genus.net import load_gateway

    loaded = load_gateway(path, load_types)
    with ExitStack() as stack:
        gateway = stack.enter_context(loaded.open())
        source = GatewaySource(
            gateway,
            name=name or loaded.name or Path(path).stem,
            address=str(path),
            addresses={side.name: shown_address(side.address) for side in loaded.sides},
            types=loaded.types,
        )
        source._close = stack.pop_all().close
    return source, source.buses


def _types_of(gateway: "Gateway") -> tuple[type, ...]:
    """Return the types that the options of the sides name."""
    found: dict[type, None] = {}
    for side in gateway.sides.values():
        for named in (side.export or (), side.imports or (), side.rate, side.quality):
            found.update(dict.fromkeys(named))
    return tuple(found)
