"""Numbers, shares, spans and times of day, as people read them."""

from datetime import UTC, datetime, timedelta, tzinfo

from genus_traffic.results import Results

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def count(number: int) -> str:
    """A number with its thousands set apart.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def some(number: int, noun: str) -> str:
    """So many of something.

    >>> [some(1, "event"), some(2000, "event"), some(2, "vehicles per bus")]
    ['1 event', '2,000 events', '2 vehicles per bus']
    """
    plural = noun if noun.endswith("s") or " per " in noun else f"{noun}s"
    return f"{count(number)} {noun if number == 1 else plural}"


def share(part: float, whole: float) -> str:
    """Per cent, never rounded up to all of it or down to none of it.

    >>> [share(1, 3), share(9999, 10000), share(99999, 100000), share(1, 100000), share(5, 5), share(0, 5), share(0, 0)]
    ['33.3 %', '99.99 %', '> 99.99 %', '< 0.01 %', '100 %', '0 %', '–']
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


def micros(span_us: float) -> str:
    """A span of time in the unit that suits it.

    >>> [micros(134.4), micros(9_870), micros(2_500_000)]
    ['134 µs', '9.87 ms', '2.5 s']
    """
    if abs(span_us) < 1_000:
        return f"{span_us:.0f} µs"
    scale, unit = (1_000, "ms") if abs(span_us) < 1_000_000 else (1_000_000, "s")
    return f"{span_us / scale:.3g} {unit}"


def seconds(span_s: float) -> str:
    """A span of seconds or minutes.

    >>> [seconds(0.034), seconds(7.26), seconds(95)]
    ['34 ms', '7.3 s', '1 min 35 s']
    """
    if span_s < 1:
        return micros(span_s * 1e6)
    if span_s < 60:
        return f"{span_s:.1f} s"
    return f"{span_s // 60:.0f} min {span_s % 60:.0f} s"


def rate(amount: int, span_s: float) -> str:
    """So many per second; nothing if it took no time that was measured.

    >>> [rate(1_250_000, 5), rate(30, 60), rate(5, 0)]
    ['250 k/s', '0.5 /s', '']
    """
    if span_s <= 0:
        return ""
    each = amount / span_s
    for scale, unit in (1e9, "G"), (1e6, "M"), (1e3, "k"):
        if each >= scale:
            return f"{each / scale:.3g} {unit}/s"
    return f"{each:.3g} /s"


class Clock:
    """Times of day, in the zone of the run's start."""

    def __init__(self, results: Results) -> None:
        self.zone: tzinfo = results.start.tzinfo or UTC
        self.start_us = micros_of(results.start)
        self.end_us = self.start_us + round(results.minutes * 60e6)

    def time_of_day(self, at_us: float) -> str:
        """Hours, minutes and, unless it is a full minute, seconds."""
        moment = (_EPOCH + timedelta(microseconds=at_us)).astimezone(self.zone)
        return moment.strftime("%H:%M:%S" if round(at_us) % 60_000_000 else "%H:%M")


def micros_of(moment: datetime) -> int:
    """Microseconds since 1970; a moment without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)
