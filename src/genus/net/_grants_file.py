"""Grants files: TOML with roles and users; every problem is told with the table and the key.

[roles.gate]
publish = ["Roadside"]
subscribe = ["Command"]

[users.gate-7]
roles = ["gate"]
realms = ["city", "site-*"]
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from genus.catalog import Catalog
from genus.errors import BusError, GrantsError, did_you_mean
from genus.model import is_event_type
from genus.net._grants import Action, Grant, Grants, Permit, types_by_name

MAX_FILE = 16 * 1024 * 1024
_ROLE_KEYS = ("publish", "subscribe", "gateway", "realms")
_USER_KEYS = ("roles", *_ROLE_KEYS)
_ACTIONS: tuple[Action, ...] = ("publish", "subscribe")
_GRANT = re.compile(r"\s*(exact\s+)?([^\s&]+(?:\s*&\s*[^\s&]+)*)\s*")


class _Role(msgspec.Struct, frozen=True):
    """The grants of one table, and the roles that it names."""

    grants: tuple[Grant, ...]
    realms: tuple[tuple[str, ...], ...]
    roles: tuple[str, ...] = ()


def read_grants(path: str | os.PathLike[str], types: Iterable[type] | Catalog | None = None) -> Grants:
    """Read a grants file.

    `[roles.NAME]` has `publish` and `subscribe`, lists of types, `gateway = true` if it may be one of several gateways
    of a name, and `realms`, a list of patterns such as `site-*` for the realms in which they hold (default: all).
    `[users.NAME]` has the same, and `roles`. The name of a user is the common name of its certificate, or its user name
    at the broker.

    Args:
        path: The file.
        types: The classes, or the catalog, that names are checked against; None takes any name, which is enough to
            decide but not for `zenoh_acl` and `mosquitto_acl`.

    Raises:
        GrantsError: The file cannot be read; the message names file, table and key.

    >>> from tempfile import NamedTemporaryFile
    >>> from genus import Event, Subscription
    >>> class Gate(Event): ...
    >>> with NamedTemporaryFile("w", suffix=".toml") as file:
    ...     file.write('[users.ann]\\nsubscribe = ["Gate"]') and file.flush()
    ...     grants = read_grants(file.name, [Gate])
    >>> bool(grants.may_subscribe("ann", Subscription(Gate))), bool(grants.may_publish("ann", Gate))
    (True, False)
    """
    source = os.fspath(path)
    return parse_grants(_load(source), source, types)


def take_permit(path: str | None, user: str | None, realm: str) -> Permit | None:
    """Return what the options `grants` and `user` of an address permit in a realm.

    None if the address has neither: the link then allows all, and a broker may refuse in silence. BusError if one of
    them is missing, or the file cannot be used.
    """
    if path is None:
        if user is not None:
            raise BusError(f"user={user} goes with grants=FILE: the user whose grants are checked")
        return None
    if not user:
        raise BusError(f"grants={path} needs user=NAME, too: the common name of the certificate or the user name")
    try:
        return read_grants(path).permit(user, realm)
    except GrantsError as problem:
        raise BusError(str(problem)) from problem


def parse_grants(tables: Mapping[str, Any], source: str, types: Iterable[type] | Catalog | None = None) -> Grants:
    """Return the grants of a file that was read; GrantsError if it is wrong."""
    known = None if types is None else types_by_name(_classes(types))
    _check_keys(source, tables, ("roles", "users"))
    roles = {
        name: _read_role(f"{source}: [roles.{name}]", table, _ROLE_KEYS, known)
        for name, table in _table(f"{source}: [roles]", tables.get("roles", {})).items()
    }
    users = {
        name: _read_user(f"{source}: [users.{name}]", name, table, roles, known)
        for name, table in _table(f"{source}: [users]", tables.get("users", {})).items()
    }
    if not users:
        raise GrantsError(f"{source}: names no user; write [users.NAME]")
    return Grants(source, users, known)


def _load(source: str) -> dict[str, Any]:
    try:
        if os.path.getsize(source) > MAX_FILE:
            raise GrantsError(f"{source}: larger than {MAX_FILE:,} bytes")
        return tomllib.loads(Path(source).read_text("utf-8"))
    except OSError as problem:
        raise GrantsError(f"cannot read {source}: {problem.strerror or problem}") from problem
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as problem:
        raise GrantsError(f"{source}: not TOML: {problem}") from problem


def _classes(types: Iterable[type] | Catalog) -> Iterable[type]:
    return [types.declare(name) for name in types.types] if isinstance(types, Catalog) else types


def _read_user(
    where: str, name: str, table: object, roles: Mapping[str, _Role], known: Mapping[str, type] | None
) -> tuple[Grant, ...]:
    """Return the grants of a user, with those of its roles; its realms limit all of them."""
    if name != name.strip() or not name.isprintable() or not name:
        raise GrantsError(f"{where}: {name!r} cannot be the name of a user")
    own = _read_role(where, table, _USER_KEYS, known)
    found = dict.fromkeys(own.grants)
    for role in own.roles:
        if role not in roles:
            raise GrantsError(f"{where}: no role is called {role!r}; {did_you_mean(role, roles)}{_listed(roles)}")
        found |= dict.fromkeys(
            msgspec.structs.replace(one, realms=(*one.realms, *own.realms)) for one in roles[role].grants
        )
    return tuple(found)


def _read_role(where: str, table: object, keys: tuple[str, ...], known: Mapping[str, type] | None) -> _Role:
    entries = _table(where, table)
    _check_keys(where, entries, keys)
    realms = (_texts(where, entries, "realms"),) if "realms" in entries else ()
    grants = [
        _read_grant(f"{where}: {action}", text, action, realms, known)
        for action in _ACTIONS
        for text in _texts(where, entries, action)
    ]
    if _is_true(where, entries, "gateway"):
        grants.append(Grant("gateway", (), realms=realms))
    return _Role(tuple(grants), realms, _texts(where, entries, "roles"))


def _read_grant(
    where: str, text: str, action: Action, realms: tuple[tuple[str, ...], ...], known: Mapping[str, type] | None
) -> Grant:
    found = _GRANT.fullmatch(text)
    if found is None:
        raise GrantsError(f"{where}: {text!r} is not a type; write Loop, exact Loop, or Loop & Roadside")
    names = tuple(dict.fromkeys(re.split(r"\s*&\s*", found[2])))
    if found[1] and len(names) > 1:
        raise GrantsError(f"{where}: {text!r}: exact takes one type")
    _check_names(where, names, known)
    return Grant(action, names, bool(found[1]), realms)


def _check_names(where: str, names: tuple[str, ...], known: Mapping[str, type] | None) -> None:
    if known is None:
        return
    for name in names:
        if name not in known:
            raise GrantsError(f"{where}: no type is called {name!r}; {did_you_mean(name, known)}{_listed(known)}")
    events = [known[name] for name in names if is_event_type(known[name])]
    if any(not (issubclass(one, other) or issubclass(other, one)) for one in events for other in events):
        raise GrantsError(f"{where}: no event can be all of {' & '.join(names)}")


# -- tables ------------------------------------------------------------------------------------------------------------


def _table(where: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GrantsError(f"{where}: must be a table, not {_shown(value)}")
    return value


def _check_keys(where: str, entries: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for key in entries:
        if key not in keys:
            raise GrantsError(f"{where}: unknown key {key!r}; {did_you_mean(key, keys)}{_listed(keys)}")


def _texts(where: str, entries: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = entries.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise GrantsError(f"{where}: {key} must be a list of texts, not {_shown(value)}")
    return tuple(value)


def _is_true(where: str, entries: Mapping[str, Any], key: str) -> bool:
    value = entries.get(key, False)
    if not isinstance(value, bool):
        raise GrantsError(f"{where}: {key} must be true or false, not {_shown(value)}")
    return value


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    return f"known are {', '.join(shown[:20]) or 'none'}{', ...' if len(shown) > 20 else ''}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
