"""From the address of a network to the link of a bus.

Options that all networks have are read here; each transport reads its own.

| option | says |
|---|---|
| `realm_key=FILE` | seal packets with the key of the realm, and drop those of others; all participants need it |
| `grants=FILE`, `user=NAME` | refuse what the grants do not allow this user, instead of leaving it to the network |
| `format=cloudevents`, `cloudevents-binary` | send events as CloudEvents, which other systems read, too |
| `cloudevents=PATTERN` | read CloudEvents of others from topics (zenoh: keys); may be given several times |
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from genus._extras import missing_extra
from genus.errors import BusError, MappingError, did_you_mean
from genus.net._cloudevents import CloudEventWriter
from genus.net._grants_file import take_permit
from genus.net._ipc.options import parse_address
from genus.net._ipc.transport import IpcTransport
from genus.net._link.foreign import CloudTopics, ForeignSource, MappedTopics
from genus.net._link.netlink import NetLink
from genus.net._link.outgoing import EncodeCloud
from genus.net._link.sealed import SealedTransport, read_realm_key
from genus.net._transport import Transport
from genus.records import read_mapping

if TYPE_CHECKING:
    from genus.net._coap.link import CoapLink
    from genus.net._mqtt.address import MqttOptions

COMMON = ("realm_key", "grants", "user", "format", "cloudevents")
SEVERAL = ("cloudevents", "map")
"""Options that may be given several times."""
FORMATS = ("", "cloudevents", "cloudevents-binary")


class Common(msgspec.Struct, frozen=True):
    """The options that all networks have."""

    grants: str | None = None
    user: str | None = None
    format: str = ""
    cloudevents: tuple[str, ...] = ()
    realm_key: str | None = None

    def granted(self) -> dict[str, str]:
        """The options about grants."""
        given = {"grants": self.grants, "user": self.user}
        return {name: value for name, value in given.items() if value is not None}


def open_ipc(rest: str) -> NetLink:
    """The link of `ipc:NAME?option=value&...`, of which `rest` is all behind the colon.

    | option | |
    |---|---|
    | `full` | what happens to a packet that finds the queue for a receiver full: `drop_oldest` (the default), \\
      `drop_newest`, `block`, `raise` |
    | `capacity` | packets in that queue (10000) |
    | `receive_full` | what happens if packets come faster than handlers take them: `drop_oldest`, `drop_newest`, or \\
      `block`, which makes them wait at the sender |
    | `receive_capacity` | packets that wait for handlers (10000) |

    Raises:
        BusError: The name or an option is wrong.
    """
    rest, common = take_common(rest)
    name, options = parse_address(rest)
    return _link(IpcTransport(name, options), name, "ipc", common)


def open_zenoh(rest: str) -> NetLink:
    """The link of `zenoh:REALM?option=value&...`, of which `rest` is all behind the colon; see docs/networks.md.

    Raises:
        BusError: The realm or an option is wrong, or zenoh is not installed.
    """
    from genus.net._zenoh.address import parse_zenoh_address
    from genus.net._zenoh.transport import ZenohTransport

    rest, common = take_common(rest)
    options = parse_zenoh_address(rest)
    return _link(ZenohTransport(options), options.realm, "zenoh", common, options.reliable)


def open_mqtt(rest: str) -> NetLink:
    """The link of `mqtt://HOST[:PORT]/REALM?option=value&...`, of which `rest` is all behind the colon.

    Raises:
        BusError: The address is wrong, or the codec of MQTT is not installed.
    """
    return _open_mqtt(rest, tls=False)


def open_mqtts(rest: str) -> NetLink:
    """The link of `mqtts://HOST[:PORT]/REALM?...`: as `open_mqtt`, with TLS."""
    return _open_mqtt(rest, tls=True)


def _open_mqtt(rest: str, tls: bool) -> NetLink:
    from genus.net._mqtt.address import parse_mqtt_address

    try:
        from genus.net._mqtt.transport import MqttTransport
    except ImportError as problem:
        raise BusError(str(missing_extra("mqtt: addresses need the package mqtt5", "mqtt"))) from problem
    rest, common = take_common(rest)
    options = parse_mqtt_address(rest, tls)
    foreign = _foreign_sources(options)
    return _link(MqttTransport(options), options.realm, "mqtt", common, options.qos == 1, foreign)


def _foreign_sources(options: "MqttOptions") -> list[ForeignSource]:
    """The systems that the mappings of an address are about, and Sparkplug, if it names a group."""
    try:
        mappings = [read_mapping(path) for path in options.map]
        if not options.sparkplug:
            return [MappedTopics(mapping) for mapping in mappings]
        try:
            from genus.net._sparkplug.source import Sparkplug, is_sparkplug, without_sparkplug
        except ImportError as problem:
            raise BusError(str(missing_extra("sparkplug= needs the package protobuf", "sparkplug"))) from problem
        plain = [without_sparkplug(mapping) if is_sparkplug(mapping) else mapping for mapping in mappings]
        return [Sparkplug(options, mappings), *(MappedTopics(mapping) for mapping in plain if mapping.topics)]
    except MappingError as problem:
        raise BusError(f"map={problem}") from problem


def open_coap(rest: str) -> "CoapLink":
    """The link of `coap://HOST[:PORT]?option=value&...` or `coap:?listen=HOST:PORT&...`; see docs/coap.md.

    Raises:
        BusError: The address is wrong, or aiocoap is not installed.
    """
    return _open_coap(rest, secure=False)


def open_coaps(rest: str) -> "CoapLink":
    """The link of `coaps://HOST[:PORT]?...`: as `open_coap`, with DTLS."""
    return _open_coap(rest, secure=True)


def _open_coap(rest: str, secure: bool) -> "CoapLink":
    from genus.net._coap.address import parse_coap_address

    options = parse_coap_address(rest, secure)
    try:
        from genus.net._coap.link import CoapLink
    except ImportError as problem:
        raise BusError(str(missing_extra("coap: addresses need aiocoap and cbor2", "coap"))) from problem
    return CoapLink(options)


def take_common(rest: str) -> tuple[str, Common]:
    """An address without the options that all networks have, and those.

    >>> take_common("city?connect=tcp/host:7447&format=cloudevents")
    ('city?connect=tcp/host:7447', Common(grants=None, user=None, format='cloudevents', cloudevents=(), realm_key=None))
    """
    name, mark, query = rest.partition("?")
    pieces = [piece for piece in query.split("&") if piece]
    pairs = [(piece, *map(unquote, piece.partition("=")[::2])) for piece in pieces]
    given: dict[str, str] = {}
    for _, option, value in pairs:
        if option in given and option not in SEVERAL:
            raise BusError(f"{option}= is given twice")
        if option in COMMON:
            given[option] = value
    patterns = tuple(value for _, option, value in pairs if option == "cloudevents")
    own = "&".join(piece for piece, option, _ in pairs if option not in COMMON)
    common = Common(given.get("grants"), given.get("user"), given.get("format", ""), patterns, given.get("realm_key"))
    return f"{name}{mark if own else ''}{own}", common


def _link(
    transport: Transport,
    realm: str,
    medium: str,
    common: Common,
    reliable: bool = False,
    foreign: Sequence[ForeignSource] = (),
) -> NetLink:
    permit = take_permit(common.granted(), realm)
    if common.realm_key is not None:
        transport = SealedTransport(transport, realm, read_realm_key(common.realm_key))
    clouds = [CloudTopics(common.cloudevents, transport.dialect)] if common.cloudevents else []
    return NetLink(
        transport,
        realm,
        medium=medium,
        reliable=reliable,
        may_publish=None if permit is None else permit.check_publish,
        may_subscribe=None if permit is None else permit.check_subscribe,
        may_be_gateway=None if permit is None else permit.check_gateway,
        foreign=[*foreign, *clouds],
        encode_cloud=_cloud_encoder(common.format),
    )


def _cloud_encoder(format: str) -> EncodeCloud | None:
    """What makes CloudEvents of events, in the mode that an address asks for; None if it asks for none."""
    if format not in FORMATS:
        known = ", ".join(FORMATS[1:])
        raise BusError(f"format={format} is no format: {did_you_mean(format, FORMATS[1:])}known are {known}")
    writer = CloudEventWriter()
    if format == "cloudevents":
        return lambda event, origin, key: (None, writer.write_structured(event, origin, key))
    return writer.write_binary if format else None
