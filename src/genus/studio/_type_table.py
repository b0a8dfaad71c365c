"""The table of types: what the sources declare, as a catalog has it, with rates and last events."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from genus.catalog import Catalog, Finding, TypeEntry
from genus.errors import GenusError
from genus.model import Attribute, Event, is_generated, name_of
from genus.studio._rates import Rates
from genus.studio._rows import AttributeCell, Row, TypeChangeRow, TypeRow
from genus.studio._source import Failures, Source, TimedSource
from genus.studio._taps import Taps
from genus.studio._texts import event_text, three_digits

MOST_CHANGES = 200
LOOK_S = 2.0
"""How often the catalog file and the declared classes are looked at."""


class TypeTable:
    """State: the types of all sources, and what changed since Studio was opened.

    Codes, bits and event tags are those of the catalog file. Without one they are those of a new catalog, as `genus
    types` shows them.
    """

    def __init__(self, taps: Taps, catalog: Path | None = None) -> None:
        self.rows: dict[str, Row] = {}
        self.changes: dict[str, Row] = {}
        self.failures = Failures()
        self.catalog = Catalog.load(catalog) if catalog is not None else Catalog()
        self._path, self._taps = catalog, taps
        self._stamp = self._refused = _stamp(catalog)
        self._known: set[type] = set()
        self._described: dict[str, TypeRow] = {}
        self._rates = Rates()
        """Of sources that are not timed."""
        self._timed: Mapping[str, float] = {}
        """The rates that timed sources give, in sum."""
        self._looked_at: float | None = None
        self._numbers = count(1)

    def update(self, sources: Sequence[Source], now: float, wall: float) -> None:
        """Bring rates and last events up to date; look for new types now and then."""
        if self._looked_at is None or now - self._looked_at >= LOOK_S:
            self._look(sources, wall)
            self._looked_at = now
        counted, untimed, timed = Counter[str](), Counter[str](), dict[str, float]()
        for source in sources:
            counts = self._counts_of(source)
            counted.update(counts)
            if not isinstance(source, TimedSource):
                untimed.update(counts)
                continue
            for name, rate in self._rates_of(source, counts).items():
                timed[name] = timed.get(name, 0.0) + rate
        for name, number in untimed.items():
            self._rates.note(name, number, now)
        self._timed = timed
        self.rows = {name: self._live(name, row, counted[name]) for name, row in self._described.items()}

    def _live(self, name: str, row: TypeRow, events: int) -> TypeRow:
        last = self._taps.last.get(name)
        if not events and last is None:
            return row
        rate = three_digits(self._rates.rate(name) + self._timed.get(name, 0.0))
        if last is None:
            return msgspec.structs.replace(row, events=events, rate=rate)
        return msgspec.structs.replace(row, events=events, rate=rate, last=event_text(last.event), last_ms=last.at_ms)

    # -- declarations ------------------------------------------------------------------------------------------------

    def _look(self, sources: Sequence[Source], wall: float) -> None:
        """Take what is declared by now into the catalog, and note what is new."""
        is_first = self._looked_at is None
        found = self._reloaded()
        found += self._register(self._new_classes(sources))
        if found or is_first:
            docs = {name_of(cls): line for cls in self._known if (line := _line_about(cls))}
            self._described = describe_types(self.catalog, docs)
        for finding in [] if is_first else found:
            self._note(finding, wall)

    def _register(self, classes: list[type]) -> list[Finding]:
        """Take classes into the catalog, all at once; if one is refused, those of each half, down to that one."""
        if not classes:
            return []
        try:
            return [Finding("added", name) for name in self.catalog.register(*classes).types]
        except (GenusError, ValueError) as problem:
            if len(classes) == 1:
                return [Finding("refused", name_of(classes[0]), str(problem))]
        half = len(classes) // 2
        return self._register(classes[:half]) + self._register(classes[half:])

    def _new_classes(self, sources: Sequence[Source]) -> list[type]:
        declared = {cls for source in sources for cls in self._types_of(source)}
        new = [cls for cls in declared if cls not in self._known and cls is not Event]
        self._known |= declared
        return sorted(new, key=lambda cls: (len(cls.__mro__), name_of(cls)))

    def _counts_of(self, source: Source) -> Mapping[str, int]:
        return self.failures.ask(source, "counters", source.counts, {})

    def _rates_of(self, source: TimedSource, counts: Mapping[str, int]) -> Mapping[str, float]:
        return self.failures.ask(source, "rates", lambda: source.rates_of(counts), {})

    def _types_of(self, source: Source) -> Collection[type]:
        return self.failures.ask(source, "types", lambda: tuple(source.types()), ())

    def _reloaded(self) -> list[Finding]:
        """What changed in the catalog file; one that cannot be read is told once, and read when it can be."""
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
        return found

    def _note(self, finding: Finding, wall: float) -> None:
        number = next(self._numbers)
        text = f"{finding.status} {finding.text}".strip()
        self.changes[f"{number}"] = TypeChangeRow(at_ms=round(wall * 1000), type=finding.subject, what=text)
        if len(self.changes) > MOST_CHANGES:
            del self.changes[next(iter(self.changes))]


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
    """The rows of all types of a catalog, without rates; `docs` has a line about each."""
    factors: dict[str, tuple[int, ...]] = {}
    known = docs or {}
    return {entry.name: _row(catalog, entry, factors, known) for entry in _from_the_root(catalog.entries)}


def _from_the_root(entries: Mapping[str, TypeEntry]) -> Iterator[TypeEntry]:
    """The types, each after those above it."""
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
    """The primes of a code: first those of the types above, in their order, then those of its own.

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
    """The type of an attribute as text, such as `float64` or `car|truck`."""
    return str(attribute).partition(": ")[2].removesuffix("?")
