"""Notices of the protocols to the node or to the program that runs a broker, and the timeouts of the protocols.

All notices are frozen. Timeouts are in nanoseconds; `docs/wire.md` says what follows from each.
"""

from typing import Literal, TypeAlias

import msgspec

from genus.can._protocol.messages import QosClass, RefusalReason
from genus.catalog import Catalog

MILLISECOND = 1_000_000

STAGE_TIMEOUT = 50 * MILLISECOND
"""The broker gives up a configuration if no node answers a stage within this time."""

RETRY = 100 * MILLISECOND
"""A node without a number asks again after this time without a configuration message; then the time is doubled ..."""

MAX_RETRY = 1_000 * MILLISECOND
"""... up to this. A node for which no number was free also waits for this time."""

CLAIM_PERIOD = 1_000 * MILLISECOND
"""The longest time between two claims, and between two heartbeats of the broker."""

CLAIM_JITTER = 200 * MILLISECOND
"""Each period is shorter by a random part of this, so that two senders do not stay synchronous."""

LEASE = 5 * CLAIM_PERIOD
"""The number of a node that was silent for this time may be given to another."""

DEFENCE_INTERVAL = 100 * MILLISECOND
"""The least time between two claims that answer a conflict, and between two repetitions of all announcements."""

ROLL_CALL_SPREAD = 10 * MILLISECOND
"""Each node answers a roll call after a random time of at most this."""

ROLL_CALL_WAIT = 12 * MILLISECOND
"""How long the broker waits after a roll call before it sends a frame that all answers have priority over."""

FAILURES_BEFORE_BACKOFF = 3
"""After this many failures in a row another node probably sends the same identifier at the same time, ..."""

COLLISION_BACKOFF = 16 * MILLISECOND
"""... and the frame is repeated after a random part of this."""

BROKER_TIMEOUT = 3 * CLAIM_PERIOD
"""A standby takes over if no frame of the broker was received for this time."""

BIND_QUIET_TIME = 5 * MILLISECOND
"""A node that has just got its number asks for event tags once no nibbles were sent for this time, ..."""

MAX_BIND_DELAY = 1_000 * MILLISECOND
"""... but after this time at the latest."""

BIND_RETRY = 50 * MILLISECOND
"""The first timeout of a binding request; each further one is twice as long."""

BIND_ATTEMPTS = 4
"""A binding request is sent once and repeated three times."""

ANSWER_RETRY = 500 * MILLISECOND
"""A catalog question is repeated if no answer to any node was received for this time, ..."""

ANSWER_TIMEOUT = 10_000 * MILLISECOND
"""... and if answers to other nodes took this long."""

ANSWER_ATTEMPTS = 4
"""A catalog question is sent once and repeated three times."""

ANSWER_INTERVAL = MILLISECOND // 2
"""The time between two frames of an answer, so that slow receivers keep up and other nodes get the bus."""


SIGNATURE_RETRY = 100 * MILLISECOND
"""A reader asks a publisher for its signature, or its layout, at most once in this time, ..."""

SIGNATURE_ATTEMPTS = 3
"""... and takes a publisher that never answers for one that is older than signatures."""

OBJECTION_INTERVAL = 1_000 * MILLISECOND
"""An objection is repeated at most once in this time, as long as events come that contradict the catalog."""

PROBATION = 1_000 * MILLISECOND
"""A publisher whose channel is younger than this gives it up if a node objects; an older one is only told."""


class Configured(msgspec.Struct, frozen=True):
    """The node has this number from now on."""

    node: int


class NodeIdConflict(msgspec.Struct, frozen=True):
    """Another node claims this node's number, or uses its uid: then `uid` is this node's own.

    If the number is not `kept`, the node has none, and must not send, until it is configured again. Two nodes with one
    uid both keep the number, because they cannot be distinguished: one of them must get another uid.
    """

    node: int
    uid: int
    kept: bool


class NumbersExhausted(msgspec.Struct, frozen=True):
    """The broker has no free number for this node, which asks again."""


class BrokerSeen(msgspec.Struct, frozen=True):
    """A broker is new, was restarted, or has another catalog than before."""

    epoch: int
    digest: int


class Bound(msgspec.Struct, frozen=True):
    """A subject has this event tag; its low `width` bits are the presence bits of tagged attributes."""

    subject: int
    etag: int
    qos_class: QosClass
    segmented: bool
    width: int
    deprecated: bool = False


class BindingRefused(msgspec.Struct, frozen=True):
    """A subject has no event tag."""

    subject: int
    reason: RefusalReason


class ClassConflict(msgspec.Struct, frozen=True):
    """This node announced a channel differently than its first publisher, whose class and segmentation are recorded."""

    subject: int
    announced: QosClass
    recorded: QosClass
    segmented: bool


class CatalogReceived(msgspec.Struct, frozen=True):
    """The answer to a question for the whole catalog."""

    catalog: Catalog


class RequestUnanswered(msgspec.Struct, frozen=True):
    """The broker did not reply to a request for this subject, or for the catalog, although it was repeated.

    A binding request is sent again as soon as a frame of a broker is received; a catalog question is not.
    """

    request: Literal["binding", "catalog"]
    of: int = 0


class RoleChanged(msgspec.Struct, frozen=True):
    """A broker became active, or the standby of another one, whose uid is `other` (0 if it is unknown)."""

    active: bool
    other: int = 0


class StoreFailed(msgspec.Struct, frozen=True):
    """A broker could not write its tables, so it did not grant a request."""

    problem: str


class EtagsRefused(msgspec.Struct, frozen=True):
    """A broker has no event tag left for a type that a node asked for; the reason has the counts."""

    name: str
    reason: str


class ChannelConflict(msgspec.Struct, frozen=True):
    """To who runs a broker: a node publishes events that contradict the broker's catalog; it has to give that up."""

    node: int
    etag: int
    reason: str


Notice: TypeAlias = (
    Configured
    | NodeIdConflict
    | NumbersExhausted
    | BrokerSeen
    | Bound
    | BindingRefused
    | ClassConflict
    | CatalogReceived
    | RequestUnanswered
    | RoleChanged
    | StoreFailed
    | EtagsRefused
    | ChannelConflict
)
