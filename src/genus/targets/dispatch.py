"""The dispatch target: one generated function per event class that tests a few subscriptions and calls their handlers.

Only subscriptions that accept the class are in the function. All tests come first, with attributes and repeated parts
computed once; then the handlers are called. So a test that fails, on a value that does not have its declared type, ends
the function before any handler was called, and the event is tested for each subscription alone (`dispatch_each`).
For very many subscriptions there is the index.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar

from genus.errors import EventError
from genus.filters._subscription import Subscription
from genus.model import Event, check, name_of
from genus.targets.python import ALWAYS, NEVER, Condition, PythonCompiler, define, join_condition

__all__ = ["ClassDispatcher", "Deliver", "DispatchEntry", "Prepare", "compile"]

MAX_UNROLLED = 16
"""More handlers without a condition than this are called in a loop."""

Deliver: TypeAlias = Callable[[Event], object]
"""A function that takes an event, such as a handler."""
Prepare: TypeAlias = Callable[[Event], Event]
"""A function that gets each published event before the handlers, and returns the event that they get."""


class DispatchEntry(Protocol):
    """A subscriber: its subscription, its handler, and what to do with the handler's errors."""

    subscription: Subscription
    deliver: Deliver
    refuses: bool
    """Whether `failed` may return an error, which is then raised to the publisher."""
    counted: int
    """Deliveries, but for those of dispatchers in which the subscription has no condition."""

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Handle an error of the handler, and return the error to raise to the publisher, if any.

        The other handlers are called in any case.
        """


class EventCounts:
    """State: the counters of generated functions."""

    def __init__(self) -> None:
        self.is_replaced = False
        """Whether the functions are not used any more, but by threads that are in them now."""
        self._cells: list[CellType] = []

    def add(self, function: FunctionType) -> None:
        """Add the counter `n` of a function."""
        assert function.__closure__ is not None
        self._cells.append(function.__closure__[function.__code__.co_freevars.index("n")])

    @property
    def events(self) -> int:
        """The number of events that the functions dispatched, without those on which a test failed."""
        return sum(cell.cell_contents for cell in self._cells)


def compile(cls: type, entries: Sequence[DispatchEntry], prepare: Prepare | None = None) -> "ClassDispatcher":
    """Compile the dispatch of events of one class to subscribers whose subscriptions accept the class.

    `prepare` is called with each published event before the tests, and returns the event to deliver; it may also send
    the event to other processes.
    """
    return ClassDispatcher(cls, entries, prepare)


class ClassDispatcher:
    """The generated code that dispatches events of one class; made by `compile`.

    Deliveries are counted in `counted` of the entries; those of the entries in `always`, which have no condition on
    this class, are not: each gets every event, so that `counts.events` is their number.
    """

    def __init__(
        self,
        cls: type,
        entries: Sequence[DispatchEntry],
        prepare: Prepare | None = None,
        on_misfit: Deliver | None = None,
    ) -> None:
        self.cls = cls
        self.entries = entries
        self.always: list[DispatchEntry] = []
        each = on_misfit or partial(dispatch_each, entries)
        self.names: dict[str, Any] = {"C": cls, "each": each, "prepare": prepare}
        self._compiler = PythonCompiler(cls, [entry.subscription for entry in entries], self.names)
        self._refusing = any(entry.refuses for entry in entries)
        self._lines = list(self._body())
        self.counts = EventCounts()
        self._makers: dict[str, Callable[..., tuple[FunctionType, ...]]] = {}
        self._deliver: Deliver | None = None

    @property
    def deliver(self) -> Deliver:
        """The function that calls the handlers with an event of the class, without `prepare`."""
        if self._deliver is None:
            (self._deliver,) = self._make("deliver")
        return self._deliver

    def publisher(self, routes: Mapping[type, Deliver]) -> tuple[FunctionType, CodeType]:
        """A method to publish events of this class, and the code to replace its code when it is out of date.

        Events of other classes, and all events once it is out of date, are passed to the functions in `routes`, by
        class. The code is replaced and not the function, so that references to it stay valid, such as
        `publish = collection.publish`. The object that it is a method of is not used.
        """
        publish, stale = self._make("publish", routes)
        return publish, stale.__code__

    def explain(self) -> str:
        """The generated code as text."""
        return "\n".join([f"def deliver(e):  # {name_of(self.cls)}", *(f"    {line}" for line in self._lines)])

    # -- source ------------------------------------------------------------------------------------------------------

    def _make(self, name: str, *arguments: object) -> tuple[FunctionType, ...]:
        """New functions with a counter of their own; their source is compiled once."""
        if name not in self._makers:
            self._makers[name] = define("\n".join(self._source(name)), f"make_{name}", self.names)
        functions = self._makers[name](*arguments)
        self.counts.add(functions[0])
        return functions

    def _source(self, name: str) -> Iterator[str]:
        """A function that makes others, which count in its variable `n`: the quickest counter in Python."""
        is_method = name == "publish"
        yield f"def make_{name}({'routes' if is_method else ''}):"
        yield "    n = 0"
        yield f"    def {name}({'_, e' if is_method else 'e'}):  # {name_of(self.cls)}"
        yield "        nonlocal n"
        if is_method:
            yield "        if type(e) is not C: return routes[type(e)](e)"
            yield from ["        e = prepare(e)"] if self.names["prepare"] is not None else []
        yield from (f"        {line}" for line in self._lines)
        yield from _STALE if is_method else ["    return deliver,"]

    def _body(self) -> Iterator[str]:
        conditions = [self._compiler.condition(entry.subscription) for entry in self.entries]
        always = [i for i, condition in enumerate(conditions) if condition == ALWAYS]
        tested = {i: condition for i, condition in enumerate(conditions) if condition not in (ALWAYS, NEVER)}
        self.always += [self.entries[i] for i in always]
        if tested:
            yield from self._tests(tested)
        yield "n += 1"
        if self._refusing:
            yield "r = None"
        yield from self._call_always(always)
        for i in tested:
            yield f"if w{i}:"
            yield f"    l{i}.counted += 1"
            yield from (f"    {line}" for line in self._call(i))
        if self._refusing:
            yield "if r is not None: raise r"

    def _tests(self, tested: dict[int, Condition]) -> Iterator[str]:
        yield "try:"
        yield from (f"    {line}" for line in self._compiler.prelude())
        yield from (f"    w{i} = {join_condition(condition)}" for i, condition in tested.items())
        yield "except Exception: return each(e)"

    def _call(self, i: int) -> list[str]:
        """Code that calls one handler."""
        self.names[f"l{i}"] = self.entries[i]
        self.names[f"h{i}"] = self.entries[i].deliver
        return [f"try: h{i}(e)", f"except Exception as x: {self._handle_error(f'l{i}')}"]

    def _handle_error(self, entry: str) -> str:
        return f"r = {entry}.failed(e, x) or r" if self._refusing else f"{entry}.failed(e, x)"

    def _call_always(self, positions: list[int]) -> Iterator[str]:
        """Code that calls the handlers without a condition; many in a tight loop that continues after an error.

        The number of handlers left in the iterator gives the one that failed.
        """
        if len(positions) <= MAX_UNROLLED:
            for i in positions:
                yield from self._call(i)
            return
        self.names["F"] = [self.entries[i].deliver for i in positions]
        self.names["L"] = [self.entries[i] for i in positions]
        failed = f"L[{len(positions)} - 1 - i.__length_hint__()]"
        yield from ("i = iter(F)", "while True:", "    try:", "        for h in i: h(e)", "        break")
        yield f"    except Exception as x: {self._handle_error(failed)}"


_STALE = (
    "    def stale(_, e):",
    "        n  # code can only be replaced by code with the same outer variables",
    "        routes[type(e)](e)",
    "    return publish, stale",
)


def deliver_all(event: Event, entries: Iterable[DispatchEntry]) -> Exception | None:
    """Call the handlers of entries that match, and count; returns what a full queue refused, if one did."""
    refusal: Exception | None = None
    for entry in entries:
        entry.counted += 1
        try:
            entry.deliver(event)
        except Exception as problem:
            refusal = entry.failed(event, problem) or refusal
    return refusal


E = TypeVar("E", bound=DispatchEntry)


def match_each(entries: Iterable[E], event: Event) -> tuple[list[E], EventError | None]:
    """The entries that match an event for which a test failed: each is tested alone, so that no other is affected.

    Also returns the error of the event, if a value that is tested does not have its declared type. If all values have
    theirs, the error is that of a subscription, and is reported to its entry.
    """
    fault = _fault_of(event)
    matching, is_at_fault = [], False
    for entry in entries:
        try:
            if entry.subscription.matches(event):
                matching.append(entry)
        except Exception as problem:
            is_at_fault = True
            if fault is None:
                entry.failed(event, problem)
    return matching, fault if is_at_fault else None


def dispatch_each(entries: Iterable[DispatchEntry], event: Event) -> None:
    """Deliver an event for which a test failed; raises the event's error when all entries that match were served."""
    matching, fault = match_each(entries, event)
    problem = deliver_all(event, matching) or fault
    if problem is not None:
        raise problem


def _fault_of(event: Event) -> EventError | None:
    try:
        check(event)
    except EventError as fault:
        return fault
    return None
