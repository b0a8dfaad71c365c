"""Problems: what the `on_problem` handlers of channels and subscriptions are called with.

Publishers get deadlines missed and events that expired or could not be sent; subscribers get periodic events that did
not come, and losses. Times are in nanoseconds: hard deadlines in the bus's time, all others in the node's own.
"""

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from genus.model import Event


class DeadlineMissed(msgspec.Struct, frozen=True):
    """To a publisher: the event was not on the bus by its deadline.

    A soft event is still being sent. A hard one was sent after the end of its slot by this node's clock: it was on the
    wire then. Subscribers may have got it in time by theirs.
    On a live bus that is known when the controller confirms it: one that was sent just before its deadline may be
    reported because this computer read the confirmation after it.
    """

    channel: str
    event: Event
    deadline_ns: int


class Expired(msgspec.Struct, frozen=True):
    """To a soft publisher: the event expired before it could be sent, and was dropped.

    A frame on the wire cannot be stopped, nor one that a driver has queued: if it was `sent` all the same, the event is
    counted as sent, and by `sent_expired`.
    """

    channel: str
    event: Event
    expired_ns: int
    sent: bool = False
    """Whether it was sent after it had expired."""


class MaybeSent(msgspec.Struct, frozen=True):
    """To a publisher: a driver took the event and did not confirm it; it is not known whether it was sent.

    It is not sent again, as subscribers could get it twice. If it matters, publish it again so that twice does no harm.
    """

    channel: str
    event: Event


class NotSent(msgspec.Struct, frozen=True):
    """To a hard publisher: the event could not be sent in its slot, or no slot came for it. It is not sent later.

    Also to others, if the node lost its number while the event waited.
    """

    channel: str
    event: Event
    attempts: int


class EventMissing(msgspec.Struct, frozen=True):
    """To a hard subscriber: the event due at this deadline did not come."""

    channel: str
    deadline_ns: int


class EventsLost(msgspec.Struct, frozen=True):
    """To a subscriber: so many events of a publisher were sent but not received."""

    channel: str
    node: int
    count: int


class HardStopped(msgspec.Struct, frozen=True):
    """To all hard publishers and subscribers of a node: its clock is not precise enough; slots are not used."""

    precision_ns: int | None
    """A bound on the clock's error; None while it is not synchronised at all."""
    allowed_ns: int


class HardResumed(msgspec.Struct, frozen=True):
    """To all hard publishers and subscribers of a node: its clock is precise enough again."""

    precision_ns: int


class ErrorPassive(msgspec.Struct, frozen=True):
    """To all hard publishers and subscribers of a node: its controller is error passive, or may soon be.

    If they are not `promised`, hard events in slots that start from now on until `ErrorActive` may be `NotSent` though
    they failed no more often than planned: one that fails may find no time left in its slot. It is never sent later.
    If they are, slots are planned for that.
    As a receiver the node cannot make others repeat a frame that it alone got wrong, so a hard event may be missing.
    """

    at_ns: int
    promised: bool


class ErrorActive(msgspec.Struct, frozen=True):
    """To all hard publishers and subscribers of a node: its controller has few errors again, hard events are promised.

    That is so in slots that start after `at_ns`.
    """

    at_ns: int


class BindingFailed(msgspec.Struct, frozen=True):
    """To a publisher or subscriber: the channel could not be bound to an event tag."""

    channel: str
    reason: str


class WrongCatalog(msgspec.Struct, frozen=True):
    """To a subscriber: events of this node contradict the catalog, and are not decoded.

    To a publisher: this node, which subscribes to the channel or publishes on it, has another catalog. A publisher that
    has to give up its channel for that reason gets `BindingFailed` instead.
    """

    channel: str
    node: int
    reason: str


class NodeIdLost(msgspec.Struct, frozen=True):
    """To all publishers of a node: another node with a lower uid has its number.

    It asks the broker for a new one, and publishes nothing until it has that; without a broker, nothing any more.
    """

    number: int
    other_uid: int


class BusOff(msgspec.Struct, frozen=True):
    """To all publishers of a node: its controller went off the bus after too many errors, or its interface died."""

    at_ns: int


class NotConfirmed(msgspec.Struct, frozen=True):
    """To all publishers of a node: its driver took a frame, but does not confirm that it was sent; others wait for it.

    The bus is cut, or too busy for this frame, or the driver has lost it. Events that wait are reported as late and
    expired, as always; those that a driver took and did not confirm as `MaybeSent`.
    """

    at_ns: int


DeliveryProblem: TypeAlias = (
    DeadlineMissed
    | Expired
    | MaybeSent
    | NotSent
    | EventMissing
    | EventsLost
    | HardStopped
    | HardResumed
    | ErrorPassive
    | ErrorActive
    | BindingFailed
    | WrongCatalog
    | NotConfirmed
    | NodeIdLost
    | BusOff
)
"""What an `on_problem` handler of a CAN bus is called with."""
ProblemHandler: TypeAlias = Callable[[DeliveryProblem], object]
