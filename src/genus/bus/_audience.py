"""Audiences: the listeners of a bus by the types they accept, and the families that audiences belong to."""

import threading
from typing import TYPE_CHECKING, Any, Protocol

from genus.bus._listener import Listener

if TYPE_CHECKING:
    from genus.bus._indexed import IndexedListeners
    from genus.filters import Subscription


FEW = 64
"""A family with more subscriptions than this has an index. By measurement: `python -m bench.engine`."""


class CompiledRoute(Protocol):
    """The route of an event class that has generated code."""

    def discard_code(self) -> None:
        """Use the code no more."""


class Audience:
    """State: the listeners with the same types and `exact`; an event class is accepted by all of them or by none."""

    def __init__(self, subscription: "Subscription", family: "Family") -> None:
        self.accepts = subscription.accepts
        self.family = family
        self.listeners: dict[Listener[Any], None] = {}
        self.version = 1
        """The number of changes, that it was made included: so the sum of versions shows a new audience too."""
        self.plan_version = 1
        """The same, without the changes that the index of the family has."""
        self.compiled: set[CompiledRoute] = set()
        """The classes whose generated code has these listeners."""


class Family:
    """State: the listeners of one family, or of `Event` and kinds; with an index once they are many."""

    def __init__(self, name: str, *, is_shared: bool = False) -> None:
        self.name = name
        self.is_shared = is_shared
        """Whether it is of `Event` and kinds, whose events are of any family."""
        self.audiences: list[Audience] = []
        self.count = 0
        self.index: IndexedListeners | None = None

    def build_index(self, router_lock: "threading.RLock") -> None:
        """Make the index with all listeners, if no other thread did."""
        from genus.bus._indexed import IndexedListeners

        index = IndexedListeners(self.name, is_shared=self.is_shared)

        def publish_index() -> list[Listener[Any]]:
            """Let other threads use the index, who then wait for this one to add the listeners that there are."""
            with router_lock:
                if self.index is not None:
                    return []
                self.index = index
                for audience in self.audiences:
                    audience.plan_version += 1
                return [one for audience in self.audiences for one in audience.listeners]

        index.add_all(publish_index)
