"""What a text format of logs must know: how one line is read, and what a header changes."""

from typing import NamedTuple, Protocol

from genus.can._logs.line_fields import Fields, LineTimes, NoFrame


class HeaderLine(NamedTuple):
    """What a header or comment of a log changes."""

    changes: bool = False
    """Whether lines after it are read differently from those before it."""
    problem: str | None = None


class TextFormat(Protocol):
    """A format of logs of lines; an object is the state of reading one log."""

    name: str
    delimiter: str
    """What separates tokens; empty for blanks."""
    times: LineTimes
    is_divisible: bool
    """Whether a line means the same whatever lines are between it and the head of the log."""

    def read_header(self, text: str) -> HeaderLine | None:
        """Take what lines after it need from a header or comment; None if a line is neither."""

    def match(self, text: str) -> Fields | NoFrame:
        """The fields of a line, as Latin-1 text; never raises."""


class Example:
    """State: a line that a format read, by which others are read, and which channels it may have."""

    def __init__(self, fields: Fields, text: str) -> None:
        self.fields, self.text = fields, text
        self._channels: dict[bytes, bool] = {}

    def allows_channel(self, name: bytes, format: TextFormat) -> bool:
        """Whether the format reads the example with this channel in place of its own."""
        span = self.fields.channel
        if name not in self._channels and span is not None:
            text = f"{self.text[: span[0]]}{name.decode('latin-1')}{self.text[span[1] :]}"
            fields = format.match(text)
            is_same = isinstance(fields, Fields) and fields.channel == (span[0], span[0] + len(name))
            self._channels[name] = is_same
        return self._channels[name]
