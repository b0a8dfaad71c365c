"""A recording that is played: time is an input, and every event comes once, in order, when it is due."""

import os
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from genus import Event, Maybe
from genus.bus import RecordingWriter
from genus.bus.types import Recorded
from genus.errors import BusError, RecordingError
from genus.studio._recording_sequence import RecordingSequence
from genus.studio._recording_source import BATCH, RecordingSource
from genus.studio._source import EventSource, PlayedSource, Source, TimedSource, WaitingSource
from genus.studio.types import ChannelRow, SourceRow

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
BEGIN_US = round(BEGIN.timestamp() * 1e6)


class Gate(Event):
    number: int
    text: Maybe[str] = None


class Door(Event):
    number: int


class Hands:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gates.genus"


@pytest.fixture
def clock() -> Hands:
    return Hands()


def write(path: Path, times_ms: list[float], make: Callable[[int], Event] = lambda number: Gate(number=number)) -> None:
    with RecordingWriter(path) as writer:
        for number, at_ms in enumerate(times_ms):
            writer.write(make(number), BEGIN_US + round(at_ms * 1000))
            if number % 10 == 9:
                writer.flush()


class Played:
    """A source without threads, and what came out of it."""

    def __init__(
        self,
        path: Path,
        clock: Hands,
        types: tuple[type, ...] = (Gate,),
        is_looked_at: bool = True,
        **options: bool,
    ) -> None:
        self.source = RecordingSource(path, types, name="r", clock=clock, threaded=False, **options)
        self.clock = clock
        self.events: list[tuple[float, Event, str | None]] = []
        self.end = self.source.tap(self._receive)
        if is_looked_at:
            self.source.looked_at()

    def _receive(self, at_ns: int, event: Event, publisher: str | None) -> None:
        self.events.append(((at_ns // 1000 - BEGIN_US) / 1000, event, publisher))

    def pass_s(self, seconds: float, step_s: float = 0.05) -> None:
        end = self.clock.now + seconds
        self.source.step()
        while self.clock.now < end - 1e-9:
            self.clock.now = min(end, self.clock.now + step_s)
            while self.source.step() == 0.0:
                pass
            self.source.rows(("sources", "channels"))

    @property
    def times_ms(self) -> list[float]:
        return [at_ms for at_ms, _, _ in self.events]

    def row(self) -> SourceRow:
        found = self.source.rows(("sources",))["sources"]["r"]
        assert isinstance(found, SourceRow)
        return found

    def channel(self, type_: str, publisher: str = "") -> ChannelRow:
        found = self.source.rows(("channels",))["channels"][f"r|{type_}|{publisher}"]
        assert isinstance(found, ChannelRow)
        return found

    @property
    def time_ms(self) -> float:
        time_ms = self.row().time_ms
        assert time_ms is not None
        return time_ms - BEGIN_US / 1000


def test_events_come_when_they_are_due(path: Path, clock: Hands) -> None:
    write(path, [0, 100, 250, 900])
    played = Played(path, clock)
    assert isinstance(played.source, EventSource)
    assert isinstance(played.source, PlayedSource)
    played.pass_s(0.26)
    assert played.times_ms == [0, 100, 250]
    assert played.row().state == "playing"
    assert played.time_ms == pytest.approx(260)
    played.pass_s(1.0)
    assert played.times_ms == [0, 100, 250, 900]
    assert played.row().state == "ended"
    assert played.time_ms == 900


def test_it_waits_at_its_beginning_until_a_page_looks(path: Path, clock: Hands) -> None:
    """A short recording would be over before the page is open."""
    write(path, [0, 100, 250])
    played = Played(path, clock, is_looked_at=False)
    assert isinstance(played.source, WaitingSource)
    played.pass_s(60.0)
    assert played.events == []
    assert (played.row().state, played.row().note, played.time_ms) == ("paused", "waits for a page", 0)
    played.source.looked_at()
    played.pass_s(0.15)
    assert played.times_ms == [0, 100]
    assert (played.row().state, played.row().note) == ("playing", "")
    played.pass_s(1.0)
    played.source.looked_at()
    assert played.row().state == "ended", "another page does not start it again"


def test_a_page_starts_only_what_waits_for_one(path: Path, clock: Hands) -> None:
    write(path, [0, 100])
    assert Played(path, clock, plays=False).row().state == "paused"
    played = Played(path, clock, is_looked_at=False)
    played.source.pause()
    played.source.looked_at()
    assert (played.row().state, played.row().note) == ("paused", "")
    played.source.play()
    played.source.pause()
    played.source.looked_at()
    assert played.row().state == "paused"


def test_a_recording_that_waits_may_be_moved(path: Path, clock: Hands) -> None:
    write(path, [0, 500, 1000])
    played = Played(path, clock, is_looked_at=False)
    played.source.seek(BEGIN_US / 1000 + 400)
    played.pass_s(1.0)
    assert (played.row().state, played.time_ms) == ("paused", 400)
    played.source.looked_at()
    played.pass_s(0.11)
    assert played.times_ms == [500]


def test_what_does_not_play_has_no_rate_and_keeps_its_history(path: Path, clock: Hands) -> None:
    write(path, [number * 10 for number in range(500)])
    played = Played(path, clock)
    played.pass_s(3.0)
    history = played.channel("Gate").rates
    assert played.channel("Gate").rate > 0
    played.source.pause()
    assert (played.row().rate, played.channel("Gate").rate) == (0.0, 0.0)
    assert played.channel("Gate").rates == history
    played.source.play()
    played.pass_s(3.0)
    assert (played.row().state, played.row().rate, played.channel("Gate").rate) == ("ended", 0.0, 0.0)


def test_speed_changes_how_fast_time_passes(path: Path, clock: Hands) -> None:
    write(path, [number * 100 for number in range(100)])
    played = Played(path, clock)
    played.pass_s(1.0)
    assert len(played.events) == 11
    played.source.set_speed(4)
    played.pass_s(1.0)
    assert len(played.events) == 51
    played.source.set_speed(0.5)
    played.pass_s(1.0)
    assert len(played.events) == 56
    assert played.row().speed == 0.5


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_makes_no_sense_is_refused(path: Path, clock: Hands, speed: float) -> None:
    write(path, [0, 1])
    played = Played(path, clock)
    with pytest.raises(BusError, match="give a number"):
        played.source.set_speed(speed)
    assert played.row().speed == 1.0


def test_paused_nothing_comes_and_time_stands(path: Path, clock: Hands) -> None:
    write(path, [number * 100 for number in range(100)])
    played = Played(path, clock, plays=False)
    played.pass_s(1.0)
    assert played.events == []
    assert played.row().state == "paused"
    played.source.play()
    played.pass_s(0.5)
    played.source.pause()
    played.pass_s(10.0)
    assert len(played.events) == 6
    assert played.time_ms == pytest.approx(500)
    played.source.play()
    played.pass_s(0.5)
    assert len(played.events) == 11


def test_a_seek_goes_on_from_a_time(path: Path, clock: Hands) -> None:
    write(path, [number * 10 for number in range(1000)])
    played = Played(path, clock)
    played.pass_s(0.1)
    before = len(played.events)
    played.source.seek(BEGIN_US / 1000 + 5001)
    played.pass_s(0.1)
    assert played.times_ms[before:] == [number * 10 for number in range(501, 511)]
    played.source.seek(BEGIN_US / 1000 + 20)
    played.pass_s(0.01)
    assert played.times_ms[-2:] == [20, 30]
    assert played.row().events == len(played.events)
    assert played.row().can_seek


def test_a_seek_while_paused_stays_paused(path: Path, clock: Hands) -> None:
    write(path, [0, 500, 1000])
    played = Played(path, clock, plays=False)
    played.source.seek(BEGIN_US / 1000 + 400)
    played.pass_s(1.0)
    assert (played.row().state, played.time_ms, played.events) == ("paused", 400, [])
    played.source.play()
    played.pass_s(0.11)
    assert played.times_ms == [500]


def test_a_seek_outside_goes_to_the_beginning_or_the_end(path: Path, clock: Hands) -> None:
    write(path, [0, 500, 1000])
    played = Played(path, clock)
    played.source.seek(float("inf"))
    played.pass_s(0.1)
    assert played.times_ms == [1000]
    played.source.seek(-1e30)
    played.pass_s(0.1)
    assert played.times_ms == [1000, 0]
    with pytest.raises(BusError, match="NaN"):
        played.source.seek(float("nan"))


def test_after_the_end_play_starts_from_the_beginning(path: Path, clock: Hands) -> None:
    write(path, [0, 100])
    played = Played(path, clock)
    played.pass_s(0.3)
    assert played.row().state == "ended"
    played.source.play()
    played.pass_s(0.05)
    assert played.times_ms == [0, 100, 0]
    assert played.row().state == "playing"
    played.pass_s(1.0)
    played.source.seek(BEGIN_US / 1000 + 100)
    assert played.row().state == "playing"


def test_too_fast_it_waits_for_the_events_and_loses_none(path: Path, clock: Hands) -> None:
    count = 3 * BATCH
    write(path, [number * 1000 for number in range(count)])
    played = Played(path, clock)
    played.source.set_speed(1e6)
    played.source.step()
    clock.now += 1.0
    played.source.step()
    assert len(played.events) <= 2 * BATCH
    assert played.time_ms <= played.times_ms[-1] + 1000
    played.pass_s(1.0)
    assert [event.number for _, event, _ in played.events] == list(range(count))  # type: ignore[attr-defined]


def test_times_that_go_back_keep_the_order_of_the_file(path: Path, clock: Hands) -> None:
    write(path, [0, 1000, 200, 300, 2000])
    played = Played(path, clock)
    played.pass_s(1.01)
    assert played.times_ms == [0, 1000, 200, 300]
    assert played.time_ms == pytest.approx(1010)
    played.source.seek(BEGIN_US / 1000 + 600)
    played.pass_s(5)
    assert played.times_ms[4:] == [1000, 200, 300, 2000]


def test_rates_are_in_the_recordings_time_and_begin_anew_after_a_seek(path: Path, clock: Hands) -> None:
    write(path, [number * 10 for number in range(10_000)], lambda number: Gate(number=number, source=f"g{number % 2}"))
    played = Played(path, clock)
    played.source.set_speed(10)
    played.pass_s(2.0)
    assert played.row().rate == pytest.approx(100, rel=0.1)
    channel = played.channel("Gate", "g1")
    assert channel.rate == pytest.approx(50, rel=0.1)
    assert isinstance(played.source, TimedSource)
    for _ in range(20):
        played.pass_s(0.05)
        of_types = played.source.rates_of(played.source.counts())
    assert of_types == {"Gate": pytest.approx(100, rel=0.1)}
    assert len(channel.rates) == 20
    assert channel.jitter_ms == 0.0
    before = played.row().events
    played.source.seek(BEGIN_US / 1000 + 90_000)
    played.pass_s(0.3)
    assert played.row().events > before
    assert max(played.channel("Gate", "g1").rates) < 60
    assert played.row().rate == pytest.approx(100, rel=0.2)
    assert played.channel("Gate", "g1").jitter_ms == 0.0
    played.source.pause()
    assert played.row().rate == 0.0
    assert played.source.rates_of(played.source.counts()) == {"Gate": 0.0}
    assert played.source.counts() == {"Gate": played.row().events}


def test_latency_is_from_an_events_own_time_to_that_of_recording(path: Path, clock: Hands) -> None:
    def make(number: int) -> Event:
        return Gate(number=number, time=BEGIN + timedelta(milliseconds=number * 10 - (5 if number % 2 else 1)))

    write(path, [number * 10 for number in range(100)], make)
    played = Played(path, clock)
    played.pass_s(2.0)
    channel = played.channel("Gate")
    assert (channel.latency_ms, channel.worst_latency_ms) == (3.0, 5.0)


def test_damage_and_unknown_types_are_lost_and_noted(path: Path, clock: Hands) -> None:
    write(path, list(range(40)), lambda number: Door(number=number) if number % 4 == 0 else Gate(number=number))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    played = Played(path, clock)
    played.pass_s(1.0)
    assert played.row().state == "ended"
    assert len(played.events) in (22, 23), "a block of ten is damaged, and every fourth event is of no known type"
    assert played.row().lost == 40 - len(played.events)
    assert "damaged in 1 place" in played.row().note
    assert "types that are not known here: Door" in played.row().note
    lost = played.row().lost
    played.source.play()
    played.pass_s(1.0)
    assert played.row().lost > lost, "what is lost when it is played again is counted again"


def test_a_recording_without_events(path: Path, clock: Hands) -> None:
    write(path, [])
    played = Played(path, clock)
    played.pass_s(1.0)
    assert (played.row().state, played.row().note, played.row().can_seek) == ("ended", "has no events", False)
    assert (played.row().time_ms, played.row().begin_ms, played.row().end_ms) == (None, None, None)
    with pytest.raises(BusError, match="no events"):
        played.source.seek(0)


def test_a_long_pause_in_the_recording_is_told(path: Path, clock: Hands) -> None:
    write(path, [0, 86_400_000])
    played = Played(path, clock)
    played.pass_s(1.0)
    assert played.row().note == "the next event is of 2026-05-02 00:00:00 UTC"
    played.source.set_speed(100_000)
    assert played.row().note == ""


def test_no_file_and_no_recording_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        RecordingSource(tmp_path / "nothing.genus", name="r")
    (tmp_path / "text.genus").write_text("hello")
    with pytest.raises(RecordingError, match="not a recording"):
        RecordingSource(tmp_path / "text.genus", name="r")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match=r"no recordings.*genus record"):
        RecordingSource(tmp_path / "empty", name="r")
    with pytest.raises(RecordingError, match=r"no recordings.*not a recording"):
        RecordingSource(tmp_path, name="r")


def test_a_file_that_is_removed_fails_and_can_be_played_when_it_is_back(path: Path, clock: Hands) -> None:
    write(path, [0, 10])
    played = Played(path, clock, plays=False)
    content = path.read_bytes()
    path.unlink()
    played.source.play()
    played.pass_s(0.1)
    assert played.row().state == "failed"
    assert "No such file" in played.row().note
    path.write_bytes(content)
    played.source.play()
    played.pass_s(0.1)
    assert (played.row().state, played.times_ms) == ("ended", [0, 10])


def test_a_landing_folder_is_played_as_one(tmp_path: Path, clock: Hands) -> None:
    """The files of a recorder follow each other, and recorders are side by side."""
    for name, times in {
        "north-000000000001": [0, 200],
        "north-000000000002": [400, 600],
        "south-000000000001": [100, 500],
        "alone": [300],
    }.items():
        write(tmp_path / f"{name}.genus", [float(each) for each in times])
    (tmp_path / ".north-000000000003.part").write_bytes(b"unfinished")
    (tmp_path / "broken.genus").write_bytes(b"nonsense")
    played = Played(tmp_path, clock)
    played.pass_s(0.61)
    assert played.times_ms == [0, 100, 200, 300, 400, 500, 600]
    assert "broken.genus" in played.row().note
    played.source.seek(BEGIN_US / 1000 + 450)
    played.pass_s(0.2)
    assert played.times_ms[7:] == [500, 600]


def test_a_tap_ends(path: Path, clock: Hands) -> None:
    write(path, [0, 100])
    played = Played(path, clock)
    played.pass_s(0.05)
    played.end()
    played.pass_s(0.1)
    assert played.times_ms == [0]
    assert played.row().events == 2


def test_the_threads_index_and_play(path: Path) -> None:
    write(path, [number * 5 for number in range(20)])
    source: Source = RecordingSource(path, [Gate], name="r")
    assert isinstance(source, RecordingSource)
    done = threading.Event()
    source.tap(lambda at_ns, event, publisher: done.set() if event.number == 19 else None)  # type: ignore[attr-defined]
    source.looked_at()
    assert done.wait(20)
    source.close()
    source.close()
    row = source.rows(("sources",))["sources"]["r"]
    assert isinstance(row, SourceRow)
    assert row.events == 20


def test_while_the_index_is_made_its_progress_is_noted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, [0, 10_000])
    halfway, go_on = threading.Event(), threading.Event()
    whole = RecordingSource._tell_progress

    def stop_halfway(self: RecordingSource, share: float) -> None:
        whole(self, 0.4)
        halfway.set()
        go_on.wait(20)

    monkeypatch.setattr(RecordingSource, "_tell_progress", stop_halfway)
    source = RecordingSource(path, [Gate], name="r", plays=False)
    assert halfway.wait(20)
    row = source.rows(("sources",))["sources"]["r"]
    assert isinstance(row, SourceRow)
    assert (row.note, row.can_seek) == ("indexing 40%", False)
    with pytest.raises(BusError, match="40% done"):
        source.seek(0)
    go_on.set()
    source.close()


def test_a_receiver_that_raises_does_not_end_the_thread(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, [0, 1])
    failed = threading.Event()

    def fail(at_ns: int, event: Event, publisher: str | None) -> None:
        failed.set()
        raise ZeroDivisionError("of a tap")

    source = RecordingSource(path, [Gate], name="r", plays=False)
    end = source.tap(fail)
    source.play()
    assert failed.wait(20)
    done = threading.Event()
    end()
    source.tap(lambda at_ns, event, publisher: done.set() if event.number == 1 else None)  # type: ignore[attr-defined]
    row = source.rows(("sources",))["sources"]["r"]
    assert isinstance(row, SourceRow)
    assert (row.state, "of a tap" in row.note) == ("failed", True)
    source.play()
    assert done.wait(20)
    source.close()
    assert "ZeroDivisionError" in caplog.text


def test_a_page_does_not_wait_for_a_long_stretch_of_unknown_events(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that plays may search for minutes; rows, counters and taps are there meanwhile."""
    write(path, [0.0])
    reads, goes_on = threading.Event(), threading.Event()

    def read(sequence: RecordingSequence, time_us: int | None = None) -> Iterator[Recorded]:
        reads.set()
        assert goes_on.wait(20)
        return iter(())

    monkeypatch.setattr(RecordingSequence, "read", read)
    source = RecordingSource(path, [Gate], name="gates")
    source.looked_at()
    try:
        assert reads.wait(20)
        row = source.rows(["sources"])["sources"]["gates"]
        assert isinstance(row, SourceRow)
        assert row.note == "is being read"
        assert source.counts() == {}
        source.tap(lambda at, event, who: None)()
    finally:
        goes_on.set()
        source.close()


def test_a_file_that_is_cut_while_it_is_played_fails(path: Path, clock: Hands) -> None:
    write(path, [each * 100.0 for each in range(20_000)])
    source = RecordingSource(path, [Gate], name="gates", clock=clock, threaded=False)
    source.looked_at()
    source.step()
    os.truncate(path, 8192)
    for _ in range(100):
        clock.now += 20.0
        source.step()
    row = source.rows(["sources"])["sources"]["gates"]
    assert isinstance(row, SourceRow)
    assert (row.state, "was cut" in row.note) == ("failed", True)
    source.close()
