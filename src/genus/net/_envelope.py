"""The envelope of a packet, and what gateways need of a link.

The envelope of a packet: where its event was first published, and who sent it here; 25 bytes.

| bytes | |
|---|---|
| 8 | uid of the origin: the bus on which the event was published |
| 4 | number of the event among those of its origin and key |
| 1 | hops: the gateways that it crossed |
| 8 | uid of the sender: the origin, or the last gateway |
| 4 | number of the packet among those of its sender and key |

Both numbers are needed: a gateway that forwards only what is wanted leaves gaps in the numbers of the origin, which are
no losses. A packet on a soft channel has 20 bytes more: the time of publishing (microseconds since 1970), and deadline
and expiry (microseconds after it, 0: none). One of a class with units ends with a digest of 4 bytes of them.

What gateways need of a link: what others want, events with their origin, and sending for others.
"""

import base64
import binascii
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from genus.bus.internal import end_nothing
from genus.filters import Subscription
from genus.model import Event

ENVELOPE = struct.Struct(">8sIB8sI")
SOFT_TIMES = struct.Struct(">qIQ")
MAX_HOPS = 8
NUMBERS = 1 << 32


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where an event was first published: uid of the bus, number of the event there, and gateways crossed since."""

    uid: bytes
    number: int
    hops: int = 0


def new_uid() -> bytes:
    """Return a uid for a participant: random, so that one that restarts is another one."""
    return os.urandom(8)


def join_payloads(payloads: Sequence[bytes]) -> bytes:
    """One payload of the payloads of events that have followed each other: an array of msgpack."""
    count = len(payloads)
    if count < 16:
        head = bytes((0x90 | count,))
    else:
        head = b"\xdc" + count.to_bytes(2, "big") if count < 1 << 16 else b"\xdd" + count.to_bytes(4, "big")
    return b"".join((head, *payloads))


# -- CloudEvents in binary mode ----------------------------------------------------------------------------------------

ATTRIBUTES = b"CE\x00"
"""The first bytes of an envelope that has the attributes of a CloudEvent; MQTT has them as user properties."""
OWN = "genusenvelope"
"""The attribute of a CloudEvent that has the envelope of its packet."""

_encode_attributes = msgspec.msgpack.Encoder().encode
_decode_attributes = msgspec.msgpack.Decoder(dict[str, str]).decode


def join_attributes(attributes: Mapping[str, str], envelope: bytes = b"") -> bytes:
    """An envelope that has the attributes of a CloudEvent, and the envelope of its packet as one of them."""
    own = {OWN: base64.b64encode(envelope).decode()} if envelope else {}
    return ATTRIBUTES + _encode_attributes({**attributes, **own})


def attributes_in(envelope: bytes) -> dict[str, str]:
    """Return the attributes that `join_attributes` has put into an envelope, that of its packet among them."""
    return _decode_attributes(envelope[len(ATTRIBUTES) :])


def split_attributes(envelope: bytes) -> tuple[dict[str, str], bytes] | None:
    """Return the attributes of a CloudEvent, and the envelope of its packet if it has one; None if they cannot be read.

    >>> split_attributes(join_attributes({"type": "Loop"}, b"x" * 25))
    ({'type': 'Loop'}, b'xxxxxxxxxxxxxxxxxxxxxxxxx')
    """
    try:
        attributes = attributes_in(envelope)
        return attributes, base64.b64decode(attributes.pop(OWN, ""), validate=True)
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error, ValueError):
        return None


class Interest(msgspec.Struct, frozen=True):
    """What a participant wants to get.

    `speaker` is the participant that says so and `origin` the one that subscribed, by uid in hexadecimal digits; they
    differ if a gateway speaks for others. `hops` are the gateways between them.
    """

    speaker: str
    origin: str
    subscription: Subscription
    hops: int = 0


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """An event that came over a link, or was published on its bus, and where it comes from.

    `kept` is the value of the key under which it is kept for later subscribers; None if it is not. With `is_forgotten`
    nothing came but that this event, which did so before, is kept no more.
    """

    event: Event
    origin: Origin
    kept: str | None = None
    is_forgotten: bool = False


def passes(test: Callable[[Event], bool], event: Event) -> bool:
    """Return whether an event passes the test of a subscription; one that cannot be tested does."""
    try:
        return test(event)
    except Exception:  # a value of an undeclared type: the subscriber's own test decides
        return True


class Relay(Protocol):
    """A gateway's access to one link."""

    def set_interest(self, interests: Iterable[Interest]) -> None:
        """Receive what these interests match, and show them on the network; replaces those before.

        Subscriptions may be wider than what was asked elsewhere (merged); each keeps its origin and hops.
        """

    def close(self) -> None:
        """Stop receiving."""


class RelayLink(ABC):
    """What gateways carry events over: a link of a network derives from it too, and so do their other sides."""

    uid: bytes
    """The uid of this participant."""

    @abstractmethod
    def relay(self, receive: Callable[[Arrival], None]) -> Relay:
        """Call a function once with each event that the relay asks for.

        Also with events that were published on this link's own bus; not with those that were forwarded to this link.
        """

    @abstractmethod
    def forward(self, arrival: Arrival) -> None:
        """Send an event of another network to this one, and to the subscribers of this bus, with its origin.

        The caller has counted the hop. Events with too many hops, and those that this link has seen, are not sent.
        """

    @abstractmethod
    def interests(self) -> list[Interest]:
        """Return what others and the own bus subscribe to; what the own gateways ask for is left out."""

    @abstractmethod
    def on_interest(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call a function, from any thread, when `interests()` has changed; returns a function to end it."""

    @property
    def is_connected(self) -> bool:
        """Return whether the medium can be reached now; True where it cannot be lost."""
        return True

    def on_connected(self, changed: Callable[[bool], None]) -> Callable[[], None]:
        """Call a function when the connection is made or lost, if there is one; returns a function to end it."""
        return end_nothing

    def show(self, what: str, text: str) -> Callable[[], None]:
        """Show a token `@genus/<realm>/<what>/<uid>/<text>` to all while this process lives, if the medium can."""
        return end_nothing

    def watch(self, what: str, changed: Callable[[str, str, bool], None]) -> Callable[[], None]:
        """Call a function with uid, text and presence of the tokens of others; returns a function to end it."""
        return end_nothing

    hears_gateways = False
    """Whether gateways hear each other by `tell_gateways`; where they do not, a token is enough to be seen."""

    def tell_gateways(self, text: str) -> None:  # noqa: B027 - a default
        """Tell the other gateways on this network something, under a key that access lists give to gateways only."""

    def on_gateways(self, heard: Callable[[str], None]) -> Callable[[], None]:
        """Call a function with what other gateways tell; returns a function to end it.

        BusError if this participant may not be a gateway.
        """
        return end_nothing

    def follow(self, senders: Collection[bytes]) -> None:  # noqa: B027 - a default
        """Remember the last packets that these participants, other gateways, send; replaces those before."""

    def repeat(self) -> None:  # noqa: B027 - a default
        """Send what is remembered of others again as it was, and how far they came: they are gone.

        What they had queued for receivers that were busy went with them. Receivers drop what they have, and notice
        what is still missing by the numbers of the sender.
        """

    def lose(self, arrival: Arrival) -> None:  # noqa: B027 - a default
        """Let the receivers on this network miss an event that could not be forwarded, if they can notice."""

    def report_loss(self, arrival: Arrival) -> None:  # noqa: B027 - a default
        """Tell the publisher of an event, if it is on this network and can be told, that a gateway lost it."""
