"""The types: their tree with codes and event tags, and the vector of each family."""

from collections import Counter
from collections.abc import Iterator, Sequence

from genus_traffic.report.bits import MEANINGS, strip
from genus_traffic.report.markup import Child, Markup, element, together
from genus_traffic.report.section import empty, figure, legend, section, table
from genus_traffic.results import Results, TypeRow

_SAYS = (
    "Every event has a type, and a type stands below others. The catalog gives each a code, a product of primes that "
    "contains the codes of all types above it, and a block of event tags that contains the blocks of all below it. So "
    "“is it one of these?” is one division in a program, and one comparison of bits in a CAN controller."
)
_ROOT = "Event"
_TAG_FIELDS = (("", 14),)
_KEY = legend([*MEANINGS, ("prime", "prime from above"), ("prime own", "prime of its own")])


def draw(results: Results) -> Markup:
    """The tree, then a matrix per family."""
    if not results.types:
        return section("types", "What events are", _SAYS, empty("The catalog has no types."))
    tree = figure("The types, their codes and event tags", _KEY, _tree(results.types), _example(results.types))
    return section("types", "What events are", _SAYS, tree, _vectors(results.types))


def in_order(types: Sequence[TypeRow]) -> list[tuple[TypeRow, int]]:
    """Types from the roots down, each below its first known parent, with its depth."""
    known = {row.name for row in types}
    placed: dict[str | None, list[TypeRow]] = {}
    for row in types:
        placed.setdefault(_parent(row, known), []).append(row)
    return list(_below(None, placed, 0))


def _below(name: str | None, placed: dict[str | None, list[TypeRow]], depth: int) -> Iterator[tuple[TypeRow, int]]:
    for row in placed.get(name, ()):
        yield row, depth
        yield from _below(row.name, placed, depth + 1)


def _parent(row: TypeRow, known: set[str]) -> str | None:
    return next((name for name in row.parents if name in known and name != row.name), None)


def _tree(types: Sequence[TypeRow]) -> Markup:
    known = {row.name for row in types}
    rows = ((_name(row, depth, known), _code(row, types), _tags(row)) for row, depth in in_order(types))
    return table(("Type", "Code", "Event tags"), rows, "Types with their codes and event tags")


def _name(row: TypeRow, depth: int, known: set[str]) -> Markup:
    others = [name for name in row.parents if name != _parent(row, known)]
    also = element("span", f"is a {', '.join(others)} too", class_="chip") if others else None
    kind = element("span", "kind", class_="chip") if row.is_kind else None
    name = element("strong", row.name)
    return element("div", name, " ", kind, also, element("small", row.says), class_="type", style=f"--depth:{depth}")


def _code(row: TypeRow, types: Sequence[TypeRow]) -> Markup:
    """The factors, those that come from above first and pale."""
    above: Counter[int] = Counter()
    for other in types:
        if other.name in row.parents:
            above |= Counter(other.factors)
    own = Counter(row.factors) - above
    inherited = Counter(row.factors) - own
    chips = [element("span", factor, class_="prime") for factor in sorted(inherited.elements())]
    chips += [element("span", factor, class_="prime own") for factor in sorted(own.elements())]
    return element("div", *chips, f" = {row.code}" if len(chips) != 1 else None, class_="code")


def _tags(row: TypeRow) -> Child:
    if not row.etag_blocks:
        return f"{row.etag:#06x}" if row.etag is not None else "none: no event is only that"
    own = element("small", f"its own: {row.etag:#06x}") if row.etag is not None else None
    return together([*(strip(value, mask, _TAG_FIELDS, named=False) for value, mask in row.etag_blocks), own])


def _example(types: Sequence[TypeRow]) -> Markup | None:
    """One division, with figures from this very tree."""
    known = {row.name: row for row in types if row.name != _ROOT and not row.is_kind}
    pairs = [(known[parent], row) for row in known.values() for parent in row.parents if parent in known]
    if not pairs:
        return None
    above, below = max(pairs, key=lambda pair: len(pair[1].factors))
    other = next((row for row in known.values() if below.code % row.code), None)
    says = f"{below.code} ÷ {above.code} leaves nothing: {below.name} stands below {above.name}."
    if other:
        says += f" {below.code} ÷ {other.code} leaves {below.code % other.code}: it does not stand below {other.name}."
    return element("p", says, class_="note")


def _vectors(types: Sequence[TypeRow]) -> Markup:
    heading = "What events of each family may carry, and the bit that says they do"
    drawn = (_vector(root, members) for root, members in families(types).items())
    key = legend([("own", "declared here"), ("inherited", "from above"), ("none", "never carried")])
    return figure(heading, key, element("div", *drawn, class_="vectors"))


def families(types: Sequence[TypeRow]) -> dict[str, list[TypeRow]]:
    """Types by the topmost one of their family; kinds and the root of all are in none."""
    known = {row.name: row for row in types if not row.is_kind and row.name != _ROOT}
    found: dict[str, list[TypeRow]] = {}
    for row, _ in in_order(types):
        if row.name in known:
            found.setdefault(_lineage(row, known)[-1].name, []).append(row)
    return found


def _lineage(row: TypeRow, known: dict[str, TypeRow]) -> list[TypeRow]:
    """The type, the one above it, and so on to the top of its family."""
    line = [row]
    while above := next((known[name] for name in line[-1].parents if name in known and known[name] not in line), None):
        line.append(above)
    return line


def _vector(root: str, members: Sequence[TypeRow]) -> Markup:
    bits = {name: bit for row in members for name, bit in row.bits.items()}
    names = sorted(bits, key=lambda name: bits[name])
    heads = ("", *(together([element("small", bits[name]), " ", name]) for name in names))
    rows = ((row.name, *(_carried(name, row, members) for name in names)) for row in members)
    return table(heads, rows, f"The vector of {root}") if names else empty(f"{root} carries nothing.")


def _carried(name: str, row: TypeRow, members: Sequence[TypeRow]) -> Markup:
    known = {member.name: member for member in members}
    declared = {attribute for member in members for attribute in member.attributes}
    inherited = name not in declared or any(name in above.attributes for above in _lineage(row, known)[1:])
    class_ = "own" if name in row.attributes else "inherited" if inherited else "none"
    return element("span", class_=f"cell {class_}", role="img", aria_label=class_)
