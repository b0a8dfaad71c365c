"""The lake: what comes in, what is kept, and what comes out."""

from docs.pictures.pen import Pen

IN = (
    ("recordings", "of any bus, also CAN"),
    ("JSON, CSV, Parquet", "with a mapping"),
    ("CAN logs", "with a DBC file"),
)
OUT = (
    ("read", "a subscription → a DataFrame", "green"),
    ("route", "subscriptions → inboxes", "green"),
    ("derive", "pairs, windows, passages", "green"),
)


def lake() -> Pen:
    """From files to answers."""
    pen = Pen(760, 350, "Files are read into tables, one per family; subscriptions read, route and derive from them")
    for number, (name, says) in enumerate(IN):
        y = 60 + number * 76
        pen.box(20, y, 160, 54)
        pen.words(34, y + 23, name, "small strong")
        pen.words(34, y + 41, says, "tiny faint")
        pen.path(f"M180 {y + 27}C215 {y + 27} 205 163 240 163", arrow=number == 1)
    pen.words(100, 36, "files, or a landing folder", "small", at="middle")
    _kept(pen)
    for number, (name, says, colour) in enumerate(OUT):
        y = 60 + number * 76
        pen.box(556, y, 186, 54, colour)
        pen.words(570, y + 23, name, "small strong")
        pen.words(570, y + 41, says, "tiny faint")
        pen.path(f"M520 163C545 163 535 {y + 27} 552 {y + 27}", "green", arrow=True)
    pen.words(649, 36, "answers", "small", at="middle")
    pen.path("M100 292V322H649V292", style="dashed", arrow=True)
    pen.words(374, 316, "batch and stream: the same calls, the same rows, each event once", "small", at="middle")
    return pen


def _kept(pen: Pen) -> None:
    pen.box(244, 48, 272, 240, "blue")
    pen.words(380, 36, "the lake: a folder", "small", at="middle")
    pen.box(260, 64, 240, 108, "grey")
    pen.words(274, 84, "a table per family", "small strong")
    columns = ("time", "place", "lane", "category")
    for number, name in enumerate(columns):
        pen.words(272 + 57 * number, 106, name, "code tiny orange")
    for row, values in enumerate(
        (("8:00", "A8", "1", "truck"), ("8:01", "NULL", "2", "NULL"), ("8:02", "A8", "1", "car"))
    ):
        for number, value in enumerate(values):
            pen.words(272 + 57 * number, 124 + 18 * row, value, "code tiny" + (" faint" if value == "NULL" else ""))
    for number, (name, says) in enumerate(
        (("catalog", "the types"), ("ledger", "what counts"), ("dead letters", "and why"))
    ):
        x = 260 + number * 82
        pen.box(x, 184, 76, 46, "purple" if number == 0 else "red" if number == 2 else "grey")
        pen.words(x + 38, 203, name, "tiny strong", at="middle")
        pen.words(x + 38, 220, says, "tiny faint", at="middle")
    pen.words(380, 252, "The vector is the schema; absent is NULL.", "tiny", at="middle")
    pen.words(380, 270, "An ingest is committed once, as a whole, or not at all.", "tiny", at="middle")
