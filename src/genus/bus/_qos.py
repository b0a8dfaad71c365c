"""Quality of service: what a channel promises about time. A medium that cannot keep a promise refuses the channel."""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from genus.errors import BusError
from genus.model import Span, format_span, nanoseconds


class _Quality(msgspec.Struct, frozen=True, eq=False):
    """What the three qualities of service share: they are equal by meaning, however their times are written."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._meaning() == other._meaning()

    def __ne__(self, other: object) -> bool:
        return not self == other  # a struct has an inequality of its own

    def __hash__(self) -> int:
        return hash(self._meaning())

    def _meaning(self) -> tuple[object, ...]:
        values = ((field, getattr(self, field)) for field in self.__struct_fields__)
        return tuple(nanoseconds(value) if field in _SPANS and value is not None else value for field, value in values)


_SPANS = frozenset({"period", "deadline", "expires"})
"""The fields of a quality of service that are spans."""


class Hard(_Quality, frozen=True):
    """Hard real time: one event per period, delivered exactly at its deadline even if `omissions` attempts fail.

    The channel needs a slot in the calendar that `genus can plan` makes. A periodic channel (the default) has an event
    in every slot, and its subscribers are told of a slot without one. With `sporadic` a slot may stay empty, and
    `period` is the minimum time between two events: publishing sooner is refused.

    >>> Hard("10ms"), Hard("50ms", omissions=2, sporadic=True)
    (Hard(period='10ms', omissions=1, sporadic=False), Hard(period='50ms', omissions=2, sporadic=True))
    """

    period: Span
    omissions: int = 1
    sporadic: bool = False

    def __post_init__(self) -> None:
        nanoseconds(self.period, "period", zero=False)
        if self.omissions < 0:
            raise BusError(f"omissions is {self.omissions}; it must be 0 or more")


class Soft(_Quality, frozen=True):
    """Soft real time: earliest deadline first; `deadline` and `expires` count from publishing.

    An event that was not sent by its deadline is reported and still sent; one that was not sent when it expires is
    reported and dropped. Without `expires` an event stays valid. An event's own attributes `deadline` and `expires`
    override the channel's. `period`, the minimum time between two events, is used for planning only.

    >>> Soft("20ms") == Soft(0.02)
    True
    """

    deadline: Span
    expires: Span | None = None
    period: Span | None = None

    def __post_init__(self) -> None:
        nanoseconds(self.deadline, "deadline", zero=False)
        _positive(expires=self.expires, period=self.period)
        if self.expires is not None and nanoseconds(self.expires) < nanoseconds(self.deadline):
            raise BusError(f"expires is {self.expires}, before the deadline of {self.deadline}")


class BestEffort(_Quality, frozen=True):
    """No real time: fixed priority below everything that has a deadline; 0 is normal, 1 is bulk.

    With `period`, the last event that was published is sent again every period until the channel is cancelled. That is
    for the cyclic messages of a database on a CAN bus; other media refuse it.
    """

    priority: int = 0
    period: Span | None = None

    def __post_init__(self) -> None:
        _positive(period=self.period)
        if self.priority not in (0, 1):
            raise BusError(f"priority is {self.priority}; it must be 0 (normal) or 1 (bulk)")


class Keep(msgspec.Struct, frozen=True):
    """What a channel with `keep=True` keeps: the newest event of each combination of values of the attributes `by`."""

    by: tuple[str, ...] = ("source",)


def keep_of(keep: bool, keep_by: str | Iterable[str] | None) -> Keep | None:
    """Return what the arguments of a channel ask to keep; BusError if `keep` is neither True nor False."""
    if not isinstance(keep, bool):
        raise BusError(f"keep={keep!r}: write keep=True to keep the newest event of each key, or keep=False")
    if not keep and keep_by is not None:
        raise BusError(f"keep_by={keep_by!r} needs keep=True")
    if not keep:
        return None
    return Keep() if keep_by is None else Keep((keep_by,) if isinstance(keep_by, str) else tuple(keep_by))


QoS: TypeAlias = Hard | Soft | BestEffort
"""A quality of service of an event channel."""


QOS_FORMS = "hard:PERIOD[:OMISSIONS][:sporadic], soft:DEADLINE[:EXPIRES], none[:PRIORITY][:PERIOD]"
"""The text forms of a quality of service."""


def parse_qos(text: str) -> QoS:
    """Return a quality of service as text; BusError if it cannot be read.

    The forms are `hard:PERIOD[:OMISSIONS][:sporadic]`, `soft:DEADLINE[:EXPIRES]` and
    `none[:PRIORITY][:PERIOD]`.

    >>> parse_qos("soft:20ms:100ms"), parse_qos("none")
    (Soft(deadline='20ms', expires='100ms', period=None), BestEffort(priority=0, period=None))
    >>> parse_qos("hard:50ms:sporadic")
    Hard(period='50ms', omissions=1, sporadic=True)
    >>> parse_qos("soft")
    Traceback (most recent call last):
    genus.errors.BusError: 'soft' lacks its deadline; write for example soft:20ms
    """
    kind, *parts = (part.strip() for part in text.split(":"))
    sporadic = kind == "hard" and parts[-1:] == ["sporadic"]
    match kind, parts[:-1] if sporadic else parts:
        case "hard", [period]:
            return Hard(period=period, sporadic=sporadic)
        case "hard", [period, omissions] if omissions.isdecimal():
            return Hard(period=period, omissions=int(omissions), sporadic=sporadic)
        case "soft", [deadline]:
            return Soft(deadline=deadline)
        case "soft", [deadline, expires]:
            return Soft(deadline=deadline, expires=expires)
        case "none", []:
            return BestEffort()
        case "none", [priority] if priority.isdecimal():
            return BestEffort(priority=int(priority))
        case "none", [period]:
            return BestEffort(period=period)
        case "none", [priority, period] if priority.isdecimal():
            return BestEffort(priority=int(priority), period=period)
        case (("hard" | "soft"), []):
            lacking = (
                "period; write for example hard:10ms" if kind == "hard" else "deadline; write for example soft:20ms"
            )
            raise BusError(f"{text!r} lacks its {lacking}")
    raise BusError(f"{text!r} is none of {QOS_FORMS}")


def format_qos(qos: QoS) -> str:
    """Return the text of a quality of service, which `parse_qos` reads; the period of a `Soft` is not part of it.

    >>> format_qos(Hard("10ms")), format_qos(Soft("20ms", expires="1s")), format_qos(BestEffort(priority=1))
    ('hard:10ms', 'soft:20ms:1s', 'none:1')
    >>> format_qos(Hard("10ms", omissions=2, sporadic=True)), format_qos(BestEffort(period="1s"))
    ('hard:10ms:2:sporadic', 'none:1s')
    """
    match qos:
        case Hard():
            parts = ["hard", _short(qos.period), str(qos.omissions) if qos.omissions != 1 else ""]
            parts.append("sporadic" if qos.sporadic else "")
        case Soft():
            parts = ["soft", _short(qos.deadline), _short(qos.expires)]
        case _:
            parts = ["none", str(qos.priority or ""), _short(qos.period)]
    return ":".join(part for part in parts if part)


def _short(span: Span | None) -> str:
    return "" if span is None else format_span(span)


def qos_of(quality: object) -> QoS:
    """Return the quality of service that an argument means: one of the three classes, or its text; BusError for others.

    >>> qos_of("none:1"), qos_of(BestEffort())
    (BestEffort(priority=1, period=None), BestEffort(priority=0, period=None))
    >>> qos_of(42)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genus.errors.BusError: 42 is not a quality of service; give Hard(...), Soft(...) or BestEffort(...), or a text: ...
    """
    if isinstance(quality, str):
        return parse_qos(quality)
    if isinstance(quality, Hard | Soft | BestEffort):
        return quality
    raise BusError(
        f"{quality!r} is not a quality of service; give Hard(...), Soft(...) or BestEffort(...), or a text: {QOS_FORMS}"
    )


def _positive(**spans: Span | None) -> None:
    for what, span in spans.items():
        if span is not None:
            nanoseconds(span, what, zero=False)
