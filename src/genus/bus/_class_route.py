"""The route of an event class: from `publish` to the handlers of the listeners that match.

A class is dispatched in one of two ways, with the same result:

* by generated code (`targets.dispatch`), if it has few subscriptions with conditions and there was no change of
  subscriptions for a while. A change discards the code, and costs nothing else.
* otherwise by finding the listeners that match, and then calling them.

Generating code takes as long as finding the listeners of some events for each subscription. So it is generated for the
first event of a class, and after a change when that many events have passed: the time that is spent on code is never
more than the time that was spent without it.
"""

import threading
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from genus.bus._audience import FEW, Audience, Family
from genus.bus._listener import Listener
from genus.model import Event
from genus.targets.dispatch import (
    NAMED,
    ClassDispatcher,
    Deliver,
    EventCounts,
    Prepare,
    deliver_all,
    dispatch_each,
    match_each,
    publishing_code,
)

if TYPE_CHECKING:
    from genus.bus._indexed import FoundListeners, IndexedListeners

QUIET = 64
"""Code is generated after so many events for each subscription without a change. By `python -m bench.engine`."""
MAX_GENERATIONS = 16
"""So many generations of code keep their counters of events, as a thread may still run code that was replaced."""

Matches: TypeAlias = Callable[[Event], bool]


class PublisherOwner(Protocol):
    """A collection, as a route sees it."""

    publishers: dict[type, Deliver]
    """Functions that publish events, by class."""

    def _install(self, cls: type, code: CodeType) -> None:
        """Run code to publish events of a class."""

    def _discard(self, cls: type) -> None:
        """Ask the route for a new method with the next event of a class."""


class RouteOwner(Protocol):
    """The router, as a route sees it."""

    lock: "threading.RLock"
    prepare: Prepare | None


class Plan(NamedTuple):
    """How to find the listeners of a class: by tests one after the other, and in the indexes of families.

    It holds for one version of the audiences, so that an event finds each listener in one of the two.
    """

    version: int
    tests: list[tuple[Listener[Any], Matches | None]]
    indexed: "list[tuple[Family, IndexedListeners]]"


class ClassRoute:
    """State: how events of one class reach their listeners, and how many there were."""

    def __init__(self, router: RouteOwner, cls: type, audiences: list[Audience]) -> None:
        self.cls = cls
        self.audiences = audiences
        self.deliver: Deliver = self._deliver_first
        """Calls the handlers with an event that came over a link."""
        self._router = router
        self._events = 0
        """Events without generated code, and those of code whose counters are not kept any more."""
        self._code: ClassDispatcher | None = None
        self._generations: list[EventCounts] = []
        self._publishers: list[PublisherOwner] = []
        self._plan = Plan(-1, [], [])
        self._left = 0
        """Events until the next attempt to generate code."""
        self._settled_version = self._version()

    @property
    def published(self) -> int:
        """The number of events so far."""
        return self._events + sum(counts.events for counts in self._generations)

    def add_audience(self, audience: Audience) -> None:
        """Deliver to the listeners of an audience too; it is empty so far, and the router's lock is held."""
        self.audiences.append(audience)
        if self._code is not None:
            audience.compiled.add(self)

    # Publishing functions

    def publisher(self, owner: PublisherOwner) -> Deliver:
        """Return the function of a collection that publishes events of this class."""
        if self._code is None and self._left <= 0:
            self._settle()
        with self._router.lock:
            if self.cls not in owner.publishers:
                self._publishers.append(owner)
                owner._install(self.cls, self._code.publishing_code() if self._code else self._finding_code())
            return owner.publishers[self.cls]

    def _finding_code(self) -> CodeType:
        """Return the same as `ClassDispatcher.publishing_code`, for code that finds the listeners."""
        names = {"C": self.cls, "prepare": self._router.prepare, "deliver": self.find_and_deliver}
        return publishing_code([f"{NAMED}deliver(e)"], names)

    def discard_publishers(self) -> None:
        """Let collections ask for new functions; the router's lock is held."""
        for owner in self._publishers:
            owner._discard(self.cls)
        self._publishers.clear()

    # Generated code

    def _settle(self) -> None:
        """Generate code, if there was no change since the last call and it is worth it."""
        with self._router.lock:
            version, listeners = self._version(), self._listeners()
            unchanged, self._settled_version = version == self._settled_version, version
            self._left = QUIET * max(1, len(listeners))
        if self._code is None and unchanged and self._is_for_code(listeners):
            code = ClassDispatcher(self.cls, listeners, self._router.prepare, self._misfit)
            with self._router.lock:
                if self._code is None and version == self._version():
                    self._install(code)

    def _is_for_code(self, listeners: list[Listener[Any]]) -> bool:
        """Return whether few listeners have conditions, or there is no index that would do better."""
        is_indexed = any(audience.family.index is not None for audience in self.audiences)
        return not is_indexed or sum(listener.is_conditional for listener in listeners) <= FEW

    def _install(self, code: ClassDispatcher) -> None:
        self._code, self.deliver = code, self._deliver_first
        self._generations.append(code.counts)
        if len(self._generations) > MAX_GENERATIONS:
            events = self._generations.pop(0).events
            self._events += events
        for audience in self.audiences:
            audience.compiled.add(self)
        for listener in code.always:
            assert isinstance(listener, Listener)
            listener._count_by(code.counts, MAX_GENERATIONS)
        self.discard_publishers()

    def discard_code(self) -> None:
        """Find the listeners of the next event by their subscriptions; the router's lock is held."""
        if self._code is not None:
            self._code.counts.is_replaced = True
            self._code, self.deliver = None, self.find_and_deliver
            for audience in self.audiences:
                audience.compiled.discard(self)
            self.discard_publishers()

    def close(self) -> None:
        """Publish and deliver no more; the router's lock is held."""
        self.discard_code()
        self.discard_publishers()
        self.deliver = _drop

    def _deliver_first(self, event: Event) -> None:
        """Deliver an event of a link, and the next ones without this step."""
        if self._code is None and self._left <= 0:
            self._settle()
        code = self._code
        deliver = code.deliver if code is not None else self.find_and_deliver
        with self._router.lock:
            if self._code is code:
                self.deliver = deliver
        deliver(event)

    # Finding

    def find_and_deliver(self, event: Event) -> None:
        """Find the listeners that match, then call their handlers.

        If a test fails, as a value does not have its declared type, the listeners are tested one by one.
        """
        self._events += 1
        self._left -= 1
        if self._left <= 0:
            self._settle()
        plan = self._plan
        if plan.version != self._plan_version():
            plan = self._make_plan()
        problem: Exception | None = None
        try:
            found = [listener for listener, matches in plan.tests if matches is None or matches(event)]
        except Exception:
            found, problem = match_each([listener for listener, _ in plan.tests], event)
        indexed: list[FoundListeners] = []
        try:
            for family, index in plan.indexed:
                try:
                    indexed.append(index.find(event))
                except Exception:
                    more, fault = match_each(self._listeners(family), event)
                    found, problem = found + more, problem or fault
            problem = deliver_all(event, found) or problem
            for one in indexed:
                problem = one.deliver(event) or problem
        finally:
            for one in indexed:
                one.release()
        if problem is not None:
            raise problem

    def listeners_of(self, event: Event) -> list[Listener[Any]]:
        """Return the listeners that would handle an event."""
        plan = self._plan if self._plan.version == self._plan_version() else self._make_plan()
        try:
            found = [listener for listener, matches in plan.tests if matches is None or matches(event)]
            found += [listener for _, index in plan.indexed for listener in index.matching(event)]
        except Exception:
            found, _ = match_each(self._listeners(), event)
        return [listener for listener in found if listener.takes(event)]

    def listeners(self) -> list[Listener[Any]]:
        """Return the listeners that accept the class, whatever else they ask."""
        return self._listeners()

    def _misfit(self, event: Event) -> None:
        """Deliver an event on which generated code failed."""
        self._events += 1
        dispatch_each(self._listeners(), event)

    def _make_plan(self) -> Plan:
        with self._router.lock:
            version = self._plan_version()
            indexes = {one.family: one.family.index for one in self.audiences}
            tested = [audience for audience in self.audiences if indexes[audience.family] is None]
            listeners = [listener for audience in tested for listener in audience.listeners]
        indexed = [(family, index) for family, index in indexes.items() if index is not None]
        plan = self._plan = Plan(version, [(one, one.matcher(self.cls)) for one in listeners], indexed)
        return plan

    def _plan_version(self) -> int:
        return sum([audience.plan_version for audience in self.audiences])

    def _version(self) -> int:
        return sum([audience.version for audience in self.audiences])

    def _listeners(self, family: Family | None = None) -> list[Listener[Any]]:
        """Return the listeners that accept the class, all or those of one family."""
        with self._router.lock:
            chosen = [audience for audience in self.audiences if family is None or audience.family is family]
            return [listener for audience in chosen for listener in audience.listeners]


def _drop(event: Event) -> None:
    """What a link delivers after its bus was closed."""
