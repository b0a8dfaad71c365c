"""Why a message or a record is no event, and how often that was so."""

from collections import Counter
from collections.abc import Mapping

import msgspec

MOST_REASONS = 200
"""Reasons beyond this number are counted as one: others choose what arrives."""
OTHER = "other reasons"
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
    """State: how many messages were rejected for each reason, and the last example of each."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Example] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of rejected messages by reason."""
        return dict(self._counts)

    @property
    def examples(self) -> Mapping[str, Example]:
        """The last example by reason."""
        return dict(self._examples)

    def add(self, rejected: Rejected, topic: str, payload: bytes) -> None:
        """Count a message that was rejected, and keep it as the example."""
        is_known = rejected.reason in self._counts or len(self._counts) < MOST_REASONS
        reason = rejected.reason if is_known else OTHER
        self._counts[reason] += 1
        text = payload[: 4 * SHOWN].decode("utf-8", "backslashreplace")
        self._examples[reason] = Example(_cut(topic), _cut(text), _cut(rejected.detail))


def _cut(text: str) -> str:
    return text[:SHOWN].encode("utf-8", "backslashreplace").decode()[:SHOWN]
