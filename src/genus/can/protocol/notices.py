"""What the protocols tell the node, or whoever runs a broker: outcomes, conflicts, silence. All frozen."""

from typing import Literal, TypeAlias

import msgspec

from genus.can.protocol.messages import QosClass, Reason
from genus.catalog import Catalog
from genus.model import Vector


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
