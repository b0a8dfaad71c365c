"""Logs of another look are read right, or doubtful and said so, or refused with a reason; never silently wrong."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from genus.can import read_log
from genus.errors import RecordingError
from tests.can.log_samples import (
    CLOCKS,
    FORMS,
    NO_LOGS,
    START_US,
    Form,
    Look,
    Row,
    Verdict,
    doubts_of,
    judge,
    traffic,
    wanted,
)

MUTATIONS = 3
"""For each form in a usual run."""
MANY = 120
"""For each form in a long one."""
CUT = "cut at the end"
by_name = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)


# -- mutations of text -------------------------------------------------------------------------------------------------


def _between(new: str) -> "Dress":
    """Another line after some of the lines."""

    def dress(rng: Random, lines: list[str], form: Form, look: Look) -> list[str]:
        return [each for line in lines for each in ([line, new] if rng.random() < 0.2 else [line])]

    return dress


def _each(change: Callable[[str], str]) -> "Dress":
    """Every line changed."""
    return lambda rng, lines, form, look: [change(line) for line in lines]


def _number_before(rng: Random, lines: list[str], form: Form, look: Look) -> list[str]:
    """A number before each line, as a table's index."""
    is_head = form.is_csv and look.has_head
    sep = look.separator if form.is_csv else " "
    return [f"{'' if is_head and not number else number}{sep}{line}" for number, line in enumerate(lines)]


def _word_behind(rng: Random, lines: list[str], form: Form, look: Look) -> list[str]:
    sep = look.separator if form.is_csv else " "
    return [f"{line}{sep}{'note' if number else 'Comment'}" for number, line in enumerate(lines)]


def _tabs(rng: Random, lines: list[str], form: Form, look: Look) -> list[str]:
    return lines if form.is_csv else ["\t".join(line.split()) for line in lines]


def _case(rng: Random, lines: list[str], form: Form, look: Look) -> list[str]:
    """In LAWICEL's protocol the case of the first letter has a meaning."""
    return lines if form.name == "slcan" else [rng.choice((str.upper, str.lower))(line) for line in lines]


Dress = Callable[[Random, list[str], Form, Look], list[str]]
DRESSES: dict[str, Dress] = {
    "plain": _each(str),
    "blank lines": _between(""),
    "comments #": _between("# marker 12"),
    "comments //": _between("// engine started"),
    "comments ;": _between("; note"),
    "another line": _between("--- buffer overrun ---"),
    "blanks behind": _each(lambda line: line + "  "),
    "blanks before": _each(lambda line: "  " + line),
    "number before": _number_before,
    "word behind": _word_behind,
    "tabs": _tabs,
    "case": _case,
    CUT: _each(str),
}


def dressed(rng: Random, lines: list[str], form: Form, look: Look) -> tuple[bytes, str]:
    """Lines as bytes with other ends, marks and lines between, and the name of what was done."""
    name = rng.choice(sorted(DRESSES))
    end, mark = rng.choice(("\n", "\n", "\r\n", "\r\n", "\r")), rng.choice((b"", b"", b"\xef\xbb\xbf"))
    text = end.join(DRESSES[name](rng, lines, form, look)) + end
    if name == CUT:
        text = text[: -len(lines[-1]) // 2]
    return mark + text.encode(), name


def mutated(form: Form, rng: Random, folder: Path, count: int = 14) -> tuple[Verdict, str]:
    """How a log of another look is read, and what was changed."""
    look = form.changed(rng)
    rows = traffic(rng, count, only_extended=form.only_extended)
    raw, dress = dressed(rng, form.write(look, rows), form, look)
    path = folder / "some.txt"
    path.write_bytes(raw)
    verdict = judge(path, wanted(form, look, rows), is_whole=False, is_cut=dress == CUT)
    changes = {name: value for name, value in vars(look).items() if value != getattr(form.look, name)}
    return verdict, f"{changes}, {dress}: {verdict.why}"


# -- laws --------------------------------------------------------------------------------------------------------------


@by_name
def test_a_form_writes_its_real_lines(form: Form) -> None:
    """The writers are what the tools write: blanks aside, the real lines come out again."""
    written = form.write(replace(form.look, has_head=False), form.rows)
    assert [line.split() for line in written] == [line.split() for line in form.real.splitlines()]


@by_name
def test_real_lines_are_right(form: Form, tmp_path: Path) -> None:
    """And without a doubt, if the log is long enough to show its columns and units."""
    path = tmp_path / "some.txt"
    rows = traffic(Random(form.name), 120, only_extended=form.only_extended)
    path.write_text("\n".join(form.write(form.look, rows)) + "\n")
    verdict = judge(path, wanted(form, form.look, rows))
    assert verdict.kind == "right", verdict.why
    if form.name != "Microchip":  # whose head does not say that times are milliseconds
        assert not verdict.why


@by_name
def test_no_mutation_is_silently_wrong(form: Form, tmp_path: Path) -> None:
    """And they are not just refused."""
    _check_mutations(form, tmp_path, range(MUTATIONS))


@pytest.mark.slow
@by_name
def test_none_of_many_mutations_is_silently_wrong(form: Form, tmp_path: Path) -> None:
    _check_mutations(form, tmp_path, range(MUTATIONS, MANY))


def _check_mutations(form: Form, folder: Path, seeds: range) -> None:
    found: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        verdict, changes = mutated(form, Random(f"{form.name} {seed}"), folder)
        found[verdict.kind] += 1
        if verdict.kind == "silently wrong":
            wrong.append(f"seed {seed}: {changes}")
    assert not wrong, f"{len(wrong)} of {len(seeds)}:\n" + "\n".join(wrong[:8])
    assert found["right"] + found["doubtful"] >= len(seeds) // 5, found


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_log_is_refused(name: str, tmp_path: Path) -> None:
    """Or read with doubts, or without a frame and with each line counted."""
    path = tmp_path / "can_log.csv"
    path.write_text(NO_LOGS[name])
    try:
        log = read_log(path)
        frames = list(log)
    except RecordingError:
        return
    assert doubts_of(log) or (not frames and log.skipped), frames[:2]


@by_name
def test_damage_never_raises(form: Form, tmp_path: Path) -> None:
    """What cannot be read is counted or refused."""
    _check_damage(form, tmp_path, range(1))


@pytest.mark.slow
@by_name
def test_much_damage_never_raises(form: Form, tmp_path: Path) -> None:
    _check_damage(form, tmp_path, range(1, MANY))


def _check_damage(form: Form, folder: Path, seeds: range) -> None:
    path = folder / "some.txt"
    for seed in seeds:
        rng = Random(f"damage {form.name} {seed}")
        text = bytearray("\n".join(form.write(form.changed(rng), traffic(rng, 6))), "utf-8")
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(3)] = rng.choice(
                (b"", b" ", b"0", b"x", b"\n", b'"', b",", b"\0", b"\xff", b"=", b"-")
            )
        path.write_bytes(text)
        with suppress(RecordingError):
            list(read_log(path))


# -- units of time -----------------------------------------------------------------------------------------------------

UNITS = ("s.6", "s.3", "ms", "ms.3", "us", "ns", "ticks")
WITH_DATES = ("epoch.6", "epoch.3", "epoch ms", "epoch us", "epoch ns", "iso", "clock.3")
WRAPPING = ("within a minute", "within an hour")
NAMES = {
    "s.6": "Time (s)",
    "s.3": "Time[s]",
    "ms": "Time (ms)",
    "ms.3": "time_ms",
    "us": "timestamp_us",
    "ns": "t [ns]",
}
TABLE, NUMBERS = (next(form for form in FORMS if form.name == name) for name in ("CANHacker", "CSV of numbers"))


def _read_in_unit(clock: str, rows: Sequence[Row], folder: Path, look: Look | None = None, **options: Any) -> Verdict:
    form = NUMBERS if look or clock not in WRAPPING else TABLE
    used = replace(look or form.look, clock=clock)
    path = folder / "some.txt"
    path.write_text("\n".join(form.write(used, rows)) + "\n")
    return judge(path, wanted(form, used, rows), **options)


def _systems(seeds: range, most: int) -> list[tuple[int, list[Row]]]:
    """Buses of 125 kbit/s to 1 Mbit/s, loads of 1 to 90 %, and some with a frame a second; 10 frames and more."""
    found = []
    for seed in seeds:
        rng = Random(seed)
        count = min(most, round(10 * 10 ** rng.uniform(0, 4)))
        bitrate = rng.choice((125_000, 250_000, 500_000, 1_000_000))
        found.append((seed, traffic(rng, count, bitrate, rng.choice((0.0003, 0.01, 0.05, 0.3, 0.6, 0.9)))))
    return found


@pytest.mark.parametrize("clock", [*UNITS, *WITH_DATES, *WRAPPING])
def test_a_unit_of_time_is_right_or_doubtful(clock: str, tmp_path: Path) -> None:
    """Whatever the load is; a date leaves no doubt."""
    verdicts = [(seed, _read_in_unit(clock, rows, tmp_path)) for seed, rows in _systems(range(2), 60)]
    assert not [(seed, verdict.why) for seed, verdict in verdicts if verdict.kind == "silently wrong"]
    if CLOCKS[clock].has_date:
        assert {verdict.kind for _, verdict in verdicts} == {"right"}


@pytest.mark.parametrize("clock", NAMES)
def test_a_unit_that_the_header_names_is_right(clock: str, tmp_path: Path) -> None:
    """Nothing is left to guess."""
    look = replace(NUMBERS.look, time_name=NAMES[clock])
    for seed, rows in _systems(range(1), 60):
        verdict = _read_in_unit(clock, rows, tmp_path, look)
        assert verdict.kind == "right", (seed, verdict.why)


@pytest.mark.parametrize("clock", NAMES)
def test_a_unit_that_is_chosen_leaves_no_doubt(clock: str, tmp_path: Path) -> None:
    """By `time_unit=`, and by a description of the columns, which also says number bases."""
    unit = clock.split(".")[0]
    decimal = replace(NUMBERS.look, base=10, data_base=10)
    for seed, rows in _systems(range(1), 60):
        for look, options in (
            (NUMBERS.look, {"time_unit": unit}),
            (NUMBERS.look, {"columns": f"time:{unit}, id:hex, length, data:hex"}),
            (decimal, {"columns": f"time:{unit}, id:dec, length, data:dec"}),
        ):
            verdict = _read_in_unit(clock, rows, tmp_path, look, **options)
            assert verdict == Verdict("right"), (seed, options, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("clock", [*UNITS, *WITH_DATES, *WRAPPING])
def test_a_unit_of_time_is_right_or_doubtful_in_many_logs(clock: str, tmp_path: Path) -> None:
    """Up to 100,000 frames; none is refused."""
    found: Counter[str] = Counter()
    for seed, rows in _systems(range(100, 112), 100_000):
        verdict = _read_in_unit(clock, rows, tmp_path)
        found[verdict.kind] += 1
        assert verdict.kind != "silently wrong", (seed, len(rows), verdict.why)
    assert found["refused"] == 0, found


@pytest.mark.parametrize("wraps", WRAPPING)
def test_times_within_a_minute_or_an_hour_are_unwrapped(wraps: str, tmp_path: Path) -> None:
    """The log goes on where its clock begins again."""
    period = CLOCKS[wraps].wraps_us
    frames = traffic(Random(wraps), 200)
    start, middle = START_US + 3 * period, frames[100].at_us
    rows = [row._replace(at_us=start + row.at_us - middle) for row in frames]
    assert rows[0].at_us // period != rows[-1].at_us // period
    verdict = _read_in_unit(wraps, rows, tmp_path)
    assert verdict.kind in ("right", "doubtful"), verdict.why
