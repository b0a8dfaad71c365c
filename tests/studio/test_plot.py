"""The points of plots: lines by any attribute, thinned with their peaks, and never joined over what was not there."""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Subscription, Unit, this
from genus.bus import RecordingWriter, read_recording
from genus.studio import _history
from genus.studio._history import History, Piece, RangedSource, StoredSource
from genus.studio._plot import MAX_LINES, OTHERS, Line, PlotSeries, PlotStream, make_line, thin_out
from genus.studio._recording_source import RecordingSource
from genus.studio._taps import Seen
from tests.examples import examples
from tests.studio.made_sources import MadeSource

BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
BEGIN_MS = BEGIN.timestamp() * 1000


class Vat(Event):
    tank: int
    level: Maybe[Annotated[float, Unit("m")]] = None
    is_open: Maybe[bool] = None


class DeepVat(Vat):
    depth: Maybe[float] = None


def series(attribute: str = "level", by: str = "none", cls: type[Event] = Vat) -> PlotSeries:
    return PlotSeries(f"{cls.__name__}.{attribute} by {by}", (cls,), attribute, "m", by)


def pairs(line: Line) -> Iterator[tuple[float, float]]:
    """The times of the points that are joined."""
    for (one, _, of), (other, _, to) in pairwise(zip(*(column.tolist() for column in line), strict=True)):
        if of == to:
            yield one, other


# -- lines of what is stored -------------------------------------------------------------------------------------------

POINTS = st.lists(st.tuples(st.integers(0, 50), st.sampled_from([1.0, 2.0, 7.0, None]), st.booleans()), max_size=80)


@examples(100)
@given(POINTS, st.integers(1, 30), st.integers(0, 300), st.integers(1, 500))
def test_no_part_of_a_line_joins_over_what_is_missing(
    drawn: list[tuple[int, float | None, bool]], stretches: int, start: int, length: int
) -> None:
    """Whatever is thinned out: between two joined points, no value is absent and nothing was lost."""
    times = np.cumsum([step for step, *_ in drawn]).astype(float)
    values = np.array([np.nan if value is None else value for _, value, _ in drawn])
    runs = np.cumsum([has_gap for *_, has_gap in drawn]).astype(np.int64)
    part = make_line(times, values, runs).part(float(start), float(start + length), stretches)
    assert len(part.times) <= 2 * (stretches + 3)
    for one, other in pairs(part):
        between = (times > one) & (times < other)
        assert not np.isnan(values[between]).any()
        ends = set(runs[(times == one) & ~np.isnan(values)]), set(runs[(times == other) & ~np.isnan(values)])
        assert ends[0] & ends[1], "both are of one run"


@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=300), st.integers(1, 40))
def test_the_lowest_and_the_highest_value_stay(values: list[int], stretches: int) -> None:
    line = make_line(np.arange(len(values), dtype=float), np.array(values, float), np.zeros(len(values), np.int64))
    part = line.part(0.0, float(len(values) - 1), stretches)
    assert (part.values.min(), part.values.max()) == (min(values), max(values))
    thin = thin_out([(float(n), float(value), 0) for n, value in enumerate(values)], 2 * stretches)
    assert len(thin) <= 2 * stretches
    assert {min(values), max(values)} <= {value for _, value, _ in thin}


@pytest.mark.parametrize(
    ("times", "gaps"),
    [
        ([*range(0, 5000, 100), *range(40_000, 45_000, 100)], 1),
        ([5000 * (n // 6) + n % 6 for n in range(60)], 0),
        ([6000 * (n // 12) + 80 * (n % 12) for n in range(1200)], 0),
        ([30_000 * n for n in range(20)], 0),
    ],
    ids=["a pause", "bursts", "longer bursts", "seldom"],
)
def test_a_silence_that_is_unusual_for_a_line_is_a_gap(times: list[int], gaps: int) -> None:
    line = make_line(np.array(times, float), np.ones(len(times)), np.zeros(len(times), np.int64))
    assert line.segments[-1] == gaps


# -- live points -------------------------------------------------------------------------------------------------------


def seen(number: int, event: Event, **more: Any) -> Seen:
    return Seen(number, "made", BEGIN_MS + 100 * number, event, None, **more)


def lines_of(stream: PlotStream, text: str) -> Any:
    return stream.data()["series"][text]["lines"]


def test_a_line_for_each_value_of_an_attribute_and_one_for_the_others() -> None:
    asked = series(by="tank")
    stream = PlotStream({asked.text: asked}, has_sources=False)
    stream.take([seen(n, Vat(tank=n % 30, level=float(n))) for n in range(300)], 0)
    found = lines_of(stream, asked.text)
    assert list(found) == [*map(str, range(MAX_LINES)), OTHERS]
    _, values, segments = found["3"]
    assert (values, len(set(segments))) == ([3.0 + 30 * n for n in range(10)], 1)
    assert len(set(found[OTHERS][2])) == len(found[OTHERS][0]), "points of different things are not joined"
    stream.take([seen(400, Vat(tank=3, level=1.0)), seen(401, Vat(tank=29, level=1.0))], 0)
    assert set(lines_of(stream, asked.text)) == {"3", OTHERS}, "lines keep their names"


def test_lines_of_several_sources_are_told_apart() -> None:
    asked = series(by="tank")
    stream = PlotStream({asked.text: asked}, has_sources=True)
    stream.take([seen(1, Vat(tank=1, level=1.0)), Seen(2, "other", BEGIN_MS, Vat(tank=1, level=2.0), None)], 0)
    assert list(lines_of(stream, asked.text)) == ["made · 1", "other · 1"]


def test_what_is_lost_absent_or_leapt_over_begins_a_segment() -> None:
    asked = series()
    stream = PlotStream({asked.text: asked}, has_sources=False)
    vat = Vat(tank=1, level=1.0)
    stream.take([seen(1, vat), seen(2, vat), seen(3, Vat(tank=1)), seen(4, vat), seen(5, vat, segment=1)], 0)
    assert lines_of(stream, asked.text)[""][2] == [1, 1, 2, 3]
    stream.take([seen(3, vat, segment=2, leaps=1), seen(4, vat, segment=2, leaps=1)], 0)
    data = stream.data()["series"][asked.text]
    assert data["lines"][""][2] == [4, 4]
    assert data["cut"] == {"": BEGIN_MS + 300}, "it went back: what is later is not there yet"


# -- the history of a recording ----------------------------------------------------------------------------------------


def record(path: Path, events: Sequence[Event], block: int = 50) -> Path:
    with RecordingWriter(path) as writer:
        for number, event in enumerate(events):
            writer.write(event, round((BEGIN_MS + 100 * number) * 1000))
            if number % block == block - 1:
                writer.flush()
    return path


def opened(path: Path) -> RecordingSource:
    return RecordingSource(path, [Vat], name="r", plays=False, threaded=False)


def ask(source: StoredSource, *asked: PlotSeries, span: Any = (None, None), stretches: int = 1000) -> dict[str, Any]:
    return History().ask(source, asked, span, stretches, 30.0)


def test_a_whole_recording_by_an_attribute(tmp_path: Path) -> None:
    """Also of types below the one that is asked for, and with the times that events carry, in any order."""
    late = BEGIN + timedelta(seconds=5)
    events = [Vat(tank=n % 4, level=n / 10) for n in range(200)]
    source = opened(record(tmp_path / "r.genus", [*events, DeepVat(tank=9, level=2.5, time=late), Vat(tank=8)]))
    assert isinstance(source, RangedSource)
    asked = series(by="tank")
    found = ask(source, asked)
    lines = found["series"][asked.text]["lines"]
    assert set(lines) == {"0", "1", "2", "3", "9"}
    assert lines["2"][1] == [n / 10 for n in range(2, 200, 4)]
    assert set(lines["2"][2]) == {0}
    assert lines["9"] == [[BEGIN_MS + 5000], [2.5], [0]]
    assert (found["is_done"], found["share"], found["whole"]) == (True, 1.0, (BEGIN_MS, BEGIN_MS + 19_900))
    part = ask(source, asked, span=(BEGIN_MS + 1000, BEGIN_MS + 1400))["series"][asked.text]["lines"]
    assert part["2"][0] == [BEGIN_MS + at for at in (600, 1000, 1400, 1800)], "with one point at either side"


@pytest.mark.parametrize("attribute", ["is_open", "tank"])
def test_booleans_and_integers_are_numbers(tmp_path: Path, attribute: str) -> None:
    source = opened(record(tmp_path / "r.genus", [Vat(tank=0, is_open=False), Vat(tank=1, is_open=True)]))
    (line,) = ask(source, series(attribute))["series"][series(attribute).text]["lines"].values()
    assert line[1] == [0.0, 1.0]


@examples(20)
@given(st.integers(0, 1_000_000), st.integers(1, 5000))
def test_a_damaged_recording_is_not_joined_over_what_is_lost(tmp_path_factory: Any, at: int, size: int) -> None:
    path = record(tmp_path_factory.mktemp("d") / "r.genus", [Vat(tank=1, level=float(n)) for n in range(600)])
    content = bytearray(path.read_bytes())
    begin = 100 + at % (len(content) - 200)
    content[begin : begin + size] = random.Random(at).randbytes(len(content[begin : begin + size]))
    path.write_bytes(content)
    kept = {getattr(recorded.event, "level", None) for recorded in read_recording(path, [Vat])}
    for _, values, segments in ask(opened(path), series())["series"][series().text]["lines"].values():
        assert set(values) == kept
        for (one, of), (other, to) in pairwise(zip(values, segments, strict=True)):
            assert of != to or other == one + 1, "nothing is lost between points that are joined"


def test_excerpts_have_what_events_have(tmp_path: Path) -> None:
    """Also where the class has changed since: other names, units and types are read as they are of events."""
    events = [Vat(tank=n, level=None if n % 3 else n / 2) for n in range(130)]
    recording = read_recording(record(tmp_path / "r.genus", events))
    found = list(recording.excerpts({Vat: ["level", "tank"], DeepVat: ["depth"]}))
    read = [(each.level, each.tank) for excerpt in found for each in excerpt.events]
    assert read == [(event.level, event.tank) for event in events]
    assert [at for excerpt in found for at in excerpt.times] == [recorded.at_us for recorded in recording]
    assert not any(excerpt.has_gap for excerpt in found)

    class FirstPump(Event, name="studio.Pump"):
        pressure: Annotated[float, Unit("bar")]

    path = record(tmp_path / "p.genus", [FirstPump(pressure=2.0)])

    class Pump(Event, name="studio.Pump"):
        pressure: Annotated[float, Unit("Pa")]

    (excerpt,) = read_recording(path, [Pump]).excerpts({Pump: ["pressure"]})
    assert [event.pressure for event in excerpt.events] == [200_000.0]


def test_the_most_frequent_values_have_lines_and_the_rest_is_dots(tmp_path: Path) -> None:
    events = [Vat(tank=n % 40 if n % 2 else 3, level=float(n)) for n in range(400)]
    asked = series(by="tank")
    lines = ask(opened(record(tmp_path / "r.genus", events)), asked)["series"][asked.text]["lines"]
    assert len(lines) == MAX_LINES + 1
    assert len(lines["3"][0]) >= 200
    assert len(set(lines[OTHERS][2])) == len(lines[OTHERS][0])


class PieceSource(MadeSource):
    """State: a source whose points a test gives, and how often they were read."""

    def __init__(self, pieces: Sequence[Piece], problem: Exception | None = None) -> None:
        super().__init__()
        self.pieces, self.problem, self.reads = pieces, problem, 0

    def stored_range(self, start_ms: float | None, end_ms: float | None) -> None:
        """All is read."""

    def read_points(self, asked: Sequence[PlotSeries], span_ms: Any) -> Iterator[tuple[float, Piece]]:
        self.reads += 1
        for each in self.pieces:
            if any(one.text == each.series for one in asked):
                yield 0.5, each
        if self.problem is not None:
            raise self.problem


def piece(asked: PlotSeries, times: Any, values: Any) -> Piece:
    return Piece(asked.text, np.array(times, float), np.array(values, float), None)


def test_points_are_read_once_and_forgotten_when_others_need_the_memory() -> None:
    one, other = series(), series("tank")
    source = PieceSource([piece(one, range(100), range(100)), piece(other, range(100), range(100))])
    history = History(most_bytes=100 * 64)
    for _ in range(3):
        history.ask(source, [one], (None, None), 10, 30.0)
    assert source.reads == 1
    for _ in range(2):
        history.ask(source, [other], (None, None), 10, 30.0)
    history.ask(source, [one], (None, None), 10, 30.0)
    assert source.reads == 3


def test_a_problem_is_told_with_what_is_known_and_tried_again() -> None:
    asked = series()
    source = PieceSource([piece(asked, [1], [2])], OSError("gone"))
    history = History()
    found = history.ask(source, [asked], (None, None), 10, 30.0)
    assert (found["problem"], found["is_done"]) == ("made cannot be read: gone", True)
    assert found["series"][asked.text]["lines"] == {"": [[1.0], [2.0], [0]]}
    source.problem = None
    assert history.ask(source, [asked], (None, None), 10, 30.0)["problem"] == ""


def test_very_many_points_are_thinned_out_and_peaks_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_history, "MAX_POINTS", 1000)
    asked = series()
    values = np.zeros(900)
    values[450] = 9.0
    pieces = [piece(asked, np.arange(900) + 900 * n, values if n == 2 else np.zeros(900)) for n in range(5)]
    found = History().ask(PieceSource(pieces), [asked], (None, None), 100, 30.0)
    assert found["is_thinned"]
    assert found["points"] <= 1000
    times, values, _ = found["series"][asked.text]["lines"][""]
    assert max(values) == 9.0
    assert times[values.index(9.0)] == 2250.0


def test_events_of_a_range_are_those_that_are_drawn_there(tmp_path: Path) -> None:
    """By the times that they carry, wherever they are in the recording."""
    early = BEGIN + timedelta(milliseconds=250)
    events = [*(Vat(tank=1, level=float(n)) for n in range(60)), Vat(tank=1, level=99.0, time=early)]
    source = opened(record(tmp_path / "r.genus", events))
    found, total = source.events_between(Subscription(Vat, where=this.level < 50), BEGIN_MS + 200, BEGIN_MS + 400, 2)
    assert ([each.number for each in found], total) == ([-3, -4], 3)
    found, total = source.events_between(Subscription(Vat), BEGIN_MS + 240, BEGIN_MS + 260, 2)
    assert [each.number for each in found] == [-61]
