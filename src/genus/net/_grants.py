"""Grants: which user may publish and subscribe which types.

Access control lists of routers and brokers: what each user may publish and subscribe, as rules on keys.

A zenoh router checks every message that comes in from a participant, and every one that goes out to it, with separate
rules. A declaration is allowed if one rule includes its whole key expression. So the rules of a grant are the patterns
that its subscription is compiled to, and a link that asks for no more than was granted is never refused.

mosquitto checks what is published and what is delivered. It grants every SUBSCRIBE and then delivers nothing.

Grants: which user may publish and subscribe which types, the types below them included; the rest is denied.

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
from genus.net._link.messages import LAST, NEW, QUEUE, ROOT
from genus.targets import topics
from genus.targets.topics import MQTT, ZENOH, Dialect

CONTROL = ("here", "channel", "want", "group", "tokens", "types", "beat", "lost", "late", "ping", "pong")
"""Control keys that every participant sends and receives (`tokens`: on MQTT). Kept events, under `last`, and copies of
events of new classes, under `new`, are granted as events are."""
GATE = "gate"
"""The control key that gateways send, and every participant receives: who sends it can make a gateway stand by."""

Identity: TypeAlias = Literal["certificate", "user"]
"""By what a zenoh router knows a user: the common name of its certificate, or the user name that it gives."""

_SUBJECT_FIELDS: Mapping[Identity, str] = {"certificate": "cert_common_names", "user": "usernames"}


class UserKeys(msgspec.Struct, frozen=True):
    """The patterns of the events that a user may publish, and of those that it may receive; if it may be a gateway."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    is_gateway: bool = False


def kept_pattern(dialect: Dialect, realm: str, pattern: str) -> str:
    """Return the pattern of the keys under which events that match a pattern are kept.

    >>> kept_pattern(ZENOH, "city", "city/Edge/*/Loop"), kept_pattern(MQTT, "city", "city/#")
    ('@genus/city/last/Edge/*/Loop/*', '@genus/city/last/#')
    """
    _, *rest = dialect.split(pattern)
    any_value = [] if rest and rest[-1] == dialect.rest else [dialect.one]
    return dialect.join([ROOT, realm, LAST, *rest, *any_value])


def new_pattern(dialect: Dialect, realm: str, pattern: str) -> str:
    """Return the pattern of the keys of copies of events that match a pattern, as long as their class is new.

    >>> new_pattern(ZENOH, "city", "city/Edge/*/Loop")
    '@genus/city/new/Edge/*/Loop'
    """
    return dialect.join([ROOT, realm, NEW, *dialect.split(pattern)[1:]])


def queue_pattern(realm: str, pattern: str) -> str:
    """Return the pattern of the events of a zenoh pattern that are sent to one of those who share a queue.

    >>> queue_pattern("city", "city/Edge/*/Loop")
    '@genus/city/queue/*/*/Edge/*/Loop'
    """
    return ZENOH.join([ROOT, realm, QUEUE, ZENOH.one, ZENOH.one, *ZENOH.split(pattern)[1:]])


def control_patterns(dialect: Dialect, realm: str) -> tuple[str, ...]:
    """Return the patterns of the control keys that every participant needs."""
    return tuple(_control_pattern(dialect, realm, what) for what in CONTROL)


def _control_pattern(dialect: Dialect, realm: str, what: str) -> str:
    return dialect.join([ROOT, realm, what, dialect.rest])


# -- zenoh -------------------------------------------------------------------------------------------------------------

_TOKENS = ("liveliness_token", "declare_liveliness_subscriber", "liveliness_query")
_ALL = ("put", "delete", "declare_subscriber", "declare_queryable", "query", "reply", *_TOKENS)
_SENT = ("put", "delete", "declare_queryable", "reply", "liveliness_token")
"""Messages of one who publishes: events, those it kept or repeats, and a token by which its caches are found."""
_ASKED = ("declare_subscriber", "query", "declare_liveliness_subscriber", "liveliness_query")
"""Messages of one who subscribes: what it wants, and questions for kept and lost events."""


def zenoh_config(realm: str, users: Mapping[str, UserKeys], by: Identity = "certificate") -> dict[str, Any]:
    """Return the `access_control` section of a zenoh router's configuration; what no rule allows is denied."""
    rules = list(_common_rules(realm))
    common = [rule["id"] for rule in rules]
    policies: list[dict[str, Any]] = []
    for user, keys in users.items():
        own = list(_user_rules(user, realm, keys))
        rules += own
        policies.append({"rules": [*common, *(rule["id"] for rule in own)], "subjects": [user]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": [{"id": user, _SUBJECT_FIELDS[by]: [user]} for user in users],
        "policies": policies,
    }


def _common_rules(realm: str) -> Iterator[dict[str, Any]]:
    """Yield what every participant may do: control messages, and saying that it keeps events, not what they are."""
    control = control_patterns(ZENOH, realm)
    caches = (ZENOH.join([pattern, "@adv", ZENOH.rest]) for pattern in control)
    keepers = ZENOH.join([ROOT, realm, ZENOH.one, "@keeper", ZENOH.rest])
    kept = ZENOH.join([ROOT, realm, LAST, ZENOH.rest])
    yield _rule("genus-control", _ALL, ["ingress", "egress"], [*control, *caches, keepers])
    gates = [_control_pattern(ZENOH, realm, GATE)]
    yield _rule("genus-gateways-asked", _ASKED, ["ingress"], gates)
    yield _rule("genus-gateways-seen", _SENT, ["egress"], gates)
    yield _rule("genus-kept", ["declare_queryable"], ["ingress", "egress"], [kept])


def _user_rules(user: str, realm: str, keys: UserKeys) -> Iterator[dict[str, Any]]:
    """Six rules at most: what it sends and is asked for, and what it asks for and is sent.

    What others ask for is told to a publisher even if it is wider than the grant: else it would not send at all.
    """
    if keys.is_gateway:
        gates = [_control_pattern(ZENOH, realm, GATE)]
        yield _rule(f"{user} is a gateway", _SENT, ["ingress"], gates)
        yield _rule(f"{user} is asked as a gateway", _ASKED, ["egress"], gates)
    if keys.publish:
        sent = _with_kept(realm, keys.publish)
        everything = _with_kept(realm, [ZENOH.join([realm, ZENOH.rest])])
        yield _rule(f"{user} publishes", _SENT, ["ingress"], sent)
        yield _rule(f"{user} is asked", _ASKED, ["egress"], everything)
    if keys.subscribe:
        asked = _with_kept(realm, keys.subscribe)
        yield _rule(f"{user} subscribes", (*_ASKED, "liveliness_token"), ["ingress"], asked)
        yield _rule(f"{user} receives", _SENT, ["egress"], asked)


def _with_kept(realm: str, patterns: Iterable[str]) -> list[str]:
    """The patterns of events, kept ones, copies, those of queues, and all their caches: `**` does not match these."""
    made = (kept_pattern, new_pattern)
    every = [
        found
        for each in patterns
        for found in (each, *(make(ZENOH, realm, each) for make in made), queue_pattern(realm, each))
    ]
    return [*every, *(ZENOH.join([pattern, "@adv", ZENOH.rest]) for pattern in every)]


def _rule(name: str, messages: Iterable[str], flows: list[str], keys: Iterable[str]) -> dict[str, Any]:
    return {"id": name, "permission": "allow", "flows": flows, "messages": list(messages), "key_exprs": list(keys)}


# -- mosquitto ---------------------------------------------------------------------------------------------------------


def mosquitto_text(realm: str, users: Mapping[str, UserKeys]) -> str:
    """Return the text of a mosquitto `acl_file`; what no line allows is denied."""
    return "\n\n".join("\n".join(_user_lines(user, realm, keys)) for user, keys in users.items()) + "\n"


def _user_lines(user: str, realm: str, keys: UserKeys) -> Iterator[str]:
    yield f"user {user}"
    for pattern in control_patterns(MQTT, realm):
        yield f"topic readwrite {pattern}"
    yield f"topic {_access(keys.is_gateway, True)} {_control_pattern(MQTT, realm, GATE)}"
    for pattern in dict.fromkeys((*keys.publish, *keys.subscribe)):
        access = _access(pattern in keys.publish, pattern in keys.subscribe)
        yield f"topic {access} {pattern}"
        yield f"topic {access} {kept_pattern(MQTT, realm, pattern)}"
        yield f"topic {access} {new_pattern(MQTT, realm, pattern)}"


def _access(writes: bool, reads: bool) -> str:
    return "readwrite" if writes and reads else "write" if writes else "read"


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
    """The answer that something is granted, and by which grants."""

    by: tuple[Grant, ...]


class Refusal(msgspec.Struct, frozen=True):
    """The answer that something is not granted: the reason, the missing types, and what would be allowed instead.

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
        """Return whether a user may publish events of a class; ask again for each class below it."""
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
        """Return whether a user may subscribe; a `Refusal` says which types are missing and which would be allowed."""
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
        """Return the key patterns of what each user may publish and subscribe in a realm; users with none are left out.

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
        """Raise BusError with the reason if events of a class may not be published."""
        _raise_refusal(self.grants.may_publish(self.who, cls))

    def check_subscribe(self, subscription: Subscription) -> None:
        """Raise BusError with the reason if a subscription may not be made."""
        _raise_refusal(self.grants.may_subscribe(self.who, subscription))

    def check_gateway(self) -> None:
        """Raise BusError with the reason if this user may not be one of several gateways of a name."""
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
    return f"{'exact ' if subscription.exact else ''}{' & '.join(map(name_of, subscription.types))}"


def types_by_name(classes: Iterable[type]) -> dict[str, type]:
    """Classes and all that are above them, by name."""
    return {name_of(base): base for cls in (Event, *classes) for base in _types_above(cls)}


def _types_above(cls: type) -> Iterator[type]:
    return (base for base in cls.__mro__ if is_type(base))
