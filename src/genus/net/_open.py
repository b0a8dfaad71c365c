"""From the address of a network to the link of a bus."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genus._extras import missing_extra
from genus.errors import BusError, MappingError
from genus.net._addresses import NetOptions, parse_ipc_address
from genus.net._cloudevents import CloudEventWriter
from genus.net._grants_file import take_permit
from genus.net._ipc.transport import IpcTransport
from genus.net._link.foreign import CloudTopics, ForeignSource, MappedTopics
from genus.net._link.netlink import NetLink
from genus.net._link.outgoing import EncodeCloud
from genus.net._transport import SealedTransport, Transport, read_realm_key
from genus.records import read_mapping

if TYPE_CHECKING:
    from genus.net._coap.link import CoapLink
    from genus.net._mqtt.address import MqttOptions


def open_ipc(rest: str) -> NetLink:
    """Return the link of `ipc:NAME?option=value&...`, of which `rest` is all behind the colon; see docs/networks.md.

    Raises:
        BusError: The name or an option is wrong.
    """
    name, options = parse_ipc_address(rest)
    return _link(IpcTransport(name, options), name, "ipc", options)


def open_zenoh(rest: str) -> NetLink:
    """Return the link of `zenoh:REALM?option=value&...`, of which `rest` is all behind the colon; see docs/networks.md.

    Raises:
        BusError: The realm or an option is wrong, or zenoh is not installed.
    """
    from genus.net._addresses import parse_zenoh_address
    from genus.net._zenoh_transport import ZenohTransport

    options = parse_zenoh_address(rest)
    return _link(ZenohTransport(options), options.realm, "zenoh", options, options.reliable)


def open_mqtt(rest: str) -> NetLink:
    """Return the link of `mqtt://HOST[:PORT]/REALM?option=value&...`, of which `rest` is all behind the colon.

    Raises:
        BusError: The address is wrong, or the codec of MQTT is not installed.
    """
    return _open_mqtt(rest, tls=False)


def open_mqtts(rest: str) -> NetLink:
    """Return the link of `mqtts://HOST[:PORT]/REALM?...`: as `open_mqtt`, with TLS."""
    return _open_mqtt(rest, tls=True)


def _open_mqtt(rest: str, tls: bool) -> NetLink:
    from genus.net._mqtt.address import parse_mqtt_address

    try:
        from genus.net._mqtt.transport import MqttTransport
    except ImportError as problem:
        raise BusError(str(missing_extra("mqtt: addresses need the package mqtt5", "mqtt"))) from problem
    options = parse_mqtt_address(rest, tls)
    foreign = _foreign_sources(options)
    return _link(MqttTransport(options), options.realm, "mqtt", options, options.qos == 1, foreign)


def _foreign_sources(options: "MqttOptions") -> list[ForeignSource]:
    """Return the systems that the mappings of an address are about, and Sparkplug, if it names a group."""
    try:
        mappings = [read_mapping(path) for path in options.map]
        if not options.sparkplug:
            return [MappedTopics(mapping) for mapping in mappings]
        try:
            from genus.net._sparkplug_source import Sparkplug, is_sparkplug, without_sparkplug
        except ImportError as problem:
            raise BusError(str(missing_extra("sparkplug= needs the package protobuf", "sparkplug"))) from problem
        plain = [without_sparkplug(mapping) if is_sparkplug(mapping) else mapping for mapping in mappings]
        return [Sparkplug(options, mappings), *(MappedTopics(mapping) for mapping in plain if mapping.topics)]
    except MappingError as problem:
        raise BusError(f"map={problem}") from problem


def open_coap(rest: str) -> "CoapLink":
    """Return the link of `coap://HOST[:PORT]?option=value&...` or `coap:?listen=HOST:PORT&...`; see docs/coap.md.

    Raises:
        BusError: The address is wrong, or aiocoap is not installed.
    """
    return _open_coap(rest, secure=False)


def open_coaps(rest: str) -> "CoapLink":
    """Return the link of `coaps://HOST[:PORT]?...`: as `open_coap`, with DTLS."""
    return _open_coap(rest, secure=True)


def _open_coap(rest: str, secure: bool) -> "CoapLink":
    from genus.net._addresses import parse_coap_address

    options = parse_coap_address(rest, secure)
    try:
        from genus.net._coap.link import CoapLink
    except ImportError as problem:
        raise BusError(str(missing_extra("coap: addresses need aiocoap and cbor2", "coap"))) from problem
    return CoapLink(options)


def _link(
    transport: Transport,
    realm: str,
    medium: str,
    options: NetOptions,
    reliable: bool = False,
    foreign: Sequence[ForeignSource] = (),
) -> NetLink:
    permit = take_permit(options.grants, options.user, realm)
    if options.realm_key is not None:
        transport = SealedTransport(transport, realm, read_realm_key(options.realm_key))
    clouds = [CloudTopics(options.cloudevents, transport.dialect)] if options.cloudevents else []
    return NetLink(
        transport,
        realm,
        medium=medium,
        reliable=reliable,
        permit=permit,
        foreign=[*foreign, *clouds],
        encode_cloud=_cloud_encoder(options.format),
    )


def _cloud_encoder(format: str) -> EncodeCloud | None:
    """Return what makes CloudEvents of events, in the mode that an address asks for; None if it asks for none."""
    writer = CloudEventWriter()
    if format == "cloudevents":
        return lambda event, origin, key: (None, writer.write_structured(event, origin, key))
    return writer.write_binary if format else None
