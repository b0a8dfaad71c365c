"""One generated function per event class: tests all subscriptions of a channel and calls their handlers.

The type is decided when the function is made: only subscriptions that accept the class are in it. Of the rest, those
without condition are called; where many compare one value with constants, a hash table (==, in) or a sorted list
(< <= > >=) finds those that match without testing the others; all others become `if` statements, with attributes and
repeated parts computed once. Counting is by channel, table row or list position wherever that gives the number of
deliveries of each subscription, so that it costs nothing per handler.
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
from genus.targets.python import ALWAYS, NEVER, PythonCompiler, define, is_number, spelled

MANY = 8
"""From this many subscriptions that compare the same value on, an index replaces their `if` statements."""

Key: TypeAlias = tuple[x.Value, str]
Deliver: TypeAlias = Callable[[Event], object]
_WRONG_VALUE = "(TypeError, AttributeError, OverflowError)"
"""What generated tests raise on a value that is not of its declared type."""
_BISECT = {">": bisect_left, ">=": bisect_right, "<": bisect_right, "<=": bisect_left}


class Entry(Protocol):
    """What a channel needs of a subscriber."""

    subscription: Subscription
    deliver: Deliver
    refuses: bool
    """Whether `failed` may return an error that the publisher is to see."""

    def failed(self, event: Event, problem: Exception) -> Exception | None:
        """Take note of a handler's error; the other handlers go on."""


class Guarded(msgspec.Struct, frozen=True):
    """An entry behind the part of its condition that the index did not decide."""

    deliver: Deliver
    failed: Callable[[Event, Exception], Exception | None]


class Count:
    """State: how many events went through a channel's code. A plain slot is what Python increments quickest."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events = 0


class Group(msgspec.Struct):
    """Entries that compare the same value by the same operator: `members` pairs each with its conjunct."""

    key: Key
    members: list[tuple[int, x.Predicate, Any]] = []


class Channel:
    """The generated code of one class, with its counters."""

    def __init__(self, cls: type, entries: Sequence[Entry], send: Deliver | None = None) -> None:
        self.cls = cls
        self.entries = entries
        self._count = Count()
        self.names: dict[str, Any] = {"C": cls, "N": self._count, "misfit": raise_event_error, "send": send}
        self._compiler = PythonCompiler(cls, [entry.subscription for entry in entries], self.names)
        self._counts: dict[int, Callable[[], int]] = {}
        self._refusing = any(entry.refuses for entry in entries)
        self._lines = list(self._body())
        self._publishers = 0
        self._deliver: Deliver | None = None

    @property
    def published(self) -> int:
        """How many events went through this code."""
        return self._count.events

    def delivered(self, position: int) -> int:
        """How many events this code gave to an entry."""
        return self._counts[position]() if position in self._counts else 0

    @property
    def deliver(self) -> Deliver:
        """A function that takes events of the class from outside to the handlers here."""
        if self._deliver is None:
            self._deliver = define(self.explain(), "deliver", self.names)
        return self._deliver

    def publisher(self, routes: Mapping[type, Deliver]) -> tuple[FunctionType, CodeType]:
        """A function for publishing this class, and code to put in its place when it is out of date.

        Events of other classes, and all once it is out of date, go by `routes`. Replacing the code rather than the
        function keeps references good that somebody took of it: `publish = collection.publish`.
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
        """The generated source."""
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
            yield "        misfit(e, x)"
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
                blocks += self._conditional(i, spelled(conditions[i]))
        prelude = self._compiler.prelude()
        self._tests_values = bool(prelude)
        yield from prelude
        yield from blocks

    def _call(self, i: int) -> list[str]:
        """Call one handler."""
        self._name_entry(i)
        return [f"try: h{i}(e)", f"except Exception as x: {self._note(f'l{i}')}"]

    def _call_all(self, handlers: str, entries: str, end: str) -> list[str]:
        """Call many: a tight loop, which after an error goes on with the next; what is left tells which one failed."""
        failed = f"{entries}[{end} - 1 - i.__length_hint__()]"
        lines = [f"i = iter({handlers})", "while True:", "    try:", "        for h in i: h(e)", "        break"]
        return [*lines, f"    except Exception as x: {self._note(failed)}"]

    def _note(self, entry: str) -> str:
        return f"w = {entry}.failed(e, x) or w" if self._refusing else f"{entry}.failed(e, x)"

    def _unconditional(self, positions: list[int]) -> Iterator[str]:
        for i in positions:
            self._counts[i] = lambda: self.published
        if len(positions) > 2 * MANY:
            entries = self._named("L", [self.entries[i] for i in positions])
            handlers = self._named("F", [self.entries[i].deliver for i in positions])
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
        """The indexes worth having, and which entry goes into which: equality first, then the more popular."""
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
        test = spelled((*operand.conditions, *is_number(operand)))
        if test == "False":
            return
        yield f"if {test}:"
        yield from (f"    {line}" for line in (self._hashed if op == "==" else self._sorted)(group, operand.code))

    def _hashed(self, group: Group, code: str) -> Iterator[str]:
        """A table from each constant to its hits, targets and their handlers."""
        rows: dict[Any, tuple[list[int], list[Entry | Guarded]]] = {}
        for position, part, constants in group.members:
            target = self._target(position, part)
            if target is None:
                continue
            mine = [rows.setdefault(constant, ([0], [])) for constant in dict.fromkeys(constants)]
            for _, targets in mine:
                targets.append(target)
            if not isinstance(target, Guarded):
                self._counts[position] = _hits_of([hits for hits, _ in mine])
        table = {key: (hits, targets, [one.deliver for one in targets]) for key, (hits, targets) in rows.items()}
        yield f"r = {self._named('T', table)}.get({code})"
        yield "if r is not None:"
        yield "    r[0][0] += 1"
        yield from (f"    {line}" for line in self._call_all("r[2]", "r[1]", "len(r[1])"))

    def _sorted(self, group: Group, code: str) -> Iterator[str]:
        op = group.key[1]
        members = sorted(group.members, key=lambda member: member[2])
        targets = [(position, constant, self._target(position, part)) for position, part, constant in members]
        kept = [(position, constant, target) for position, constant, target in targets if target is not None]
        hits = [0] * (len(kept) + 1)
        for rank, (position, _, target) in enumerate(kept):
            if not isinstance(target, Guarded):
                self._counts[position] = (_hits_above if op in (">", ">=") else _hits_below)(hits, rank)
        bounds = self._named("B", [constant for _, constant, _ in kept])
        listed, counted = self._named("L", [target for *_, target in kept]), self._named("H", hits)
        handlers = self._named("F", [target.deliver for *_, target in kept])
        self.names[_BISECT[op].__name__] = _BISECT[op]
        yield f"k = {_BISECT[op].__name__}({bounds}, {code})"
        yield f"{counted}[k] += 1"
        is_prefix = op in (">", ">=")
        part, end = (":k", "k") if is_prefix else ("k:", str(len(kept)))
        yield from self._call_all(f"{handlers}[{part}]", listed, end)

    def _target(self, position: int, decided: x.Predicate) -> Entry | Guarded | None:
        """The entry itself if the index decides it, or a function that tests the rest first; None if never."""
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
        lines += [f"        {line}" for line in (*compiler.prelude(), f"wanted = {spelled(rest)}")]
        lines += [f"    except {_WRONG_VALUE} as x: misfit(e, x)"]
        lines += ["    if wanted:", f"        c{position} += 1", f"        h{position}(e)"]
        return Guarded(define("\n".join(lines), f"r{position}", self.names), entry.failed)

    def _named(self, prefix: str, value: object) -> str:
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
    """The conjuncts an index could decide: what they compare and how, and the constant or constants."""
    for part in conjuncts(subscription.where):
        test = as_test(part)
        if test is None or isinstance(part, x.Not):
            continue
        value, op, constant = test
        if op in _BISECT:
            yield (value, op), part, constant
        elif op in ("==", "in"):
            yield (value, "=="), part, constant if op == "in" else (constant,)
