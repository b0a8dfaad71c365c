"""The dispatch target: one generated function per event class that tests all subscriptions and calls their handlers.

Only subscriptions that accept the class are in the function. Those without a condition are called. Where many compare
one value with constants, a hash table (==, in) or a sorted list (< <= > >=) finds those that match without testing the
others; the rest become `if` statements, with attributes and repeated parts computed once. Deliveries are counted by
function, table row or list position where that gives the number of each subscription, at no cost per handler.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Protocol, TypeAlias

import msgspec

import genus.filters._expression as x
from genus.filters._covering import as_test, conjuncts
from genus.filters._evaluate import raise_event_error
from genus.filters._subscription import Subscription
from genus.model import Event, name_of
from genus.targets.python import ALWAYS, NEVER, PythonCompiler, define, is_number, join_condition

__all__ = ["ClassDispatcher", "Deliver", "DispatchEntry", "compile"]

MANY = 8
"""If at least so many subscriptions compare the same value, an index replaces their `if` statements."""

Key: TypeAlias = tuple[x.Value, str]
Deliver: TypeAlias = Callable[[Event], object]
"""A function that takes an event, such as a handler."""
_WRONG_VALUE = "(TypeError, AttributeError, OverflowError)"
"""The errors of generated tests on a value that does not have its declared type."""
_BISECT = {">": bisect_left, ">=": bisect_right, "<": bisect_right, "<=": bisect_left}


class DispatchEntry(Protocol):
    """A subscriber: its subscription, its handler, and what to do with the handler's errors."""

    subscription: Subscription
    deliver: Deliver
    refuses: bool
    """Whether `failed` may return an error, which is then raised to the publisher."""

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Handle an error of the handler, and return the error to raise to the publisher, if any.

        The other handlers are called in any case.
        """


class GuardedEntry(msgspec.Struct, frozen=True):
    """An entry with the rest of its condition, which the index did not decide."""

    deliver: Deliver
    failed: Callable[[Event, Exception], Exception | None]


class EventCount:
    """State: how many events were dispatched; a slot is the fastest counter in Python."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events = 0


class Group(msgspec.Struct):
    """Entries that compare the same value with the same operator; `members` are (position, conjunct, constants)."""

    key: Key
    members: list[tuple[int, x.Predicate, Any]] = []


def compile(cls: type, entries: Sequence[DispatchEntry], send: Deliver | None = None) -> "ClassDispatcher":
    """Compile the dispatch of events of one class to subscribers whose subscriptions accept the class.

    `send` is called with each published event as well, before the handlers: a link to other processes.
    """
    return ClassDispatcher(cls, entries, send)


class ClassDispatcher:
    """The generated code that dispatches events of one class, with its counters; made by `compile`."""

    def __init__(self, cls: type, entries: Sequence[DispatchEntry], send: Deliver | None = None) -> None:
        self.cls = cls
        self.entries = entries
        self._count = EventCount()
        self.names: dict[str, Any] = {"C": cls, "N": self._count, "wrong": raise_event_error, "send": send}
        self._compiler = PythonCompiler(cls, [entry.subscription for entry in entries], self.names)
        self._counts: dict[int, Callable[[], int]] = {}
        self._refusing = any(entry.refuses for entry in entries)
        self._lines = list(self._body())
        self._publishers = 0
        self._deliver: Deliver | None = None

    @property
    def published(self) -> int:
        """The number of events dispatched so far."""
        return self._count.events

    def delivered(self, position: int) -> int:
        """The number of events delivered to the entry at a position."""
        return self._counts[position]() if position in self._counts else 0

    @property
    def deliver(self) -> Deliver:
        """The function that calls the handlers with an event of the class, without `send`."""
        if self._deliver is None:
            self._deliver = define(self.explain(), "deliver", self.names)
        return self._deliver

    def publisher(self, routes: Mapping[type, Deliver]) -> tuple[FunctionType, CodeType]:
        """A function to publish events of this class, and the code to replace its code when it is out of date.

        Events of other classes, and all events once it is out of date, are passed to the functions in `routes`, by
        class. The code is replaced and not the function, so that references to it stay valid, such as
        `publish = collection.publish`.
        """
        self._publishers += 1
        others, name = f"routes{self._publishers}", f"publish{self._publishers}"
        self.names[others] = routes
        source = [f"def {name}(e):  # {name_of(self.cls)}", "    if type(e) is not C:"]
        source += [f"        return {others}[type(e)](e)", *(["    send(e)"] if self.names["send"] else [])]
        function = define("\n".join([*source, *self._source(self._lines)]), name, self.names)
        stale = define(f"def stale(e): {others}[type(e)](e)", "stale", self.names)
        return function, stale.__code__

    def explain(self) -> str:
        """The generated code as text."""
        return "\n".join([f"def deliver(e):  # {name_of(self.cls)}", *self._source(self._lines)])

    # -- source ------------------------------------------------------------------------------------------------------

    def _source(self, lines: list[str]) -> Iterator[str]:
        if counters := [f"c{i}" for i in range(len(self.entries)) if f"c{i}" in self.names]:
            yield f"    global {', '.join(counters)}"
        yield "    N.events += 1"
        if self._refusing:
            yield "    w = None"
        if self._tests_values:
            yield "    try:"
            yield from (f"        {line}" for line in lines)
            yield f"    except {_WRONG_VALUE} as x:"
            yield "        wrong(e, x)"
        else:
            yield from (f"    {line}" for line in lines)
        if self._refusing:
            yield "    if w is not None: raise w"

    def _body(self) -> Iterator[str]:
        groups = self._groups()
        indexed = {position for group in groups for position, _, _ in group.members}
        singles = [i for i in range(len(self.entries)) if i not in indexed]
        conditions = {i: self._compiler.condition(self.entries[i].subscription) for i in singles}
        blocks = [line for group in groups for line in self._group_lines(group)]
        blocks += self._unconditional([i for i in singles if conditions[i] == ALWAYS])
        for i in singles:
            if conditions[i] not in (ALWAYS, NEVER):
                blocks += self._conditional(i, join_condition(conditions[i]))
        prelude = self._compiler.prelude()
        self._tests_values = bool(prelude)
        yield from prelude
        yield from blocks

    def _call(self, i: int) -> list[str]:
        """Code that calls one handler."""
        self._name_entry(i)
        return [f"try: h{i}(e)", f"except Exception as x: {self._handle_error(f'l{i}')}"]

    def _call_all(self, handlers: str, entries: str, end: str) -> list[str]:
        """Code that calls many handlers in a tight loop and continues after an error.

        The number of handlers left in the iterator gives the one that failed.
        """
        failed = f"{entries}[{end} - 1 - i.__length_hint__()]"
        lines = [f"i = iter({handlers})", "while True:", "    try:", "        for h in i: h(e)", "        break"]
        return [*lines, f"    except Exception as x: {self._handle_error(failed)}"]

    def _handle_error(self, entry: str) -> str:
        return f"w = {entry}.failed(e, x) or w" if self._refusing else f"{entry}.failed(e, x)"

    def _unconditional(self, positions: list[int]) -> Iterator[str]:
        for i in positions:
            self._counts[i] = lambda: self.published
        if len(positions) > 2 * MANY:
            entries = self._add_name("L", [self.entries[i] for i in positions])
            handlers = self._add_name("F", [self.entries[i].deliver for i in positions])
            yield from self._call_all(handlers, entries, str(len(positions)))
            return
        for i in positions:
            yield from self._call(i)

    def _conditional(self, i: int, condition: str) -> Iterator[str]:
        self._count_by_name(i)
        yield f"if {condition}:"
        yield f"    c{i} += 1"
        yield from (f"    {line}" for line in self._call(i))

    def _name_entry(self, i: int) -> None:
        self.names[f"l{i}"] = self.entries[i]
        self.names[f"h{i}"] = self.entries[i].deliver

    def _count_by_name(self, i: int) -> None:
        self.names[f"c{i}"] = 0
        self._counts[i] = lambda: int(self.names[f"c{i}"])

    # -- groups ------------------------------------------------------------------------------------------------------

    def _groups(self) -> list[Group]:
        """The groups that get an index, and the entries of each: equality first, then the larger group."""
        options = [list(_indexable(entry.subscription)) for entry in self.entries]
        popular = Counter(key for keys in options for key in {key for key, _, _ in keys})
        groups: dict[Key, Group] = {}
        for position, keys in enumerate(options):
            frequent = [option for option in keys if popular[option[0]] >= MANY]
            if frequent:
                key, part, constant = max(frequent, key=lambda option: (option[0][1] == "==", popular[option[0]]))
                groups.setdefault(key, Group(key)).members.append((position, part, constant))
        return list(groups.values())

    def _group_lines(self, group: Group) -> Iterator[str]:
        value, op = group.key
        operand = self._compiler.visit(value)
        test = join_condition((*operand.conditions, *is_number(operand)))
        if test == "False":
            return
        yield f"if {test}:"
        yield from (
            f"    {line}" for line in (self._hash_lines if op == "==" else self._bisect_lines)(group, operand.code)
        )

    def _hash_lines(self, group: Group, code: str) -> Iterator[str]:
        """Code with a hash table from each constant to its count, entries and handlers."""
        rows: dict[Any, tuple[list[int], list[DispatchEntry | GuardedEntry]]] = {}
        for position, part, constants in group.members:
            target = self._guard(position, part)
            if target is None:
                continue
            mine = [rows.setdefault(constant, ([0], [])) for constant in dict.fromkeys(constants)]
            for _, targets in mine:
                targets.append(target)
            if not isinstance(target, GuardedEntry):
                self._counts[position] = _hits_of([hits for hits, _ in mine])
        table = {key: (hits, targets, [one.deliver for one in targets]) for key, (hits, targets) in rows.items()}
        yield f"r = {self._add_name('T', table)}.get({code})"
        yield "if r is not None:"
        yield "    r[0][0] += 1"
        yield from (f"    {line}" for line in self._call_all("r[2]", "r[1]", "len(r[1])"))

    def _bisect_lines(self, group: Group, code: str) -> Iterator[str]:
        """Code with a sorted list of constants, searched by bisection."""
        op = group.key[1]
        members = sorted(group.members, key=lambda member: member[2])
        targets = [(position, constant, self._guard(position, part)) for position, part, constant in members]
        kept = [(position, constant, target) for position, constant, target in targets if target is not None]
        hits = [0] * (len(kept) + 1)
        for rank, (position, _, target) in enumerate(kept):
            if not isinstance(target, GuardedEntry):
                self._counts[position] = (_hits_above if op in (">", ">=") else _hits_below)(hits, rank)
        bounds = self._add_name("B", [constant for _, constant, _ in kept])
        listed, counted = self._add_name("L", [target for *_, target in kept]), self._add_name("H", hits)
        handlers = self._add_name("F", [target.deliver for *_, target in kept])
        self.names[_BISECT[op].__name__] = _BISECT[op]
        yield f"k = {_BISECT[op].__name__}({bounds}, {code})"
        yield f"{counted}[k] += 1"
        is_prefix = op in (">", ">=")
        part, end = (":k", "k") if is_prefix else ("k:", str(len(kept)))
        yield from self._call_all(f"{handlers}[{part}]", listed, end)

    def _guard(self, position: int, decided: x.Predicate) -> DispatchEntry | GuardedEntry | None:
        """The entry itself if the index decides it, or one that tests the rest first; None if it never matches."""
        entry = self.entries[position]
        compiler = PythonCompiler(self.cls, [entry.subscription], self.names)
        rest = compiler.condition(entry.subscription, without=decided)
        if rest == ALWAYS:
            return entry
        if rest == NEVER:
            return None
        self._name_entry(position)
        self._count_by_name(position)
        lines = [f"def r{position}(e):", f"    global c{position}", "    try:"]
        lines += [f"        {line}" for line in (*compiler.prelude(), f"wanted = {join_condition(rest)}")]
        lines += [f"    except {_WRONG_VALUE} as x: wrong(e, x)"]
        lines += ["    if wanted:", f"        c{position} += 1", f"        h{position}(e)"]
        return GuardedEntry(define("\n".join(lines), f"r{position}", self.names), entry.failed)

    def _add_name(self, prefix: str, value: object) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name


def _hits_of(rows: list[list[int]]) -> Callable[[], int]:
    return lambda: sum(hits for (hits,) in rows)


def _hits_above(hits: list[int], rank: int) -> Callable[[], int]:
    return lambda: sum(hits[rank + 1 :])


def _hits_below(hits: list[int], rank: int) -> Callable[[], int]:
    return lambda: sum(hits[: rank + 1])


def _indexable(subscription: Subscription) -> Iterator[tuple[Key, x.Predicate, Any]]:
    """The conjuncts that an index can decide: the compared value and operator, the conjunct, the constants."""
    for part in conjuncts(subscription.where):
        test = as_test(part)
        if test is None or isinstance(part, x.Not):
            continue
        value, op, constant = test
        if op in _BISECT:
            yield (value, op), part, constant
        elif op in ("==", "in"):
            yield (value, "=="), part, constant if op == "in" else (constant,)
