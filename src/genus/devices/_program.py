"""`Program`: what is generated for one device, with families, the attributes they keep, and classes."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from genus.can.internal import PayloadField, fields_of
from genus.catalog import Catalog
from genus.devices._bounds import FewerChoices, bounded_attributes, checks_of, fewer_choices
from genus.errors import DeviceError, did_you_mean
from genus.filters import Subscription
from genus.model import Event, attributes, is_generated
from genus.model.types import ChoiceType
from genus.targets.c import CFilter, CTest
from genus.targets.can import Pair
from genus.targets.internal import Condition, Constants, EventLayout, constant_name, snake_case, tested_attributes

MAX_ATTRIBUTES = 255
"""The most attributes of a family that a device keeps."""
MAX_VECTOR = 2048
"""The most attributes of a family's vector: its bytes are counted in one."""
MAX_TYPES = 250
"""The most classes of a device: their numbers have one byte, with room for late ones."""
MAX_NUMBERS = 255
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
    choices: tuple[FewerChoices, ...]
    """The attributes of which it has fewer choices than the catalog."""

    def mask(self, of: str) -> bytes:
        """The attributes it has ("declared") or requires ("required"), the first in the highest bit."""
        bits = [getattr(field, of) for field in self.fields]
        size = max(1, (len(bits) + 7) // 8)
        number = sum(1 << (8 * size - 1 - index) for index, is_set in enumerate(bits) if is_set)
        return number.to_bytes(size, "big")


class Choice(msgspec.Struct, frozen=True):
    """A value of a choice: `member` is the member of the Enum that has it, `Category.TRUCK`, "" without a class."""

    value: str | int
    member: str = ""

    @property
    def label(self) -> str:
        """The end of its constant in C."""
        return constant_name(self.member.rpartition(".")[2] or self.value)


class DeviceFamily(msgspec.Struct, frozen=True):
    """One family of a device: `label` is its name in C, and `tagged` its tagged attributes, the highest bit first."""

    layout: EventLayout
    label: str
    tagged: tuple[str, ...]
    code: int
    choices: Mapping[str, tuple["Choice", ...]]
    """The values of its kept choices by attribute, in the order of the catalog."""

    @property
    def name(self) -> str:
        return self.layout.family

    @property
    def mask_bytes(self) -> int:
        """The bytes of a mask over its vector."""
        return max(1, (len(self.layout.vector) + 7) // 8)

    def tag_bit(self, attribute: str) -> int | None:
        """Return the number of an attribute's bit in the event tag; None if it is not tagged."""
        return len(self.tagged) - 1 - self.tagged.index(attribute) if attribute in self.tagged else None


_USED_LABELS = frozenset(["receive", "filters", "learn", "forget", "code_wanted", "configure", "start", "attributes"])
_USED_WORDS = frozenset(["channel", "decode", "deliver", "drop_choices", "family", "has_choices", "keeps_bounds"])
_USED_WORDS |= {"late", "node", "on", "publish", "read_type", "receive", "type", "wanted"}
"""What generated names are, or begin with, after the prefix of the program or before the label of a family."""


def family_label(name: str) -> str:
    """Return the name of a family in C, which is not that of anything else that is generated.

    >>> family_label("ConfidentLoop"), family_label("Receive"), family_label("Loop_encode"), family_label("PublishLoop")
    ('confident_loop', 'family_receive', 'family_loop_encode', 'family_publish_loop')
    """
    label = snake_case(name)
    is_used = label in _USED_LABELS or any(f"{label}_".startswith(f"{word}_") for word in _USED_WORDS)
    return f"family_{label}" if is_used or label.endswith("_encode") else label


def choose_types(
    wanted: Mapping[str, Collection[str]], published: Sequence[str], catalog: Catalog
) -> tuple[list[str], list[str]]:
    """Return the types of a device in the order of the catalog, and those left out because they have no event tag.

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
    if len(chosen) > MAX_TYPES:
        raise DeviceError(f"{len(chosen)} types are more than the {MAX_TYPES} of a device; subscribe to fewer types")
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
    tested = {name for subscription in subscriptions for name in tested_attributes(subscription)}
    unknown = set(keep or ()) - {each.name for name in names for each in catalog.vector(name)}
    if unknown:
        known = sorted({each.name for name in names for each in catalog.vector(name)})
        hint = did_you_mean(min(unknown), known)
        raise DeviceError(f"cannot keep {', '.join(sorted(unknown))}: {hint}the families have {', '.join(known)}")
    found = {}
    for name in names:
        vector = catalog.vector(name)
        bounded = (bounded_attributes(classes[each], vector) for each in types if catalog.vector(each).scope == name)
        kept = None if keep is None else set(keep).union(*bounded)
        layout = EventLayout.of(vector, kept)
        if len(vector) > MAX_VECTOR:
            raise DeviceError(f"family {name} has {len(vector)} attributes, and a device reads {MAX_VECTOR} at most")
        if len(layout.members) > MAX_ATTRIBUTES:
            raise DeviceError(
                f"family {name} has {len(layout.members)} attributes, and a device keeps {MAX_ATTRIBUTES} at most; "
                f"choose some, at least {', '.join(sorted(tested)) or 'one'}"
            )
        found[name] = DeviceFamily(
            layout,
            family_label(name),
            catalog.tagged_attributes(name),
            catalog.code(name),
            _choices(layout, [catalog.declare(each) for each in catalog.types if catalog.vector(each).scope == name]),
        )
    return found


def _choices(layout: EventLayout, classes: Iterable[type[Event]]) -> dict[str, tuple[Choice, ...]]:
    """The kept choices, with the members of the first class that names them; a catalog alone has no such names."""
    members: dict[tuple[str, str | int], str] = {}
    for cls in classes:
        for name, own in layout.vector.pair(attributes(cls)).items():
            enum = own.type.enum if isinstance(own.type, ChoiceType) else None
            if enum is not None and not is_generated(enum):
                for member in enum:
                    members.setdefault((name, member.value), f"{enum.__name__}.{member.name}")
    return {
        name: tuple(Choice(value, members.get((name, value), "")) for value in member.type.values)
        for name, member in layout.members.items()
        if isinstance(member.type, ChoiceType)
    }


def make_classes(
    types: Sequence[str], catalog: Catalog, families: Mapping[str, DeviceFamily], classes: Mapping[str, type[Event]]
) -> list[DeviceClass]:
    """Return the classes of a device, numbered in order; DeviceError for a bound that it cannot check."""
    found = []
    for number, name in enumerate(types):
        cls = classes[name]
        family = families[catalog.vector(name).scope]
        fields = tuple(fields_of(cls, catalog.vector(name), family.tagged))
        checks = tuple(checks_of(cls, family.layout.vector, family.layout.members))
        found.append(
            DeviceClass(
                name,
                number,
                snake_case(name),
                catalog.etag(name),
                len(family.tagged),
                family.name,
                catalog.code(name),
                fields,
                checks,
                tuple(fewer_choices(cls, family.layout.vector, family.layout.members)),
            )
        )
    return found


class Handler(msgspec.Struct, frozen=True):
    """A subscription of the device: its number, the names of its handlers in C by family, and what it became."""

    number: int
    functions: Mapping[str, str]
    label: str
    """The handler as the subscription's author wrote it."""
    filter: CFilter
    codes: Mapping[str, int]
    """The codes of the types it asks for, by their names."""

    def test(self, family: str) -> CTest | None:
        """Return what is tested of the events of a family; None if none of them can match."""
        found = self.filter.tests.get(family)
        return None if found is None or found.condition.never else found


class Program(msgspec.Struct, frozen=True, eq=False):
    """What is generated for one device."""

    name: str
    banner: str
    families: Mapping[str, DeviceFamily]
    classes: tuple[DeviceClass, ...]
    handlers: tuple[Handler, ...]
    published: frozenset[str]
    filters: tuple[Pair, ...]
    constants: Constants
    straight: bool
    late: int
    late_buffer: int | None = None
    """Bytes for the event that waits for its class; None: those of a frame."""

    @property
    def learns(self) -> bool:
        """Whether it can learn types while it runs."""
        return bool(self.late and self.handlers)

    @property
    def prefix(self) -> str:
        """The prefix of macros and constants."""
        return self.name.upper()

    @property
    def wanted_bytes(self) -> int:
        """The bytes that have a bit for every subscription."""
        return max(1, (len(self.handlers) + 7) // 8)

    @property
    def mask_bytes(self) -> int:
        """The bytes of the longest mask over a vector."""
        return max((family.mask_bytes for family in self.families.values()), default=1)

    @property
    def published_families(self) -> list[DeviceFamily]:
        found = {each.family for each in self.classes if each.name in self.published}
        return [family for name, family in self.families.items() if name in found]

    @property
    def received_families(self) -> list[DeviceFamily]:
        """The families that some subscription can match."""
        return [family for family in self.families.values() if any(self.handlers_of(family))]

    def type_name(self, cls: DeviceClass) -> str:
        """Return the constant in C for a class."""
        return f"{self.prefix}_TYPE_{cls.label.upper()}"

    def attribute_name(self, family: DeviceFamily, attribute: str) -> str:
        """Return the constant in C for the presence bit of a kept attribute."""
        return f"{self.prefix}_{family.label.upper()}_{family.layout.members[attribute].name.upper()}"

    def choice_name(self, family: DeviceFamily, attribute: str, choice: Choice) -> str:
        """Return the constant in C for a value of a choice."""
        return f"{self.attribute_name(family, attribute)}_{choice.label}"

    def has_checks(self, family: DeviceFamily) -> bool:
        """Return whether a class of a family has bounds to check."""
        return any(each.checks for each in self.classes_of(family))

    def has_fewer_choices(self, family: DeviceFamily) -> bool:
        """Return whether a class of a family has fewer choices of an attribute than the catalog."""
        return any(each.choices for each in self.classes_of(family))

    def published_classes(self, family: DeviceFamily) -> list[DeviceClass]:
        return [each for each in self.classes_of(family) if each.name in self.published]

    def classes_of(self, family: DeviceFamily) -> list[DeviceClass]:
        return [each for each in self.classes if each.family == family.name]

    def handlers_of(self, family: DeviceFamily) -> list[Handler]:
        """Return the subscriptions that events of a family can match."""
        return [handler for handler in self.handlers if handler.test(family.name) is not None]

    def families_of(self, handler: Handler) -> list[DeviceFamily]:
        """Return the families whose events a subscription can match."""
        return [family for family in self.families.values() if handler.test(family.name) is not None]

    def handler_name(self, handler: Handler, family: DeviceFamily) -> str:
        """Return the function that the program defines for a subscription and a family."""
        return handler.functions[family.name]

    def wanted(self, cls: DeviceClass) -> bytes:
        """Return the subscriptions that may match events of a class, the first in the lowest bit."""
        number = 0
        for handler in self.handlers:
            tested = handler.test(cls.family)
            if tested is not None and cls.name in tested.types:
                number |= 1 << handler.number
        return number.to_bytes(self.wanted_bytes, "little")

    def needs_table(self, family: DeviceFamily) -> bool:
        """Return whether the vector of a family is needed as a table: to decode by it, or to encode."""
        return family in self.published_families or (not self.straight and family in self.received_families)
