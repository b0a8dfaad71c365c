"""What a gateway has done, per side: counters, a picture of them, and metrics for Prometheus."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

import msgspec

from genus.net._metrics import Metric


@dataclass(slots=True)
class SideCounters:
    """State: counters of one side.

    The first four are about events that came from the side, the others about events for it: `wanted` is the sum of
    `crossed`, `lost`, `limited`, and those that wait in the spool or for a rate limit.
    """

    heard: int = 0
    """Events that came from this side."""
    unwanted: int = 0
    """Of these, events that no other side wants."""
    duplicates: int = 0
    """Of these, events that had come before, over this side or another one."""
    out_of_scope: int = 0
    """Of these, events that another side wants, but that may not leave this side or enter that one."""
    wanted: int = 0
    """Events of other sides that this side wants."""
    crossed: int = 0
    """Of these, events that were sent to this side."""
    lost: int = 0
    """Of these, events that could not be sent, or that a full spool dropped."""
    spooled: int = 0
    """Of these, events that were written to the spool, as this side was not connected."""
    limited: int = 0
    """Of these, events that a rate limit dropped."""

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class SideStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a side of a gateway has done so far, and how it is now.

    `asked` is how many subscriptions the side has, and `refused` how many of these ask only for what the scopes of the
    sides keep back. The counters are those of `SideCounters`.
    """

    name: str
    is_connected: bool
    asked: int
    refused: int
    waiting: int
    heard: int
    unwanted: int
    duplicates: int
    out_of_scope: int
    wanted: int
    crossed: int
    lost: int
    spooled: int
    limited: int


class GatewayStatus(msgspec.Struct, frozen=True):
    """How a gateway is now: whether it is the active one of its name, what it keeps as a standby, and its sides.

    `unconfirmed` counts events that a standby no longer keeps, though it did not see them cross. `events` counts the
    events that came, by type: each once, however many sides it came from or crossed to.
    """

    is_active: bool
    held: int
    unconfirmed: int
    sides: tuple[SideStatus, ...]
    events: Mapping[str, int] = {}


_GAUGES = {
    "is_connected": "Whether the side is connected",
    "asked": "Subscriptions of the side",
    "refused": "Subscriptions of the side that scopes keep back",
    "waiting": "Events that wait for the side, in the queue and in the spool",
}
_COUNTERS = {
    "heard": "Events that came from the side",
    "unwanted": "Events of the side that no other one wants",
    "duplicates": "Events of the side that had come before",
    "out_of_scope": "Events of the side that scopes keep back",
    "wanted": "Events that the side wants",
    "crossed": "Events sent to the side",
    "lost": "Events that could not be sent to the side",
    "spooled": "Events written to the spool of the side",
    "limited": "Events that a rate limit kept from the side",
}


def metrics_of(status: GatewayStatus) -> Iterator[Metric]:
    """Yield the counters of a gateway as metrics, by side."""
    yield Metric("gateway_active", "Whether it carries events", "gauge", {"": float(status.is_active)})
    yield Metric("gateway_held", "Events that a standby keeps", "gauge", {"": status.held})
    yield Metric("gateway_unconfirmed_total", "Events not seen to cross in time", "counter", {"": status.unconfirmed})
    for name, text in _GAUGES.items():
        values = {side.name: float(getattr(side, name)) for side in status.sides}
        yield Metric(f"gateway_{name.removeprefix('is_')}", text, "gauge", values, "side")
    for name, text in _COUNTERS.items():
        values = {side.name: float(getattr(side, name)) for side in status.sides}
        yield Metric(f"gateway_{name}_total", text, "counter", values, "side")
