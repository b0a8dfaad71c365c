"""A trace of a simulated bus as a source: all its frames, at the time that is shown."""

from pathlib import Path

import pytest

from genus import Catalog, Event, Soft, UInt8, open_bus
from genus.can import World
from genus.can.types import Trace
from genus.errors import BusError, RecordingError
from genus.studio import open_source
from genus.studio._world_source import TraceSource
from genus.studio.types import ChannelRow, PlayedSource, SourceRow, TimelineSource
from tests.studio.made_sources import Clock


class Traced(Event, name="studio.Traced"):
    lane: UInt8


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of a bus with a sensor that publishes every 100 ms."""
    path = tmp_path_factory.mktemp("trace") / "road.trace"
    with World("studio-trace", catalog=[Traced]) as world:
        sensor, logger = open_bus("sim:studio-trace?name=sensor"), open_bus("sim:studio-trace?name=logger")
        inbox = logger.collection(Traced).inbox()
        channel = sensor.channel(Traced, Soft(deadline="10ms"))
        channel.announce()
        for number in range(20):
            channel.publish(Traced(lane=number))
            world.run("100ms")
        assert inbox.counters.delivered == 20
        world.catalog.save(path.with_suffix(".json"))
        world.trace.save(path)
    return path


def row_of(source: TraceSource) -> SourceRow:
    found = source.rows(["sources"])["sources"]["road"]
    assert isinstance(found, SourceRow)
    return found


def test_a_trace_is_known_by_its_content(trace: Path) -> None:
    (source,) = open_source(str(trace))
    assert isinstance(source, TraceSource)
    assert isinstance(source, PlayedSource)
    assert isinstance(source, TimelineSource)


def test_the_timeline_has_every_frame_of_its_span(trace: Path) -> None:
    source = TraceSource(trace, name="road")
    whole = Trace.load_file(trace)
    for start_ns, span_ns in ((0, whole.span_ns + 1), (300_000_000, 200_000_000), (512_345_678, 1_000_000)):
        drawn = source.timeline(start_ns / 1000, span_ns / 1000)
        expected = whole.between(start_ns, start_ns + span_ns)
        assert [frame.start_us for frame in drawn.frames] == [each.start_ns / 1000 for each in expected]
        assert drawn.load == pytest.approx(expected.total.busy_ns / span_ns, abs=0.2)


def test_channels_are_counted_until_the_time_that_is_shown(trace: Path) -> None:
    source = TraceSource(trace, trace.with_suffix(".json"), name="road")
    source.seek(1e9)
    rows = source.rows(["channels"])["channels"].values()
    assert {row.type: row.events for row in rows if isinstance(row, ChannelRow)}["studio.Traced"] == 20
    source.seek(0.0)
    rows = source.rows(["channels"])["channels"].values()
    assert "studio.Traced" not in {row.type for row in rows if isinstance(row, ChannelRow)}


def test_without_a_catalog_channels_have_their_event_tags(trace: Path) -> None:
    etag = Catalog.load(trace.with_suffix(".json")).etag(Traced)
    frames = TraceSource(trace, name="road").timeline(0.0, 1e9).frames
    assert f"event tag {etag:#06x}" in {frame.channel for frame in frames}


def test_time_is_played_stopped_and_set(trace: Path) -> None:
    clock = Clock()
    source = TraceSource(trace, name="road", clock=clock)
    begin, end = row_of(source).begin_ms, row_of(source).end_ms
    assert begin is not None
    assert end is not None
    clock.now += 10
    assert (row_of(source).state, row_of(source).time_ms) == ("paused", begin)
    source.looked_at()
    clock.now += 0.5
    assert row_of(source).time_ms == pytest.approx(begin + 500)
    source.set_speed(0.001)
    clock.now += 1.0
    assert row_of(source).time_ms == pytest.approx(begin + 501)
    source.pause()
    source.looked_at()
    clock.now += 1.0
    assert row_of(source).state == "paused"
    assert row_of(source).time_ms == pytest.approx(begin + 501)
    source.seek(end + 1000)
    assert (row_of(source).state, row_of(source).time_ms) == ("ended", end)
    source.play()
    assert (row_of(source).state, row_of(source).time_ms) == ("playing", begin)


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_speed_that_is_none_is_refused(trace: Path, speed: float) -> None:
    with pytest.raises(BusError, match="times its speed"):
        TraceSource(trace, name="road").set_speed(speed)


def test_damaged_lines_are_skipped_and_told(trace: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.trace"
    damaged.write_bytes(trace.read_bytes() + b"[1,2\nnonsense\n")
    source = TraceSource(damaged, name="road")
    assert "2 lines skipped" in row_of(source).note


def test_a_trace_without_frames_is_at_its_end(tmp_path: Path) -> None:
    Trace().save(tmp_path / "empty.trace")
    source = TraceSource(tmp_path / "empty.trace", name="road")
    assert row_of(source).state == "ended"
    assert source.timeline(None, 1000.0).frames == []


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.trace").write_text("no")
    with pytest.raises(RecordingError, match="no trace"):
        TraceSource(tmp_path / "no.trace", name="road")
