"""The CoAP target: subscriptions become the path of a resource and a query, which a server tests.

`compile` makes them of one subscription; `read_query` is what a server makes of them. A code is the path of a resource
(`genus.codes.encode_path_segment`).

The path is the code of the type; of `all_of` several types it is the least common multiple of their codes, which
divides exactly the codes of the types below all of them. The query has what else a server tests: `x` for exactly this
type, `h` and `l` for presence bits, and `w` for the parts of the predicate, as text. A server that is too small for a
part of it answers 4.00; then the subscription is compiled again for fewer tests, and the receiver does the rest.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import lcm
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.errors import GenusError
from genus.filters import Subscription
from genus.filters.internal import conjuncts, rebuild
from genus.filters.types import AllOf
from genus.model import Event, is_event_type, pure_kind
from genus.model.internal import RETYPABLE
from genus.targets._compiler import OPERATORS, Compiler
from genus.targets._presence import PresenceCompiler, required_presence
from genus.targets.python import PythonFilter

__all__ = [
    "CoapFilter",
    "QueryFilter",
    "ServerTests",
    "compile",
    "format_mask",
    "parse_mask",
    "read_query",
]


MAX_PARTS = 64
"""The largest number of parts of a query."""
_MASK = re.compile(r"[1-9a-f][0-9a-f]{0,252}", re.ASCII)


def format_mask(mask: int) -> str:
    """Write presence bits as hexadecimal digits; ValueError unless there are some.

    >>> format_mask(36)
    '24'
    """
    if mask < 1:
        raise ValueError(f"presence bits are a positive integer, not {mask}")
    return f"{mask:x}"


def parse_mask(text: str) -> int | None:
    """Return the presence bits of a text; None if it is malformed.

    >>> parse_mask("24"), parse_mask("024"), parse_mask("2G")
    (36, None, None)
    """
    return int(text, 16) if _MASK.fullmatch(text) else None


class QueryFilter(msgspec.Struct, frozen=True):
    """The test of a request: made by `read_query`, used by a server.

    `texts` are the predicates as they were asked for, and `asked` is the type that their attributes belong to. They are
    compiled for each class of events when one comes, as a program may have several classes for a type: one that was
    made from a catalog, and one that it imported later.
    """

    code: int
    exact: bool = False
    has: int = 0
    lacks: int = 0
    texts: tuple[str, ...] = ()
    asked: type = Event
    tests: dict[type, tuple[PythonFilter, ...]] = {}

    def accepts(self, code: int, tag: int, event: Event) -> bool:
        """Return whether an event, with its code and presence bits, passes."""
        if code % self.code or (self.exact and code != self.code):
            return False
        if tag & self.has != self.has or tag & self.lacks:
            return False
        return not self.texts or self._is_true(event)

    def _is_true(self, event: Event) -> bool:
        cls = type(event)
        if cls not in self.tests:
            self.tests[cls] = self._compile(cls)
        try:
            return all(test(event) for test in self.tests[cls])
        except Exception:  # a value of another type than declared: the receiver's own test decides
            return True

    def _compile(self, cls: type) -> tuple[PythonFilter, ...]:
        """The tests of a class; none if it has other names of attributes, so that the receiver's own test decides."""
        found = _read_texts(self.texts, Event if self.asked is Event else cls)
        return () if isinstance(found, str) else found


def read_query(code: int, query: Sequence[str], catalog: Catalog) -> QueryFilter | str:
    """Return the test of a path and a query, or the reason why it cannot be done.

    >>> from genus import Event
    >>> from genus.catalog import Catalog
    >>> class Lamp(Event):
    ...     watts: float
    >>> catalog = Catalog()
    >>> added = catalog.register(Lamp)
    >>> made = read_query(catalog.code(Lamp), ["w=watts > 40.0"], catalog)
    >>> [made.accepts(catalog.code(Lamp), 32, Lamp(watts=watts)) for watts in (20.0, 60.0)]
    [False, True]
    >>> read_query(catalog.code(Lamp), ["v=1"], catalog)
    "there is no query 'v'"
    """
    given: dict[str, str] = {}
    texts: list[str] = []
    for part in query[: MAX_PARTS + 1]:
        name, _, value = part.partition("=")
        if name == "w":
            texts.append(value)
        elif name not in ("x", "h", "l"):
            return f"there is no query {name[:40]!r}"
        elif name in given:
            return f"{name} is given twice"
        else:
            given[name] = value
    if len(query) > MAX_PARTS:
        return f"more than {MAX_PARTS} parts of a query"
    masks = {name: parse_mask(given[name]) for name in ("h", "l") if name in given}
    if wrong := [name for name, mask in masks.items() if mask is None]:
        return f"{wrong[0]} is no presence bits"
    if given.get("x"):
        return "x takes no value"
    asked = _class_of(code, catalog)
    problem = _read_texts(texts, asked)
    if isinstance(problem, str):
        return problem
    return QueryFilter(code, "x" in given, masks.get("h") or 0, masks.get("l") or 0, tuple(texts), asked, {})


def _class_of(code: int, catalog: Catalog) -> type:
    """Return the event type that the attributes in a query belong to: the lowest whose code divides the code."""
    entries = [each for each in catalog.entries.values() if not each.kind and code % each.code == 0]
    if not entries:
        return Event
    lowest = max(entries, key=lambda each: each.code)
    return catalog.declare(lowest.name)


def _read_texts(texts: Iterable[str], asked: type) -> tuple[PythonFilter, ...] | str:
    try:
        return tuple(PythonFilter(rebuild(asked, where=text)) for text in texts)
    except (GenusError, RecursionError, ValueError) as problem:
        return f"w cannot be read: {str(problem).splitlines()[0][:200]}"


ServerTests: TypeAlias = Literal["where", "masks", "type"]
"""What a server tests: all (`where`), type and presence (`masks`), or the type alone."""
_OTHER_PARTS = 3
"""The parts of a query besides those of the predicate: `x`, `h` and `l`."""
MAX_TEXT = 255 - len("w=")
"""The longest text, in bytes, that an option of a request holds."""
MAX_BITS = 4 * MAX_TEXT
"""The most presence bits that fit into one; those of attributes with higher numbers are left to the receiver."""


def has_path(code: int) -> bool:
    """Return whether a code fits a path segment; what has none is found at a resource above it.

    >>> has_path(30914), has_path(1 << 2000)
    (True, False)
    """
    try:
        encode_path_segment(code)
    except ValueError:
        return False
    return True


class CoapFilter(msgspec.Struct, frozen=True):
    """The path and the query of one subscription; made by `compile`.

    `code` is that of the path, None if nothing can match; `exact` asks for this type without those below it. `has` and
    `lacks` are presence bits over the family's vector, `where` the parts of the predicate that the server tests, and
    `residual` is what the receiver must still test, None if nothing.
    """

    subscription: Subscription
    tests: ServerTests
    code: int | None
    exact: bool = False
    has: int = 0
    lacks: int = 0
    where: tuple[str, ...] = ()
    residual: Subscription | None = None

    @property
    def path(self) -> str | None:
        """The path segment; None if nothing can match."""
        return None if self.code is None else encode_path_segment(self.code)

    @property
    def query(self) -> tuple[str, ...]:
        """The options Uri-Query of the request."""
        masks = (("h", self.has), ("l", self.lacks))
        asked = [f"{name}={format_mask(mask)}" for name, mask in masks if mask]
        return (*(("x",) if self.exact else ()), *asked, *(f"w={text}" for text in self.where))

    def accepts(self, code: int, tag: int) -> bool:
        """Return whether an event passes by its code and presence bits; the predicate is not tested here."""
        if self.code is None or code % self.code or (self.exact and code != self.code):
            return False
        return tag & self.has == self.has and not tag & self.lacks

    def explain(self) -> str:
        """Return the path and the query, and what is left to the receiver, as text."""
        lines = [f"coap: {self.subscription}"]
        if self.path is None:
            return "\n".join([*lines, "  nothing can match", "  residual: nothing"])
        lines.append(f"  GET /{self.path}{'?' if self.query else ''}{'&'.join(self.query)}, Observe")
        lines.append(f"  type: code {self.code}{' exactly' if self.exact else ', and all that it divides'}")
        return "\n".join([*lines, f"  residual: {self.residual or 'nothing'}"])


def compile(subscription: Subscription, catalog: Catalog, tests: ServerTests = "where") -> CoapFilter:
    """Compile a subscription to a path and a query, by the codes and vectors of a catalog.

    `tests` says what the server can test. Raises NotRegistered if a type of the subscription is not in the catalog.

    >>> from genus import Event, Maybe, Subscription, this
    >>> from genus.catalog import Catalog
    >>> class Loop(Event):
    ...     lane: int
    ...     category: Maybe[str] = None
    >>> catalog = Catalog()
    >>> added = catalog.register(Loop)
    >>> asked = Subscription(Loop, has="place", where=this.lane > 1)
    >>> print(compile(asked, catalog).explain())
    coap: Loop has place where lane > 1
      GET /BA?h=24&w=lane > 1, Observe
      type: code 4, and all that it divides
      residual: nothing
    >>> print(compile(asked, catalog, "masks").explain())
    coap: Loop has place where lane > 1
      GET /BA?h=24, Observe
      type: code 4, and all that it divides
      residual: Loop where lane > 1
    """
    if tests not in get_args(ServerTests):
        raise ValueError(f"tests={tests!r} is none of {', '.join(get_args(ServerTests))}")
    wanted = required_presence(subscription, _Presence())
    if wanted is None:
        return CoapFilter(subscription, tests, None)
    code = lcm(*(catalog.code(cls) for cls in subscription.types))
    if not has_path(code):
        return CoapFilter(subscription, tests, catalog.code(Event), residual=subscription)
    if subscription.exact and not _is_one_class(subscription.type):
        kind = pure_kind(subscription.type) if is_event_type(subscription.type) else None
        return CoapFilter(subscription, tests, catalog.code(kind) if kind else code, residual=subscription)
    exact = subscription.exact and tests != "type"
    bits = _bits(subscription, catalog) if tests != "type" else {}
    has = sum(1 << bits[name] for name, here in wanted.items() if here and name in bits)
    lacks = sum(1 << bits[name] for name, here in wanted.items() if not here and name in bits)
    where = _texts(subscription, bits) if tests == "where" else {}
    residual = _residual(subscription, frozenset(bits), where.values(), exact or not subscription.exact)
    return CoapFilter(subscription, tests, code, exact, has, lacks, tuple(where), residual)


def _is_one_class(cls: type) -> bool:
    """Whether only events of this very class conform to it directly; to a kind, those of all that add nothing do."""
    return is_event_type(cls) and pure_kind(cls) is None


def _bits(subscription: Subscription, catalog: Catalog) -> dict[str, int]:
    """Return the bit of each attribute that the subscription may name and whose presence the server tests as meant.

    A family may have another type for some attributes of `Event`, which subscriptions to `Event` take for absent.
    """
    agreed, own = catalog.vector(subscription.type), subscription.vector
    meant = agreed.pair(own)
    bits = {meant[each.name].name: bit for bit, each in enumerate(agreed) if each.name in meant and bit < MAX_BITS}
    has_family = is_event_type(subscription.type) and subscription.type is not Event
    retyped = frozenset() if has_family else RETYPABLE
    return {name: bit for name, bit in bits.items() if name not in retyped}


def _texts(subscription: Subscription, bits: Mapping[str, int]) -> dict[str, x.Predicate]:
    """The parts of the predicate that go as text; not those that are presence bits, or too long for an option."""
    parts = [part for part in conjuncts(subscription.where) if _presence_of(part) not in bits]
    texts = {x.format_expression(part): part for part in parts}
    short = ((text, part) for text, part in texts.items() if len(text.encode()) <= MAX_TEXT)
    return dict(islice(short, MAX_PARTS - _OTHER_PARTS))


def _presence_of(part: x.Predicate) -> str | None:
    match part:
        case x.Present(attribute) | x.Not(x.Present(attribute)):
            return attribute.name
    return None


def _residual(subscription: Subscription, tested: frozenset[str], sent: Any, decided: bool) -> Subscription | None:
    """Return what is left to test: the predicates that were not sent, presence without a bit, and exactness."""
    sent = list(sent)
    left = [part for part in conjuncts(subscription.where) if part not in sent and _presence_of(part) not in tested]
    has, lacks = ([name for name in names if name not in tested] for names in (subscription.has, subscription.lacks))
    if decided and not (left or has or lacks):
        return None
    where = None if not left else left[0] if len(left) == 1 else x.And(tuple(left))
    return rebuild(AllOf(subscription.types), exact=subscription.exact, has=has, lacks=lacks, where=where)


class _Presence(PresenceCompiler, abstract=True):
    """Finds the presence that a predicate requires, which a server tests first."""


class CoapCompiler(Compiler):
    """Translates an expression to text, which a server parses to the same expression."""

    target: ClassVar[str] = "coap"
    operators: ClassVar[Mapping[str, str]] = {sign: sign for signs in OPERATORS.values() for sign in signs}

    def _visit_any(self, node: x.Expression) -> str:
        return x.format_expression(node)

    visit_AttributeRef = visit_Literal = visit_Arithmetic = visit_Negation = visit_Function = _visit_any
    visit_Conditional = visit_Coalesce = visit_ToFloat = visit_Micros = visit_Compare = visit_OneOf = visit_TextTest = (
        _visit_any
    )
    visit_Present = visit_And = visit_Or = visit_Not = _visit_any
