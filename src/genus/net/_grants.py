"""Grants: which user may publish and subscribe which types, the types below them included; the rest is denied.

A grant is by type: an event type, a kind, several (`Counter & Roadside`) or `exact` one. It is known by name, so that a
link can decide before all types are declared, and compiled to key patterns for routers and brokers (`_acl`).

A subscription is allowed if each of the highest types that can match it is below one grant. So its key patterns are
within those of the grants, and neither decision is wider than the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import msgspec

from genus.errors import BusError, GrantsError, did_you_mean
from genus.filters import Subscription
from genus.filters.internal import rebuild
from genus.filters.types import AllOf
from genus.model import Event, conforms, is_type, name_of, pure_kind, subtypes
from genus.net._acl import Identity, UserKeys, mosquitto_text, zenoh_config
from genus.targets import topics
from genus.targets.topics import MQTT, ZENOH, Dialect

Action: TypeAlias = Literal["publish", "subscribe", "gateway"]


class Grant(msgspec.Struct, frozen=True):
    """The types that a user may publish or subscribe, by name, in the realms that match all of the pattern lists.

    The action `gateway` has no types: the user may be one of several gateways of a name.
    """

    action: Action
    names: tuple[str, ...]
    exact: bool = False
    realms: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        return f"{'exact ' if self.exact else ''}{' & '.join(self.names)}"

    def is_in(self, realm: str) -> bool:
        """Return whether it holds in a realm."""
        return all(any(fnmatchcase(realm, pattern) for pattern in patterns) for patterns in self.realms)

    def accepts(self, cls: type) -> bool:
        """Return whether events of a class are granted."""
        return any(conforms(cls, wanted, exact=True) for wanted in self._named(cls)) if self.exact else self.covers(cls)

    def covers(self, cls: type) -> bool:
        """Return whether events of a class, and of all that may be declared below it, are granted."""
        return not self.exact and set(self.names) <= _names_above(cls)

    def _named(self, cls: type) -> list[type]:
        """Return the classes with the name of an exact grant that events of this class can be delivered for."""
        return [one for one in subtypes(pure_kind(cls) or cls) if name_of(one) == self.names[0]]


class Allowed(msgspec.Struct, frozen=True):
    """That something is granted, and by which grants."""

    by: tuple[Grant, ...]


class Refusal(msgspec.Struct, frozen=True):
    """That something is not granted: the reason as text, the types that are not, and what would be allowed instead.

    A refusal is false in a condition.
    """

    reason: str
    missing: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return False


class Grants(msgspec.Struct, frozen=True):
    """What each user may publish and subscribe; made by `read_grants`.

    `source` is how messages name it. `types` are the classes by name, which only the lists for routers and brokers
    need.
    """

    source: str
    users: Mapping[str, tuple[Grant, ...]]
    types: Mapping[str, type] | None = None

    def within(self, realm: str) -> "Grants":
        """Return the grants that hold in a realm."""
        users = {user: tuple(one for one in grants if one.is_in(realm)) for user, grants in self.users.items()}
        return msgspec.structs.replace(self, users=users)

    def may_publish(self, who: str, cls: type) -> Allowed | Refusal:
        """Return whether a user may publish events of a class; those of classes below it are another question."""
        grants = self._of(who, "publish")
        if isinstance(grants, Refusal):
            return grants
        by = tuple(grant for grant in grants if grant.accepts(cls))
        name = name_of(cls)
        return Allowed(by) if by else Refusal(f"{who} may not publish {name}: {self._shown(grants)}", (name,))

    def may_be_gateway(self, who: str) -> Allowed | Refusal:
        """Return whether a user may be one of several gateways of a name, of which one is active."""
        grants = self._of(who, "gateway")
        if isinstance(grants, Refusal):
            return grants
        if grants:
            return Allowed(tuple(grants))
        return Refusal(f"{who} may not be a gateway that has a name: {self.source} does not say gateway = true")

    def may_subscribe(self, who: str, subscription: Subscription) -> Allowed | Refusal:
        """Whether a user may subscribe; if not, the refusal says which types are not granted and which would be."""
        grants = self._of(who, "subscribe")
        if isinstance(grants, Refusal):
            return grants
        if by := tuple(grant for grant in grants if _covers(grant, subscription)):
            return Allowed(by)
        highest = _highest(subscription)
        granted = {cls: [grant for grant in grants if _grants(grant, cls, subscription.exact)] for cls in highest}
        if highest and all(granted.values()):
            return Allowed(tuple(dict.fromkeys(grant for by in granted.values() for grant in by)))
        missing = tuple(name_of(cls) for cls, by in granted.items() if not by)
        allowed = _allowed(subscription, grants)
        return Refusal(self._why_not(who, subscription, missing, allowed, grants), missing, allowed)

    def _of(self, who: str, action: Action) -> list[Grant] | Refusal:
        if who not in self.users:
            hint = did_you_mean(who, self.users).strip()
            return Refusal(f"{self.source} has no user {who!r}{'; ' if hint else ''}{hint}")
        return [grant for grant in self.users[who] if grant.action == action]

    def _shown(self, grants: Iterable[Grant]) -> str:
        return f"{self.source} grants {', '.join(map(str, grants)) or 'nothing'}"

    def _why_not(
        self,
        who: str,
        subscription: Subscription,
        missing: tuple[str, ...],
        allowed: tuple[str, ...],
        grants: list[Grant],
    ) -> str:
        asked = f"{who} may not subscribe to {_type_text(subscription)}"
        if list(missing) == [_type_text(subscription)] or not missing:
            asked += f": {self._shown(grants)}"
        else:
            asked += f": not granted by {self.source} are {', '.join(missing)}"
        return f"{asked}; of what it asks, {', '.join(allowed)} would be allowed" if allowed else asked

    # -- for links ----------------------------------------------------------------------------------------------------

    def permit(self, who: str, realm: str) -> "Permit":
        """Return what one user may do in a realm; GrantsError if there is no such user."""
        if who not in self.users:
            raise GrantsError(f"{self.source}: no user {who!r}; {did_you_mean(who, self.users)}{_known(self.users)}")
        return Permit(self.within(realm), who)

    # -- for routers and brokers --------------------------------------------------------------------------------------

    def patterns(self, dialect: Dialect, realm: str) -> dict[str, UserKeys]:
        """The key patterns of what each user may publish and subscribe in a realm, without users that may do neither.

        A kind is compiled to the types that have it now; make the patterns again when there are more.
        """
        if dialect.escape(realm) != realm:
            raise GrantsError(f"{realm!r} cannot be a realm: use letters, digits, _ and -")
        users = self.within(realm).users
        return {user: self._keys(dialect, realm, grants) for user, grants in users.items() if grants}

    def _keys(self, dialect: Dialect, realm: str, grants: tuple[Grant, ...]) -> UserKeys:
        found: dict[Action, dict[str, None]] = {"publish": {}, "subscribe": {}}
        for grant in [each for each in grants if each.names]:
            compiled = topics.compile(self._subscription(grant), dialect, realm)
            found[grant.action] |= dict.fromkeys(compiled.patterns)
        is_gateway = any(grant.action == "gateway" for grant in grants)
        return UserKeys(tuple(found["publish"]), tuple(found["subscribe"]), is_gateway)

    def _subscription(self, grant: Grant) -> Subscription:
        if self.types is None:
            raise GrantsError(f"{self.source} was read without types: give them to read_grants")
        return rebuild(AllOf(tuple(self.types[name] for name in grant.names)), exact=grant.exact)

    def zenoh_acl(self, realm: str, by: Identity = "certificate") -> dict[str, Any]:
        """Return the section `access_control` of a zenoh router's configuration.

        Args:
            realm: The realm of the buses, the first part of all keys.
            by: What users are known by: the common name of their `certificate`, or a `user` name with a password.
        """
        return zenoh_config(realm, self.patterns(ZENOH, realm), by)

    def mosquitto_acl(self, realm: str) -> str:
        """Return the text of an `acl_file` of mosquitto; with mutual TLS it needs `use_identity_as_username true`."""
        return mosquitto_text(realm, self.patterns(MQTT, realm))


class Permit(msgspec.Struct, frozen=True):
    """What one user may do, for a link: a broker refuses in silence, so the link must know before it asks."""

    grants: Grants
    who: str

    def check_publish(self, cls: type) -> None:
        """BusError with the reason if events of a class may not be published."""
        _raise_refusal(self.grants.may_publish(self.who, cls))

    def check_subscribe(self, subscription: Subscription) -> None:
        """BusError with the reason if the subscription may not be made."""
        _raise_refusal(self.grants.may_subscribe(self.who, subscription))

    def check_gateway(self) -> None:
        """BusError with the reason if a gateway that has a name may not be here."""
        _raise_refusal(self.grants.may_be_gateway(self.who))


def _raise_refusal(answer: Allowed | Refusal) -> None:
    if isinstance(answer, Refusal):
        raise BusError(answer.reason)


def _known(names: Iterable[str]) -> str:
    return f"known are {', '.join(sorted(names)) or 'none'}"


# -- classes -----------------------------------------------------------------------------------------------------------


def _names_above(cls: type) -> set[str]:
    """Return the names of a class and of all types above it."""
    return {name_of(base) for base in cls.__mro__ if is_type(base)}


def _covers(grant: Grant, subscription: Subscription) -> bool:
    """Return whether all classes that can match, declared or not, are granted.

    An exact subscription to a pure class also matches the other pure classes of its kind.
    """
    types = [(pure_kind(cls) or cls) if subscription.exact else cls for cls in subscription.types]
    return not grant.exact and set(grant.names) <= {name for cls in types for name in _names_above(cls)}


def _highest(subscription: Subscription) -> list[type]:
    """Return the classes that can match and are below no other such class; all of them if it is exact."""
    classes = subscription.classes()
    if subscription.exact:
        return list(classes)
    return [cls for cls in classes if not any(cls is not other and issubclass(cls, other) for other in classes)]


def _grants(grant: Grant, cls: type, exact: bool) -> bool:
    return grant.accepts(cls) if exact else grant.covers(cls)


def _allowed(subscription: Subscription, grants: list[Grant]) -> tuple[str, ...]:
    """Types within what a subscription asks that could be subscribed, the highest only."""
    found = [cls for cls in subscription.classes() if any(_grants(grant, cls, subscription.exact) for grant in grants)]
    return tuple(
        name_of(cls) for cls in found if not any(cls is not other and issubclass(cls, other) for other in found)
    )


def _type_text(subscription: Subscription) -> str:
    """Return the types that a subscription names."""
    return f"{'exact ' if subscription.exact else ''}{' & '.join(map(name_of, subscription.types))}"


def types_by_name(classes: Iterable[type]) -> dict[str, type]:
    """Classes and all that are above them, by name."""
    return {name_of(base): base for cls in (Event, *classes) for base in _types_above(cls)}


def _types_above(cls: type) -> Iterator[type]:
    return (base for base in cls.__mro__ if is_type(base))
