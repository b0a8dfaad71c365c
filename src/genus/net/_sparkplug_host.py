"""The host application: edge nodes and their devices as births and deaths say, and events from their data. Sans I/O.

A gap in the sequence numbers of an edge node, or data without a birth, makes the host ask it for a rebirth. Until that
comes, metrics that only have an alias are not read: a birth may be among what is missing.

`infer_sparkplug` makes event types and a mapping of captured births: metrics become attributes of their type and unit.
"""

import json
import keyword
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import msgspec

from genus.errors import EventError
from genus.model import Event, attributes
from genus.model.internal import describe_units, unit_conversion
from genus.net._link.foreign import ForeignEvent, ForeignLoss, Found
from genus.net._sparkplug_payload import (
    BOOLEAN,
    DATE_TIME,
    Metric,
    Payload,
    datatype_of,
    decode_payload,
    describe_datatype,
    encode_payload,
    read_value,
    wire_value,
)
from genus.records import ForeignTopics, Message
from genus.records.internal import WrittenFields
from genus.records.types import Rejected

NAMESPACE = "spBv1.0"
REBIRTH, BD_SEQ = "Node Control/Rebirth", "bdSeq"
CONTROL = ("Node Control/", "Device Control/")
"""Begin the names of metrics that control a node, and are no data."""
SEQUENCE = 256
REBIRTH_S = 5.0
"""The shortest time between two requests for a rebirth of a node."""
MAX_SOURCES = 10_000
"""The most edge nodes and devices that are known; others choose their names."""


class Place(NamedTuple):
    """What the levels of a topic say."""

    group: str
    kind: str
    node: str
    device: str = ""

    @property
    def topic(self) -> str:
        return "/".join((NAMESPACE, *self[: 4 if self.device else 3]))

    def of(self, what: str) -> "Place":
        """Return the same node or device, with another kind of message: `DATA`, `CMD`, `BIRTH` or `DEATH`."""
        return self._replace(kind=("D" if self.device else "N") + what)


def parse_topic(topic: str) -> Place | None:
    """Return what a topic says; None if it is not one of an edge node or a device."""
    first, *levels = topic.split("/")
    if first != NAMESPACE or len(levels) not in (3, 4) or not all(levels):
        return None
    return Place(*levels) if levels[1][0] == ("D" if len(levels) == 4 else "N") else None


Convert: TypeAlias = Callable[[float], float]
Result: TypeAlias = Found | Message
"""What comes of a message: an event, a loss or a rejection, or a message to send."""
Results: TypeAlias = Iterator[Result]


class KnownMetric(msgspec.Struct, frozen=True):
    """What a birth says of a metric: how its values are read, or why they are not."""

    datatype: int
    convert: Convert | None = None
    refused: str = ""


class Source:
    """State: an edge node or a device."""

    def __init__(self) -> None:
        self.is_online = False
        self.metrics: dict[str, KnownMetric] = {}
        self.newest: dict[str, Any] = {}
        """The values since the birth, for those that subscribe later."""
        self.newest_at: int | None = None
        self.birth: list[Event] = []
        """The events that said that it is online."""
        self.last: list[Event] | None = []
        """The last events, if they have all newest values: the bus tells events that it has delivered by identity."""
        self.aliases: dict[int, str] = {}

    def begin(self, metrics: Iterable[Metric], known: dict[str, KnownMetric]) -> None:
        self.metrics, self.newest = known, {}
        self.aliases = {each.alias: each.name for each in metrics if each.alias is not None and each.name}


class Node(Source):
    """State: an edge node, with the number of its last message and its devices."""

    def __init__(self) -> None:
        super().__init__()
        self.seq: int | None = None
        self.bd_seq: int | None = None
        self.asked_at: float | None = None
        self.devices: dict[str, Source] = {}

    @property
    def sources(self) -> list[Source]:
        return [self, *self.devices.values()]


class Host:
    """State: the edge nodes of a group. Messages go in; events, rejections, losses and messages to send come out."""

    def __init__(self, topics: ForeignTopics, rules: Iterable[tuple[str, str]]) -> None:
        self._topics, self._rules = topics, [(parse_topic(pattern), type_) for pattern, type_ in rules]
        self._nodes: dict[tuple[str, str], Node] = {}
        self._size = 0

    def read(self, topic: str, payload: bytes, now: float) -> list[Result]:
        """Take a message; never raises."""
        place, content = parse_topic(topic), decode_payload(payload)
        if place is None:
            return [Rejected("no topic of Sparkplug")]
        if isinstance(content, Rejected):
            return [content]
        handle = {"BIRTH": self._birth, "DATA": self._data, "DEATH": self._death}.get(place.kind[1:])
        if handle is None:
            return [Rejected("a message of another kind")]
        found = self._find(place)
        if found is None:
            return [Rejected(f"more than {MAX_SOURCES} edge nodes and devices")]
        return list(handle(place, *found, content, now))

    def reconnected(self, now: float) -> list[Result]:
        """The connection was made again: births and deaths may have been missed, so all nodes are asked for theirs."""
        found: list[Result] = []
        for (group, name), node in self._nodes.items():
            for source in node.sources:
                source.aliases = {}
            node.asked_at = None
            found += self._ask(Place(group, "NCMD", name), node, now)
        return found

    def last_events(self) -> list[Event]:
        """Return the presence and the newest values of all that are online."""
        found: list[Event] = []
        for (group, name), node in self._nodes.items():
            for device, source in {"": node, **node.devices}.items():
                if source.is_online:
                    if source.last is None:
                        place = Place(group, "", name, device).of("DATA")
                        source.last = _events_in(self._say(place, source.newest, source.newest_at))
                    found += [*source.birth, *source.last]
        return found

    def command(self, event: Event, now_ms: int) -> Message:
        """Return the message with the command that an event is; EventError if it cannot be written."""
        written = self._topics.write_fields(event)
        place = None if isinstance(written, Rejected) else parse_topic(written.topic)
        if isinstance(written, Rejected) or place is None:
            raise EventError(f"{event!r} cannot be written: {written}")
        node = self._nodes.get((place.group, place.node), Node())
        known = node.devices.get(place.device, Source()) if place.device else node
        return Message(place.topic, encode_payload(payload_of(written, now_ms, known.metrics)))

    # -- kinds of messages ---------------------------------------------------------------------------------------------

    def _birth(self, place: Place, node: Node, source: Source, content: Payload, now: float) -> Results:
        if place.device:
            yield from self._follow(place, node, content, now)
        else:
            bd_seq, node.seq = content.get(BD_SEQ), content.seq
            if bd_seq != node.bd_seq:  # another session: devices are born again
                yield from self._depart(place, node.devices, content.timestamp)
            node.bd_seq = bd_seq if isinstance(bd_seq, int) else None
        attributes = self._topics.attributes(place.of("DATA").topic)
        known = {each.name: _known(each, attributes.get(each.name)) for each in content.metrics if each.name}
        source.begin(content.metrics, known)
        if not source.is_online:
            source.is_online = True
            said = list(self._say(place.of("BIRTH"), {"online": True}, content.timestamp))
            source.birth = _events_in(said)
            yield from said
        yield from self._events(place, node, source, content, now)

    def _data(self, place: Place, node: Node, source: Source, content: Payload, now: float) -> Results:
        yield from self._follow(place, node, content, now)
        if not source.is_online:
            yield from self._ask(place, node, now)
        yield from self._events(place, node, source, content, now)

    def _death(self, place: Place, node: Node, source: Source, content: Payload, now: float) -> Results:
        if place.device:
            yield from self._follow(place, node, content, now)
            yield from self._depart(place, {place.device: source}, content.timestamp)
            return
        bd_seq = content.get(BD_SEQ)
        if isinstance(bd_seq, int) and node.bd_seq is not None and 0 < (node.bd_seq - bd_seq) % SEQUENCE < 128:
            return  # the will of an earlier session
        yield from self._depart(place, node.devices, content.timestamp)
        yield from self._depart(place, {"": node}, content.timestamp)
        node.seq = None

    def _depart(self, place: Place, sources: dict[str, Any], at: int | None) -> Results:
        for name, source in sources.items():
            if source.is_online:
                source.is_online = False
                yield from self._say(place._replace(device=name).of("DEATH"), {"online": False}, at)

    def _follow(self, place: Place, node: Node, content: Payload, now: float) -> Results:
        """Compare the sequence number of a message with the one before."""
        if content.seq is None:
            yield Rejected("no sequence number")
            return
        expected = None if node.seq is None else (node.seq + 1) % SEQUENCE
        node.seq = content.seq % SEQUENCE
        if expected is not None and node.seq != expected:
            for source in node.sources:
                source.aliases = {}
            missing = (node.seq - expected) % SEQUENCE
            reason = "missing in the sequence of the edge node; 256 more each time it went round"
            yield ForeignLoss(self._types_of(place), missing, reason, f"{place.group}/{place.node}")
            yield from self._ask(place, node, now)

    def _ask(self, place: Place, node: Node, now: float) -> Iterator[Message]:
        """Ask a node for a rebirth, unless that was done just now."""
        if node.asked_at is None or now - node.asked_at >= REBIRTH_S:
            node.asked_at = now
            metric = Metric(REBIRTH, True, BOOLEAN)
            yield Message(
                place._replace(device="").of("CMD").topic, encode_payload(Payload((metric,), int(now * 1000)))
            )

    # -- events --------------------------------------------------------------------------------------------------------

    def _events(self, place: Place, node: Node, source: Source, content: Payload, now: float) -> Results:
        """The events of the metrics of a message: one, or more if a metric occurs several times, as in histories."""
        fields: dict[str, Any] = {}
        times: list[int] = []
        for metric in content.metrics:
            name = metric.name or source.aliases.get(-1 if metric.alias is None else metric.alias, "")
            if not name:
                yield Rejected("a metric with an alias that no birth explains")
                yield from self._ask(place, node, now)
            elif name != BD_SEQ and not name.startswith(CONTROL):
                try:
                    value = _value(metric, source.metrics.get(name))
                except ValueError as problem:
                    yield Rejected(str(problem), f"the metric {name!r}: {problem}")
                    continue
                if name in fields:
                    yield from self._tell(place, source, fields, max(times, default=content.timestamp))
                    fields, times = {}, []
                fields[name] = value
                if not metric.is_historical and value is not None:
                    source.newest[name], source.newest_at = value, metric.timestamp or content.timestamp
                times += [] if metric.timestamp is None else [metric.timestamp]
        if any(value is not None for value in fields.values()):
            yield from self._tell(place, source, fields, max(times, default=content.timestamp))

    def _tell(self, place: Place, source: Source, fields: dict[str, Any], at: int | None) -> list[Found]:
        said = list(self._say(place.of("DATA"), fields, at))
        source.last = _events_in(said) if fields.keys() >= source.newest.keys() else None
        return said

    def _say(self, place: Place, fields: dict[str, Any], at: int | None) -> Iterator[Found]:
        """The events of fields, by the mapping; presence is said as a level of the topic, if the mapping reads it."""
        is_presence = place.kind[1:] != "DATA"
        if is_presence and not self._topics.reads(place.topic):
            return
        said = {f"@{name}": value for name, value in fields.items()} if is_presence else {}
        said |= time_level(at)
        for event in self._topics.read_fields(place.topic, {} if is_presence else fields, said):
            yield event if isinstance(event, Rejected) else ForeignEvent(event)

    # -- what is known -------------------------------------------------------------------------------------------------

    def _find(self, place: Place) -> tuple[Node, Source] | None:
        """Return the node, and the node or device, that a message is of; None if there is no room for new ones."""
        known = self._nodes.get((place.group, place.node))
        node = known or Node()
        source = (node.devices.get(place.device) or Source()) if place.device else node
        new = (known is None) + (bool(place.device) and place.device not in node.devices)
        if self._size + new > MAX_SOURCES:
            return None
        self._size += new
        self._nodes[place.group, place.node] = node
        if place.device:
            node.devices[place.device] = source
        return node, source

    def _types_of(self, place: Place) -> frozenset[str]:
        """Return the types that events of a node may have."""
        return frozenset(
            type_
            for rule, type_ in self._rules
            if rule and all(one[0] in "{+" or one == other for one, other in zip(rule[::2], place[::2], strict=True))
        )


def _known(metric: Metric, attribute: Any) -> KnownMetric:
    """Return how the values of a metric are read for an attribute: in its unit, if both have one."""
    if not metric.unit or attribute is None or attribute.unit in (None, metric.unit):
        return KnownMetric(metric.datatype)
    conversion = unit_conversion(metric.unit, attribute.unit)
    if conversion is None:
        return KnownMetric(metric.datatype, refused=describe_units(metric.unit, attribute.unit))
    return KnownMetric(metric.datatype, conversion.convert)


def _events_in(found: Iterable[Found]) -> list[Event]:
    return [each.event for each in found if isinstance(each, ForeignEvent)]


def time_level(at: int | None) -> dict[str, Any]:
    """Return the time of a message as a level of its topic; none if there is no such time."""
    try:
        return {} if at is None else {"@time": read_value(at, DATE_TIME)}
    except ValueError:
        return {}


def _value(metric: Metric, known: KnownMetric | None) -> Any:
    value = read_value(metric.value, metric.datatype or (0 if known is None else known.datatype))
    if known is not None and known.refused:
        raise ValueError(known.refused)
    return known.convert(value) if known is not None and known.convert and type(value) in (int, float) else value


def payload_of(written: WrittenFields, now_ms: int, known: dict[str, KnownMetric]) -> Payload:
    """Return the payload with the fields of an event, in the data types of the birth where it is known.

    EventError if a value does not fit its data type.
    """
    at = written.fields.pop("@time", None)
    now_ms = now_ms if at is None else wire_value(at, DATE_TIME)
    metrics = []
    for field, attribute in written.writer.attributes:
        name = field.path[0]
        if name in written.fields:
            datatype = known[name].datatype if name in known else datatype_of(attribute, field.value_format)
            try:
                value = wire_value(written.fields[name], datatype)
            except (ValueError, TypeError) as problem:
                raise EventError(f"the metric {name!r} cannot be written: {problem}") from None
            metrics.append(Metric(name, value, datatype, timestamp=now_ms))
    return Payload(tuple(metrics), now_ms)


_WIDTHS = ("Int8", "Int16", "Int32", "int", "UInt8", "UInt16", "UInt32", "int", "Float32", "float", "bool")
_TYPES = {
    **dict(enumerate(_WIDTHS, 1)),
    **dict.fromkeys((12, 14, 15), "str"),
    13: "datetime",
    **dict.fromkeys((17, 18), "bytes"),
}


_HEAD = """from datetime import datetime
from typing import Annotated

from genus import Event, Maybe
from genus.model import Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32, Unit
"""


class SparkplugTypes(NamedTuple):
    """Python source with event types, the mapping file with the topics for them, and what could not be read."""

    types: str
    mapping: str
    problems: tuple[str, ...] = ()


def infer_sparkplug(lines: Iterable[str]) -> SparkplugTypes:
    """Make event types and a mapping of captured messages; only births are used.

    Each line has a topic and a payload in hexadecimal digits, as `mosquitto_sub -t 'spBv1.0/#' -F '%t %x'` prints it.
    Nodes, or devices, with the same metrics share a type. Attributes may be absent, as data has what changed only.
    """
    births, problems = _births(lines)
    shapes: dict[tuple[str, str, tuple[tuple[str, int, str], ...]], list[Place]] = {}
    for place, metrics in births.items():
        shape = tuple((each.name, each.datatype, each.unit) for each in metrics)
        shapes.setdefault((place.group, place.kind, shape), []).append(place)
    names: dict[str, None] = dict.fromkeys(re.findall(r"\w+", _HEAD))
    sources, topics = [], []
    for (group, kind, shape), places in shapes.items():
        name = _unique("".join(map(_capital, re.split(r"[^0-9A-Za-z]+", places[0].device or places[0].node))), names)
        fields = _fields(shape)
        problems += [f"{name}: {each[0]} is {describe_datatype(each[1])}" for each in shape if each[1] not in _TYPES]
        sources.append(_class(name, places, shape, fields))
        is_only = sum(each[:2] == (group, kind) for each in shapes) == 1
        ignored = [each[0] for each in shape if each[1] not in _TYPES]
        each_place: list[Place | None] = [None] if is_only else [*places]
        topics += [_topic(group, kind, each, name, fields, ignored) for each in each_place]
    return SparkplugTypes("\n\n".join([_HEAD, *sources]), "\n".join(topics), tuple(problems))


def _births(lines: Iterable[str]) -> tuple[dict[Place, list[Metric]], list[str]]:
    found: dict[Place, list[Metric]] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        topic, _, text = line.strip().rpartition(" ")
        place = parse_topic(topic)
        if place is not None and place.kind[1:] == "BIRTH":
            try:
                content = decode_payload(bytes.fromhex(text))
            except ValueError:
                content = Payload()
                problems.append(f"line {number}: the payload is not in hexadecimal digits")
            if isinstance(content, Payload):
                named = [each for each in content.metrics if each.name and each.name != BD_SEQ]
                found[place] = [each for each in named if not each.name.startswith(CONTROL)]
            else:
                problems.append(f"line {number}: {content}")
    return {place: metrics for place, metrics in found.items() if metrics}, problems


def _fields(shape: Iterable[tuple[str, int, str]]) -> dict[str, str]:
    """Return the attribute of each metric that can be read."""
    names: dict[str, None] = dict.fromkeys(each.name for each in attributes(Event))
    return {name: _unique(_identifier(name), names) for name, datatype, _ in shape if datatype in _TYPES}


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text).strip("_").lower() or "metric"
    return f"m_{name}" if name[0].isdigit() else name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unique(name: str, taken: dict[str, None]) -> str:
    name = name if name.isidentifier() else f"Type{name}"
    while name in taken or keyword.iskeyword(name):
        name += "_"
    taken[name] = None
    return name


def _class(name: str, places: list[Place], shape: Iterable[tuple[str, int, str]], fields: dict[str, str]) -> str:
    lines = [
        f"class {name}(Event):",
        f'    """{json.dumps(", ".join(each.topic for each in places[:3]))[1:-1]}."""',
        "",
    ]
    for metric, datatype, unit in shape:
        if metric in fields:
            kind = f"Maybe[{_TYPES[datatype]}]"
            kind = f"Annotated[{kind}, Unit({json.dumps(unit, ensure_ascii=False)})]" if unit else kind
            lines.append(f"    {fields[metric]}: {kind} = None")
    return "\n".join(lines) + "\n"


def _topic(group: str, kind: str, place: Place | None, name: str, fields: dict[str, str], ignored: list[str]) -> str:
    levels = ["{place}", "{source}"] if place is None else [place.node, place.device]
    topic = "/".join(("spBv1.0", group, f"{kind[0]}DATA", *levels[: 2 if kind[0] == "D" else 1]))
    lines = [f"[topics.{_quoted(topic)}]", f"type = {_quoted(name)}", 'payload = "sparkplug"']
    if ignored:
        lines.append(f"ignore = [{', '.join(map(_quoted, ignored))}]")
    if place is not None:
        stated = {"place": place.node, **({"source": place.device} if place.device else {})}
        lines.append(f"constants = {{ {', '.join(f'{key} = {_quoted(value)}' for key, value in stated.items())} }}")
    lines.append(f"[topics.{_quoted(topic)}.attributes]")
    return "\n".join([*lines, *(f"{_quoted(metric)} = {_quoted(each)}" for metric, each in fields.items())]) + "\n"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
