"""The clock for tests stands wherever Genus takes a clock."""

from datetime import timedelta
from pathlib import Path

import pytest

from genus import Event, open_bus
from genus.bus import read_recording, record, replay
from genus.errors import SpanError
from genus.testing import VirtualClock


class Tick(Event):
    number: int


def test_it_stands_still_until_it_is_told_to_advance() -> None:
    clock = VirtualClock(5)
    assert clock() == clock() == 5
    assert clock.advance(7) == 7_000_000_005
    assert clock.advance("1us") == 7_000_001_005
    assert clock.advance(timedelta(seconds=1)) == clock() == 8_000_001_005
    assert clock.advance_to(8_000_001_006) == clock.advance_to(3) == 8_000_001_006
    assert repr(clock) == "VirtualClock(8000001006)"


@pytest.mark.parametrize("back", [-1, timedelta(seconds=-1)])
def test_it_does_not_go_back(back: int | timedelta) -> None:
    clock = VirtualClock()
    with pytest.raises(SpanError, match=r"by is .*, which is negative"):
        clock.advance(back)
    with pytest.raises(SpanError, match=r"by is -0\.5, which is negative"):
        clock.sleep(-0.5)
    assert clock() == 0


def test_it_records_and_replays_without_waiting(tmp_path: Path) -> None:
    clock = VirtualClock()
    with open_bus("local:") as bus, record(bus, tmp_path / "ticks", clock=clock):
        for number in range(3):
            bus.publish(Tick(number=number))
            clock.advance("1s")
    recording = read_recording(tmp_path / "ticks", [Tick])
    assert [recorded.at_us for recorded in recording] == [0, 1_000_000, 2_000_000]
    again = VirtualClock()
    heard: list[float] = []
    replay(recording, lambda event: heard.append(again.seconds()), speed=2.0, sleep=again.sleep, clock=again.seconds)
    assert heard == [0.0, 0.5, 1.0]
