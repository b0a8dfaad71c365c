"""The types whose events a subscription can match, the highest of each line, by a catalog or by declared classes."""

from genus.catalog import Catalog
from genus.filters import Subscription
from genus.model import Event, is_event_type, name_of, parents, pure_kind, subtypes, tagged_attributes, vector
from genus.model.internal import hidden_names
from genus.model.types import Vector


def registered_types(subscription: Subscription, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
    """The registered types whose events can match, none below another; and whether all their events match by type."""
    wanted = [catalog.code(cls) for cls in subscription.types]
    if subscription.exact:
        kind = subscription.type if not is_event_type(subscription.type) else pure_kind(subscription.type)
        return ((name_of(subscription.type),), True) if kind is None else _pure_types(subscription, kind, catalog)
    if len(wanted) == 1 and is_event_type(subscription.type):
        return (name_of(subscription.type),), True
    entries = catalog.entries
    found = {name: e for name, e in entries.items() if not e.kind and all(e.code % code == 0 for code in wanted)}
    return tuple(name for name, entry in found.items() if not found.keys() & entry.parents[:1]), True


def _pure_types(subscription: Subscription, kind: type, catalog: Catalog) -> tuple[tuple[str, ...], bool]:
    """Return the types that add nothing to a kind; a type without a class here counts if it may be one."""
    shaped = [name for name, entry in catalog.entries.items() if entry.parents == (name_of(Event), name_of(kind))]
    known = {name_of(cls) for cls in subtypes(kind) if is_event_type(cls)}
    accepted = {name_of(cls) for cls in subscription.classes()}
    found = tuple(name for name in shaped if name in accepted or name not in known)
    return found, accepted.issuperset(found)


def registered_tagged(name: str, catalog: Catalog, subscription: Subscription) -> tuple[str, ...]:
    """The tagged attributes of a type by the names that the subscription has for them, which may be other ones."""
    family = catalog.vector(name)
    return _as_asked(catalog.tagged_attributes(name), family, subscription)


def declared_types(subscription: Subscription) -> tuple[type, ...]:
    """Return the event types declared so far whose events can match; unless it is exact, none below another."""
    asked = subscription.type
    if is_event_type(asked) and len(subscription.types) == 1 and not (subscription.exact and pure_kind(asked)):
        return (asked,)
    found = dict.fromkeys(subscription.classes())
    return tuple(cls for cls in found if subscription.exact or parents(cls)[0] not in found)


def declared_tagged(cls: type, subscription: Subscription) -> tuple[str, ...]:
    """Return the tagged attributes of a class by the names that the subscription has for them."""
    return _as_asked(tagged_attributes(cls), vector(cls), subscription)


def _as_asked(tagged: tuple[str, ...], family: Vector, subscription: Subscription) -> tuple[str, ...]:
    """Tagged attributes by the names of a subscription; one that it takes for absent has no name that it uses."""
    if not tagged:
        return ()
    own, hidden = family.pair(subscription.vector), hidden_names(family, subscription.vector)
    names = {
        **{name: each.name for name, each in own.items()},
        **{name: f"{name} of {family.scope}" for name in hidden},
    }
    return tuple(names.get(each, each) for each in tagged)
