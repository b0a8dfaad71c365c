"""Publishing: the method `publish` of a collection, what happens to events before they are delivered, and batches.

`publish` is one function for the whole life of the collection, whose code is replaced. Publishing to one
handler takes about as long as three calls of Python functions, so that a step in between would be a third of the time.
Two tricks avoid it, which are all here and in `targets.dispatch.embed`:

* Each collection has a class of its own, with a function `publish` of its own: Python calls a method of a class quicker
  than a function in an attribute of the object.
* The function stays, and its `__code__` becomes the generated code of the first class that is published; other classes
  have functions in `publishers`. So `p = collection.publish` is as quick as any other way to call it, whether it was
  taken before the first event, before a change of subscriptions, or later. Generated code has all that it uses as
  constants, its counter included, as a function's globals and outer variables cannot be replaced with its code. A
  thread that is in old code goes on with what was current when it began, and counts there.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec.structs import replace

from genus.model import Event
from genus.model.internal import retyped_attributes

if TYPE_CHECKING:
    from genus.targets.dispatch import Deliver, Prepare


class PublishMethod:
    """State: the function `publish` of one collection."""

    def __init__(self, like: FunctionType) -> None:
        """Make a function that does what another one does, with its name and docstring."""
        self.function = FunctionType(like.__code__, like.__globals__, like.__name__)
        self.function.__qualname__, self.function.__doc__ = like.__qualname__, like.__doc__
        self._first_code = like.__code__

    def use(self, code: CodeType) -> None:
        """Run generated code from the next call on."""
        self.function.__code__ = code

    def reset(self) -> None:
        """Run the first code from the next call on."""
        self.function.__code__ = self._first_code


def new_class(base: type, publish: Any) -> "tuple[type, PublishMethod]":
    """Return a subclass with a function `publish` of its own, which does what that of the base does, and its method."""
    method = PublishMethod(publish)
    names = {"__doc__": base.__doc__, "__module__": base.__module__, "publish": method.function}
    return type(base.__name__, (base,), names), method


def stamp_with(source: str | None, now: Callable[[], datetime] | None) -> "Prepare | None":
    """Return a function that returns an event with the source and the time of publishing, where it has none.

    Types whose `source` is a number get none: the source of a bus is text.
    """
    if source is None and now is None:
        return None

    def stamp(event: Event) -> Event:
        missing: dict[str, Any] = {}
        if source is not None and event.source is None and "source" not in retyped_attributes(type(event)):
            missing["source"] = source
        if now is not None and event.time is None:
            missing["time"] = now()
        return replace(event, **missing) if missing else event

    return stamp


def in_turn(stamp: "Prepare | None", *steps: "Deliver | None") -> "Prepare | None":
    """All that happens to an event before it is delivered; None if nothing does."""
    needed = [step for step in steps if step is not None]
    if stamp is None and not needed:
        return None
    if stamp is None and len(needed) == 1:
        return _only(needed[0])

    def prepare(event: Event) -> Event:
        if stamp is not None:
            event = stamp(event)
        for step in needed:
            step(event)
        return event

    return prepare


def _only(step: "Deliver") -> "Prepare":
    def prepare(event: Event) -> Event:
        step(event)
        return event

    return prepare


T = TypeVar("T")


class BatchOwner(Protocol):
    """What publishing a batch needs of its bus."""

    @property
    def _preparing(self) -> "Callable[[Any], Event] | None":
        """The function that stamps and checks events before they are sent; None if nothing is done."""

    def _send_all(self, events: Sequence[Event]) -> None:
        """Send events to other processes."""


def publish_each(publish: Callable[[T], object], events: Iterable[T]) -> int:
    """Publish events one after the other; an error says where it stopped. Returns their number."""
    number = -1
    for number, event in enumerate(events):
        try:
            publish(event)
        except Exception as problem:
            problem.add_note(f"publish_all stopped at event {number}, {event!r}; those before it were published")
            raise
    return number + 1


def publish_at_once(bus: BatchOwner, deliver_of: "Callable[[Any], Deliver]", events: Iterable[Any]) -> int:
    """Check all events, send all to other processes, and then deliver all here; returns their number.

    Nothing is published if one cannot be. If a queue here is full, the error is raised when all are delivered.
    """
    prepare = bus._preparing
    prepared: list[Event] = []
    delivers: dict[type, Deliver] = {}
    for number, event in enumerate(events):
        try:
            if event.__class__ not in delivers:
                delivers[event.__class__] = deliver_of(event)
            prepared.append(event if prepare is None else prepare(event))
        except Exception as problem:
            problem.add_note(f"publish_all refused event {number}, {event!r}; none was published")
            raise
    bus._send_all(prepared)
    _deliver_all(delivers, prepared)
    return len(prepared)


def _deliver_all(delivers: "dict[type, Deliver]", events: list[Event]) -> None:
    first: Exception | None = None
    for number, event in enumerate(events):
        try:
            delivers[event.__class__](event)
        except Exception as problem:
            if first is None:
                problem.add_note(f"publish_all failed at event {number}, {event!r}; all {len(events)} were sent")
                first = problem
    if first is not None:
        raise first
