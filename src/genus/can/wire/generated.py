"""The functions that write and read the payloads of one class, generated from its fields.

Values that are always there and of fixed size are packed together where they follow each other; every other one has an
`if` of its own. In the code `e` is the event, `bits` the presence bits of the event tag, `b0`, `b1`... the bytes of the
header, `at` the place in the payload, and `a` with a number the value of an attribute.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import NoReturn, TypeAlias

from genus.bus.codec import Rejected
from genus.can.wire.fields import Field, header_size
from genus.can.wire.values import BYTE
from genus.errors import EventError
from genus.model import Event, check, name_of
from genus.targets.python import define

Encode: TypeAlias = Callable[[Event, int], tuple[int, bytes]]
Decode: TypeAlias = Callable[[int, bytes], Event | Rejected]


def _runs(fields: Iterable[Field]) -> Iterator[list[Field]]:
    """The fields in order, together where they are packed together."""
    run: list[Field] = []
    for field in fields:
        if field.required and field.form.format:
            run.append(field)
            continue
        if run:
            yield run
        run = []
        yield [field]
    if run:
        yield run


def _struct(run: Collection[Field]) -> Struct:
    return Struct(">" + "".join(field.form.format for field in run))


def _constants(fields: Iterable[Field]) -> dict[str, object]:
    """The names that occur in the code of the fields."""
    names: dict[str, object] = {}
    for field in fields:
        names |= field.form.names
    return names


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]


# ---- writing


def encoder(cls: type[Event], fields: Iterable[Field]) -> Encode:
    """The function that writes events of a class."""
    carried = [field for field in fields if field.carried]
    last = header_size(carried) - 1
    names = _constants(carried) | {"BYTE": BYTE, "cls": cls, "refuse": lambda e, why: _refuse(cls, carried, e, why)}
    body = [f"b{byte} = 0" for byte in range(1, last + 1)]
    for run in _runs(carried):
        names[f"pack{run[0].key}_"] = _struct(run).pack
        body += _write(run)
    always = sum(field.mask for field in carried if field.required)
    lines = [
        "def encode(e, sequence):",
        "    if e.__class__ is not cls: refuse(e, None)",
        f"    b0, bits, body = (sequence & 7) << 5, {always}, b''",
        "    try:",
        *_indented(_indented(body)),
        "    except Exception as problem: refuse(e, problem)",
        *_indented(_write_header(last)),
    ]
    made: Encode = define("\n".join(lines), "encode", names)
    return made


def _write(run: Sequence[Field]) -> list[str]:
    """Statements that add values to the body."""
    first = run[0]
    loads = [f"{field.local} = e.{field.name}" for field in run]
    values = ", ".join(_expression(field) for field in run)
    write = f"body += pack{first.key}_({values})" if first.form.format else f"body += {values}"
    if first.required:
        return [*loads, write]
    return [*loads, f"if {first.local} is not None:", *_indented([f"{first.bits} |= {first.mask}", write])]


def _expression(field: Field) -> str:
    return field.form.write.format(v=field.local)


def _write_header(last: int) -> list[str]:
    """Statements that return the result, with as few header bytes as the presence bits need."""
    lines = []
    for byte in range(last, 0, -1):
        between = "".join(f"b{number} | 128, " for number in range(1, byte))
        lines.append(f"if b{byte}: return bits, bytes((b0 | 16, {between}b{byte})) + body")
    return [*lines, "return bits, BYTE[b0] + body"]


def _refuse(cls: type[Event], fields: Iterable[Field], event: Event, problem: Exception | None) -> NoReturn:
    """Raise the EventError that says why an event cannot be written."""
    if problem is None:
        raise EventError(f"{event!r} is no {name_of(cls)}; each class has a layout of its own")
    check(event)
    for field in fields:
        value = getattr(event, field.name)
        if value is None and not field.required:
            continue
        try:
            _lone_writer(field)(value)
        except Exception as why:
            text = repr(value)
            shown = text if len(text) <= 80 else f"{text[:77]}..."
            raise EventError(f"{name_of(cls)}.{field.name} is {shown}, which cannot be written: {why}") from None
    raise EventError(f"{event!r} cannot be written: {problem}") from problem


def _lone_writer(field: Field) -> Callable[[object], object]:
    """What writes one value, to find the one that cannot be written."""
    packed = f"pack({_expression(field)})" if field.form.format else _expression(field)
    names = {**field.form.names, "pack": _struct([field]).pack}
    write: Callable[[object], object] = define(f"def write({field.local}): return {packed}", "write", names)
    return write


# ---- reading


def decoder(cls: type[Event], fields: Sequence[Field]) -> Decode:
    """The function that reads payloads of a class."""
    label = name_of(cls)
    names = _constants(fields) | {"cls": cls, "StructError": StructError}
    names |= {f"no{field.key}": Rejected(f"{label}.{field.name} is not as it must be") for field in fields}
    names |= {"short": Rejected(f"{label} is cut short"), "refusal": lambda why: _refusal(label, why)}
    body = _read_header(header_size(fields) - 1)
    for run in _runs(fields):
        names[f"unpack{run[0].key}_"] = _struct(run).unpack_from
        body += _read(run)
    values = ", ".join(f"{field.name}={field.local}" for field in fields if field.carried)
    lines = [
        "def decode(bits, payload):",
        "    size = len(payload)",
        "    try:",
        *_indented(_indented(body)),
        "    except (IndexError, StructError): return short",
        "    if at > size: return short",
        f"    try: return cls({values})",
        "    except Exception as problem: return refusal(problem)",
    ]
    made: Decode = define("\n".join(lines), "decode", names)
    return made


def _refusal(label: str, problem: Exception) -> Rejected:
    """What a class's own __post_init__ says; not in its words, which may quote values, as reasons are counted."""
    return Rejected(f"{label} refuses it: {type(problem).__name__}")


def _read_header(last: int) -> list[str]:
    """Statements that load the presence bits that are known and pass over others."""
    lines = ["while payload[at] & 128: at += 1", "at += 1"]
    for byte in range(last, 0, -1):
        lines = [f"b{byte} = payload[{byte}]", f"at = {byte + 1}", f"if b{byte} & 128:", *_indented(lines)]
    cleared = [f"b{byte} = 0" for byte in range(1, last + 1)]
    return ["b0 = payload[0]", "at = 1", *cleared, "if b0 & 16:", *_indented(lines)]


def _read(run: Sequence[Field]) -> list[str]:
    """Statements that read values, present or absent."""
    first = run[0]
    lines = _fixed(run) if first.form.format else _counted(first)
    for field in run:
        lines += [line.format(v=field.local, no=f"no{field.key}") for line in field.form.read]
    if first.required:
        return [*(f"if not bits & {field.mask}: return no{field.key}" for field in run if field.mask), *lines]
    lines = [f"if {first.bits} & {first.mask}:", *_indented(lines)]
    return [*lines, f"else: {first.local} = None"] if first.carried else lines


def _fixed(run: Sequence[Field]) -> list[str]:
    size = _struct(run).size
    if not run[0].carried:
        return [f"at += {size}"]
    if [field.form.format for field in run] == ["B"]:
        return [f"{run[0].local} = payload[at]", "at += 1"]
    targets = "".join(f"{field.local}, " for field in run)
    return [f"{targets}= unpack{run[0].key}_(payload, at)", f"at += {size}"]


def _counted(field: Field) -> list[str]:
    lines = ["n = payload[at]", "at += 1", "if n == 255:", "    n = payload[at] << 8 | payload[at + 1]", "    at += 2"]
    if not field.form.contents:
        return [*lines, f"{field.local} = n"]
    return [*lines, "end = at + n", "if end > size: return short", f"{field.local} = payload[at:end]", "at = end"]
