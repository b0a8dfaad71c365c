"""Questions about subscriptions as text: is it right, how does it go on, what does it become, why does it not match."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

from genus import targets
from genus.catalog import Catalog
from genus.errors import GenusError, SubscriptionError, SyntaxProblem
from genus.filters import Subscription, TypesByName, complete, parse_again, python_source
from genus.filters.types import Mismatch
from genus.model import Event, name_of, vector
from genus.studio._figures import cut, number_of, value_text, values_of
from genus.studio._taps import Seen

Json: TypeAlias = dict[str, Any]

MAX_NAMED = 10_000
"""Most types that an answer names."""
MAX_TEXT = 10_000
MAX_ANSWER = 20_000
IDENTIFIER_PARTS = [["priority", 8], ["node", 7], ["event tag", 14]]
"""The fields of a CAN identifier and their widths."""


class Asked:
    """A subscription that was typed, as each source reads it: a name means the class that the source has.

    `subscription` is how the first source reads it that can.
    """

    def __init__(self, by_source: Mapping[str, Subscription[Any]]) -> None:
        self.subscription = next(iter(by_source.values()))
        self._by_source = by_source
        self._tests = {name: tester(each) for name, each in by_source.items()}

    def on(self, source: str) -> Subscription[Any] | None:
        """Return the subscription on a source; None if that has no such types, or they lack what it names."""
        return self._by_source.get(source)

    def is_match(self, seen: Seen) -> bool:
        """Return whether an event of a source matches."""
        test = self._tests.get(seen.source)
        return test is not None and test(seen.event)


def tester(subscription: Subscription[Any]) -> Callable[[Event], bool]:
    """Tests events; one with a value that does not have its declared type matches nothing."""
    matches = targets.python.compile(subscription)

    def is_match(event: Event) -> bool:
        try:
            return matches(event)
        except Exception:
            return False

    return is_match


class Questions:
    """Answers about subscriptions, for types that may become more while Studio runs.

    Args:
        types: The types of each source, by its name. Sources may have different classes of one name.
        catalog: The catalog that numbers are of.
    """

    def __init__(self, types: Callable[[], Mapping[str, Collection[type]]], catalog: Callable[[], Catalog]) -> None:
        self._types, self._catalog = types, catalog

    def ask(self, text: str) -> Asked:
        """Return a subscription from its text, `Event` for an empty one; SubscriptionError if no source can read it."""
        if len(text) > MAX_TEXT:
            raise SubscriptionError(f"a subscription of {len(text):,} characters is too long")
        asked, types = text.strip() or "Event", self._types()
        found: dict[str, Subscription[Any]] = {}
        for source in types:
            try:  # no warnings: their filters are not of a thread
                found[source] = parse_again(asked, _scope(types, source))
            except GenusError:
                continue
        return Asked(found or {"": parse_again(asked, _scope(types))})

    def check(self, text: str) -> Json:
        """Return whether a text is right: its form as text and in Python, or what is wrong and where."""
        try:
            asked = self.ask(text).subscription
        except GenusError as problem:
            return problem_json(problem)
        return {
            "ok": True,
            "text": str(asked),
            "python": python_source(asked, "subscribe"),
            "never": asked.why_never(),
            "types": [name_of(cls) for cls in asked.classes()][:MAX_NAMED],
        }

    def complete(self, text: str, at: int) -> Json:
        """Return how a text may go on at a cursor."""
        found = complete(text[:MAX_TEXT], max(0, min(at, len(text))), _scope(self._types()))
        items = [{"text": each.text, "kind": each.kind, "note": each.note} for each in found.items]
        return {"from": found.start, "to": found.end, "items": items}

    def explain(self, text: str) -> Json:
        """Return what a subscription becomes on each target."""
        asked, catalog = self.ask(text).subscription, self._catalog()
        found = [_attributes(asked)]
        for name, explain in _EXPLAINED.items():
            try:
                found.append({"name": name, "text": "", "problem": None, "residual": "", "bits": []})
                found[-1].update(explain(asked, catalog))
            except (GenusError, ImportError) as problem:
                found[-1].update(text=None, problem=str(problem))
        return {"text": str(asked), "targets": found}


def _scope(types: Mapping[str, Collection[type]], source: str | None = None) -> TypesByName:
    """Return what names mean: a class of the source itself, or else of the first source that has one."""
    meant: dict[str, list[type]] = {}
    for known in ([types[source]] if source is not None else []) + list(types.values()):
        named = TypesByName(known).named
        for cls in known:
            if (name := name_of(cls)) not in meant:
                meant[name] = named(name)
    unclear = [cls for classes in meant.values() if len(classes) > 1 for cls in classes]
    return TypesByName([Event, *unclear], {name: cls[0] for name, cls in meant.items() if len(cls) == 1})


def problem_json(problem: GenusError) -> Json:
    """Return an error as the page shows it, with the column if it has one."""
    if isinstance(problem, SyntaxProblem):
        return {"ok": False, "message": problem.reason or str(problem), "column": problem.column}
    return {"ok": False, "message": str(problem), "column": None}


# -- targets -----------------------------------------------------------------------------------------------------------


def _attributes(asked: Subscription[Any]) -> Json:
    """Return which attributes must be present or absent, as bits over the family's vector."""
    names = [attribute.name for attribute in vector(asked.type)]
    want = sum(1 << bit for bit, name in enumerate(names) if name in asked.has)
    mask = want | sum(1 << bit for bit, name in enumerate(names) if name in asked.lacks)
    parts = [[name, 1] for name in names]
    text = "tag & mask == want" if mask else "any attributes will do"
    bits = [{"label": "attributes", "width": len(names), "value": _exact(want), "mask": _exact(mask), "parts": parts}]
    return {"name": "attributes", "text": text, "problem": None, "residual": "", "bits": bits if mask else []}


def _exact(number: int) -> int | str:
    """A number as JSON has it: as text where a page would round it."""
    return number if number < 1 << 53 else str(number)


def _explain_plain(name: str) -> Callable[[Subscription[Any], Catalog], Json]:
    def explain(asked: Subscription[Any], catalog: Catalog) -> Json:
        module = getattr(targets, name)
        made = module.compile([asked]).explain(0) if name == "index" else module.compile(asked).explain()
        return {"text": str(made)[:MAX_ANSWER]}

    return explain


def _explain_with_catalog(name: str) -> Callable[[Subscription[Any], Catalog], Json]:
    def explain(asked: Subscription[Any], catalog: Catalog) -> Json:
        made = getattr(targets, name).compile(asked, catalog)
        residual = getattr(made, "residual", None)
        return {"text": made.explain()[:MAX_ANSWER], "residual": "" if residual is None else str(residual)}

    return explain


def _explain_can(asked: Subscription[Any], catalog: Catalog) -> Json:
    made = targets.can.compile(asked, catalog)
    bits = [
        {"label": f"filter {n}", "width": 29, "value": pair.value, "mask": pair.mask, "parts": IDENTIFIER_PARTS}
        for n, pair in enumerate(made.pairs, 1)
    ]
    residual = "" if made.residual is None else str(made.residual)
    return {"text": made.explain()[:MAX_ANSWER], "residual": residual, "bits": bits}


def _explain_topics(asked: Subscription[Any], catalog: Catalog) -> Json:
    texts = [
        f"{dialect.name}\n{targets.topics.compile(asked, dialect).explain()}"
        for dialect in (targets.topics.ZENOH, targets.topics.MQTT)
    ]
    return {"text": "\n\n".join(texts)[:MAX_ANSWER]}


_EXPLAINED: dict[str, Callable[[Subscription[Any], Catalog], Json]] = {
    "can": _explain_can,
    "python": _explain_plain("python"),
    "topics": _explain_topics,
    "index": _explain_plain("index"),
    "arrow": _explain_plain("arrow"),
    "spark": _explain_plain("spark"),
    "c": _explain_with_catalog("c"),
    "coap": _explain_with_catalog("coap"),
}


# -- events ------------------------------------------------------------------------------------------------------------


def event_json(seen: Seen, unmet: tuple[Mismatch, ...] | None = None) -> Json:
    """Return an event as the page shows it: its values as texts, and as numbers those that can be drawn."""
    values = values_of(seen.event)
    numbers = ((name, number_of(value)) for name, value in values.items())
    return {
        "n": seen.number,
        "source": seen.source,
        "publisher": None if seen.publisher is None else cut(seen.publisher),
        "type": name_of(type(seen.event)),
        "at_ms": round(seen.at_ms, 3),
        "values": {name: value_text(value) for name, value in values.items()},
        "numbers": {name: number for name, number in numbers if number is not None},
        "why": None if not unmet else list(_reasons(unmet)),
    }


def _reasons(unmet: tuple[Mismatch, ...]) -> Iterator[Json]:
    for each in unmet:
        yield {"stage": each.stage, "part": each.part, "truth": each.truth, "values": each.values}
