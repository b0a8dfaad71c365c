"""Which signals are in which frames of a message, for many frames at once.

Signals that the same values of the same multiplexer choose are one group, with one mask. Multiplexers are asked in the
order in which the decoder of single frames comes to them, so that a frame with several wrong ones gets the same reason.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from genus.can.dbc.bits import RawSignal, Words
from genus.can.dbc.layout import MessageLayout, SignalLayout
from genus.can.dbc.signal_columns import Presence, Table

Mask: TypeAlias = npt.NDArray[np.bool_]

Group: TypeAlias = tuple[str, frozenset[int]] | None
"""A multiplexer's name and the raw values that choose the signals of a group; None for those that are always there."""


def group_of(signal: SignalLayout) -> Group:
    """The signals that are there together with this one."""
    return None if signal.multiplexer is None else (signal.multiplexer, signal.selected_by)


class _Chooser(NamedTuple):
    """A multiplexer: where it is itself, the values it may have, and which of them choose each group."""

    source: RawSignal
    values: Table
    groups: dict[Group, Mask]
    """For each group, whether each value chooses it; the last is for values that choose nothing."""


class Multiplexing:
    """The multiplexers of a message."""

    def __init__(self, message: MessageLayout) -> None:
        below: dict[str | None, list[SignalLayout]] = {}
        for signal in message.signals:
            below.setdefault(signal.multiplexer, []).append(signal)
        self.signals: list[SignalLayout] = []
        """Those that can be there at all, in the order in which they are decoded."""
        self._length = message.length
        self._choosers: list[_Chooser] = []
        self._visit(None, below)

    def _visit(self, multiplexer: str | None, below: dict[str | None, list[SignalLayout]]) -> None:
        """Note the signals that a multiplexer chooses, then those below them: of the last multiplexer first."""
        signals = below.pop(multiplexer, [])
        self.signals += signals
        choosing = [signal for signal in signals if signal.selects is not None]
        self._choosers += [_chooser(RawSignal(signal, self._length), below.get(signal.name, [])) for signal in choosing]
        for signal in reversed(choosing):
            self._visit(signal.name, below)

    @property
    def is_used(self) -> bool:
        """Whether the message has a multiplexer."""
        return bool(self._choosers)

    def wrong(self, words: Words) -> Iterator[tuple[SignalLayout, Mask]]:
        """The multiplexers that select nothing, each with the frames of which it is the first such."""
        found = np.zeros(len(words), np.bool_)
        for chooser, choice, mask in self._choices(words):
            refused = (choice < 0) & ~found if mask is None else (choice < 0) & mask & ~found
            if refused.any():
                yield chooser.source.signal, refused
                found |= refused

    def presences(self, words: Words) -> dict[Group, Presence]:
        """Where the signals of each group are."""
        found: dict[Group, Presence] = {None: Presence()}
        for chooser, choice, mask in self._choices(words):
            for group, chosen in chooser.groups.items():
                found[group] = Presence.of(_within(mask, chosen[choice]))
        return found

    def _choices(self, words: Words) -> Iterator[tuple[_Chooser, npt.NDArray[np.int32], Mask | None]]:
        """Each multiplexer with the number of its value in each frame, or -1; and the frames that it is in."""
        masks: dict[Group, Mask | None] = {None: None}
        for chooser in self._choosers:
            choice, mask = chooser.values.find(chooser.source.raw(words)), masks[group_of(chooser.source.signal)]
            for group, chosen in chooser.groups.items():
                masks[group] = _within(mask, chosen[choice])
            yield chooser, choice, mask


def _within(outer: Mask | None, inner: Mask) -> Mask:
    return inner if outer is None else outer & inner


def _chooser(source: RawSignal, below: list[SignalLayout]) -> _Chooser:
    values = sorted(source.signal.selects or ())
    groups = {group_of(each): np.array([*(value in each.selected_by for value in values), False]) for each in below}
    return _Chooser(source, Table(source, ((value, number) for number, value in enumerate(values))), groups)
