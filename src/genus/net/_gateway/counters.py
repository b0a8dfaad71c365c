"""Counters of a gateway, per side: what was heard there, and what was to be carried there."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class SideCounters:
    """State: counters of one side.

    The first four are about events that came from the side, the others about events for it: `wanted` is the sum of
    `crossed`, `lost`, `limited`, and those that wait in the spool or for a rate limit.
    """

    heard: int = 0
    """Events that came from this side."""
    unwanted: int = 0
    """Of these, events that no other side wants."""
    duplicates: int = 0
    """Of these, events that had come before, over this side or another one."""
    out_of_scope: int = 0
    """Of these, events that another side wants, but that may not leave this side or enter that one."""
    wanted: int = 0
    """Events of other sides that this side wants."""
    crossed: int = 0
    """Of these, events that were sent to this side."""
    lost: int = 0
    """Of these, events that could not be sent, or that a full spool dropped."""
    spooled: int = 0
    """Of these, events that were written to the spool, as this side was not connected."""
    limited: int = 0
    """Of these, events that a rate limit dropped."""

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
