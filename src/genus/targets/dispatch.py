"""The dispatch target: one generated function per event class that tests a few subscriptions and calls their handlers.

Only subscriptions that accept the class are in the function. All tests come first, with attributes and repeated parts
computed once; then the handlers are called. So a test that fails, on a value that does not have its declared type, ends
the function before any handler was called, and the event is tested for each subscription alone (`dispatch_each`).
For very many subscriptions there is the index.
"""

import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import length_hint
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeAlias, TypeVar

from genus.errors import EventError
from genus.filters import Subscription
from genus.model import Event, check, name_of
from genus.targets.python import ALWAYS, NEVER, Condition, PythonCompiler, join_condition

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
    """State: the counters of the generated functions of one dispatcher.

    A counter is an iterator that gives the same object for ever: taking one makes no new number, cannot be interrupted
    by another thread, and an iterator can be a constant of the code. How many are left says how many were taken.
    """

    def __init__(self) -> None:
        self.is_replaced = False
        """Whether the functions are not used any more, but by threads that are in them now."""
        self._counters: list[repeat[Any]] = []

    def new(self, given: object) -> "repeat[Any]":
        """Return a new counter that gives an object."""
        counter = repeat(given, _MANY)
        self._counters.append(counter)
        return counter

    @property
    def events(self) -> int:
        """The number of events that the functions dispatched, without those on which a test failed."""
        return sum([_MANY - length_hint(counter) for counter in self._counters])


_MANY = 2**62
CLASS, COUNTER = "C", "n"
"""Names in generated code: the class of events, and the counter."""
NAMED, BARE = "\x00", "\x01"
"""What stands before a name in generated code that becomes a constant; `repr` writes no such characters."""
_COUNTER = object()
"""What stands for the counter among the constants of code that has none yet."""


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
        self.names: dict[str, Any] = {CLASS: cls, COUNTER: _COUNTER, "each": each, "prepare": prepare}
        self._compiler = PythonCompiler(cls, [entry.subscription for entry in entries])
        self._refusing = any(entry.refuses for entry in entries)
        self._first: Deliver | None = None
        """The handler that the counter gives, so that it need not be looked up."""
        self._publishing: CodeType | None = None
        self._lines = list(self._body())
        constants = self._compiler.names
        self._code_lines = [*(f"{name} = {BARE}{name}" for name in constants), *self._lines]
        self.names |= constants
        self.counts = EventCounts()
        self._deliver: Deliver | None = None

    @property
    def deliver(self) -> Deliver:
        """The function that calls the handlers with an event of the class, without `prepare`."""
        if self._deliver is None:
            self._deliver = make_function(self._with_counter(embed("deliver(e)", self._code_lines, self.names)))
        return self._deliver

    def publishing_code(self) -> CodeType:
        """Return code for a method of a collection that publishes events of this class, with a counter of its own.

        Events of other classes are passed to the functions that the collection has in `publishers`, by class.
        """
        if self._publishing is None:
            self._publishing = publishing_code(self._code_lines, self.names)
        return self._with_counter(self._publishing)

    def _with_counter(self, code: CodeType) -> CodeType:
        counter = self.counts.new(self._first)
        return code.replace(co_consts=tuple(counter if one is _COUNTER else one for one in code.co_consts))

    def explain(self) -> str:
        """Return the generated code as text."""
        lines = [f"def deliver(e):  # {name_of(self.cls)}", *(f"    {line}" for line in self._lines)]
        return "\n".join(lines).replace(NAMED, "").replace(BARE, "")

    # -- source ------------------------------------------------------------------------------------------------------

    def _body(self) -> Iterator[str]:
        conditions = [self._compiler.condition(entry.subscription) for entry in self.entries]
        always = [i for i, condition in enumerate(conditions) if condition == ALWAYS]
        tested = {i: condition for i, condition in enumerate(conditions) if condition not in (ALWAYS, NEVER)}
        self.always += [self.entries[i] for i in always]
        if tested:
            yield from self._tests(tested)
        yield f"for h in {BARE}{COUNTER}: break"
        if self._refusing:
            yield "r = None"
        yield from self._call_always(always)
        for i in tested:
            yield f"if not w{i}:"
            yield f"    {NAMED}l{i}.counted += 1"
            yield from (f"    {line}" for line in self._call(i))
        if self._refusing:
            yield "if r is not None: raise r"

    def _tests(self, tested: dict[int, Condition]) -> Iterator[str]:
        """Code that tests the conditions; `not` takes their truth here, as a comparison need not give True or False."""
        yield "try:"
        yield from (f"    {line}" for line in self._compiler.prelude())
        yield from (f"    w{i} = not ({join_condition(condition)})" for i, condition in tested.items())
        yield f"except Exception: return {NAMED}each(e)"

    def _call(self, i: int) -> list[str]:
        """Code that calls one handler."""
        self.names[f"h{i}"] = self.entries[i].deliver
        return self._call_by(f"{NAMED}h{i}", i)

    def _call_first(self, i: int) -> list[str]:
        """Code that calls the handler which the counter gives."""
        self._first = self.entries[i].deliver
        return self._call_by("h", i)

    def _call_by(self, handler: str, i: int) -> list[str]:
        self.names[f"l{i}"] = self.entries[i]
        return [f"try: {handler}(e)", f"except Exception as x: {self._handle_error(f'{NAMED}l{i}')}"]

    def _handle_error(self, entry: str) -> str:
        return f"r = {entry}.failed(e, x) or r" if self._refusing else f"{entry}.failed(e, x)"

    def _call_always(self, positions: list[int]) -> Iterator[str]:
        """Code that calls the handlers without a condition; many in a tight loop that continues after an error.

        The number of handlers left in the iterator gives the one that failed.
        """
        if len(positions) <= MAX_UNROLLED:
            for number, i in enumerate(positions):
                yield from self._call(i) if number else self._call_first(i)
            return
        self.names["F"] = [self.entries[i].deliver for i in positions]
        self.names["L"] = [self.entries[i] for i in positions]
        failed = f"{NAMED}L[{len(positions)} - 1 - i.__length_hint__()]"
        yield from (f"i = iter({NAMED}F)", "while True:", "    try:", "        for h in i: h(e)", "        break")
        yield f"    except Exception as x: {self._handle_error(failed)}"


# -- code with its constants -------------------------------------------------------------------------------------------


def publishing_code(lines: Iterable[str], names: Mapping[str, Any]) -> CodeType:
    """Return the code of a method that publishes events `e` of the class `C` in `names` by some lines."""
    others = f"if type(e) is not {NAMED}{CLASS}: return _.publishers[type(e)](e)"
    prepare = [f"e = {NAMED}prepare(e)"] if names["prepare"] is not None else []
    return embed("publish(_, e, /)", [others, *prepare, *lines], names)


def embed(head: str, lines: Iterable[str], names: Mapping[str, Any]) -> CodeType:
    """Return the code of a function in which names are constants, so that it can become the code of any function.

    A name behind `NAMED` or `BARE` is written as a complex number, and that of the class as `...`, which generated code
    does not have otherwise; they are replaced among the constants of the code. Python warns where a bare number is
    called, so that behind `NAMED` it is `(c := number)`.
    """
    values = list(names.values())
    numbers = {name: number for number, name in enumerate(names)}

    def constant(found: re.Match[str]) -> str:
        mark, name = found.groups()
        if name == CLASS:
            return "..."
        return f"(c := {numbers[name]}j)" if mark == NAMED else f"{numbers[name]}j"

    text = "\n".join([f"def {head}:", *(f"    {line}" for line in lines)])
    source = re.sub(f"([{NAMED}{BARE}])(\\w+)", constant, text)
    (code,) = (
        one for one in builtins.compile(source, f"<genus {head}>", "exec").co_consts if isinstance(one, CodeType)
    )
    return code.replace(co_consts=tuple(names[CLASS] if one is ... else _meant(one, values) for one in code.co_consts))


def _meant(constant: object, values: list[Any]) -> object:
    return values[int(constant.imag)] if isinstance(constant, complex) else constant


def make_function(code: CodeType) -> FunctionType:
    """Return a function that runs code which `embed` made."""
    return FunctionType(code, _GLOBALS, code.co_name)


_GLOBALS: dict[str, Any] = {"__builtins__": builtins, "__name__": __name__}


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
