"""Authentication of packets: a transport that seals what it sends with the key of the realm, and drops what is not.

A seal is a keyed BLAKE2b of key, envelope and payload, 16 bytes behind the envelope; a CloudEvent in binary mode has it
as an attribute. It proves that the sender has the key of the realm, so that uids, numbers, beats and reports are not
invented by others; a packet that is sent once more is recognised by its numbers. Nothing is encrypted; tokens (of
presence and interest) have no seal, and messages of other systems, outside of the realm, need none.
"""

import base64
import binascii
import hmac
import stat
from collections import Counter
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from genus.errors import BusError
from genus.net._envelope import ATTRIBUTES, attributes_in, join_attributes
from genus.net._link.messages import ROOT
from genus.net._transport import (
    Abilities,
    EchoingTransport,
    Receiver,
    Sender,
    Sending,
    SharingTransport,
    Transport,
    WindowedTransport,
)

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
