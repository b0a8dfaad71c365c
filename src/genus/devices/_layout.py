"""What a device knows of a catalog: families with the attributes it keeps, and classes with their event tags."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from genus.can._wire.payload import PayloadField, fields_of
from genus.catalog import Catalog
from genus.devices._bounds import bounded_attributes, checks_of
from genus.errors import DeviceError, did_you_mean
from genus.filters._subscription import Subscription
from genus.model import Event
from genus.targets.c._condition import Condition
from genus.targets.c._layout import EventLayout, tested_attributes
from genus.targets.c._names import distinct, snake_case

MOST_ATTRIBUTES = 255
"""The most attributes of a family that a device keeps."""
LONGEST_VECTOR = 2048
"""The most attributes of a family's vector: its bytes are counted in one."""
MOST_TYPES = 250
"""The most classes of a device: their numbers have one byte, with room for late ones."""
MOST_NUMBERS = 255
"""The most classes with late ones; the last number means that a type is not known."""


class DeviceClass(msgspec.Struct, frozen=True):
    """One class that a device receives or publishes."""

    name: str
    number: int
    label: str
    """Its name in C."""
    etag: int
    tag_bits: int
    """How many low bits of its event tags are presence bits."""
    family: str
    code: int
    fields: tuple[PayloadField, ...]
    """Its attributes in the order of the vector."""
    checks: tuple[Condition, ...]
    """What its events must satisfy besides what the codec checks; one condition for each bound."""

    def mask(self, of: str) -> bytes:
        """The attributes it has ("declared") or requires ("required"), the first in the highest bit."""
        bits = [getattr(field, of) for field in self.fields]
        size = max(1, (len(bits) + 7) // 8)
        number = sum(1 << (8 * size - 1 - index) for index, is_set in enumerate(bits) if is_set)
        return number.to_bytes(size, "big")


class DeviceFamily(msgspec.Struct, frozen=True):
    """One family of a device: `label` is its name in C, and `tagged` its tagged attributes, the highest bit first."""

    layout: EventLayout
    label: str
    tagged: tuple[str, ...]
    code: int

    @property
    def name(self) -> str:
        """The name of its root."""
        return self.layout.family

    @property
    def mask_bytes(self) -> int:
        """The bytes of a mask over its vector."""
        return max(1, (len(self.layout.vector) + 7) // 8)

    def tag_bit(self, attribute: str) -> int | None:
        """The number of an attribute's bit in the event tag; None if it is not tagged."""
        return len(self.tagged) - 1 - self.tagged.index(attribute) if attribute in self.tagged else None


_USED_LABELS = frozenset(
    [
        *("receive", "filters", "learn", "forget", "code_wanted", "configure", "start"),
        *("deliver", "decode", "keeps_bounds", "read_type"),
    ]
)
"""What generated functions are called: with the prefix of the program, or before the label of a family."""


def family_label(name: str) -> str:
    """The name of a family in C, which is not that of a function.

    >>> family_label("ConfidentLoop"), family_label("Receive"), family_label("Loop_encode"), family_label("PublishLoop")
    ('confident_loop', 'receive_', 'loop_encode_', 'type_publish_loop')
    """
    label = snake_case(name)
    if label.startswith("publish_"):
        return f"type_{label}"
    return f"{label}_" if label in _USED_LABELS or label.endswith("_encode") else label


def choose_types(
    wanted: Mapping[str, Collection[str]], published: Sequence[str], catalog: Catalog
) -> tuple[list[str], list[str]]:
    """The types of a device in the order of the catalog, and those left out because they have no event tag.

    `wanted` are the types that each subscription accepts. DeviceError if a published type has no event tag, or there
    are too many types.
    """
    for name in published:
        if catalog.entries[name].kind:
            raise DeviceError(f"{name} is a kind, which has no events of its own; publish a type that has it")
        if not catalog.has_etag(name):
            raise DeviceError(
                f"{name} has no event tag, so a device cannot publish it on CAN; see `genus catalog etags`"
            )
    asked = {*published, *(name for names in wanted.values() for name in names)}
    known = [name for name in catalog.types if name in asked]
    chosen = [name for name in known if catalog.has_etag(name)]
    if len(chosen) > MOST_TYPES:
        raise DeviceError(f"{len(chosen)} types are more than the {MOST_TYPES} of a device; subscribe to fewer types")
    return chosen, [name for name in known if name not in chosen]


def make_families(
    types: Sequence[str],
    catalog: Catalog,
    subscriptions: Iterable[Subscription],
    classes: Mapping[str, type[Event]],
    keep: Collection[str] | None,
) -> dict[str, DeviceFamily]:
    """The families of some types; DeviceError if `keep` has a name that none of them has, or one keeps too much."""
    names = list(dict.fromkeys(catalog.vector(name).scope for name in types))
    labels = distinct([family_label(name) for name in names])
    tested = {name for subscription in subscriptions for name in tested_attributes(subscription)}
    unknown = set(keep or ()) - {each.name for name in names for each in catalog.vector(name)}
    if unknown:
        known = sorted({each.name for name in names for each in catalog.vector(name)})
        hint = did_you_mean(min(unknown), known)
        raise DeviceError(f"cannot keep {', '.join(sorted(unknown))}: {hint}the families have {', '.join(known)}")
    found = {}
    for name, label in zip(names, labels, strict=True):
        vector = catalog.vector(name)
        bounded = (bounded_attributes(classes[each], vector) for each in types if catalog.vector(each).scope == name)
        kept = None if keep is None else set(keep).union(*bounded)
        layout = EventLayout.of(vector, kept)
        if len(vector) > LONGEST_VECTOR:
            raise DeviceError(
                f"family {name} has {len(vector)} attributes, and a device reads {LONGEST_VECTOR} at most"
            )
        if len(layout.members) > MOST_ATTRIBUTES:
            raise DeviceError(
                f"family {name} has {len(layout.members)} attributes, and a device keeps {MOST_ATTRIBUTES} at most; "
                f"choose some, at least {', '.join(sorted(tested)) or 'one'}"
            )
        found[name] = DeviceFamily(layout, label, catalog.tagged_attributes(name), catalog.code(name))
    return found


def make_classes(
    types: Sequence[str], catalog: Catalog, families: Mapping[str, DeviceFamily], classes: Mapping[str, type[Event]]
) -> list[DeviceClass]:
    """The classes of a device, numbered in order; DeviceError for a bound that it cannot check."""
    labels = distinct([snake_case(name) for name in types])
    found = []
    for number, (name, label) in enumerate(zip(types, labels, strict=True)):
        cls = classes[name]
        family = families[catalog.vector(name).scope]
        fields = tuple(fields_of(cls, catalog.vector(name), family.tagged))
        checks = tuple(checks_of(cls, family.layout.vector, family.layout.members))
        found.append(
            DeviceClass(
                name,
                number,
                label,
                catalog.etag(name),
                len(family.tagged),
                family.name,
                catalog.code(name),
                fields,
                checks,
            )
        )
    return found
