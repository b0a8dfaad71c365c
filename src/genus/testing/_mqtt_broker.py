"""`MqttBroker`: a small broker of MQTT 5 for tests. It is not for production: one thread, no TLS, state in memory."""

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import mqtt5

from genus.net.internal import Decoder, Malformed
from genus.targets.topics import MQTT

Acl: TypeAlias = Callable[[str, str, str], bool]
"""Whether a client (its id) may `publish` or `subscribe` to a topic or pattern."""

MAX_SIZE: Final = 1 << 27
MAX_UNSENT: Final = 1 << 26
TICK_S: Final = 0.05
QOS: Final = (mqtt5.QoS.AT_MOST_ONCE, mqtt5.QoS.AT_LEAST_ONCE)
DISCONNECT: Final = mqtt5.DisconnectReasonCode


class MqttBroker:
    """A broker of MQTT 5 on the loopback interface, in a thread; use it in a `with` block, or call `start` and `stop`.

    It has sessions that expire, QoS 0 and 1, retained messages, wills with delay, shared subscriptions, receive
    maximum, message expiry and a bounded queue per session. Not for production.

    Args:
        port: The port; 0 chooses a free one, which later starts keep.
        acl: Called with client id, `publish` or `subscribe`, and topic or pattern; what it denies gets reason 135.
        passwords: User names and their passwords; without it, everybody may connect.
        capacity: Messages that wait for one session; the oldest are dropped.
        limits: Properties of CONNACK, such as `receive_max`, `retain_available`, `max_packet_size`.

    >>> with MqttBroker() as broker:
    ...     broker.port > 0
    True
    """

    def __init__(
        self,
        port: int = 0,
        *,
        acl: Acl | None = None,
        passwords: Mapping[str, str] | None = None,
        capacity: int = 100_000,
        limits: Mapping[str, int | bool] | None = None,
    ) -> None:
        self.port = port
        self.acl = acl
        self.passwords = passwords
        self.capacity = capacity
        self.limits = dict(limits or {})
        self.dropped = 0
        self.retained: dict[str, _Kept] = {}
        self.sessions: dict[str, _Session] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> "MqttBroker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; after `stop` on the same port and with what was kept."""
        listener = socket.create_server(("127.0.0.1", self.port))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._stopping.clear()
        self._thread = threading.Thread(target=_Loop(self, listener, self._stopping).run, name="mqtt broker")
        self._thread.start()

    def stop(self, *, forget: bool = False) -> None:
        """Cut all connections and refuse new ones; with `forget`, sessions and retained messages are lost."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if forget:
            self.sessions.clear()
            self.retained.clear()

    # -- for the broker's thread ---------------------------------------------------------------------------------------

    def _allows(self, client_id: str, action: str, topic: str) -> bool:
        """Return whether a client may do something with a topic."""
        return self.acl is None or self.acl(client_id, action, topic)

    def _publish(self, packet: mqtt5.PublishPacket, sender: str) -> bool:
        """Keep a message if it is to be retained, and give it to the sessions; returns whether one wants it."""
        message = _Kept(packet, sender)
        if packet.retain:
            if packet.payload:
                self.retained[packet.topic] = message
            else:
                self.retained.pop(packet.topic, None)
        takers = list(self._takers(message))
        for session, qos, number in takers:
            self._deliver(session, message.numbered(number), qos, is_retained=False)
        return bool(takers)

    def _takers(self, message: "_Kept") -> Iterator[tuple["_Session", int, int | None]]:
        """Sessions that get a message, with QoS and the identifier of the subscription."""
        groups: dict[str, list[tuple[_Session, int, int | None]]] = {}
        for session in self.sessions.values():
            qos, number = -1, None
            for pattern, wanted in session.filters.items():
                group, plain = _split_share(pattern)
                if not MQTT.matches(plain, message.packet.topic):
                    continue
                if group:
                    groups.setdefault(pattern, []).append((session, int(wanted.max_qos), session.numbers[pattern]))
                elif not (wanted.no_local and session.client_id == message.sender):
                    qos, number = max(qos, int(wanted.max_qos)), session.numbers[pattern] or number
            if qos >= 0:
                yield session, qos, number
        for members in groups.values():
            connected = [each for each in members if each[0].peer is not None] or members
            chosen = min(connected, key=lambda each: each[0].shared)  # in turn
            chosen[0].shared += 1
            yield chosen

    def _deliver(self, session: "_Session", message: "_Kept", qos: int, *, is_retained: bool) -> None:
        qos = min(qos, int(message.packet.qos), 1)
        if session.peer is None and not qos:
            return
        if len(session.queue) >= self.capacity:
            session.queue.popleft()
            self.dropped += 1
        session.queue.append((message, qos, is_retained))
        session.send_queue()

    def _send_retained(self, session: "_Session", wanted: mqtt5.TopicFilter, is_new: bool) -> None:
        """Give a new subscription the retained messages that match, as it asked for."""
        handling = int(wanted.retain_handling)
        if handling == 2 or (handling == 1 and not is_new) or wanted.pattern.startswith("$share/"):
            return
        for topic, message in list(self.retained.items()):
            if message.is_expired:
                del self.retained[topic]
            elif MQTT.matches(wanted.pattern, topic):
                self._deliver(session, message, int(wanted.max_qos), is_retained=True)

    def _tick(self) -> None:
        """Publish wills and forget sessions whose time has come."""
        now = time.monotonic()
        for session in list(self.sessions.values()):
            if session.peer is None:
                is_over = session.ends_at is not None and now >= session.ends_at
                if session.will is not None and (is_over or now >= session.will_at):
                    self._publish_will(session)
                if is_over:
                    self.sessions.pop(session.client_id, None)

    def _publish_will(self, session: "_Session") -> None:
        """Publish the will of a session, once."""
        will, session.will = session.will, None
        if will is not None and self._allows(session.client_id, "publish", will.topic):
            qos, retain = min(int(will.qos), 1), will.retain
            packet = mqtt5.PublishPacket(
                will.topic, will.payload or b"", qos=QOS[qos], retain=retain, packet_id=1 if qos else None
            )
            self._publish(packet, session.client_id)


class _Kept:
    """A message with its sender and when it expires."""

    def __init__(self, packet: mqtt5.PublishPacket, sender: str, number: int | None = None) -> None:
        self.packet = packet
        self.sender = sender
        self.number = number
        interval = packet.message_expiry_interval
        self.expires_at = None if interval is None else time.monotonic() + interval

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and time.monotonic() >= self.expires_at

    def numbered(self, number: int | None) -> "_Kept":
        """Return the message for a subscription with an identifier."""
        if number is None:
            return self
        made = _Kept(self.packet, self.sender, number)
        made.expires_at = self.expires_at
        return made

    def write(self, qos: int, packet_id: int | None, *, is_retained: bool, is_duplicate: bool) -> bytes:
        packet = self.packet
        left = None if self.expires_at is None else max(1, round(self.expires_at - time.monotonic()))
        return mqtt5.PublishPacket(
            packet.topic,
            packet.payload,
            qos=QOS[qos],
            retain=is_retained,
            packet_id=packet_id,
            duplicate=is_duplicate,
            payload_format_indicator=packet.payload_format_indicator,
            message_expiry_interval=left,
            content_type=packet.content_type,
            response_topic=packet.response_topic,
            correlation_data=packet.correlation_data,
            user_properties=packet.user_properties,
            subscription_ids=None if self.number is None else [self.number],
        ).write()


class _Session:
    """State: what the broker knows of a client, connected or not."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.filters: dict[str, mqtt5.TopicFilter] = {}
        self.queue: deque[tuple[_Kept, int, bool]] = deque()
        self.in_flight: dict[int, tuple[_Kept, int, bool]] = {}
        self.peer: _Peer | None = None
        self.receive_max = 65_535
        self.expires_s = 0
        self.ends_at: float | None = None
        self.will: mqtt5.Will | None = None
        self.will_at = 0.0
        self.shared = 0
        self.numbers: dict[str, int | None] = {}
        self._packet_id = 0

    def send_queue(self) -> None:
        """Send what the client takes: QoS 1 only while it has room for messages that are not acknowledged."""
        while self.peer is not None and self.queue:
            message, qos, is_retained = item = self.queue[0]
            if qos and len(self.in_flight) >= self.receive_max:
                return
            self.queue.popleft()
            if message.is_expired or (not qos and len(self.peer.unsent) > MAX_UNSENT):
                continue
            packet_id = self._next_id() if qos else None
            if packet_id is not None:
                self.in_flight[packet_id] = item
            self.peer.send(message.write(qos, packet_id, is_retained=is_retained, is_duplicate=False))

    def send_again(self) -> None:
        """After a reconnect: send what was not acknowledged."""
        assert self.peer is not None
        for packet_id, (message, qos, is_retained) in self.in_flight.items():
            self.peer.send(message.write(qos, packet_id, is_retained=is_retained, is_duplicate=True))

    def _next_id(self) -> int:
        while True:
            self._packet_id = self._packet_id % 65_535 + 1
            if self._packet_id not in self.in_flight:
                return self._packet_id

    def leave(self) -> None:
        """The client is gone: its session ends later, its will is published later or now."""
        self.peer = None
        now = time.monotonic()
        self.ends_at = None if self.expires_s == 0xFFFF_FFFF else now + self.expires_s
        self.will_at = now + (self.will.will_delay_interval if self.will is not None else 0)


class _Peer:
    """State: one connection of a client."""

    def __init__(self, broker: MqttBroker, stream: socket.socket) -> None:
        self.stream = stream
        self.unsent = bytearray()
        self.is_ended = False
        self.heard_at = time.monotonic()
        self._keep_alive_s = 0
        self._broker = broker
        self._session: _Session | None = None
        self._decoder = Decoder(MAX_SIZE, fast=False)

    def send(self, data: bytes) -> None:
        self.unsent += data

    def flush(self) -> None:
        """Send what the stream takes."""
        try:
            while self.unsent:
                del self.unsent[: self.stream.send(self.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self.is_ended = True

    def end(self, code: mqtt5.DisconnectReasonCode | None = None) -> None:
        """End the connection, with a reason if the client should know it."""
        if code is not None:
            self.send(mqtt5.DisconnectPacket(reason_code=code).write())
        self.is_ended = True

    @property
    def is_silent(self) -> bool:
        """Whether the client was silent for longer than it promised."""
        return bool(self._keep_alive_s) and time.monotonic() - self.heard_at > 1.5 * self._keep_alive_s

    def left(self) -> None:
        if self._session is not None and self._session.peer is self:
            self._session.leave()

    def receive(self, data: bytes) -> None:
        """Handle what the client sent."""
        self.heard_at = time.monotonic()
        for packet in self._decoder.feed(data):
            if self.is_ended:
                return
            try:
                self._handle(packet)
            except Malformed as problem:
                self.end(problem.code)
        if self._decoder.problem is not None:
            self.end(self._decoder.problem.code)

    def _handle(self, packet: object) -> None:
        session = self._session
        match packet:
            case mqtt5.ConnectPacket() if session is None:
                self._connect(packet)
            case _ if session is None:
                raise Malformed("no CONNECT", DISCONNECT.PROTOCOL_ERROR)
            case mqtt5.PublishPacket():
                self._publish(packet, session)
            case mqtt5.PubAckPacket():
                session.in_flight.pop(packet.packet_id, None)
                session.send_queue()
            case mqtt5.SubscribePacket():
                self._subscribe(packet, session)
            case mqtt5.UnsubscribePacket():
                codes = [self._unsubscribe(pattern, session) for pattern in packet.patterns]
                self.send(mqtt5.UnsubAckPacket(packet.packet_id, codes).write())
            case mqtt5.PingReqPacket():
                self.send(mqtt5.PingRespPacket().write())
            case mqtt5.DisconnectPacket():
                self._disconnect(packet, session)
            case _:
                raise Malformed("packet of another kind", DISCONNECT.PROTOCOL_ERROR)

    def _connect(self, packet: mqtt5.ConnectPacket) -> None:
        broker, codes = self._broker, mqtt5.ConnAckReasonCode
        if broker.passwords is not None:
            wanted = broker.passwords.get(packet.username or "")
            if wanted is None or (packet.password or b"") != wanted.encode():
                self.send(mqtt5.ConnAckPacket(reason_code=codes.BAD_USER_NAME_OR_PASSWORD).write())
                self.end()
                return
        client_id = packet.client_id or f"assigned-{os.urandom(4).hex()}"
        session = self._take_session(client_id, packet.clean_start)
        is_kept = session is not None
        session = broker.sessions[client_id] = session or _Session(client_id)
        session.peer, self._session = self, session
        session.will, session.expires_s, session.ends_at = packet.will, packet.session_expiry_interval, None
        session.receive_max = packet.receive_max
        self._keep_alive_s = int(broker.limits.get("server_keep_alive", packet.keep_alive))
        assigned = None if packet.client_id else client_id
        limits: dict[str, object] = dict(broker.limits)
        max_qos = mqtt5.QoS(int(broker.limits.get("max_qos", 1)))
        limits.pop("max_qos", None)
        acknowledgement = mqtt5.ConnAckPacket(
            session_present=is_kept,
            assigned_client_id=assigned,
            max_qos=max_qos,
            **limits,  # type: ignore[arg-type]  # the caller gives numbers and flags by their names
        )
        self.send(acknowledgement.write())
        session.send_again()
        session.send_queue()

    def _take_session(self, client_id: str, clean_start: bool) -> _Session | None:
        """Return the session that goes on, if there is one; another connection of it is ended."""
        session = self._broker.sessions.pop(client_id, None)
        if session is None:
            return None
        if session.peer is not None:
            session.peer.end(DISCONNECT.SESSION_TAKEN_OVER)
            session.peer = None
        if clean_start:
            self._broker._publish_will(session)
            return None
        return session

    def _publish(self, packet: mqtt5.PublishPacket, session: _Session) -> None:
        codes = mqtt5.PubAckReasonCode
        if packet.qos == mqtt5.QoS.EXACTLY_ONCE:
            raise Malformed("QoS 2", DISCONNECT.QOS_NOT_SUPPORTED)
        if packet.retain and not self._broker.limits.get("retain_available", True):
            raise Malformed("retained", DISCONNECT.RETAIN_NOT_SUPPORTED)
        code = codes.NOT_AUTHORIZED
        if self._broker._allows(session.client_id, "publish", packet.topic):
            is_wanted = self._broker._publish(packet, session.client_id)
            code = codes.SUCCESS if is_wanted else codes.NO_MATCHING_SUBSCRIBERS
        if packet.packet_id is not None:
            self.send(mqtt5.PubAckPacket(packet.packet_id, reason_code=code).write())

    def _subscribe(self, packet: mqtt5.SubscribePacket, session: _Session) -> None:
        codes = []
        granted: list[tuple[mqtt5.TopicFilter, bool]] = []
        for wanted in packet.topic_filters:
            code = self._refusal(wanted, session)
            if code is None:
                granted.append((wanted, wanted.pattern not in session.filters))
                session.filters[wanted.pattern] = wanted
                session.numbers[wanted.pattern] = packet.subscription_id
                code = mqtt5.SubAckReasonCode(min(int(wanted.max_qos), 1))
            codes.append(code)
        self.send(mqtt5.SubAckPacket(packet.packet_id, codes).write())
        for wanted, is_new in granted:
            self._broker._send_retained(session, wanted, is_new)

    def _refusal(self, wanted: mqtt5.TopicFilter, session: _Session) -> mqtt5.SubAckReasonCode | None:
        codes = mqtt5.SubAckReasonCode
        group, pattern = _split_share(wanted.pattern)
        if not MQTT.is_pattern(pattern):
            return codes.TOPIC_FILTER_INVALID
        if group and not self._broker.limits.get("shared_subscription_available", True):
            return codes.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        return None if self._broker._allows(session.client_id, "subscribe", pattern) else codes.NOT_AUTHORIZED

    @staticmethod
    def _unsubscribe(pattern: str, session: _Session) -> mqtt5.UnsubAckReasonCode:
        codes = mqtt5.UnsubAckReasonCode
        existed = session.filters.pop(pattern, None) is not None
        return codes.SUCCESS if existed else codes.NO_SUBSCRIPTION_EXISTED

    def _disconnect(self, packet: mqtt5.DisconnectPacket, session: _Session) -> None:
        if packet.reason_code == DISCONNECT.NORMAL_DISCONNECTION:
            session.will = None
        if packet.session_expiry_interval is not None:
            session.expires_s = packet.session_expiry_interval
        self.is_ended = True


class _Loop:
    """The broker's thread: accepts, receives and sends."""

    def __init__(self, broker: MqttBroker, listener: socket.socket, stopping: threading.Event) -> None:
        self._broker = broker
        self._listener = listener
        self._stopping = stopping
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, _Peer] = {}

    def run(self) -> None:
        self._selector.register(self._listener, selectors.EVENT_READ)
        try:
            while not self._stopping.is_set():
                for key, _ in self._selector.select(TICK_S):
                    self._ready(key.fileobj)
                self._broker._tick()
                self._flush_all()
        finally:
            for peer in list(self._peers.values()):
                self._cut(peer)
            self._listener.close()
            self._selector.close()

    def _ready(self, stream: object) -> None:
        if stream is self._listener:
            with suppress(OSError):
                accepted, _ = self._listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._peers[accepted] = _Peer(self._broker, accepted)
                self._selector.register(accepted, selectors.EVENT_READ)
            return
        assert isinstance(stream, socket.socket)
        peer = self._peers[stream]
        try:
            data = stream.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            peer.receive(data)
        else:
            peer.is_ended = True

    def _flush_all(self) -> None:
        for stream, peer in list(self._peers.items()):
            if peer.unsent:
                peer.flush()
            if peer.is_silent:
                peer.end(DISCONNECT.KEEP_ALIVE_TIMEOUT)
                peer.flush()
            if peer.is_ended:
                self._cut(peer)
                continue
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
            if self._selector.get_key(stream).events != wanted:
                self._selector.modify(stream, wanted)

    def _cut(self, peer: _Peer) -> None:
        del self._peers[peer.stream]
        self._selector.unregister(peer.stream)
        peer.stream.close()
        peer.left()


def _split_share(pattern: str) -> tuple[str, str]:
    """Return the group of a shared subscription, or an empty text, and the pattern."""
    if not pattern.startswith("$share/"):
        return "", pattern
    _, group, plain = [*pattern.split("/", 2), "", ""][:3]
    return group, plain
