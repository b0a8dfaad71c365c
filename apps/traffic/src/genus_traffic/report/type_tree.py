"""Event types in the report: rows for the tree that the page draws, and what events of each family can carry."""

from collections.abc import Sequence

import msgspec

from genus.studio.types import AttributeCell
from genus.studio.types import TypeRow as DrawnType
from genus_traffic.results import TypeRow

_ROOT = "Event"


class Family(msgspec.Struct, frozen=True):
    """The types below one root, and the attributes of their vector in the order of their presence bits."""

    root: str
    attributes: tuple[tuple[int, str], ...]
    members: tuple[tuple[str, tuple[str, ...]], ...]
    """Each type with a word for every attribute: "own", "inherited" or "none"."""


def drawn_types(types: Sequence[TypeRow]) -> dict[str, DrawnType]:
    """Types by name, as the tree of Studio draws them."""
    roots = {name: family.root for family in families(types) for name, _ in family.members}
    return {row.name: _drawn_type(row, roots.get(row.name)) for row in types}


def _drawn_type(row: TypeRow, family: str | None) -> DrawnType:
    cells = (AttributeCell(name, row.bits[name], "", required=False) for name in row.attributes if name in row.bits)
    return DrawnType(
        parents=row.parents,
        kind=row.is_kind,
        family=family,
        doc=row.says,
        code=str(row.code),
        factors=tuple(map(str, row.factors)),
        etag=row.etag,
        blocks=row.etag_blocks,
        attributes=tuple(cells),
        vector=tuple(sorted(row.bits, key=row.bits.__getitem__)),
    )


def families(types: Sequence[TypeRow]) -> list[Family]:
    """Types by the topmost one of their family; kinds and the root of all types belong to none."""
    known = {row.name: row for row in types if not row.is_kind and row.name != _ROOT}
    found: dict[str, list[list[TypeRow]]] = {}
    for row in known.values():
        line = _lineage(row, known)
        found.setdefault(line[-1].name, []).append(line)
    return [_family(root, lines) for root, lines in found.items()]


def _lineage(row: TypeRow, known: dict[str, TypeRow]) -> list[TypeRow]:
    """A type, its parent, and so on to the top of its family."""
    line = [row]
    while above := next((known[name] for name in line[-1].parents if name in known and known[name] not in line), None):
        line.append(above)
    return line


def _family(root: str, lines: Sequence[Sequence[TypeRow]]) -> Family:
    bits = {name: bit for line in lines for name, bit in line[0].bits.items()}
    attributes = sorted((bit, name) for name, bit in bits.items())
    declared = {name for line in lines for name in line[0].attributes}
    members = ((line[0].name, tuple(_origin(name, line, declared) for _, name in attributes)) for line in lines)
    return Family(root, tuple(attributes), tuple(members))


def _origin(attribute: str, line: Sequence[TypeRow], declared: set[str]) -> str:
    """Where a type has an attribute from; what no member declares comes from the root of all types."""
    if attribute in line[0].attributes:
        return "own"
    inherited = attribute not in declared or any(attribute in above.attributes for above in line[1:])
    return "inherited" if inherited else "none"


def division_example(types: Sequence[TypeRow]) -> str:
    """The subtype test by division, with codes of these types; empty if none is a subtype of another."""
    known = {row.name: row for row in types if row.name != _ROOT and not row.is_kind}
    pairs = [(known[parent], row) for row in known.values() for parent in row.parents if parent in known]
    if not pairs:
        return ""
    above, below = max(pairs, key=lambda pair: len(pair[1].factors))
    text = f"{below.code} ÷ {above.code} has no remainder: {below.name} is a subtype of {above.name}."
    other = next((row for row in known.values() if below.code % row.code), None)
    if other is None:
        return text
    rest = below.code % other.code
    return f"{text} {below.code} ÷ {other.code} has the remainder {rest}: it is no subtype of {other.name}."
