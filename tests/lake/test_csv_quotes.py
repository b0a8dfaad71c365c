"""CSV with damaged quotes: every row is an event or a dead letter, and none takes those after it along.

The oracle reads line by line, and values character by character.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe
from genus.lake._ingest.csv_files import STRAY, UNCLOSED, Csv
from genus.records import Mapping, read_mapping
from tests.examples import examples
from tests.lake.foreign_files import Found, types_for, written


class Pallet(Event):
    bay: int
    note: Maybe[str] = None


TYPES = types_for(Pallet)
HEADER = "type,bay,note"
NOTES = ["", "plain", "6 inch", "two words", '"quoted"', '"a, b"', '"say ""hi"""', '""', '"one\ntwo"', '"x\n\ny, z"']
NEWLINES = {
    None: Mapping(),
    True: read_mapping("[csv]\nnewlines = true"),
    False: read_mapping("[csv]\nnewlines = false"),
}

# -- the oracle --------------------------------------------------------------------------------------------------------


def values(row: str) -> list[tuple[str, bool]] | None:
    """The values of a row, each with whether it is quoted; None if quotes are not where they must be."""
    found, state, text = [], "start", ""
    for sign in row.removesuffix("\r") + ",":
        if state == "quoted":
            state, text = ("closing", text) if sign == '"' else ("quoted", text + sign)
        elif sign == ",":
            found.append((text, state == "closing"))
            state, text = "start", ""
        elif sign == '"' and state in ("start", "closing"):
            state, text = "quoted", text + '"' * (state == "closing")
        elif sign in '"\r\n' or state == "closing":
            return None
        else:
            state, text = "plain", text + sign
    return found if state == "start" else None


def is_row(text: str) -> bool:
    return (found := values(text)) is not None and len(found) == 3


def units(lines: list[str], newlines: bool | None) -> Iterator[tuple[int, str, bool]]:
    """The rows of lines: number of the first line, text, and whether quotes are closed."""
    first = 0
    while first < len(lines):
        last = first
        if lines[first].count('"') % 2:
            odd = (row for row in range(first + 1, len(lines)) if lines[row].count('"') % 2)
            last = first if newlines is False else next(odd, first)
            between = [line for line in lines[first + 1 : last] if line.strip()]
            if (newlines is None and any(map(is_row, between))) or not is_row("\n".join(lines[first : last + 1])):
                last = first
        if lines[first].strip():
            yield first, "\n".join(lines[first : last + 1]), last > first or lines[first].count('"') % 2 == 0
        first = last + 1


def event_of(row: str) -> dict[str, object] | None:
    """The event of a row; None if it is none."""
    found = values(row)
    if found is None or len(found) != 3 or found[0][0] != "Pallet" or not found[1][0].isdecimal():
        return None
    note, is_quoted = found[2]
    return {"_type": "Pallet", "bay": int(found[1][0]), **({"note": note} if note or is_quoted else {})}


# -- laws --------------------------------------------------------------------------------------------------------------


@examples(150)
@given(st.integers(0, 2**32), st.sampled_from([None, True, False]), st.sampled_from(["\n", "\r\n"]))
def test_every_row_is_an_event_or_a_dead_letter(
    tmp_path_factory: pytest.TempPathFactory, seed: int, newlines: bool | None, end: str
) -> None:
    """Whatever quotes are inserted or removed, and however the file is cut."""
    draw = random.Random(seed)
    text = "".join(f"Pallet,{bay},{draw.choice(NOTES)}\n" for bay in range(draw.randrange(1, 25)))
    for _ in range(draw.randrange(6)):
        at = draw.randrange(len(text))
        text = text[:at] + (text[at + 1 :] if text[at] == '"' else '"' + text[at:])
    text = text.replace("\n", end)
    path = written(tmp_path_factory.mktemp("quotes") / "rows.csv", f"{HEADER}{end}{text}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genus.lake._ingest.format.BLOCK", draw.choice([5, 40, 1 << 20]))
        read = Found(Csv(NEWLINES[newlines]), path, TYPES, target=draw.choice([7, 60, 1 << 20]))
    lines = text.removesuffix("\n").split("\n")
    starts = [len(HEADER + end) + sum(len(line) + 1 for line in lines[:row]) for row in range(len(lines))]
    wanted = {starts[first]: event_of(row) if closed else None for first, row, closed in units(lines, newlines)}
    kept = {
        row["_position"]: {name: row[name] for name in ("_type", "bay", "note") if name in row} for row in read.rows()
    }
    assert kept == {at: event for at, event in wanted.items() if event is not None}
    assert [letter.position for letter in read.letters] == [at for at, event in wanted.items() if event is None]


# -- single cases ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('Pallet,1,6" pipe', UNCLOSED),
        ('Pallet,1,6" by 4"', STRAY),
        ('Pallet,1,"a', UNCLOSED),
        ('Pallet,1,"a"b', STRAY),
        ('Pallet,1,"a"b"', UNCLOSED),
        ('Pallet,1,"a" ', STRAY),
        ('Pallet,1,a"b,"c', STRAY),
        ('"Pallet,1,a"b', STRAY),
    ],
)
@pytest.mark.parametrize("newlines", [None, False])
def test_a_row_with_damaged_quotes_is_one_dead_letter(
    tmp_path: Path, row: str, reason: str, newlines: bool | None
) -> None:
    """The rows around it are events, also if one of them has quotes."""
    good = ["Pallet,2,b", 'Pallet,3,"c, d"', 'Pallet,4,"e"', "Pallet,5,"]
    path = written(tmp_path / "rows.csv", "\n".join([HEADER, *good, row, *good, ""]))
    read = Found(Csv(NEWLINES[newlines]), path, TYPES)
    assert [event["bay"] for event in read.events()] == [2, 3, 4, 5] * 2
    assert (read.letter().reason, read.letter().raw) == (reason, row)


def test_a_stray_quote_does_not_swallow_the_rows_up_to_the_next_one(tmp_path: Path) -> None:
    """Two stray quotes enclose what could be a value; the rows between them are rows. The mapping can say otherwise."""
    rows = [HEADER, 'Pallet,1,"a', *(f"Pallet,{bay},b" for bay in range(2, 500))]
    path = written(tmp_path / "rows.csv", "\n".join([*rows, 'x"', "Pallet,501,d", ""]))
    read = Found(Csv(), path, TYPES)
    assert [event["bay"] for event in read.events()] == [*range(2, 500), 501]
    assert [letter.raw for letter in read.letters] == ['Pallet,1,"a', 'x"']
    said = Found(Csv(NEWLINES[True]), path, TYPES)
    assert [event["bay"] for event in said.events()] == [1, 501]


def test_values_of_several_lines_are_read_where_none_is_a_row(tmp_path: Path) -> None:
    """As addresses are; also with blank lines and doubled quotes."""
    note = 'Main St 12, rear\n\nSpringfield ""North""\nUSA'
    path = written(tmp_path / "rows.csv", f'{HEADER}\nPallet,1,"{note}"\nPallet,2,b\n')
    assert [event.get("note") for event in Found(Csv(), path, TYPES).events()] == [note.replace('""', '"'), "b"]
