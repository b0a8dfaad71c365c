"""Access control lists of routers and brokers: what each user may publish and subscribe, as rules on keys.

A zenoh router checks every message that comes in from a participant, and every one that goes out to it, with separate
rules. A declaration is allowed if one rule includes its whole key expression. So the rules of a grant are the patterns
that its subscription is compiled to, and a link that asks for no more than was granted is never refused.

mosquitto checks what is published and what is delivered. It grants every SUBSCRIBE and then delivers nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from genus.net._link.control import LAST, NEW, QUEUE, ROOT
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
