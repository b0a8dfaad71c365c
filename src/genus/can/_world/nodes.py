"""The nodes of a world at an instant: their state, roles, clocks, filters and subscriptions.

Everything is read and nothing is changed, so it can be asked while another thread runs the world.
"""

from typing import Literal, TypeAlias

import msgspec

from genus.can._protocol.clock_model import known_precision
from genus.can._protocol.time_service import TimeService
from genus.can._sim.controller import ErrorState
from genus.can._sim.simulation import Host
from genus.can._wire.frame import BROKER_NODE
from genus.can._world.station import Station

NodeCondition: TypeAlias = Literal["up", "starting", "not synchronised", "error passive", "bus off", "down", "closed"]
"""How a node is: `starting` while its channels are not bound, `down` between a crash and a restart, `closed` when its
program has closed its bus."""
NodeRole: TypeAlias = Literal["time master", "broker"]
"""What a node does for the others."""

_BY_ERRORS: dict[ErrorState, NodeCondition] = {ErrorState.OFF: "bus off", ErrorState.PASSIVE: "error passive"}


class NodeSubscription(msgspec.Struct, frozen=True):
    """A subscription of a node, and how many events that the node got matched it."""

    text: str
    delivered: int


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a world, at the instant of the question."""

    name: str
    number: int | None
    """None until it has one."""
    uid: int
    condition: NodeCondition
    roles: tuple[NodeRole, ...] = ()
    offset_ns: int | None = None
    """How far the time of the bus, as the node knows it, is off the true time; None while the node is not up."""
    precision_ns: int | None = None
    """A bound on the error of the bus's time, as the node knows it; None while there is none."""
    heard_ns: int | None = None
    """The virtual time at which a frame of it was last sent."""
    subscriptions: tuple[NodeSubscription, ...] = ()
    filters: tuple[tuple[int, int], ...] = ()
    """Value and mask of the acceptance filters of its controller."""


def state_of(station: Station, now_ns: int, true_ns: int, heard_ns: int | None) -> NodeState:
    """Return the state of a station at a virtual time, which is this true time since 1970."""
    node = station.node if station.has_node else None
    is_up = station.is_up and node is not None
    return NodeState(
        name=station.name,
        number=node.number if node is not None and is_up else station.number,
        uid=node.uid if node is not None else 0,
        condition=_condition(station),
        roles=("time master",) if is_up and _is_master(station) else (),
        offset_ns=station.bus_time(now_ns) - true_ns if is_up else None,
        precision_ns=known_precision(station.precision_ns) if is_up else None,
        heard_ns=heard_ns,
        subscriptions=tuple(NodeSubscription(each.text, each.delivered) for each in station.subscriptions),
        filters=station.filters,
    )


def broker_state(host: Host, uid: int, heard_ns: int | None) -> NodeState:
    """Return the state of the broker."""
    condition: NodeCondition = _BY_ERRORS.get(host.controller.state, "up") if host.is_up else "down"
    return NodeState(
        name="broker", number=BROKER_NODE, uid=uid, condition=condition, roles=("broker",), heard_ns=heard_ns
    )


def _condition(station: Station) -> NodeCondition:
    if station.is_closed:
        return "closed"
    if not station.has_node:
        return "starting"
    if not station.is_up:
        return "down"
    by_errors = _BY_ERRORS.get(station.host.controller.state)
    if by_errors is not None:
        return by_errors
    if not station.is_bound_whole:
        return "starting"
    is_synchronised = known_precision(station.precision_ns) is not None and not station.node.is_calendar_stopped
    return "up" if is_synchronised else "not synchronised"


def _is_master(station: Station) -> bool:
    time = station.node.time
    return isinstance(time, TimeService) and time.is_master
