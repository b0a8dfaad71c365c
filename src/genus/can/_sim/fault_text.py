"""Parse faults from text, as on the command line: `errors p=0.05 band=hard`."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from inspect import getdoc

import msgspec

from genus.can._sim.fault_format import field_key, parse_value
from genus.can._sim.faults import (
    Babble,
    BlockingErrors,
    Bursts,
    ClockDrift,
    ClockStep,
    Crash,
    Duplicates,
    ErrorCounters,
    ExactErrors,
    Fault,
    FrameErrors,
    Losses,
    Omissions,
    Partition,
    Swaps,
    TransmitterFault,
)
from genus.errors import BusError, did_you_mean

FAULTS: dict[str, type[Fault]] = {
    kind.name: kind
    for kind in (
        FrameErrors, ExactErrors, BlockingErrors, Bursts, TransmitterFault, ErrorCounters, Duplicates, Omissions,
        Losses, Swaps, Babble, ClockStep, ClockDrift, Crash, Partition,
    )
}  # fmt: skip


def parse_fault(text: str, nodes: Mapping[str, int] | None = None) -> Fault:
    """Parse the text of a fault. `nodes` has the numbers of nodes by name. BusError names what is wrong.

    >>> print(parse_fault("errors   p=0.05 band=hard"))
    errors band=hard p=0.05
    >>> str(parse_fault("step  at=1.5 s node=3 by=-100us"))
    'step node=3 by=-100us at=1500ms'
    >>> str(parse_fault("crash node=sensor at=1s", {"sensor": 4}))
    'crash node=4 at=1s'
    >>> parse_fault("error p=1")
    Traceback (most recent call last):
    genus.errors.BusError: there is no fault 'error'; did you mean errors?
    """
    name, *words = text.split() or [""]
    kind = FAULTS.get(name)
    if kind is None:
        raise BusError(f"there is no fault {name!r}; {_hint(name)}")
    fields = {field_key(field): field for field in msgspec.structs.fields(kind)}
    given = dict(_parse_word(word, name, fields, nodes or {}) for word in _with_units(words, fields))
    missing = [key for key, field in fields.items() if field.required and field.name not in given]
    if missing:
        raise BusError(f"{name} needs {', '.join(missing)}")
    return kind(**given)


def _with_units(words: Iterable[str], fields: Mapping[str, msgspec.structs.FieldInfo]) -> list[str]:
    """Return the words, each unit that stands alone joined to the time before it: `at=5 min`."""
    joined: list[str] = []
    for word in words:
        field = fields.get(joined[-1].partition("=")[0]) if joined and "=" not in word else None
        if field is not None and field.name.endswith("_ns"):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def _parse_word(
    word: str, fault: str, fields: Mapping[str, msgspec.structs.FieldInfo], nodes: Mapping[str, int]
) -> tuple[str, object]:
    """Return the name and the value of a field, from `key=value`."""
    key, equals, value = word.partition("=")
    if key not in fields or not equals:
        raise BusError(f"{fault} does not take {word!r}; write key=value with one of the keys {', '.join(fields)}")
    if key in ("node", "nodes"):
        value = ",".join(_number_of(part, nodes, fault) for part in value.split(","))
    return fields[key].name, parse_value(fields[key], value, f"{fault}: {key}")


def fault_help() -> list[tuple[str, str]]:
    """Return the usage and the description of every fault."""
    return [(_usage(kind), _first_line(kind)) for kind in FAULTS.values()]


def _usage(kind: type[Fault]) -> str:
    words = [f"{field_key(f)}=" if f.required else f"[{field_key(f)}=]" for f in msgspec.structs.fields(kind)]
    return " ".join([kind.name, *sorted(words, key=lambda word: word.startswith("["))])


def _first_line(kind: type[Fault]) -> str:
    return (getdoc(kind) or "").partition("\n")[0]


def _hint(name: str) -> str:
    close = get_close_matches(name, FAULTS, 1)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(FAULTS)}"


def node_names(text: str) -> set[str]:
    """Return the names of nodes in the text of a fault, without numbers and ranges of numbers.

    >>> node_names("partition nodes=sensor,3,5-8 from=1s")
    {'sensor'}
    """
    values = [word.partition("=")[2] for word in text.split() if word.startswith(("node=", "nodes="))]
    return {part for value in values for part in value.split(",") if not part.replace("-", "").isdigit()}


def _number_of(part: str, nodes: Mapping[str, int], fault: str) -> str:
    """Return the number of a node name, as text; numbers and ranges of numbers are returned unchanged."""
    if part in nodes:
        return str(nodes[part])
    if nodes and not part.replace("-", "").isdigit():
        raise BusError(f"{fault}: there is no node {part!r}; {did_you_mean(part, nodes)}known are {', '.join(nodes)}")
    return part
