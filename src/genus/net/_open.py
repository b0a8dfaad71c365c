"""From the address of a network to the link of a bus.

Options that all networks have are read here; each transport reads its own.

| option | says |
|---|---|
| `grants=FILE`, `user=NAME` | refuse what the grants do not allow this user, instead of leaving it to the network |
"""

from urllib.parse import parse_qsl, urlencode

from genus.net._grants import Permit
from genus.net._grants_file import take_permit
from genus.net._ipc import IpcTransport
from genus.net._ipc_options import parse_address
from genus.net._netlink import NetLink
from genus.net._transport import Transport

COMMON = ("grants", "user")


def open_ipc(rest: str) -> NetLink:
    """The link of `ipc:NAME?option=value&...`, of which `rest` is all behind the colon.

    | option | |
    |---|---|
    | `full` | what happens to a packet that finds the queue for a receiver full: `drop_oldest` (the default), \
      `drop_newest`, `block`, `raise` |
    | `capacity` | packets in that queue (10000) |
    | `receive_full` | what happens if packets come faster than handlers take them: `drop_oldest`, `drop_newest`, or \
      `block`, which makes them wait at the sender |
    | `receive_capacity` | packets that wait for handlers (10000) |

    Raises:
        BusError: The name or an option is wrong.
    """
    rest, common = take_common(rest)
    name, options = parse_address(rest)
    return _link(IpcTransport(name, options), name, "ipc", take_permit(common, name))


def open_zenoh(rest: str) -> NetLink:
    """The link of `zenoh:REALM?option=value&...`, of which `rest` is all behind the colon; see docs/zenoh.md.

    Raises:
        BusError: The realm or an option is wrong, or zenoh is not installed.
    """
    from genus.net._zenoh import ZenohTransport
    from genus.net._zenoh_address import parse_zenoh_address

    rest, common = take_common(rest)
    options = parse_zenoh_address(rest)
    permit = take_permit(common, options.realm)
    return _link(ZenohTransport(options), options.realm, "zenoh", permit, options.reliable)


def take_common(rest: str) -> tuple[str, dict[str, str]]:
    """An address without the options that all networks have, and those.

    >>> take_common("city?connect=tcp/host:7447&grants=grants.toml&user=panel")
    ('city?connect=tcp/host:7447', {'grants': 'grants.toml', 'user': 'panel'})
    """
    name, mark, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    common = {option: value for option, value in pairs if option in COMMON}
    if not common:
        return rest, {}
    own = urlencode([pair for pair in pairs if pair[0] not in COMMON], safe="/:,")
    return f"{name}{mark if own else ''}{own}", common


def _link(transport: Transport, realm: str, medium: str, permit: Permit | None, reliable: bool = False) -> NetLink:
    if permit is None:
        return NetLink(transport, realm, medium=medium, reliable=reliable)
    return NetLink(
        transport,
        realm,
        medium=medium,
        reliable=reliable,
        may_publish=permit.check_publish,
        may_subscribe=permit.check_subscribe,
    )
