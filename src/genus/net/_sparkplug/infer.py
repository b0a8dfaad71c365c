"""Event types and a mapping from captured births of Sparkplug: a metric becomes an attribute of its type and unit."""

import json
import keyword
import re
from collections.abc import Iterable
from typing import NamedTuple

from genus.model import Event, attributes
from genus.net._sparkplug.host import BD_SEQ, CONTROL, Place, parse_topic
from genus.net._sparkplug.payload import Metric, Payload, decode_payload, describe_datatype

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
