"""The middleware's own traffic on a bus: clock synchronisation, claims and reports, as messages of fixed priority.

It stands between soft events and those without a deadline. Configuration and binding are not counted: they come when
nodes join, and no bound is known for how often that is.
"""

from collections.abc import Iterator

from genus.can.plan.fixed import Message
from genus.can.plan.system import System
from genus.can.wire.identifier import BROKER_NODE, Identifier, Priority, ProtocolTag
from genus.can.wire.segments import CLASSIC

HEARTBEAT_NS = 800_000_000
"""Claims and the broker's heartbeat come once a second, up to 200 ms earlier, so that senders do not stay in step."""

REPORT_NS = 1_000_000_000
"""How often a publisher tells of each channel how many events it sent."""


def own_messages(system: System) -> list[Message]:
    """The messages of the middleware in a system; none if it says that there is no such traffic."""
    if not system.bus.middleware:
        return []
    length = system.bus.timing.worst_case_ns(CLASSIC)
    return [Message(name, rank, length, period) for name, rank, period in _streams(system)]


def _streams(system: System) -> Iterator[tuple[str, int, int]]:
    """Name, rank and period of each stream; what does not come from a certain node is the broker's."""
    yield "sync", _rank(BROKER_NODE, ProtocolTag.SYNC), system.bus.sync_period_ns
    yield "follow-up", _rank(BROKER_NODE, ProtocolTag.FOLLOW_UP), system.bus.sync_period_ns
    yield "broker", _rank(BROKER_NODE, ProtocolTag.BROKER), HEARTBEAT_NS
    for name, number in system.nodes.items():
        yield f"claim of {name}", _rank(number, ProtocolTag.CLAIM), HEARTBEAT_NS
    for channel in system.channels:
        yield f"report of {channel.name}", _rank(channel.number, ProtocolTag.REPORT), REPORT_NS


def _rank(number: int, tag: ProtocolTag) -> int:
    return Identifier(Priority.SYSTEM, number, tag).pack()
