"""What the protocols tell the node, or whoever runs a broker: outcomes, conflicts, silence. All frozen."""

from typing import Literal, TypeAlias

import msgspec

from genus.can._protocol.messages import QosClass, Reason
from genus.catalog import Catalog
from genus.model import Vector

# How long the protocols wait, in nanoseconds. `docs/can-protocols.md` says what follows from each.


MILLISECOND = 1_000_000

STAGE_TIMEOUT = 50 * MILLISECOND
"""The broker gives up on a configuration when no node answers a stage for this long."""

RETRY = 100 * MILLISECOND
"""A node without a number asks again after this long without a word of configuration, then after twice that, ..."""

LONGEST_RETRY = 1_000 * MILLISECOND
"""... up to this; and for this long a node keeps still that was told that all numbers are taken."""

CLAIM_PERIOD = 1_000 * MILLISECOND
"""Claims and the broker's heartbeat come at least this often."""

CLAIM_JITTER = 200 * MILLISECOND
"""Each period is shorter by a random part of this, so that two senders do not stay in step."""

LEASE = 5 * CLAIM_PERIOD
"""The number of a node that was silent for this long may be given to another."""

DEFENCE_PAUSE = 100 * MILLISECOND
"""At most one claim in this time is an answer to a conflict, and announcements are repeated once in it."""

ROLL_CALL_SPREAD = 10 * MILLISECOND
"""A roll call is answered within this time, each node at a random moment."""

ROLL_CALL_WAIT = 12 * MILLISECOND
"""How long the broker listens after a roll call before it lets a frame follow that all answers go before."""

FAILURES_BEFORE_PAUSE = 3
"""So many failures in a row look like another node that sends the same identifier at the same moment, ..."""

COLLISION_PAUSE = 16 * MILLISECOND
"""... and are answered with a pause of a random part of this."""

BROKER_SILENCE = 3 * CLAIM_PERIOD
"""A standby takes over when the broker was not heard for this long."""

CONFIGURATION_PAUSE = 5 * MILLISECOND
"""A node that has just got its number asks for tags when nobody sent nibbles for this long, ..."""

LONGEST_POLITENESS = 1_000 * MILLISECOND
"""... but waits no longer than this."""

BIND_RETRY = 50 * MILLISECOND
"""First wait for the reply to a binding request; each further wait is twice the one before."""

BIND_ATTEMPTS = 4
"""A binding request is sent once and repeated three times."""

ANSWER_RETRY = 500 * MILLISECOND
"""A catalog question is repeated when no answer at all was heard for this long, to anybody."""

ANSWER_PATIENCE = 10_000 * MILLISECOND
"""... and when answers to others took this long."""

ANSWER_ATTEMPTS = 4
"""A catalog question is sent once and repeated three times."""

ANSWER_PACE = MILLISECOND // 2
"""Time between two frames of an answer, so that slow receivers keep up and others get the bus."""


class Configured(msgspec.Struct, frozen=True):
    """The node has this number from now on."""

    node: int


class Conflict(msgspec.Struct, frozen=True):
    """Another node claims this node's number, or its uid: then `uid` is this node's own.

    If the number is not `kept`, the node has none, and must not send, until it is configured anew. Two nodes of one uid
    both keep it: nothing tells them apart, so somebody has to.
    """

    node: int
    uid: int
    kept: bool


class NumbersExhausted(msgspec.Struct, frozen=True):
    """The broker has no free number for this node, which asks again."""


class BrokerSeen(msgspec.Struct, frozen=True):
    """A broker was heard that is new, was started anew, or has another catalog than before."""

    epoch: int
    digest: int


class Bound(msgspec.Struct, frozen=True):
    """A subject has this event tag; the low `width` bits of the tag say which tagged attributes an event carries."""

    subject: int
    etag: int
    qos_class: QosClass
    segmented: bool
    width: int
    deprecated: bool = False


class Refused(msgspec.Struct, frozen=True):
    """A subject has no event tag."""

    subject: int
    reason: Reason


class ClassConflict(msgspec.Struct, frozen=True):
    """This node announced a channel otherwise than its first publisher, who has it `recorded` and `segmented`."""

    subject: int
    announced: QosClass
    recorded: QosClass
    segmented: bool


class Described(msgspec.Struct, frozen=True):
    """The answer to a question for a vector; `vector` is None if the subject is unknown.

    An attribute of the vector that is not in `carried` belongs to relatives of the type only; in the vector, what every
    event of the type has is required. `tagged` names the attributes whose presence is in the event tag.
    """

    subject: int
    name: str = ""
    vector: Vector | None = None
    carried: tuple[str, ...] = ()
    tagged: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True):
    """The answer to a question for the type of an event tag; None if there is none."""

    etag: int
    name: str | None


class CatalogReceived(msgspec.Struct, frozen=True):
    """The answer to a question for the whole catalog."""

    catalog: Catalog


class Unanswered(msgspec.Struct, frozen=True):
    """The broker did not reply to a request, of this subject or event tag, though it was repeated.

    A binding is asked for again as soon as a broker is heard; a catalog question is not.
    """

    request: Literal["binding", "vector", "type", "catalog"]
    of: int = 0


class Standing(msgspec.Struct, frozen=True):
    """A broker took over, or became the standby of another (whose uid is `other`, 0 if it was never heard)."""

    active: bool
    other: int = 0


class StoreFailed(msgspec.Struct, frozen=True):
    """A broker could not write its tables, so it did not grant what it was asked for."""

    problem: str


Notice: TypeAlias = (
    Configured
    | Conflict
    | NumbersExhausted
    | BrokerSeen
    | Bound
    | Refused
    | ClassConflict
    | Described
    | Named
    | CatalogReceived
    | Unanswered
    | Standing
    | StoreFailed
)
