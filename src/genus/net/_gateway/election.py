"""`Election`: which of the gateways of the same name is active: the one with the lowest uid that is seen on all sides.

Uids begin with the time at which a gateway was started, so that one that is new stands by.
"""

from collections.abc import Sequence

from genus.net._gateway.scope import SideRules

TAKEOVER_S = 0.05
"""How long after the active gateway is gone the next one waits for what was still on its way."""
SETTLE_S = 1.0
"""How long a new gateway that has a name waits for the tokens of others, before it may be the active one."""


class Election:
    """State: the gateways of the same name, and on which sides they are seen."""

    def __init__(self, uid: str, sides: Sequence[SideRules], settled_at: float | None) -> None:
        self._uid = uid
        self._settled_at = settled_at
        """When the tokens of others must have come; None: there is no election."""
        self._sides = {number for number, side in enumerate(sides) if side.tells_tokens}
        self._down: set[int] = set()
        self._seen: dict[str, set[int]] = {}
        self._has_rival = False
        self._won_at = settled_at if settled_at is not None else 0.0
        """When the election is won at the earliest."""

    def token(self, side: int, uid: str, is_present: bool) -> None:
        """Another gateway is seen on a side, or no more."""
        seen = self._seen.setdefault(uid, set())
        (seen.add if is_present else seen.discard)(side)
        if not seen:
            del self._seen[uid]

    def connected(self, side: int, is_connected: bool) -> None:
        """A side was connected, or is not any more."""
        (self._down.discard if is_connected else self._down.add)(side)

    def is_won(self, now: float) -> bool:
        """Whether no gateway with a lower uid can carry events between all sides that this one is connected to."""
        if self._settled_at is None:
            return True
        needed = self._sides - self._down
        had_rival = self._has_rival
        self._has_rival = any(uid < self._uid and needed <= seen for uid, seen in self._seen.items())
        if had_rival and not self._has_rival:
            self._won_at = max(self._won_at, now + TAKEOVER_S)
        return not self._has_rival and now >= self._won_at

    def wake_at(self, now: float) -> float | None:
        """When the election is won without further news."""
        is_open = self._settled_at is not None and not self._has_rival and now < self._won_at
        return self._won_at if is_open else None
