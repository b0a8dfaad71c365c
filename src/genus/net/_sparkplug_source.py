"""Sparkplug B as a source of a link, and the edge node.

The edge node: births, deaths and data of this process, in sequence, and commands to it. Sans I/O.

The node and its devices are born with all metrics that the mapping has for them; a device when its first event is
published. Newest values are kept for births. Names are sent with all metrics, aliases with none.

Sparkplug B as a source of a link: an edge node or a host application, with a connection of its own.

It is one of its own because a connection has one will, and here that is the death of the edge node, or the state of the
host application.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence

import mqtt5
import msgspec

from genus.errors import BusError, EventError
from genus.model import Event, name_of
from genus.net._link.foreign import ForeignEvent, ForeignLoss, ForeignSource, Found, Take
from genus.net._mqtt.address import MqttOptions
from genus.net._mqtt.transport import MqttTransport
from genus.net._sparkplug_host import (
    BD_SEQ,
    CONTROL,
    NAMESPACE,
    REBIRTH,
    SEQUENCE,
    Host,
    Place,
    parse_topic,
    payload_of,
    time_level,
)
from genus.net._sparkplug_payload import (
    BOOLEAN,
    INT64,
    Metric,
    Payload,
    datatype_of,
    decode_payload,
    encode_payload,
    read_value,
)
from genus.net._transport import Sender, Sending
from genus.records import ForeignTopics, Mapping, Message
from genus.records.internal import SPARKPLUG, WrittenFields, decode_json
from genus.records.types import Rejected


class Edge:
    """State: this process as an edge node."""

    def __init__(self, group: str, node: str, topics: ForeignTopics, bd_seq: int) -> None:
        self._place = Place(group, "NDATA", node)
        self._topics = topics
        self._seq = self._bd_seq = bd_seq
        self.is_alive = False
        self._newest: dict[str, dict[str, Metric]] = {"": self._null_metrics(self._place)}
        """By device, and an empty name for the node: the newest metrics."""

    def _null_metrics(self, place: Place) -> dict[str, Metric]:
        """Return the metrics that a birth states before any value is known."""
        return {
            field.path[0]: Metric(field.path[0], None, datatype_of(each, field.value_format), unit=each.unit or "")
            for field, each in self._topics.written_attributes(place.topic)
        }

    # -- births and deaths ---------------------------------------------------------------------------------------------

    def will(self, now_ms: int) -> Message:
        """Return the death of the session that begins: the broker publishes it when the connection is lost."""
        self._bd_seq = (self._bd_seq + 1) % SEQUENCE
        return self.death(now_ms)

    def death(self, now_ms: int) -> Message:
        self.is_alive = False
        return Message(self._place.of("DEATH").topic, encode_payload(Payload((self._session,), now_ms)))

    @property
    def _session(self) -> Metric:
        return Metric(BD_SEQ, self._bd_seq, INT64)

    def births(self, now_ms: int) -> list[Message]:
        """Return the births of the node and its devices; sequence numbers begin again."""
        self.is_alive, self._seq = True, SEQUENCE - 1
        return [self._birth(device, now_ms) for device in self._newest]

    def _birth(self, device: str, now_ms: int) -> Message:
        own = () if device else (self._session, Metric(REBIRTH, False, BOOLEAN))
        metrics = [each._replace(timestamp=each.timestamp or now_ms) for each in (*own, *self._newest[device].values())]
        return self._message(self._place._replace(device=device).of("BIRTH"), Payload(tuple(metrics), now_ms))

    def _message(self, place: Place, payload: Payload) -> Message:
        self._seq = (self._seq + 1) % SEQUENCE
        return Message(place.topic, encode_payload(payload._replace(seq=self._seq)))

    # -- data ----------------------------------------------------------------------------------------------------------

    def write(self, event: Event) -> WrittenFields:
        """Return the fields of an event; EventError if it cannot be written, or is of another node."""
        written = self._topics.write_fields(event)
        if isinstance(written, Rejected):
            raise EventError(f"{event!r} cannot be written: {written}")
        place = parse_topic(written.topic)
        if place is None or place[::2] != self._place[::2]:
            raise EventError(f"{event!r} would be of {written.topic}, and not of this edge node")
        return written

    def data(self, written: WrittenFields, now_ms: int) -> list[Message]:
        """The messages of an event, with the birth of its device if it is the first; none while the node is not alive.

        Births have the newest values, so what is published while the node is not alive is not wholly lost.
        """
        place, payload = parse_topic(written.topic), payload_of(written, now_ms, {})
        assert place is not None
        is_new = place.device not in self._newest
        newest = self._newest.setdefault(place.device, self._null_metrics(place) if is_new else {})
        for metric in payload.metrics:
            newest[metric.name] = metric._replace(unit=newest[metric.name].unit)
        if not self.is_alive:
            return []
        births = [self._birth(place.device, now_ms)] if is_new else []
        return births or [self._message(place, payload)]

    # -- commands ------------------------------------------------------------------------------------------------------

    def command(self, topic: str, payload: bytes, now_ms: int) -> list[Found | Message]:
        """Take a command to this node or a device of it: a rebirth, or events by the mapping; never raises."""
        content = decode_payload(payload)
        if isinstance(content, Rejected):
            return [content]
        found: list[Found | Message] = []
        if content.get(REBIRTH) is True and self.is_alive:
            found += self.births(now_ms)
        fields = {}
        for metric in content.metrics:
            try:
                if not metric.name.startswith(CONTROL):
                    fields[metric.name] = read_value(metric.value, metric.datatype)
            except ValueError as problem:
                found.append(Rejected(str(problem), f"the metric {metric.name!r}: {problem}"))
        said = time_level(content.timestamp)
        for event in self._topics.read_fields(topic, fields, said) if fields else ():
            found.append(event if isinstance(event, Rejected) else ForeignEvent(event))
        return found


_READ = {True: ("CMD",), False: ("DATA", "BIRTH", "DEATH")}
_WRITTEN = {True: ("DATA",), False: ("CMD",)}
"""What an edge node, and a host application, reads and writes."""


def is_sparkplug(mapping: Mapping) -> bool:
    return any(rule.payload == SPARKPLUG for rule in mapping.topics)


def without_sparkplug(mapping: Mapping) -> Mapping:
    return msgspec.structs.replace(mapping, topics=tuple(each for each in mapping.topics if each.payload != SPARKPLUG))


def _mapping_of(mappings: Sequence[Mapping], is_edge: bool) -> Mapping:
    """Return the mapping with the topics of Sparkplug, each for one direction."""
    found = [each for each in mappings if is_sparkplug(each)]
    if len(found) != 1:
        raise BusError(f"sparkplug= needs one map= with topics of payload = 'sparkplug'; {len(found)} are given")
    rules = []
    for rule in found[0].topics:
        what = rule.levels[2][1:] if rule.payload == SPARKPLUG else ""
        if what in _READ[is_edge] and rule.only != "publish":
            rules.append(msgspec.structs.replace(rule, only="read"))
        elif what in _WRITTEN[is_edge] and rule.only != "read":
            rules.append(msgspec.structs.replace(rule, only="publish"))
    if not rules:
        raise BusError(f"sparkplug=: {found[0].name} has no topic for {'an edge node' if is_edge else 'a host'}")
    return msgspec.structs.replace(found[0], topics=tuple(rules))


class Sparkplug(ForeignSource):
    """An edge node (`sparkplug=group/node`) or a host application (`sparkplug=group`); BusError if no map fits.

    State: the connection, and whether the primary host is online.
    """

    def __init__(self, options: MqttOptions, mappings: Sequence[Mapping], now: Callable[[], float] = time.time) -> None:
        group, *node = options.sparkplug
        mapping = _mapping_of(mappings, bool(node))
        self._topics = ForeignTopics(mapping)
        rules = [(rule.pattern, rule.type) for rule in mapping.topics if rule.only == "read"]
        self._edge = Edge(group, node[0], self._topics, int(now()) % 256) if node else None
        self._host = Host(self._topics, rules)
        self._written = frozenset(rule.type for rule in mapping.topics if rule.only == "publish")
        for type_ in self._written:
            if refusal := self._topics.refusal_of(type_):
                raise BusError(f"sparkplug=: {refusal}; write only = 'read' if this is meant")
        self._filters = _filters("+" if group == "*" else group, *node)
        self._state_topic = f"{NAMESPACE}/STATE/{options.sparkplug_host}" if options.sparkplug_host else ""
        self._state_at = self._host_state_at = 0
        self._is_host_online = not self._state_topic
        self._is_ready = self._is_up = False
        self._now = now
        self._senders: dict[str, Sender] = {}
        self._lock = threading.RLock()
        """Of all above: messages are sent in the order of their numbers."""
        own = msgspec.structs.replace(options, session=None, session_expires_s=0, qos=1)
        self._transport = MqttTransport(own, will=self._will)

    # -- a source of a link --------------------------------------------------------------------------------------------

    def open(self, take: Take) -> None:
        self._take = take
        self._transport.open(self)
        for pattern in self._filters:
            self._transport.subscribe(pattern)
        if self._state_topic:
            self._transport.subscribe(self._state_topic, kept=True)
        with self._lock:
            self._is_ready = self._is_up = True
            self._begin()

    def writes(self, cls: type[Event]) -> bool:
        """Return whether the mapping has a topic of data, or of commands, for a class."""
        return not self._topics.refusal(cls)

    def message(self, event: Event) -> Message:
        """Return the message of an event, without its number; EventError if it cannot be written."""
        with self._lock:
            if self._edge is None:
                return self._host.command(event, self._now_ms())
            return Message(self._edge.write(event).topic, b"")

    def send(self, event: Event, put: Callable[[Message], None]) -> None:
        with self._lock:
            if self._edge is None:
                messages = [self._host.command(event, self._now_ms())]
            else:
                messages = self._edge.data(self._edge.write(event), self._now_ms())
            self._put(messages)
        if not messages:
            reason = "the edge node is not online" if self._is_up else "no connection"
            self._take("", ForeignLoss(frozenset([name_of(type(event))]), 1, reason, is_own=True), b"")

    def last_events(self) -> list[Event]:
        with self._lock:
            return self._host.last_events()

    def unread(self) -> dict[str, int]:
        return dict(self._topics.unread)

    def close(self) -> None:
        with self._lock:
            if self._is_up and self._edge is not None and self._edge.is_alive:
                self._put([self._edge.death(self._now_ms())])
            elif self._is_up and self._edge is None and self._state_topic:
                self._put([self._state(False)])
            self._is_ready = False
        self._transport.close()

    # -- what the connection calls -------------------------------------------------------------------------------------

    def packet(self, key: str, envelope: bytes, payload: bytes) -> None:
        found: list[Found | Message] = []
        with self._lock:
            if key == self._state_topic:
                self._read_state(payload)
            elif self._edge is not None:
                found = self._edge.command(key, payload, self._now_ms())
            else:
                found = self._host.read(key, payload, self._now())
            self._put([each for each in found if isinstance(each, Message)])
        for each in found:
            if not isinstance(each, Message):
                self._take(key, each, payload)

    def connected(self, is_connected: bool) -> None:
        with self._lock:
            self._is_up = is_connected
            if not is_connected and self._edge is not None:
                self._edge.is_alive = False
            if is_connected and self._is_ready and not (self._edge is not None and self._edge.is_alive):
                self._begin()
                if self._edge is None:
                    again = self._host.reconnected(self._now())
                    self._put([each for each in again if isinstance(each, Message)])

    def dropped(self, key: str, count: int, reason: str) -> None:
        self._take(key, ForeignLoss(self._written, count, reason, is_own=True), b"")

    def token(self, key: str, is_present: bool) -> None:
        """There are no tokens."""

    # -- presence ------------------------------------------------------------------------------------------------------

    def _will(self) -> mqtt5.Will | None:
        """Return what the broker publishes when the connection that is made now is lost."""
        with self._lock:
            self._state_at = self._now_ms()
            if self._edge is None and not self._state_topic:
                return None
            topic, payload = self._state(False) if self._edge is None else self._edge.will(self._now_ms())
        return mqtt5.Will(topic, payload=payload, qos=mqtt5.QoS.AT_LEAST_ONCE, retain=self._edge is None)

    def _begin(self) -> None:
        if self._edge is None and self._state_topic:
            self._put([self._state(True)])
        elif self._edge is not None and self._is_host_online:
            self._put(self._edge.births(self._now_ms()))

    def _state(self, is_online: bool) -> Message:
        """Return the state of this host application, with the time of its connection."""
        return Message(self._state_topic, json.dumps({"online": is_online, "timestamp": self._state_at}).encode())

    def _read_state(self, payload: bytes) -> None:
        """Follow the state of the primary host; of one's own, an old will is corrected."""
        content = decode_json(payload)
        is_online, at = (content.get("online"), content.get("timestamp")) if type(content) is dict else (None, None)
        if type(is_online) is not bool or type(at) is not int or isinstance(content, Rejected):
            self._take(self._state_topic, Rejected("the state of a host cannot be read"), payload)
        elif self._edge is None:
            if not is_online and self._is_ready:
                self._put([self._state(True)])
        elif at >= self._host_state_at:
            self._host_state_at, self._is_host_online = at, is_online
            if is_online and self._is_ready and not self._edge.is_alive:
                self._put(self._edge.births(self._now_ms()))
            elif not is_online and self._edge.is_alive:
                self._put([self._edge.death(self._now_ms())])

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _put(self, messages: Sequence[Message]) -> None:
        for topic, payload in messages:
            is_state = topic == self._state_topic
            if topic not in self._senders:
                self._senders[topic] = self._transport.sender(topic, Sending(reliable=is_state, keep=is_state))
            self._senders[topic].put(payload, b"")


def _filters(group: str, node: str = "") -> list[str]:
    """Return the patterns of the commands to an edge node, or of what the edge nodes of a group publish."""
    if node:
        return [f"{NAMESPACE}/{group}/NCMD/{node}", f"{NAMESPACE}/{group}/DCMD/{node}/+"]
    kinds = ("BIRTH", "DATA", "DEATH")
    return [f"{NAMESPACE}/{group}/{who}{kind}/{rest}" for kind in kinds for who, rest in (("N", "+"), ("D", "+/+"))]
