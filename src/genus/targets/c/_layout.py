"""How a device holds the events of a family: which attributes it keeps, and how they are called in C."""

from collections.abc import Collection, Mapping
from typing import Self

import msgspec

from genus.catalog import Catalog
from genus.errors import SubscriptionError
from genus.filters import Subscription
from genus.filters.types import AttributeRef
from genus.model.internal import hidden_names
from genus.model.types import OpaqueType, Vector
from genus.targets.c._compiler import Member
from genus.targets.c._names import c_name


class EventLayout(msgspec.Struct, frozen=True):
    """The attributes of a family that a device keeps, each with a presence bit; made by `EventLayout.of`."""

    vector: Vector
    members: Mapping[str, Member]
    """The kept attributes by their names in the catalog, in the order of the vector."""

    @classmethod
    def of(cls, vector: Vector, keep: Collection[str] | None = None) -> Self:
        """Return the layout of a family's events; `keep` are the attributes to keep, all without it."""
        kept = [each for each in vector if keep is None or each.name in keep]
        members = {each.name: Member(number, c_name(each.name), each.type) for number, each in enumerate(kept)}
        return cls(vector, members)

    @property
    def family(self) -> str:
        """The name of the family."""
        return self.vector.scope

    @property
    def presence_bytes(self) -> int:
        """The bytes of presence bits in an event."""
        return max(1, (len(self.members) + 7) // 8)

    @property
    def held(self) -> list[Member]:
        """The attributes whose values are kept; of an opaque one only the presence is."""
        return [member for member in self.members.values() if not isinstance(member.type, OpaqueType)]

    def members_for(self, subscription: Subscription) -> dict[str, Member]:
        """Return the kept attributes by the names that a subscription has for them.

        SubscriptionError if it tests an attribute that is not kept.
        """
        hidden = hidden_names(self.vector, subscription.vector)
        own = {asked.name: name for name, asked in self.vector.pair(subscription.vector).items() if name not in hidden}
        for name in sorted(tested_attributes(subscription) & own.keys()):
            if own[name] not in self.members:
                kept = ", ".join(self.members) or "none"
                raise SubscriptionError(
                    f"{subscription} tests {name}, which the device does not keep; keep it, too (kept: {kept})"
                )
        return {name: self.members[agreed] for name, agreed in own.items() if agreed in self.members}


def tested_attributes(subscription: Subscription) -> set[str]:
    """Return the names of the attributes that a subscription tests."""
    walked = () if subscription.where is None else subscription.where.walk()
    return {*subscription.has, *subscription.lacks, *(node.name for node in walked if isinstance(node, AttributeRef))}


def layouts_of(catalog: Catalog) -> dict[str, EventLayout]:
    """Return the layouts of all families of a catalog that keep everything."""
    return {family: EventLayout.of(vector) for family, vector in catalog.families.items()}
