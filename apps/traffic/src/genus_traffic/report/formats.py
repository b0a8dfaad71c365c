"""Numbers, shares, spans and times of day as text: functions of the checks, and filters of the page's templates."""

from datetime import UTC, datetime, timedelta, tzinfo

from genus_traffic.results import Results

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def format_count(number: int) -> str:
    """A number with separated thousands.

    >>> format_count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def count_of(number: int, noun: str) -> str:
    """A number with its noun, in the plural if need be.

    >>> [count_of(1, "event"), count_of(2000, "event"), count_of(1, "passages")]
    ['1 event', '2,000 events', '1 passage']
    """
    singular = noun.removesuffix("s")
    return f"{number:,} {singular if number == 1 else f'{singular}s'}"


def format_share(part: float, whole: float) -> str:
    """Per cent, never rounded up to 100 or down to 0.

    >>> [format_share(1, 3), format_share(9999, 10000), format_share(5, 5), format_share(0, 5), format_share(0, 0)]
    ['33.3 %', '99.99 %', '100 %', '0 %', '–']
    >>> [format_share(99999, 100000), format_share(1, 100000)]
    ['> 99.99 %', '< 0.01 %']
    """
    if not whole:
        return "–"
    if part in (0, whole):
        return "100 %" if part else "0 %"
    percent = 100 * part / whole
    if 99.99 < percent < 100:
        return "> 99.99 %"
    if 0 < percent < 0.01:
        return "< 0.01 %"
    decimals = 2 if percent > 99.9 or 0 < percent < 0.1 else 1
    return f"{percent:.{decimals}f} %"


def format_micros(span_us: float) -> str:
    """A span of time in the unit that suits it.

    >>> [format_micros(134.4), format_micros(9_870), format_micros(2_500_000)]
    ['134 µs', '9.87 ms', '2.5 s']
    """
    if abs(span_us) < 1_000:
        return f"{span_us:.0f} µs"
    scale, unit = (1_000, "ms") if abs(span_us) < 1_000_000 else (1_000_000, "s")
    return f"{span_us / scale:.3g} {unit}"


def format_seconds(span_s: float) -> str:
    """A span of seconds or minutes.

    >>> [format_seconds(0.034), format_seconds(7.26), format_seconds(95)]
    ['34 ms', '7.3 s', '1 min 35 s']
    """
    if span_s < 1:
        return format_micros(span_s * 1e6)
    if span_s < 60:
        return f"{span_s:.1f} s"
    return f"{span_s // 60:.0f} min {span_s % 60:.0f} s"


def format_rate(amount: int, span_s: float) -> str:
    """An amount per second; empty if no time was measured.

    >>> [format_rate(1_250_000, 5), format_rate(30, 60), format_rate(5, 0)]
    ['250 k/s', '0.5 /s', '']
    """
    if span_s <= 0:
        return ""
    each = amount / span_s
    for scale, unit in (1e9, "G"), (1e6, "M"), (1e3, "k"):
        if each >= scale:
            return f"{each / scale:.3g} {unit}/s"
    return f"{each:.3g} /s"


def format_bits(value: int, mask: int, length: int) -> str:
    """The bits that a mask compares, highest first; the others are hyphens.

    >>> format_bits(0b1010, 0b1110, 4)
    '101-'
    """
    return "".join(str(value >> bit & 1) if mask >> bit & 1 else "-" for bit in reversed(range(length)))


class Clock:
    """Times of day in the time zone of the run's start."""

    def __init__(self, results: Results) -> None:
        self.zone: tzinfo = results.start.tzinfo or UTC
        self.start_us = micros_of(results.start)
        self.end_us = self.start_us + round(results.minutes * 60e6)

    def wall_s(self, at_us: float) -> int:
        """What a clock on the wall shows, as seconds: the page's script knows no time zones."""
        moment = _EPOCH + timedelta(microseconds=at_us)
        offset = moment.astimezone(self.zone).utcoffset() or timedelta()
        return int(at_us // 1e6 + offset.total_seconds())

    def format_time(self, at_us: float) -> str:
        """Hours, minutes and, unless it is a full minute, seconds."""
        return format_wall(self.wall_s(at_us))


def format_wall(wall_s: int) -> str:
    """A time of day from the seconds of a clock on the wall.

    >>> [format_wall(27_000), format_wall(27_005)]
    ['07:30', '07:30:05']
    """
    return f"{_EPOCH + timedelta(seconds=wall_s):{'%H:%M:%S' if wall_s % 60 else '%H:%M'}}"


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970; a moment without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
