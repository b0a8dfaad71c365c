"""Event types and recordings for tests of the lake."""

from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path

from genus import Event, Kind, Maybe
from genus.bus import RecordingWriter
from genus.model._types import micros_of_time

MORNING = datetime(2026, 5, 1, 6, tzinfo=UTC)


class Category(Enum):
    CAR = "car"
    TRUCK = "truck"


class Streetside(Kind): ...


class Counter(Event, Streetside):
    lane: int
    category: Maybe[Category] = None
    speed: Maybe[float] = None


class Radar(Counter):
    angle: Maybe[float] = None


class Gate(Event, Streetside):
    open: bool


ALL = (Streetside, Counter, Radar, Gate)


def traffic(count: int, first: int = 0, start: datetime = MORNING) -> list[Event]:
    """A mixture of events, one per second; equal for equal arguments."""
    return [_event(number, start + timedelta(seconds=number)) for number in range(first, first + count)]


def _event(number: int, time: datetime) -> Event:
    place = f"A8/km{number % 7}" if number % 3 else None
    match number % 5:
        case 0:
            return Gate(time=time, open=number % 2 == 0, place=place)
        case 1:
            return Radar(time=time, lane=number % 4, speed=20.0 + number % 60, angle=0.5, place=place)
        case 2:
            return Counter(time=time, lane=number % 4)
    category = Category.TRUCK if number % 2 else Category.CAR
    return Counter(time=time, lane=number % 4, category=category, speed=float(number % 90), place=place)


def write_recording(path: Path, events: list[Event], delay: timedelta = timedelta(milliseconds=5)) -> Path:
    """Write a recording of events, each recorded shortly after its time, in blocks of 50 events at most."""
    with RecordingWriter(path) as writer:
        for number, event in enumerate(events):
            time = event.time or MORNING + timedelta(seconds=number)
            writer.write(event, micros_of_time(time + delay))
            if number % 50 == 49:
                writer.flush()
    return path
