"""`MqttSender`: makes the packets of one topic."""

import math
import time

from genus.errors import BusError
from genus.net._mqtt.connection import Connection
from genus.net._mqtt.machine import SECOND
from genus.net._mqtt.wire import PublishForm
from genus.net._transport import SOFT, Sending


class MqttSender:
    """Sends the packets of one topic."""

    def __init__(self, connection: Connection, key: str, sending: Sending, qos: int) -> None:
        self.key = key
        expires_s = sending.expires_s
        expiry = None if expires_s is None else min(math.ceil(expires_s), 0xFFFF_FFFF)
        form = PublishForm(key, qos=qos, retain=sending.keep, expiry_s=expiry, content_type=sending.content_type)
        self._parts = form.parts
        self._send = connection.send
        self._is_urgent = sending.priority >= SOFT
        self._expires_ns = None if expires_s is None else int(expires_s * SECOND)
        self._is_closed = False

    def put(self, payload: bytes, envelope: bytes) -> None:
        """Send a packet."""
        if self._is_closed:
            raise BusError(f"the sender of {self.key!r} is closed")
        head, tail = self._parts(payload, envelope)
        expires_at = None if self._expires_ns is None else time.monotonic_ns() + self._expires_ns
        self._send((self, head, tail, expires_at), self._is_urgent)

    def close(self) -> None:
        """Send no more."""
        self._is_closed = True
