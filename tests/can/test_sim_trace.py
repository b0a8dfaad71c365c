"""Traces: written, read back, counted and drawn."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._pictures import draw_timeline, timeline_rows
from genus.can._sim.errors import FrameOutcome
from genus.can._sim.faults import parse_fault
from genus.can._sim.simulation import FrameSink, FrameSource, Simulation, periodic, poisson
from genus.can._sim.trace import BusFrame, Trace, TraceHeader, TrafficCounts
from genus.can._wire.frame import Frame
from genus.errors import GenusError, RecordingError

FAULTS = (
    "errors p=0.1",
    "omissions p=0.1",
    "duplicates p=0.05",
    "swaps p=0.05",
    "transmitter node=3 from=20ms until=30ms",
)


def make_trace(*faults: str, seed: int = 1, milliseconds: int = 100) -> Trace:
    """The trace of a bus with six sources, two of which send the same frame, and two sinks."""
    simulation = Simulation(500_000, seed=seed, faults=map(parse_fault, faults), traced=True, title="busy")
    random = simulation.random("traffic")
    for number, priority in ((1, 0), (2, 40), (3, 200), (4, 254)):
        frames = [Frame(priority << 21 | number << 14 | 200 + number, random.randbytes(8)) for _ in range(5)]
        FrameSource(simulation.bus, number, frames, poisson(1_500_000, random))
    for number in (5, 6):
        FrameSource(simulation.bus, number, Frame(253 << 21 | 1), periodic(5_000_000))
    for number in (11, 12):
        FrameSink(simulation.bus, number)
    simulation.run(milliseconds * 1_000_000)
    assert simulation.trace is not None
    return simulation.trace


# Files


def test_a_saved_trace_is_read_back(tmp_path: Path) -> None:
    trace = make_trace(*FAULTS)
    trace.save(tmp_path / "bus.jsonl")
    again = Trace.load_file(tmp_path / "bus.jsonl")
    assert (again.passages, again.header, again.unreadable) == (trace.passages, trace.header, 0)
    assert again.header == TraceHeader(bitrate=500_000, seed=1, title="busy")
    assert {each.outcome for each in trace} >= {"sent", "error", "duplicate", "late"}


@given(st.integers(0, 2**29 - 1), st.binary(max_size=64), st.booleans(), st.integers(1, 10**15))
def test_a_frame_is_read_back_from_a_passage(id_: int, data: bytes, extended: bool, start: int) -> None:
    sent = Frame(id_ if extended else id_ & 0x7FF, data, fd=len(data) > 8, extended=extended)
    trace = Trace()
    trace.record(BusFrame(start, start + 1, sent, (1,), FrameOutcome.SENT, (2, 3), (4,), 1))
    (again,) = Trace.from_bytes(trace.to_bytes())
    assert again == trace.passages[0]
    assert again.frame == sent


def test_lines_that_cannot_be_read_are_counted_and_skipped() -> None:
    trace = make_trace()
    head, *lines = trace.to_bytes().splitlines()
    good = lines[0]
    bad = [
        b"", b"{}", b"[1,2]", good[:-1], b"\xff\xfe", good.replace(b'"sent"', b'"eaten"'),
        b'[5,5,1,1,"",[1],"sent",[],[],0]', b'[-1,5,1,1,"",[1],"sent",[],[],0]',
        b'[0,5,1,1,"zz",[1],"sent",[],[],0]', b'[0,5,1,1,"",[],"sent",[],[],0]',
        b'[0,5,536870912,1,"",[1],"sent",[],[],0]', b'[0,5,2048,0,"",[1],"sent",[],[],0]',
        b'[0,5,1,1,"000000000000000000",[1],"sent",[],[],0]', b'[0,5,-1,1,"",[1],"sent",[],[],0]',
    ]  # fmt: skip
    again = Trace.from_bytes(b"\n".join([head, *bad, *lines]))
    assert again.passages == trace.passages
    assert again.unreadable == len(bad)


@given(st.binary(max_size=400))
def test_no_bytes_after_the_first_line_raise(noise: bytes) -> None:
    Trace.from_bytes(Trace().to_bytes() + noise)


@given(st.binary(max_size=100))
def test_a_file_that_is_no_trace_raises_a_recording_error(noise: bytes) -> None:
    with pytest.raises(RecordingError, match="this is no trace of a CAN bus"):
        Trace.from_bytes(noise)


def test_a_file_that_cannot_be_opened_raises_a_recording_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot read"):
        Trace.load_file(tmp_path / "none")
    with pytest.raises(RecordingError, match="cannot write"):
        Trace().save(tmp_path / "none" / "there")


# Counts


def test_every_transmission_counts_as_sent_or_failed() -> None:
    trace = make_trace(*FAULTS)
    total = trace.total
    assert total.frames + total.errors == len(trace) > total.errors > 0
    assert trace.load == pytest.approx(total.busy_ns / trace.span_ns)
    assert 0.3 < trace.load < 1


def test_an_empty_trace_can_be_counted() -> None:
    trace = Trace()
    assert (trace.load, trace.span_ns, trace.total) == (0.0, 0, TrafficCounts(0, 0, 0))


def test_between_gives_the_passages_that_overlap_a_span() -> None:
    trace = make_trace()
    part = trace.between(10_000_000, 20_000_000)
    assert 0 < len(part) < len(trace)
    assert all(each.end_ns > 10_000_000 and each.start_ns < 20_000_000 for each in part)


# Drawing


def test_a_timeline_has_a_row_for_each_station() -> None:
    trace = make_trace()
    by_node = timeline_rows(trace, {1: "brake"})
    assert [row.label for row in by_node] == ["bus", "brake", "node 2", "node 3", "node 4", "node 5", "node 6"]
    assert sum(len(row.passages) for row in by_node[1:]) == sum(len(each.senders) for each in trace)
    assert by_node[0].passages == tuple(trace)


@pytest.mark.slow
def test_a_picture_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    trace = make_trace(*FAULTS, milliseconds=20)
    file = tmp_path / "timeline.png"
    draw_timeline(trace, file, slots=[(0, 2_000_000, "slot")], names={1: "brake"}, etag_names={201: "B"})
    assert file.stat().st_size > 10_000


def test_an_empty_trace_is_drawn_and_a_file_that_cannot_be_written_raises(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_timeline(Trace(), tmp_path / "empty.png")
    with pytest.raises(GenusError, match="cannot write"):
        draw_timeline(Trace(), tmp_path / "none" / "there.png")
    with pytest.raises(GenusError, match="cannot write"):
        draw_timeline(Trace(), tmp_path / "timeline.xyz")
