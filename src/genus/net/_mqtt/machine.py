"""`ClientMachine`: a client of MQTT 5 without I/O.

A driver calls it with what happened and when, in nanoseconds of any steady clock: the stream was opened or closed,
bytes arrived, messages were handled, a timer ended. It then sends what `pull` gives and handles what `take` gives, in
order. Nothing is raised for what a server sends: a packet that breaks the rules is counted and the connection ended
with its reason.

**Sending.** At QoS 1 a packet stays in `in_flight` until the server acknowledged it. At most `SEND_WINDOW` are sent
without an acknowledgement, or fewer if the server says so. After a reconnect those without one are sent again, before
any new ones and in their order: marked as duplicates if the server kept the session, as new packets if it did not.

**Receiving.** Messages of QoS 1 are acknowledged when they are received or, with `Session.acknowledges_late`, when the
driver says that they were handled. What was received and not acknowledged when the connection broke is sent again by
the server; it is given to the driver once, and acknowledged on the new connection.

**Presence.** One retained packet says what this client shows to others. It is sent when it changes and every half of
the keep-alive time, and expires with the session if it is not.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import mqtt5

from genus.errors import Reasons
from genus.net._mqtt.session import (
    Closing,
    Connected,
    Ended,
    Filter,
    Granted,
    Limits,
    Notice,
    Refused,
    Session,
    Undelivered,
)
from genus.net._mqtt.wire import DUPLICATE, REPEATED, Decoder, Malformed, Message, Outgoing

SECOND: Final = 1_000_000_000
PING: Final = mqtt5.PingReqPacket().write()
TLS_ALERT: Final = b"\x15"
"""What a server with TLS answers to a client without it; no packet of MQTT begins so."""
PING_ANSWER_S: Final = 5
CONNACK_S: Final = 5
FILTERS_PER_PACKET: Final = 100
SMALL_WINDOW: Final = 200
SUCCESS_BELOW: Final = 0x80
NO_MATCHING_SUBSCRIBERS: Final = 16
PROTOCOL_ERROR: Final = mqtt5.DisconnectReasonCode.PROTOCOL_ERROR


class ClientMachine:
    """State: one client with its session, its packets that wait or are not acknowledged, and its subscriptions.

    Packets of the queue `urgent` go before those of `waiting`. `is_awaited` says that the server has a small window and
    waits for what is sent now: acknowledgements, or packets for which acknowledgements made room.
    """

    def __init__(self, session: Session) -> None:
        self.limits = Limits()
        self.counts = Reasons()
        self.urgent: deque[Outgoing] = deque()
        self.waiting: deque[Outgoing] = deque()
        self.waiting_bytes = 0
        self.in_flight: dict[int, Outgoing] = {}
        self.is_connected = False
        self.is_awaited = False
        self._session = session
        self._clean_start = session.clean_start
        self._decoder = Decoder(session.largest)
        self._control: list[bytes] = []
        self._notices: list[Notice] = []
        self._again: deque[int] = deque()
        self._outstanding = 0
        self._unhandled: dict[int, Message] = {}
        self._not_here: set[int] = set()
        """Of the unhandled messages, those that came on an earlier connection and not on this one yet."""
        self._handled_elsewhere: set[int] = set()
        """Of those, the ones that were handled meanwhile."""
        self._presence: Callable[[], bytes] | None = None
        self._is_presence_due = False
        self._packet_id = 0
        self._filters: dict[str, Filter] = {}
        self._granted: set[str] = set()
        self._to_end: set[str] = set()
        self._asked: dict[int, tuple[Filter, ...]] = {}
        self._ended: dict[int, str] = {}
        self._is_open = False
        self._answer_by: int | None = None
        self._ping_at: int | None = None
        self._is_marked = False
        self._server_window = 65_535

    # -- the stream ----------------------------------------------------------------------------------------------------

    def opened(self, now: int) -> None:
        """The stream to the server is open: ask for the session."""
        session = self._session
        self._is_open = True
        self._decoder = Decoder(session.largest)
        packet = mqtt5.ConnectPacket(
            session.client_id,
            username=session.user,
            password=session.password,
            clean_start=self._clean_start,
            will=session.will(),
            keep_alive=session.keep_alive_s,
            session_expiry_interval=session.expires_s,
            receive_max=session.receive_max,
            max_packet_size=session.largest,
        )
        self._control = [packet.write()]
        self._answer_by = now + CONNACK_S * SECOND

    def closed(self, now: int) -> None:
        """The stream is closed; what was asked for and not answered is asked again after the next CONNACK."""
        self._is_open = self.is_connected = False
        self._control.clear()
        self._answer_by = self._ping_at = None
        for filters in self._asked.values():
            self._notices.extend(Granted(each.pattern, None) for each in filters)
        self._asked.clear()
        self._to_end.update(self._ended.values())
        self._ended.clear()
        self._outstanding = 0
        self._again = deque(self.in_flight)
        self._not_here.update(self._unhandled)

    def receive(self, data: bytes, now: int) -> list[Message]:
        """Bytes arrived; returns the messages in them. They are acknowledged by this call, or later by `handled`."""
        messages: list[Message] = []
        if not self._is_open:
            return messages
        if data[:1] == TLS_ALERT and not self.is_connected:
            self._end("the server expects TLS; write mqtts:// instead of mqtt://")
            return messages
        acks: list[int] = []
        try:
            self._handle_all(data, messages, acks, now)
        except Malformed as problem:
            self._reject(problem)
        if self._session.acknowledges_late and acks:
            messages, acks = self._note_unhandled(messages)
        if acks:
            self._acknowledge_all(acks)
        self.is_awaited = bool(self.in_flight) and self._server_window < SMALL_WINDOW
        self.counts["received"] += len(messages)
        return messages

    def _note_unhandled(self, messages: list[Message]) -> tuple[list[Message], list[int]]:
        """Return the messages that the driver has not got yet, and the packet ids of those that it has handled."""
        new, acks = [], []
        for message in messages:
            packet_id = message[3] & 0xFFFF
            if packet_id not in self._unhandled:
                if packet_id:
                    self._unhandled[packet_id] = message
                new.append(message)
                continue
            self._not_here.discard(packet_id)
            if packet_id in self._handled_elsewhere:
                self._handled_elsewhere.discard(packet_id)
                del self._unhandled[packet_id]
                acks.append(packet_id)
        return new, acks

    def handled(self, messages: list[Message]) -> None:
        """Acknowledge messages; those of a lost connection when the server has sent them again."""
        acks = []
        for message in messages:
            packet_id = message[3] & 0xFFFF
            if self._unhandled.get(packet_id) is not message:
                continue  # of a session that the server did not keep
            if packet_id in self._not_here:
                self._handled_elsewhere.add(packet_id)
            else:
                del self._unhandled[packet_id]
                acks.append(packet_id)
        if acks and self.is_connected:
            self._acknowledge_all(acks)

    def _acknowledge_all(self, acks: list[int]) -> None:
        self._control.append(b"".join([b"\x40\x02" + (number & 0xFFFF).to_bytes(2, "big") for number in acks]))

    def _handle_all(self, data: bytes, messages: list[Message], acks: list[int], now: int) -> None:
        for item in self._decoder.feed(data):
            if type(item) is tuple:
                if not self.is_connected:
                    raise Malformed("packet before CONNACK", PROTOCOL_ERROR)
                messages.append(item)
                if item[3]:
                    acks.append(item[3])
                    if item[3] & REPEATED:
                        self.counts["received_again"] += 1
            elif type(item) is int:
                self._acknowledge(item & 0xFFFF, item >> 16)
            else:
                self._handle(item, now)
        if self._decoder.problem is not None:
            raise self._decoder.problem
        if self._answer_by is not None and self.is_connected:
            self._answer_by = None  # any packet shows that the server is there

    def _reject(self, problem: Malformed) -> None:
        self.counts[f"bad_packets: {problem.why}"] += 1
        what = "sent a bad packet" if self.is_connected else "does not speak MQTT 5"
        self._end(f"the server {what}: {problem.why}", mqtt5.DisconnectPacket(reason_code=problem.code))

    def _end(self, why: str, packet: mqtt5.DisconnectPacket | None = None, *, is_final: bool = False) -> None:
        """Ask the driver to close the stream, after a last packet if one is given."""
        if not self._is_open:
            return
        if packet is not None:
            self._control.append(packet.write())
        self._is_open = self.is_connected = False
        self._answer_by = self._ping_at = None
        self._notices.append(Closing(why, is_final))

    # -- packets of the server -----------------------------------------------------------------------------------------

    def _handle(self, packet: object, now: int) -> None:
        match packet:
            case mqtt5.ConnAckPacket():
                self._connected(packet, now)
            case mqtt5.DisconnectPacket():
                self._disconnected(packet)
            case _ if not self.is_connected:
                raise Malformed("packet before CONNACK", PROTOCOL_ERROR)
            case mqtt5.SubAckPacket():
                self._granted_all(packet)
            case mqtt5.PubAckPacket():
                self._acknowledge(packet.packet_id, int(packet.reason_code))
            case mqtt5.UnsubAckPacket():
                if (pattern := self._ended.pop(packet.packet_id, None)) is not None:
                    self._notices.append(Ended(pattern))
            case mqtt5.PingRespPacket():
                pass
            case _:
                raise Malformed("packet of another kind", PROTOCOL_ERROR)

    def _connected(self, packet: mqtt5.ConnAckPacket, now: int) -> None:
        if self.is_connected:
            raise Malformed("second CONNACK", PROTOCOL_ERROR)
        if int(packet.reason_code) >= SUCCESS_BELOW:
            return self._end(f"the server refused the connection: {_name(packet.reason_code)}{_why(packet)}")
        self.is_connected = True
        self._answer_by = None
        self._clean_start = self._session.clean_start and not self._session.expires_s
        self.limits = Limits.of(packet, self._session.keep_alive_s)
        self._server_window = packet.receive_max
        self._again = deque(self.in_flight)
        self._is_marked = packet.session_present
        if not packet.session_present:
            self._unhandled.clear()
            self._not_here.clear()
            self._handled_elsewhere.clear()
        self._is_presence_due = self._presence is not None
        self._subscribe_again(packet.session_present)
        self._notices.append(Connected(self.limits))
        self._ping_at = now + self._beat_ns if self._beat_ns else None

    def _disconnected(self, packet: mqtt5.DisconnectPacket) -> None:
        is_taken = packet.reason_code == mqtt5.DisconnectReasonCode.SESSION_TAKEN_OVER
        self._end(f"the server ended the connection: {_name(packet.reason_code)}{_why(packet)}", is_final=is_taken)

    def _acknowledge(self, packet_id: int, reason: int) -> None:
        item = self.in_flight.pop(packet_id, None)
        if item is None:
            self.counts["unknown_acknowledgements"] += 1
            return
        self._outstanding -= 1
        self.counts["acknowledged"] += 1
        if reason == NO_MATCHING_SUBSCRIBERS:
            self.counts["no_matching_subscribers"] += 1
        elif reason >= SUCCESS_BELOW:
            self._notices.append(Undelivered(item[0], f"the server refused it: {_publish_reason(reason)}"))

    def _granted_all(self, packet: mqtt5.SubAckPacket) -> None:
        filters = self._asked.pop(packet.packet_id, ())
        if len(filters) != len(packet.reason_codes):
            raise Malformed("SUBACK does not fit", PROTOCOL_ERROR)
        for each, code in zip(filters, packet.reason_codes, strict=True):
            if int(code) >= SUCCESS_BELOW:
                if self._filters.get(each.pattern) == each:
                    del self._filters[each.pattern]
                self._notices.append(Refused(each.pattern, f"{_name(code)}{_why(packet)}"))
            else:
                self._granted.add(each.pattern)
                self._notices.append(Granted(each.pattern, int(code)))

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, wanted: Filter) -> None:
        """Subscribe now, or at the next connection; `Granted` or `Refused` tells the result."""
        self._filters[wanted.pattern] = wanted
        self._to_end.discard(wanted.pattern)
        self._granted.discard(wanted.pattern)
        if self.is_connected:
            self._ask((wanted,))

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription now, or at the next connection if the server keeps the session."""
        self._filters.pop(pattern, None)
        self._granted.discard(pattern)
        self._to_end.add(pattern)
        if self.is_connected:
            self._end_filters()

    def _ask(self, filters: tuple[Filter, ...]) -> None:
        packet_id = self._next_id()
        self._asked[packet_id] = filters
        number = filters[0].number
        packet = mqtt5.SubscribePacket(packet_id, [each.for_packet() for each in filters], subscription_id=number)
        self._control.append(packet.write())

    def _end_filters(self) -> None:
        while self._to_end:
            pattern = self._to_end.pop()
            packet_id = self._next_id()
            self._ended[packet_id] = pattern
            self._control.append(mqtt5.UnsubscribePacket(packet_id, [pattern]).write())

    def _subscribe_again(self, is_session_kept: bool) -> None:
        if is_session_kept:
            self._end_filters()
        else:
            self._granted.clear()
            self._to_end.clear()
        # what is kept and of QoS 0 was not sent meanwhile
        missing = [
            each
            for pattern, each in self._filters.items()
            if pattern not in self._granted or (each.kept and not each.qos)
        ]
        plain = [each for each in missing if each.number is None]
        for begin in range(0, len(plain), FILTERS_PER_PACKET):
            self._ask(tuple(plain[begin : begin + FILTERS_PER_PACKET]))
        for each in missing:
            if each.number is not None:  # an identifier is for a whole packet
                self._ask((each,))

    # -- packets to the server -----------------------------------------------------------------------------------------

    def publish(self, item: Outgoing, is_urgent: bool = False) -> None:
        """Queue a packet; the driver limits how many wait."""
        (self.urgent if is_urgent else self.waiting).append(item)
        self.waiting_bytes += _size(item)

    def drop_oldest(self) -> Outgoing:
        """Remove the packet that waits longest and return it; urgent ones stay if there are others."""
        item = (self.waiting or self.urgent).popleft()
        self.waiting_bytes -= _size(item)
        return item

    @property
    def is_window_full(self) -> bool:
        """Whether no packet of QoS 1 can be sent before the server acknowledged one."""
        return self._outstanding >= self.limits.receive_max or not self.is_connected

    def show(self, presence: Callable[[], bytes]) -> None:
        """Send the packet that a function makes: with the next `pull`, after each connect, and from time to time."""
        self._presence = presence
        self._is_presence_due = True

    def pull(self, most: int, now: int) -> list[bytes]:
        """Packets to send now, of about `most` bytes: control packets, those to send again, then those that wait."""
        parts, self._control = self._control, []
        if self.is_connected:
            if self._is_presence_due:
                self._pull_presence(parts)
            size = self._pull_again(parts, most) if self._again else 0
            for queue in (self.urgent, self.waiting):
                if queue:
                    size = self._pull_queue(queue, parts, most, size, now)
        return parts

    def _pull_presence(self, parts: list[bytes]) -> None:
        assert self._presence is not None
        self._is_presence_due = False
        packet = self._presence()
        if len(packet) > self.limits.largest:
            self.counts["tokens_too_large"] += 1
        else:
            parts.append(packet)
            self.counts["sent"] += 1

    def _pull_again(self, parts: list[bytes], most: int) -> int:
        size = 0
        while self._again and size < most and self._outstanding < self.limits.receive_max:
            packet_id = self._again.popleft()
            item = self.in_flight.get(packet_id)
            if item is None or item[2] is None:
                continue
            flags = item[1][0] | (DUPLICATE if self._is_marked else 0)
            parts.append(bytes([flags]) + item[1][1:] + packet_id.to_bytes(2, "big") + item[2])
            size += len(parts[-1])
            self._outstanding += 1
            self.counts["sent_again"] += 1
        return size

    def _pull_queue(self, queue: deque[Outgoing], parts: list[bytes], most: int, size: int, now: int) -> int:
        """Take packets off a queue while there is room; at a QoS 1 packet it ends if the server's window is full."""
        largest, receive_max = self.limits.largest, self.limits.receive_max
        before = len(parts)
        while queue and size < most:
            item = queue[0]
            head, tail, expires_at = item[1], item[2], item[3]
            if tail is not None and (self._outstanding >= receive_max or self._again):
                break
            queue.popleft()
            self.waiting_bytes -= _size(item)
            if expires_at is not None and now > expires_at:
                self._notices.append(Undelivered(item[0], "it expired before it could be sent"))
                continue
            if _size(item) > largest:
                self._notices.append(Undelivered(item[0], f"the server takes packets of up to {largest:,} bytes"))
                continue
            if tail is None:
                packet = head
            else:
                packet_id = self._next_id()
                self.in_flight[packet_id] = item
                self._outstanding += 1
                packet = b"".join((head, packet_id.to_bytes(2, "big"), tail))
            parts.append(packet)
            size += len(packet)
        self.counts["sent"] += len(parts) - before
        return size

    def _next_id(self) -> int:
        """A packet id that is free; with a window of at most 65,534 there always is one."""
        packet_id = self._packet_id
        while True:
            packet_id = packet_id % 65_535 + 1
            if packet_id not in self.in_flight and packet_id not in self._asked and packet_id not in self._ended:
                self._packet_id = packet_id
                return packet_id

    def disconnect(self, *, keeps_session: bool = False) -> None:
        """End the connection; the server publishes the will when the session ends: now, unless it is kept."""
        packet = mqtt5.DisconnectPacket(
            reason_code=mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE,
            session_expiry_interval=None if keeps_session else 0,
        )
        self._end("closed", packet, is_final=True)

    # -- timers and notices --------------------------------------------------------------------------------------------

    @property
    def wake_at(self) -> int | None:
        """When to call `wake`; None if no timer is set."""
        return min(self._timers(), default=None)

    def _timers(self) -> Iterator[int]:
        if self._answer_by is not None:
            yield self._answer_by
        if self._ping_at is not None:
            yield self._ping_at

    def wake(self, now: int) -> None:
        """The time `wake_at` has come: show presence, ask the server whether it is there, or give it up."""
        if self._answer_by is not None and now >= self._answer_by:
            self.counts["time_outs"] += 1
            timeout = mqtt5.DisconnectReasonCode.KEEP_ALIVE_TIMEOUT
            self._end("the server does not answer", mqtt5.DisconnectPacket(reason_code=timeout))
        elif self._ping_at is not None and now >= self._ping_at:
            self._control.append(PING)
            self.counts["pings"] += 1
            self._is_presence_due = self._presence is not None
            self._ping_at = now + self._beat_ns
            if self._answer_by is None:
                self._answer_by = now + PING_ANSWER_S * SECOND

    def excuse_silence(self) -> None:
        """The driver does not read now, so that an answer cannot be seen."""
        if self.is_connected:
            self._answer_by = None

    @property
    def _beat_ns(self) -> int:
        """How often this client shows that it is there: twice in the keep-alive time that the server has set."""
        return self.limits.keep_alive_s * SECOND // 2

    @property
    def has_notices(self) -> bool:
        """Whether `take` would return something."""
        return bool(self._notices)

    def take(self) -> list[Notice]:
        """Remove and return what the driver should know since the last call."""
        notices, self._notices = self._notices, []
        return notices


def _size(item: Outgoing) -> int:
    return len(item[1]) if item[2] is None else len(item[1]) + 2 + len(item[2])


def _name(code: int) -> str:
    """Return a reason code in words.

    >>> _name(mqtt5.ConnAckReasonCode.NOT_AUTHORIZED)
    'not authorized (135)'
    """
    return f"{str(getattr(code, 'name', 'reason')).lower().replace('_', ' ')} ({int(code)})"


def _publish_reason(code: int) -> str:
    try:
        return _name(mqtt5.PubAckReasonCode(code))
    except ValueError:
        return f"reason {code}"


def _why(packet: mqtt5.ConnAckPacket | mqtt5.SubAckPacket | mqtt5.DisconnectPacket) -> str:
    """Return what the server says about its reason; printable and short, as it is from outside."""
    said = "".join(sign for sign in (packet.reason_str or "")[:200] if sign.isprintable())
    return f": {said}" if said else ""
