"""The edge node: births, deaths and data of this process, in sequence, and commands to it. Sans I/O.

The node and its devices are born with all metrics that the mapping has for them; a device when its first event is
published. Newest values are kept for births. Names are sent with all metrics, aliases with none.
"""

from genus.errors import EventError
from genus.model import Event
from genus.net._link.foreign import ForeignEvent, Found
from genus.net._sparkplug.host import BD_SEQ, CONTROL, REBIRTH, SEQUENCE, Place, parse_topic, payload_of, time_level
from genus.net._sparkplug.payload import (
    BOOLEAN,
    INT64,
    Metric,
    Payload,
    datatype_of,
    decode_payload,
    encode_payload,
    read_value,
)
from genus.records import ForeignTopics, Message
from genus.records.internal import WrittenFields
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
        """Return the death of this session."""
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
