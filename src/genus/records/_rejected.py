"""Why a message or a record is no event, which of its fields were not read, and how often that was so."""

import logging
import threading
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from genus.errors import Reasons

_LOG = logging.getLogger("genus.records")
SHOWN = 200
"""The most characters of an example."""


class Rejected(msgspec.Struct, frozen=True):
    """Why a message or a record is not an event.

    `reason` is one of few, so that equal ones can be counted; `detail` also says which value or name is at fault.
    """

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or self.reason


class Example(msgspec.Struct, frozen=True):
    """The last message that was rejected for a reason, both texts cut to 200 characters."""

    topic: str
    payload: str
    detail: str = ""


class Rejections:
    """State: how many messages were rejected for each reason, and the last example of each. Any thread may add."""

    def __init__(self) -> None:
        self._counts = Reasons()
        self._examples: dict[str, Example] = {}
        self._lock = threading.Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)

    @property
    def examples(self) -> Mapping[str, Example]:
        with self._lock:
            return dict(self._examples)

    def add(self, reason: str, topic: str = "", payload: bytes = b"", detail: str = "", count: int = 1) -> None:
        """Count messages that were rejected, and keep the last as the example."""
        example = Example(_cut(topic), _cut(payload[: 4 * SHOWN].decode("utf-8", "backslashreplace")), _cut(detail))
        with self._lock:
            reason = self._counts.counted_as(reason)
            self._counts[reason] += count
            self._examples[reason] = example


class FieldCounts(Reasons):
    """How many values no attribute takes, by names such as `Climate.linkquality`."""

    OTHER: ClassVar = "other fields"


class UnreadFields:
    """State: how many values no attribute takes, by type and field. Each field is logged once. Any thread may add."""

    def __init__(self) -> None:
        self._counts = FieldCounts()
        self._lock = threading.Lock()

    @property
    def counts(self) -> Mapping[str, int]:
        """The numbers, by type and field."""
        with self._lock:
            return dict(self._counts)

    def add(self, name: str) -> None:
        """Count a value that is not read."""
        with self._lock:
            name = self._counts.counted_as(name)
            is_new = self._counts.add(name)
        if is_new:
            _LOG.warning("not read: %s; map it, list it in ignore, or write unknown = 'reject'", name)


def _cut(text: str) -> str:
    return text[:SHOWN].encode("utf-8", "backslashreplace").decode()[:SHOWN]
