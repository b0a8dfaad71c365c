"""Systems and times as text: what SYSTEM.toml would say."""

import re
from collections.abc import Iterable, Iterator
from json import dumps

from genus.can.plan.system import Bus, Channel, System

_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
_BARE_KEY = re.compile("[A-Za-z0-9_-]+")


def spell_span(span_ns: int) -> str:
    """A length of time, exactly, as a system file has it.

    >>> spell_span(562_000), spell_span(1_234_567), spell_span(20_000_000), spell_span(0)
    ('562us', '1.234567ms', '20ms', '0ns')
    """
    scale, unit = next((scale, unit) for scale, unit in _UNITS if abs(span_ns) >= scale or scale == 1)
    whole, rest = divmod(abs(span_ns), scale)
    digits = str(rest).zfill(len(str(scale)) - 1).rstrip("0") if rest else ""
    return f"{'-' if span_ns < 0 else ''}{whole}{'.' if digits else ''}{digits}{unit}"


def show_span(span_ns: int | None) -> str:
    """A length of time for people: three decimals at most, rounded up, as it is a bound.

    >>> show_span(1_234_567), show_span(20_000_000), show_span(None)
    ('1.235 ms', '20 ms', '—')
    """
    if span_ns is None:
        return "—"
    scale, unit = next((scale, unit) for scale, unit in _UNITS if abs(span_ns) >= scale or scale == 1)
    thousandths = -(-span_ns * 1000 // scale)
    return f"{thousandths / 1000:.3f}".rstrip("0").rstrip(".") + f" {unit}"


def show_bitrate(bitrate: int) -> str:
    """Bits per second for people.

    >>> show_bitrate(1_000_000), show_bitrate(500_000)
    ('1 Mbit/s', '500 kbit/s')
    """
    return f"{bitrate / 1_000_000:g} Mbit/s" if bitrate >= 1_000_000 else f"{bitrate / 1_000:g} kbit/s"


def spell_system(system: System) -> str:
    """The text of a system file that describes a system; sizes are written out, types are not needed."""
    lines = ["[bus]", *_entries(_bus(system.bus)), "", "[nodes]", *_entries(system.nodes.items())]
    for channel in system.channels:
        lines += ["", "[[channel]]", *_entries(_channel(channel))]
    return "\n".join(lines) + "\n"


def _bus(bus: Bus) -> Iterator[tuple[str, object]]:
    yield "bitrate", bus.timing.bitrate
    yield "data_bitrate", bus.timing.data_bitrate
    yield "gap", spell_span(bus.gap_ns)
    yield "precision", spell_span(bus.precision_ns)
    yield "error_interval", _optional(bus.error_interval_ns)
    yield "middleware", bus.middleware
    yield "sync_period", spell_span(bus.sync_period_ns)


def _channel(channel: Channel) -> Iterator[tuple[str, object]]:
    yield "name", channel.name
    yield "event", channel.event
    yield "node", channel.node
    yield "class", channel.qos_class
    yield "period", spell_span(channel.period_ns)
    if channel.qos_class == "hard":
        yield "omissions", channel.omissions
    else:
        yield "deadline", _optional(channel.deadline_ns)
        yield "expires", _optional(channel.expires_ns)
        yield "jitter", spell_span(channel.jitter_ns)
    if channel.qos_class == "none":
        yield "priority", channel.priority
    yield "size", channel.size
    yield "segmented", channel.segmented
    yield "subscribers", list(channel.subscribers)


def _optional(span_ns: int | None) -> str | None:
    return None if span_ns is None else spell_span(span_ns)


def _entries(pairs: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Lines of a table; numbers, flags, texts and lists are written in TOML as in JSON, but for one character."""
    for key, value in pairs:
        if value is not None:
            shown = key if _BARE_KEY.fullmatch(key) else dumps(key, ensure_ascii=False)
            yield f"{shown} = {dumps(value, ensure_ascii=False)}".replace("\x7f", "\\u007f")
