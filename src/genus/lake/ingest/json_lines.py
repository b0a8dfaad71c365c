"""JSON: one event per line, plain or as a CloudEvent; and files that are one array of events.

Files of lines are cut into ranges of bytes; an array is read whole, and whatever can be found of a damaged one.
"""

import json
from collections.abc import Iterator

import msgspec
import numpy as np

from genus.lake.ingest.fields import Mapping
from genus.lake.ingest.json_records import RecordReader
from genus.lake.ingest.source import Chunk, DeadLetter, Split, Types
from genus.lake.ingest.text_lines import Lines, byte_ranges, changed_us, is_compressed, open_text, read_lines

ARRAY_LIMIT = 256 * 1024 * 1024
"""A file that is one array is read whole, so it must not be larger; one with an event per line may be of any size."""
_ITEMS = 50_000
_SPACE = b" \t\r\n"

_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class JsonLines(msgspec.Struct, frozen=True):
    """JSON with one event per line (.jsonl, .ndjson, .json, each also with .gz), or one array of events.

    `cloud_events` says whether records are CloudEvents; None: those with `specversion` are.
    """

    mapping: Mapping = Mapping()
    cloud_events: bool | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return "json"

    def splits(self, path: str, size: int, target: int) -> list[Split]:
        """Ranges of bytes; a compressed file, and one that is an array, is not cut."""
        if not is_compressed(path) and _is_array(path) and size <= ARRAY_LIMIT:
            return [Split(path, 0, size)]
        return byte_ranges(path, size, target)

    def read(self, split: Split, types: Types) -> Iterator[Chunk]:
        """The events of a range."""
        reader = RecordReader(self.mapping, self.cloud_events, types, changed_us(split.path))
        is_whole = is_compressed(split.path) or split.end - split.start <= ARRAY_LIMIT
        pieces = read_array(split) if split.start == 0 and is_whole and _is_array(split.path) else read_lines(split)
        for piece in pieces:
            if isinstance(piece, list):
                yield piece
            else:
                yield from reader.read(piece)


# -- arrays ------------------------------------------------------------------------------------------------------------


def _is_array(path: str) -> bool:
    try:
        with open_text(path) as stream:
            start = stream.read(1024)
    except (OSError, EOFError):  # what is damaged is told by reading it
        return False
    return start.removeprefix(b"\xef\xbb\xbf").lstrip(_SPACE).startswith(b"[")


def read_array(split: Split) -> Iterator[Lines | list[DeadLetter]]:
    """The items of an array, each at its index; of a damaged array, those that can be found, each at its offset."""
    content, damage = _content(split.path)
    try:
        items = [bytes(item) for item in _items(content.removeprefix(b"\xef\xbb\xbf"))] if damage is None else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        items = None
    if items is None:
        yield from _salvaged(content)
    else:
        for start in range(0, len(items), _ITEMS):
            part = items[start : start + _ITEMS]
            yield Lines(part, np.arange(start, start + len(part), dtype=np.int64))
    if damage is not None:
        yield [DeadLetter.of(len(content), damage, b"")]


def _content(path: str) -> tuple[bytes, str | None]:
    made: list[bytes] = []
    try:
        with open_text(path) as stream:
            while (piece := stream.read(1 << 20)) and sum(map(len, made)) <= ARRAY_LIMIT:
                made.append(piece)
    except (OSError, EOFError) as problem:
        return b"".join(made), f"the file is damaged here: {problem}"
    too_large = f"an array of more than {ARRAY_LIMIT >> 20} MiB; write one event per line"
    return b"".join(made), too_large if piece else None


def _salvaged(content: bytes) -> Iterator[Lines | list[DeadLetter]]:
    """Whatever is an object in a damaged array; from where there is none, to the end of the line, is a dead letter."""
    text = content.decode("latin-1")  # one character per byte: the place of one is that of the other
    scan = json.JSONDecoder(strict=False).raw_decode
    found: list[tuple[bytes, int]] = []
    letters: list[DeadLetter] = []
    place = _next(text, text.find("[") + 1)
    while place < len(text):
        try:
            if text[place] != "{":
                raise ValueError("no object")
            _, end = scan(text, place)
            found.append((content[place:end], place))
        except (ValueError, RecursionError):
            end = text.find("\n", place) % (len(text) + 1)
            if content[place:end].strip(_SPACE + b"]"):
                letters.append(DeadLetter.of(place, "not JSON, in a damaged array", content[place:end]))
        place = _next(text, end)
    yield Lines([item for item, _ in found], np.array([at for _, at in found], np.int64))
    yield letters


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in ", \t\r\n":
        place += 1
    return place
