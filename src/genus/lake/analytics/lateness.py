"""When an event happened, whether it came too late, and how far a stream has come.

An event is late if it was recorded after it expired, or, where a lateness is given, longer than that after its time.
That is a property of the event, the same however events are cut into batches. The arithmetic is on microseconds, for
Spark adds to and subtracts from timestamps in the session's time zone, where days have 23 hours or 25.
"""

from datetime import UTC, datetime, timedelta

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame

from genus.errors import LakeError
from genus.lake.analytics.settling import demand
from genus.lake.columns import EVENT_ID, RECORDED

TIME, EXPIRES = "time", "expires"
CONTEXT = (TIME, EXPIRES, RECORDED, *EVENT_ID)
"""What an analysis must know of an event: when it happened and was seen, how long it holds, and which one it is."""

END = datetime.max.replace(tzinfo=UTC)
"""The watermark after which nothing comes: all is settled."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FOREVER = (1 << 63) - 1


def moment() -> Column:
    """When an event happened: its time, or when it was recorded if it has none."""
    return F.coalesce(TIME, RECORDED)


def is_late(lateness: timedelta | None = None) -> Column:
    """Whether an event was recorded after it expired, or longer than the lateness after its time; never NULL."""
    late = F.coalesce(F.col(RECORDED) > F.col(EXPIRES), F.lit(False))
    if lateness is None:
        return late
    delay = F.unix_micros(RECORDED) - F.unix_micros(TIME)
    return late | F.coalesce(delay > micros(lateness), F.lit(False))


def is_overtaken(watermark: datetime) -> Column:
    """Whether a stream that has come to a watermark has gone past an event, late or not."""
    return F.unix_micros(moment()) < instant(watermark)


def watermark_of(recorded: datetime, lateness: timedelta | None) -> datetime:
    """How far a stream has come that has seen events recorded up to then: no event before it is still to come.

    >>> watermark_of(datetime(2026, 5, 4, 12, tzinfo=UTC), timedelta(seconds=30))
    datetime.datetime(2026, 5, 4, 11, 59, 30, tzinfo=datetime.timezone.utc)
    """
    if lateness is None:
        raise LakeError("a stream needs a lateness, or it would wait for late events for ever: give lateness=")
    instant(recorded)
    return recorded - lateness


def on_time(events: DataFrame, lateness: timedelta | None, keep_late: bool) -> DataFrame:
    """The events of a frame that count: all but late ones, unless these are kept."""
    demand(events, CONTEXT)
    return events if keep_late else events.where(~is_late(lateness))


def micros(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration // _MICROSECOND


def instant(watermark: datetime) -> int:
    """A watermark in microseconds since 1970, beyond every time for the one at the end.

    >>> instant(datetime(1970, 1, 2, tzinfo=UTC))
    86400000000
    """
    if watermark.tzinfo is None:
        raise LakeError(f"{watermark} has no time zone; give an aware datetime, such as datetime.now(UTC)")
    return _FOREVER if watermark == END else micros(watermark - _EPOCH)


def known_before(watermark: datetime, keep_late: bool) -> int:
    """The time before which all is known at a watermark; only at the end is that so of late events, too."""
    if keep_late and watermark != END:
        raise LakeError("a stream cannot keep late events: leave out keep_late=, or give a longer lateness=")
    return instant(watermark)


def check_lateness(lateness: timedelta | None) -> None:
    """Refuse a lateness below zero."""
    if lateness is not None and lateness < timedelta(0):
        raise LakeError(f"lateness={lateness} is below zero; give how long after its time an event may be recorded")
