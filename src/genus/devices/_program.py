"""`Program`: everything that is generated for one device, before it is written as C."""

from collections.abc import Mapping

import msgspec

from genus.devices._layout import Choice, DeviceClass, DeviceFamily
from genus.targets.c import CFilter, CTest
from genus.targets.can import Pair
from genus.targets.internal import Constants


class Handler(msgspec.Struct, frozen=True):
    """A subscription of the device: its number, the names of its handlers in C by family, and what it became."""

    number: int
    functions: Mapping[str, str]
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
        """The families of published types."""
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
        """Return the classes of a family that the device publishes."""
        return [each for each in self.classes_of(family) if each.name in self.published]

    def classes_of(self, family: DeviceFamily) -> list[DeviceClass]:
        """Return the classes of a family."""
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
