"""The table of types: what the sources declare, as a catalog has it, with rates and last events."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from genus.catalog import Catalog
from genus.catalog.types import Finding, TypeEntry
from genus.errors import GenusError
from genus.model import Event, is_generated, name_of
from genus.model.types import Attribute
from genus.studio._figures import Rates, event_text, three_digits
from genus.studio._source import Failures, Source, TimedSource, is_part
from genus.studio._taps import Seen, Taps
from genus.studio.types import AttributeCell, Row, TypeChangeRow, TypeRow

MAX_CHANGES = 200
LOOK_S = 2.0
"""How often the catalog file and the declared classes are looked at."""


class TypeTable:
    """State: the types of all sources, and what changed since Studio was opened.

    Codes, bits and event tags are those of the catalog file. Without one they are those of a new catalog, as `genus
    types` shows them. Of a source whose class contradicts that of the same name, both have a row: the second one is
    `NAME (SOURCE)`, with the numbers of a catalog of that source alone.
    """

    def __init__(self, taps: Taps, catalog: Path | None = None) -> None:
        self.rows: dict[str, Row] = {}
        self.changes: dict[str, Row] = {}
        self.failures = Failures()
        self.catalog = Catalog.load(catalog) if catalog is not None else Catalog()
        self._path, self._taps = catalog, taps
        self._stamp = self._refused = _stamp(catalog)
        self._known: dict[str, set[type]] = {}
        """The classes of each source that were looked at."""
        self._apart: dict[str, Catalog] = {}
        """Of sources with classes that contradict the catalog: a catalog of these."""
        self._keys: dict[tuple[str, str], str] = {}
        """The keys of types that have a row for one source, by source and name."""
        self._described: dict[str, TypeRow] = {}
        self._rates = Rates()
        """Of sources that are not timed."""
        self._looked_at: float | None = None
        self._numbers = count(1)

    def update(self, sources: Sequence[Source], now: float, wall: float) -> None:
        """Bring rates and last events up to date; look for new types now and then."""
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            self._look(sources, wall)
            self._looked_at = now
        counted, untimed, rates = Counter[str](), Counter[str](), dict[str, float]()
        for source, counts in self._counts_of(sources):
            keyed = {self._key(source.name, name): number for name, number in counts.items()}
            counted.update(keyed)
            if isinstance(source, TimedSource):
                for name, rate in self._rates_of(source, counts).items():
                    key = self._key(source.name, name)
                    rates[key] = rates.get(key, 0.0) + rate
            else:
                untimed.update(keyed)
        for key, number in untimed.items():
            self._rates.note(key, number, now)
            rates[key] = rates.get(key, 0.0) + self._rates.rate(key)
        last = {self._key(seen.source, name): seen for (_, name), seen in self._taps.last.items()}
        self.rows = {
            key: _live(row, counted[key], rates.get(key, 0.0), last.get(key)) for key, row in self._described.items()
        }

    def _key(self, source: str, name: str) -> str:
        return self._keys.get((source, name), name)

    def _counts_of(self, sources: Sequence[Source]) -> Iterator[tuple[Source, Mapping[str, int]]]:
        """What each source counts; of one whose events others have as well, only types that these do not count."""
        none: Mapping[str, int] = {}
        found = [(each, self.failures.ask(each, "counters", each.counts, none)) for each in sources]
        whole = {name for source, counts in found if not is_part(source) for name in counts}
        for source, counts in found:
            is_copy = is_part(source)
            yield source, {name: number for name, number in counts.items() if not (is_copy and name in whole)}

    # -- declarations ------------------------------------------------------------------------------------------------

    def _look(self, sources: Sequence[Source], wall: float) -> None:
        """Take what is declared by now into the catalog, and note what is new."""
        is_first = self._looked_at is None
        found = self._reloaded()
        for source in sources:
            new = self._new_classes(source)
            added, refused = self._register(self.catalog, new)
            found += added + refused
            if refused:
                self._set_apart(source, {finding.subject for finding in refused}, new)
        if found or is_first:
            self._described = self._describe()
        for finding in [] if is_first else found:
            self._note(finding, wall)

    def _set_apart(self, source: Source, names: Collection[str], classes: list[type]) -> None:
        """Give classes of a source that contradict the others rows of their own."""
        apart = self._apart.setdefault(source.name, Catalog())
        self._register(apart, [cls for cls in classes if name_of(cls) in names])
        for name in names:
            if name in apart:
                self._keys[source.name, name] = f"{name} ({source.name})"

    def _describe(self) -> dict[str, TypeRow]:
        docs = {name_of(cls): line for known in self._known.values() for cls in known if (line := _line_about(cls))}
        found = describe_types(self.catalog, docs)
        for (source, name), key in self._keys.items():
            found[key] = msgspec.structs.replace(describe_types(self._apart[source])[name], name=name, source=source)
        return found

    def _register(self, catalog: Catalog, classes: list[type]) -> tuple[list[Finding], list[Finding]]:
        """Take classes into a catalog, all at once; if one is refused, those of each half, down to that one.

        Returns what was added, and what was refused.
        """
        if not classes:
            return [], []
        try:
            return [Finding("added", name) for name in catalog.register(*classes).types], []
        except (GenusError, ValueError) as problem:
            if len(classes) == 1:
                return [], [Finding("refused", name_of(classes[0]), str(problem))]
        half = len(classes) // 2
        parts = [self._register(catalog, part) for part in (classes[:half], classes[half:])]
        return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]

    def _new_classes(self, source: Source) -> list[type]:
        """The classes of a source that were not looked at; those that somebody wrote come before generated ones."""
        none: Collection[type] = ()
        declared = set(self.failures.ask(source, "types", lambda: tuple(source.types()), none)) - {Event}
        known = self._known.setdefault(source.name, set())
        new, self._known[source.name] = declared - known, known | declared
        return sorted(new, key=lambda cls: (is_generated(cls), len(cls.__mro__), name_of(cls)))

    def _rates_of(self, source: TimedSource, counts: Mapping[str, int]) -> Mapping[str, float]:
        return self.failures.ask(source, "rates", lambda: source.rates_of(counts), {})

    def _reloaded(self) -> list[Finding]:
        """Return what changed in the catalog file; one that cannot be read is told once, and read when it can be."""
        if self._path is None or (stamp := _stamp(self._path)) == self._stamp:
            return []
        try:
            loaded = Catalog.load(self._path)
        except GenusError as problem:
            is_told, self._refused = stamp == self._refused, stamp
            return [] if is_told or stamp is None else [Finding("refused", str(self._path), str(problem))]
        self._stamp = stamp
        found = [each for each in self.catalog.diff(loaded) if each.status not in ("kept", "missing")]
        self.catalog = loaded
        self._known.clear()
        self._apart.clear()
        self._keys.clear()
        return found

    def _note(self, finding: Finding, wall: float) -> None:
        number = next(self._numbers)
        text = f"{finding.status} {finding.text}".strip()
        self.changes[f"{number}"] = TypeChangeRow(at_ms=round(wall * 1000), type=finding.subject, what=text)
        if len(self.changes) > MAX_CHANGES:
            del self.changes[next(iter(self.changes))]


def _live(row: TypeRow, events: int, rate: float, last: Seen | None) -> TypeRow:
    if not events and last is None:
        return row
    shown: dict[str, Any] = {} if last is None else {"last": event_text(last.event), "last_ms": last.at_ms}
    return msgspec.structs.replace(row, events=events, rate=three_digits(rate), **shown)


def _line_about(cls: type) -> str:
    """The first line of what a class says of itself; empty if it was generated from a catalog, which has no words."""
    return "" if is_generated(cls) else (cls.__doc__ or "").partition("\n")[0]


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)


def describe_types(catalog: Catalog, docs: Mapping[str, str] | None = None) -> dict[str, TypeRow]:
    """Return the rows of all types of a catalog, without rates; `docs` has a line about each."""
    factors: dict[str, tuple[int, ...]] = {}
    known = docs or {}
    return {entry.name: _row(catalog, entry, factors, known) for entry in _from_the_root(catalog.entries)}


def _from_the_root(entries: Mapping[str, TypeEntry]) -> Iterator[TypeEntry]:
    """Yield the types, each after those above it."""
    done: set[str] = set()
    for first in entries:
        stack = [first]
        while stack:
            above = [name for name in entries[stack[-1]].parents if name not in done and name in entries]
            if above:
                stack += above
                continue
            name = stack.pop()
            if name not in done:
                done.add(name)
                yield entries[name]


def _row(catalog: Catalog, entry: TypeEntry, factors: dict[str, tuple[int, ...]], docs: Mapping[str, str]) -> TypeRow:
    above = [factors[parent] for parent in entry.parents if parent in factors]
    factors[entry.name] = primes = tuple(_factors(entry.code, above))
    vector = () if entry.kind else tuple(catalog.vector(entry.name))
    return TypeRow(
        parents=entry.parents,
        kind=entry.kind,
        family=entry.family,
        doc=docs.get(entry.name, ""),
        code=str(entry.code),
        factors=tuple(map(str, primes)),
        etag=catalog.etag(entry.name) if entry.blocks and not entry.kind else None,
        blocks=tuple((block.value, block.mask) for block in entry.blocks),
        attributes=tuple(
            AttributeCell(each.name, bit, _type_text(each), entry.attributes[each.name], each.unit)
            for bit, each in enumerate(vector)
            if each.name in entry.attributes
        ),
        vector=tuple(each.name for each in vector),
        deprecated=entry.deprecated,
    )


def _factors(code: int, above: Iterable[Sequence[int]]) -> Iterator[int]:
    """Yield the primes of a code: first those of the types above, in their order, then those of its own.

    >>> list(_factors(2 * 2 * 3 * 101, [[2, 2], [2, 3]]))
    [2, 2, 3, 101]
    """
    used: Counter[int] = Counter()
    for primes in above:
        met: Counter[int] = Counter()
        for prime in primes:
            met[prime] += 1
            if met[prime] > used[prime]:
                used[prime] += 1
                code //= prime
                yield prime
    divisor = 2
    while divisor * divisor <= code:
        while code % divisor == 0:
            yield divisor
            code //= divisor
        divisor += 1
    if code > 1:
        yield code


def _type_text(attribute: Attribute) -> str:
    """Return the type of an attribute as text, such as `float64` or `car|truck`."""
    return str(attribute).partition(": ")[2].removesuffix("?")
