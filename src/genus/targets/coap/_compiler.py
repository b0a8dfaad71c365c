"""A subscription as the path of a resource and a query, and what is left to the receiver.

The path is the code of the type; of `all_of` several types it is the least common multiple of their codes, which
divides exactly the codes of the types below all of them. The query has what else a server tests: `x` for exactly this
type, `h` and `l` for presence bits, and `w` for the parts of the predicate, as text. A server that is too small for a
part of it answers 4.00; then the subscription is compiled again for fewer tests, and the receiver does the rest.
"""

from collections.abc import Mapping
from itertools import islice
from math import lcm
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import msgspec

import genus.filters.internal as x
from genus.catalog import Catalog
from genus.codes import encode_path_segment
from genus.filters import Subscription
from genus.filters.internal import conjuncts, rebuild
from genus.filters.types import AllOf
from genus.model import Event, is_event_type, pure_kind
from genus.model.internal import RETYPABLE
from genus.targets._compiler import OPERATORS, Compiler
from genus.targets._presence import PresenceCompiler, required_presence
from genus.targets.coap._query import MAX_PARTS, format_mask

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
