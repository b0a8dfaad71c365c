"""`NetRelay`: a gateway's access to a network."""

import threading
from collections.abc import Callable, Iterable

from genus.filters import Subscription
from genus.model import Event
from genus.net._link.interest import OwnWants
from genus.net._link.patterns import Patterns
from genus.net._relay import Arrival, Want
from genus.targets.python import PythonFilter
from genus.targets.topics import TopicFilter


class NetRelay:
    """State: what a gateway wants of a network, on behalf of others."""

    def __init__(
        self,
        receive: Callable[[Arrival], None],
        patterns: Patterns,
        own_wants: OwnWants,
        compile: Callable[[Subscription], TopicFilter],
        kept: Callable[[Subscription], list[Arrival]],
        drop_kept: Callable[[], None],
        on_close: Callable[["NetRelay"], None],
    ) -> None:
        self._receive = receive
        self._patterns, self._own_wants, self._compile = patterns, own_wants, compile
        self._kept, self._drop_kept, self._on_close = kept, drop_kept, on_close
        self._wants: tuple[Want, ...] = ()
        self._subscribed: list[str] = []
        self._filters: tuple[PythonFilter, ...] = ()
        self._lock = threading.Lock()

    def want(self, wants: Iterable[Want]) -> None:
        """Receive what these wants match, and tell the network of them; replaces those before.

        Last values that are known already are received at once, also if they were received for others before.
        """
        with self._lock:
            before, self._wants = self._wants, tuple(dict.fromkeys(wants))
            asked = dict.fromkeys(want.subscription for want in self._wants)
            self._filters = tuple(PythonFilter(subscription) for subscription in asked)
            self._subscribe()
            self._own_wants.replace(before, self._wants)
        self._drop_kept()
        new = asked.keys() - {want.subscription for want in before}
        for arrival in [arrival for subscription in new for arrival in self._kept(subscription)]:
            self._receive(arrival)

    def compile_again(self) -> None:
        """Follow types that were declared since."""
        with self._lock:
            self._subscribe()

    def _subscribe(self) -> None:
        asked = dict.fromkeys(want.subscription for want in self._wants)
        before, self._subscribed = (
            self._subscribed,
            [pattern for subscription in asked for pattern in self._compile(subscription).patterns],
        )
        self._patterns.add(self._subscribed)
        self._patterns.remove(before)

    def wants_type(self, cls: type[Event]) -> bool:
        """Whether the gateway wants some events of a class."""
        return any(want.subscription.accepts(cls) for want in self._wants)

    def give(self, arrival: Arrival) -> None:
        """Give the gateway an event if it wants it."""
        if any(_matches(test, arrival) for test in self._filters):
            self._receive(arrival)

    def close(self) -> None:
        """Want nothing more."""
        self._on_close(self)
        self.want(())


def _matches(test: PythonFilter, arrival: Arrival) -> bool:
    try:
        return test(arrival.event)
    except Exception:  # a value of an undeclared type: the subscriber's own test decides
        return True
