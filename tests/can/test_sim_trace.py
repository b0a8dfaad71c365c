"""Traces: written, read back, counted, replayed and drawn."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._sim.bus import SimBus
from genus.can._sim.fault_hooks import Outcome
from genus.can._sim.fault_text import parse_fault
from genus.can._sim.picture import Mark, draw, lanes_of, timeline_text
from genus.can._sim.simulation import Simulation
from genus.can._sim.sources import Sink, Source, periodic, poisson, replay
from genus.can._sim.trace import Band, Header, Passage, Tally, Trace
from genus.can._wire.frame import Frame
from genus.errors import GenusError, RecordingError
from tests.can.sim_parts import BIT, Noted, frame

FAULTS = (
    "errors p=0.1",
    "omissions p=0.1",
    "duplicates p=0.05",
    "swaps p=0.05",
    "transmitter node=3 from=20ms until=30ms",
)


def busy(*faults: str, seed: int = 1, milliseconds: int = 100) -> Trace:
    """A bus with four sources and two sinks, some of whose frames coincide."""
    simulation = Simulation(500_000, seed=seed, faults=map(parse_fault, faults), traced=True, title="busy")
    random = simulation.random("traffic")
    for number, priority in ((1, 0), (2, 40), (3, 200), (4, 254)):
        frames = [Frame(priority << 21 | number << 14 | 200 + number, random.randbytes(8)) for _ in range(5)]
        Source(simulation.bus, number, frames, poisson(1_500_000, random))
    for number in (5, 6):
        Source(simulation.bus, number, Frame(253 << 21 | 1), periodic(5_000_000))
    for number in (11, 12):
        Sink(simulation.bus, number)
    simulation.run(milliseconds * 1_000_000)
    assert simulation.trace is not None
    return simulation.trace


# Files


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    trace = busy(*FAULTS)
    trace.save(tmp_path / "bus.jsonl")
    again = Trace.load_file(tmp_path / "bus.jsonl")
    assert (again.passages, again.header, again.unreadable) == (trace.passages, trace.header, 0)
    assert again.header == Header(bitrate=500_000, seed=1, title="busy")
    assert {each.outcome for each in trace} >= {Outcome.SENT, Outcome.ERROR, Outcome.DUPLICATE, Outcome.LATE}


@given(st.integers(0, 2**29 - 1), st.binary(max_size=64), st.booleans(), st.integers(1, 10**15))
def test_a_frame_survives_in_a_passage(id_: int, data: bytes, extended: bool, start: int) -> None:
    sent = Frame(id_ if extended else id_ & 0x7FF, data, fd=len(data) > 8, extended=extended)
    trace = Trace()
    trace.record(start, start + 1, sent, (1,), Outcome.SENT, (2, 3), (4,), 1)
    (again,) = Trace.from_bytes(trace.to_bytes())
    assert again == trace.passages[0]
    assert again.frame == sent


def test_lines_that_cannot_be_read_are_counted_and_passed_over() -> None:
    trace = busy()
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
def test_any_bytes_after_the_first_line_are_survived(noise: bytes) -> None:
    Trace.from_bytes(Trace().to_bytes() + noise)


@given(st.binary(max_size=100))
def test_a_file_that_is_no_trace_is_refused(noise: bytes) -> None:
    with pytest.raises(RecordingError, match="this is no trace of a CAN bus"):
        Trace.from_bytes(noise)


def test_a_file_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot read"):
        Trace.load_file(tmp_path / "none")
    with pytest.raises(RecordingError, match="cannot write"):
        Trace().save(tmp_path / "none" / "there")


# Counting


def test_tallies_add_up() -> None:
    trace = busy(*FAULTS)
    total = trace.total
    for groups in (trace.by_band(), trace.by_id(), trace.by_sender()):
        sums = [sum(column) for column in zip(*groups.values(), strict=True)]
        assert Tally(*sums) == total
    assert list(trace.by_band()) == list(Band)
    assert total.frames + total.errors == len(trace)
    assert trace.load == pytest.approx(total.busy_ns / trace.span_ns)
    assert 0.3 < trace.load < 1


def test_an_empty_trace_is_no_problem() -> None:
    trace = Trace()
    assert (trace.load, trace.span_ns, trace.total, trace.by_band()) == (0.0, 0, Tally(0, 0, 0), {})
    assert timeline_text(trace, width=3).splitlines()[0].endswith("···")


def test_a_part_of_a_trace_is_what_overlaps_a_span() -> None:
    trace = busy()
    part = trace.between(10_000_000, 20_000_000)
    assert 0 < len(part) < len(trace)
    assert all(each.end_ns > 10_000_000 and each.start_ns < 20_000_000 for each in part)


# Replaying


@pytest.mark.parametrize("faults", [(), FAULTS])
def test_a_replay_gives_the_same_trace(faults: tuple[str, ...]) -> None:
    """Frames, times, senders, fates and who heard them."""
    trace = busy(*faults)
    again = SimBus(500_000, trace=Trace(trace.header))
    for number in (11, 12):
        Sink(again, number)
    replay(trace, again)
    again.run(trace.span_ns)
    assert again.trace is not None
    assert again.trace.to_bytes() == trace.to_bytes()


def test_a_replay_begins_now() -> None:
    bus = SimBus(500_000, trace=Trace())
    bus.run(1_000_000)
    trace = busy(milliseconds=10)
    replay(trace, bus)
    bus.run(100_000_000)
    assert bus.trace is not None
    assert [each.start_ns - 1_000_000 for each in bus.trace] == [each.start_ns for each in trace]


def test_a_live_station_hears_the_others_of_a_trace_in_place_of_itself() -> None:
    trace = busy()
    bus = SimBus(500_000)
    live = Noted(bus, 2)
    source = Source(bus, 2, frame(40, 2), periodic(3_000_000))
    played = replay(trace, bus, without=(2,))
    bus.run(trace.span_ns + 10_000_000)
    others = [each.frame for each in trace if each.senders != (2,)]
    heard = [entry[3] for entry in live.log if entry[3] != frame(40, 2)]
    assert sorted(map(repr, heard)) == sorted(map(repr, others)), "all of them, some in another order"
    assert played.played == len(others)
    assert source.delivered >= source.released - 1


def test_collisions_and_frames_cut_off_are_replayed_too() -> None:
    bus = SimBus(trace=Trace())
    one, two = Noted(bus, 1), Noted(bus, 2)
    one.controller.load(0, frame(10, 1, b"abc"))
    two.controller.load(0, frame(10, 1, b"abd"))
    bus.at(500 * BIT, lambda: two.controller.load(0, None))
    bus.at(800 * BIT, lambda: one.controller.load(0, frame(10)))
    bus.at(850 * BIT, lambda: bus.detach(one.controller))
    bus.run(2000 * BIT)
    assert bus.trace is not None
    again = SimBus(trace=Trace())
    replay(bus.trace, again)
    again.run(2000 * BIT)
    assert again.trace is not None
    found = [(each.start_ns, each.end_ns, each.outcome, each.senders) for each in again.trace]
    assert found == [(each.start_ns, each.end_ns, each.outcome, each.senders) for each in bus.trace]
    assert {each.outcome for each in bus.trace} == {Outcome.COLLISION, Outcome.CUT, Outcome.SENT}


# Drawing


def test_lanes_are_of_stations_or_bands() -> None:
    trace = busy()
    by_node = lanes_of(trace, "node", {1: "brake"})
    assert [lane.label for lane in by_node] == ["bus", "brake", "node 2", "node 3", "node 4", "node 5", "node 6"]
    by_band = lanes_of(trace, "band")
    assert [lane.label for lane in by_band] == ["bus", "hard", "soft", "system", "none"]
    assert sum(len(lane.passages) for lane in by_band[1:]) == len(trace) == len(by_band[0].passages)


def test_text_shows_classes_errors_slots_and_marks() -> None:
    trace = busy(*FAULTS)
    text = timeline_text(
        trace, width=80, slots=[(0, 2_000_000, "a")], marks=[Mark(5_000_000, node=1)], end_ns=20_000_000
    )
    rows = {line.split("  ")[0]: line for line in text.splitlines()}
    assert set("HSmnx") <= set(rows["bus"])
    assert "^" in rows["node 1"]
    assert "========" in rows["slots"]
    assert text.endswith("20 ms")
    assert {len(line) for line in text.splitlines()} == {88}


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("dark", [True, False])
def test_a_picture_is_written_light_or_dark(tmp_path: Path, suffix: str, dark: bool) -> None:
    pytest.importorskip("matplotlib")
    trace = busy(*FAULTS, milliseconds=20)
    file = tmp_path / f"timeline.{suffix}"
    marks = [Mark(5_000_000, "deadline", 1), Mark(6_000_000)]
    draw(trace, file, slots=[(0, 2_000_000, "slot")], marks=marks, names={1: "brake"}, tags={201: "B"}, dark=dark)
    assert file.stat().st_size > 10_000


def test_a_picture_of_nothing_and_one_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(Trace(), tmp_path / "empty.png")
    with pytest.raises(GenusError, match="cannot write"):
        draw(Trace(), tmp_path / "none" / "there.png")
    with pytest.raises(GenusError, match="cannot write"):
        draw(Trace(), tmp_path / "timeline.xyz")


def test_random_passages_are_drawn_as_text_whatever_they_are() -> None:
    random = Random(1)
    trace = Trace()
    for _ in range(300):
        start = random.randrange(10**9)
        outcome: Any = random.choice(list(Outcome))
        trace.passages.append(Passage(start, start + random.randrange(1, 10**6), 1, 1, "", (1,), outcome, ()))
    assert timeline_text(trace, width=40, start_ns=500_000_000, end_ns=500_000_001)
    assert timeline_text(trace, width=1)
