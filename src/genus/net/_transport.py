"""Transports: what carries packets between processes, under keys; `NetLink` makes a typed bus of one.

A transport knows nothing of events. It sends bytes under a key to all that subscribed to a pattern that matches it,
shows tokens (texts that are present while their owner lives) and says what it could not send. Numbering, losses,
duplicates, interest and last values are done above it, in the same way for all transports. What a network could not
keep is given to `on_problem` of channels and subscriptions, and to the log without one.

`SealedTransport` authenticates packets: it seals what it sends with the key of the realm, and drops what is not sealed.
A seal is a keyed BLAKE2b of key, envelope and payload, 16 bytes behind the envelope; a CloudEvent in binary mode has it
as an attribute. It proves that the sender has the key of the realm, so that uids, numbers, beats and reports are not
invented by others; a packet that is sent once more is recognised by its numbers. Nothing is encrypted; tokens (of
presence and interest) have no seal, and messages of other systems, outside of the realm, need none.
"""

import base64
import binascii
import hmac
import logging
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from genus.errors import BusError, Reasons, counted
from genus.net._envelope import ATTRIBUTES, attributes_in, join_attributes
from genus.targets.topics import Dialect

BULK, NORMAL, SOFT, URGENT = 0, 1, 2, 3
"""Priorities of packets: without real time (bulk and normal), with a deadline, and with one of at most 10 ms."""


ROOT, QUEUE = "@genus", "queue"
"""The first chunk of keys that are not of events, and the third of those that are sent to one of several receivers."""


class Sending(msgspec.Struct, frozen=True):
    """How the packets of a key are sent.

    `reliable`: packets that were lost on the way are sent again, as far as the transport can. `keep`: the newest packet
    of the key is kept for those that subscribe later; an empty one ends that. `expires_s`: a packet that waited so long
    need not be sent. `waits`: where a full queue makes publishers wait or raises, it does so for these packets; without
    it they are dropped. `content_type` tells other systems what the payload is, where the network can.
    """

    priority: int = NORMAL
    reliable: bool = False
    keep: bool = False
    expires_s: float | None = None
    waits: bool = True
    content_type: str = ""


class Abilities(msgspec.Struct, frozen=True):
    """What a transport can keep, for the contract at `announce`; it may change when a connection is made.

    `keeps` is whether newest packets are kept for later subscribers, `reliable` whether losses can be repaired, and
    `why` says for each that it cannot keep, by name, the reason. `has_server` says that packets go through a server
    with a queue for each receiver: what has reached one is on its way to all, whatever becomes of its sender.
    """

    keeps: bool = True
    reliable: bool = True
    has_server: bool = False
    largest: int = 64 * 1024 * 1024
    why: Mapping[str, str] = {}


class Receiver(Protocol):
    """What a transport calls: `packet` and `token` from one thread only, never two calls at once."""

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        """Take a packet that arrived; never raises. An empty envelope means that the packet had none."""

    def token(self, key: str, is_present: bool) -> None:
        """Take the news that a token of another participant appeared or is gone."""

    def dropped(self, key: str, count: int, reason: str) -> None:
        """Take the news that packets of this participant were not sent; may be called from any thread."""

    def connected(self, is_connected: bool) -> None:
        """Take the news that the connection was made, or lost; while it is lost, packets may be."""


class Sender(Protocol):
    """Sends the packets of one key."""

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Send a packet, and return soon; raise QueueFull if the queue is full and its policy is `raise`."""

    def close(self) -> None:
        """Send no more; a packet that is kept stays so while the transport is open."""


@runtime_checkable
class GatheringSender(Protocol):
    """A sender that sends several packets as one if they come faster than they can be sent one by one."""

    def join(self, payload: bytes, number: int) -> bool:
        """Add a payload to the packet that waits; False if none waits, or the number does not follow its last one."""

    def begin(self, payload: bytes, envelope: bytes, number: int) -> None:
        """Send a packet, or let it wait a moment for the payloads that follow, which travel under its envelope."""


class Transport(Protocol):
    """A connection to a network."""

    @property
    def dialect(self) -> Dialect:
        """Return how keys and patterns are written."""

    @property
    def abilities(self) -> Abilities:
        """Return what the transport can keep."""

    def open(self, receiver: Receiver) -> None:
        """Connect; raise BusError with the reason if that cannot be done."""

    def sender(self, key: str, sending: Sending) -> Sender:
        """Prepare to send packets under a key."""

    def subscribe(self, pattern: str, *, kept: bool = False) -> Callable[[], None]:
        """Receive packets of keys that match; with `kept`, first those that were kept. Returns a function to end it.

        BusError if the network refuses it and says so.
        """

    def declare(self, token: str) -> Callable[[], None]:
        """Show a token, a key, to all others while this process lives; returns a function to end it."""

    def watch(self, pattern: str) -> Callable[[], None]:
        """Call `Receiver.token` with the tokens of others that match, present and future ones."""

    def call(self, function: Callable[[], None]) -> None:
        """Call a function soon, in the thread in which `Receiver.packet` is called."""

    def counters(self) -> Mapping[str, int]:
        """Return the numbers of packets sent, and of those dropped by reason."""

    def close(self) -> None:
        """Send what waits, for a short time; then stop and release all resources."""


@runtime_checkable
class EchoingTransport(Protocol):
    """A transport that gives a participant its own packets, too, unless it is told not to."""

    def subscribe_others(self, pattern: str) -> Callable[[], None]:
        """Receive packets of keys that match, kept ones first, but none of this participant's own."""


@runtime_checkable
class SharingTransport(Protocol):
    """A transport on which several participants can share the packets of a pattern: each goes to one of them."""

    @property
    def can_share(self) -> bool:
        """Whether the network offers it."""

    def share_of(self, group: str, pattern: str) -> str:
        """Return the name of this participant's part in a group, without `/`, for as long as the transport is open."""

    def share(self, group: str, pattern: str) -> Callable[[], None]:
        """Receive some of the packets of keys that match, under `$share/NAME/KEY`; returns a function to end it."""


@runtime_checkable
class WindowedTransport(Protocol):
    """A transport whose network holds reliable packets back until earlier ones are handled; others overtake them."""

    @property
    def busy_s(self) -> float:
        """For how long the receiver has been handling one packet."""

    def stop_handling(self) -> None:
        """Leave packets that were not handled to the network; returns when the one that is being handled is done."""


class OnceLogger(logging.Logger):
    """State: a logger of one link, which logs each warning once: its text and error, whatever values are in it.

    What others send decides how often something goes wrong; the counters of the link have the numbers.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.parent = logging.getLogger(name)
        self._logged = Reasons()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is no warning, or the first of its sort."""
        error = record.exc_info[0] if record.exc_info else None
        return record.levelno < logging.WARNING or self._logged.add(f"{record.msg} {error}")

    def getChild(self, suffix: str) -> "OnceLogger":  # noqa: N802 - the name of the standard library
        """This logger: what libraries log by parts is counted together."""
        return self


class ReceiverFailures(Reasons):
    """How often the receiver of a transport raised, which by its contract it must not; each class is logged once."""

    def note(self, medium: str, problem: Exception) -> None:
        if self.add(f"failed: an error of the receiver ({type(problem).__name__})"):
            text = "%s: the receiver failed; further errors of this class are counted only"
            logging.getLogger("genus.net").error(text, medium, exc_info=problem)


class EventsLost(msgspec.Struct, frozen=True):
    """Events did not arrive, or were not sent.

    `type` is the name of their type, `count` how many, 0 if that is not known, `sender` and `receiver` the uids of the
    two ends as far as they are known, in hexadecimal digits, and `reason` what is known about it. Both ends are told.

    >>> print(EventsLost("Lamp", 2, reason="the receiver is gone"))
    2 events of Lamp were lost: the receiver is gone
    >>> print(EventsLost("Lamp", 0, "01234567", "89abcdef", "the server has restarted"))
    events of Lamp may be lost on the way from 01234567 to 89abcdef: the server has restarted
    """

    type: str
    count: int
    sender: str = ""
    receiver: str = ""
    reason: str = ""

    def __str__(self) -> str:
        way = f" from {self.sender}" * bool(self.sender) + f" to {self.receiver}" * bool(self.receiver)
        lost = f"{_of(self.count, self.type)} lost" if self.count else f"events of {self.type} may be lost"
        return f"{lost}{' on the way' * bool(way)}{way}: {self.reason or 'the reason is not known'}"


class EventsUnread(msgspec.Struct, frozen=True):
    """Events arrived that could not be read, and were not delivered.

    `type` is the name of their type, `count` the number of packets, and `reason` says what is wrong with them; the
    link's `examples()` have the last packet of each reason. With a `count` of 0 no event was rejected yet: what another
    participant states about the type contradicts this program, or another one that was there before.
    """

    type: str
    count: int
    reason: str

    def __str__(self) -> str:
        unread = f"{_of(self.count, self.type)} not read" if self.count else f"{self.type} may not be readable"
        return f"{unread}: {self.reason}"


class EventsLate(msgspec.Struct, frozen=True):
    """Events of a soft channel arrived after their deadline; those that had expired were not delivered.

    `worst_us` is the largest lateness, in microseconds after the deadline.
    """

    type: str
    count: int
    worst_us: int
    expired: int = 0
    sender: str = ""
    receiver: str = ""

    def __str__(self) -> str:
        expired = f"; {self.expired:,} had expired and were not delivered" if self.expired else ""
        return f"{_of(self.count, self.type)} late, by up to {self.worst_us / 1000:,.1f} ms{expired}"


def _of(count: int, type_: str) -> str:
    return f"{counted(count, 'event')} of {type_} {'was' if count == 1 else 'were'}"


SEAL_BYTES: Final = 16
SEAL: Final = "genusseal"
"""The attribute of a CloudEvent that has the seal."""
SHORTEST_KEY: Final = 16
_SHARE: Final = "$share/"
_encode = msgspec.msgpack.Encoder().encode


def read_realm_key(path: str) -> bytes:
    """Return the key of a realm from a file, without white space at its ends; BusError says why it cannot be used."""
    try:
        mode, key = Path(path).stat().st_mode, Path(path).read_bytes().strip()
    except OSError as problem:
        raise BusError(f"realm_key={path} cannot be read: {problem.strerror or problem}") from None
    if mode & stat.S_IRWXO:
        raise BusError(f"realm_key={path} can be read by all users: run `chmod 600 {path}`")
    if len(key) < SHORTEST_KEY:
        raise BusError(f"realm_key={path} has {len(key)} bytes; at least {SHORTEST_KEY} random ones are needed")
    return key


class SealedTransport:
    """A transport whose packets of the realm have a seal, both ways; made with `realm_key=FILE` in an address."""

    def __init__(self, transport: Transport, realm: str, key: bytes) -> None:
        self._transport = transport
        self._roots = (f"{realm}/", f"{ROOT}/{realm}/")
        own = blake2b(key, digest_size=32, person=b"genus realm key").digest()
        self._keyed = blake2b(digest_size=SEAL_BYTES, key=own)
        self._rejected: Counter[str] = Counter()
        self._receiver: Receiver | None = None
        self.subscribe, self.declare, self.watch = transport.subscribe, transport.declare, transport.watch
        self.dialect, self.call, self.close = transport.dialect, transport.call, transport.close
        if isinstance(transport, EchoingTransport):
            self.subscribe_others = transport.subscribe_others
        if isinstance(transport, SharingTransport):
            self.share_of, self.share = transport.share_of, transport.share
        if isinstance(transport, WindowedTransport):
            self.stop_handling = transport.stop_handling

    @property
    def abilities(self) -> Abilities:
        return self._transport.abilities

    @property
    def can_share(self) -> bool:
        return isinstance(self._transport, SharingTransport) and self._transport.can_share

    @property
    def busy_s(self) -> float:
        """For how long the receiver has been handling one packet, where the network waits for that."""
        return self._transport.busy_s if isinstance(self._transport, WindowedTransport) else 0.0

    def _seal(self, key: str, envelope: bytes, payload: bytes) -> bytes:
        name = key.encode()
        lengths = len(name).to_bytes(4, "big") + len(envelope).to_bytes(4, "big")
        made = self._keyed.copy()
        made.update(b"".join((lengths, name, envelope, payload)))
        return made.digest()

    def sealed(self, key: str, envelope: bytes, payload: bytes) -> bytes:
        if not envelope.startswith(ATTRIBUTES):
            return envelope + self._seal(key, envelope, payload)
        attributes = attributes_in(envelope)
        seal = self._seal(key, _encode(sorted(attributes.items())), payload)
        return join_attributes({**attributes, SEAL: base64.b64encode(seal).decode()})

    def unsealed(self, key: str, envelope: bytes, payload: bytes) -> bytes | None:
        """Return the envelope of a packet without its seal; None if there is none, or it is not the right one."""
        try:
            if envelope.startswith(ATTRIBUTES):
                attributes = attributes_in(envelope)
                seal = base64.b64decode(attributes.pop(SEAL, ""), validate=True)
                plain, covered = join_attributes(attributes), _encode(sorted(attributes.items()))
            else:
                plain, seal = envelope[:-SEAL_BYTES], envelope[-SEAL_BYTES:]
                covered = plain
        except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error, ValueError):
            return None
        return plain if hmac.compare_digest(seal, self._seal(key, covered, payload)) else None

    # -- sending -------------------------------------------------------------------------------------------------------

    def sender(self, key: str, sending: Sending) -> Sender:
        sender = self._transport.sender(key, sending)
        return SealingSender(self, key, sender) if key.startswith(self._roots) else sender

    # -- receiving -----------------------------------------------------------------------------------------------------

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._transport.open(self)

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        assert self._receiver is not None
        event_key = key.split("/", 2)[2] if key.startswith(_SHARE) else key
        found: bytes | None = envelope
        try:
            if event_key.startswith(self._roots):
                found = self.unsealed(event_key, envelope, payload)
        except UnicodeEncodeError:  # of a key that is no text
            found = None
        if found is None:
            self._rejected["a packet without the seal of the realm"] += 1
        else:
            self._receiver.packet(key, found, payload)

    def token(self, key: str, is_present: bool) -> None:
        assert self._receiver is not None
        self._receiver.token(key, is_present)

    def dropped(self, key: str, count: int, reason: str) -> None:
        assert self._receiver is not None
        self._receiver.dropped(key, count, reason)

    def connected(self, is_connected: bool) -> None:
        assert self._receiver is not None
        self._receiver.connected(is_connected)

    def counters(self) -> Mapping[str, int]:
        rejected = {f"rejected: {reason}": count for reason, count in self._rejected.items()}
        return {**self._transport.counters(), **rejected}


class SealingSender:
    """Sends the packets of one key with a seal."""

    def __init__(self, transport: SealedTransport, key: str, sender: Sender) -> None:
        self._sealed, self._key, self._sender = transport.sealed, key, sender

    def put(self, payload: bytes, envelope: bytes) -> None:
        self._sender.put(payload, self._sealed(self._key, envelope, payload))

    def close(self) -> None:
        """Send no more."""
        self._sender.close()
