"""From an address to a transport; without the extra, an error that says how to install it."""

from typing import TYPE_CHECKING

from genus._extras import missing_extra
from genus.net._mqtt.address import parse_mqtt_address

if TYPE_CHECKING:
    from genus.net._mqtt.transport import MqttTransport


def mqtt_transport(rest: str, *, tls: bool = False) -> "MqttTransport":
    """The transport of an address, not open yet; `rest` is what stands behind `mqtt:` or, with `tls`, `mqtts:`.

    Raises:
        BusError: A part of the address is wrong, or a certificate cannot be used.
        ImportError: The extra `mqtt` is not installed.

    >>> mqtt_transport("//localhost/city?qos=0").dialect.name
    'mqtt'
    """
    options = parse_mqtt_address(rest, tls)
    try:
        from genus.net._mqtt.transport import MqttTransport
    except ModuleNotFoundError as problem:
        if problem.name != "mqtt5":
            raise
        raise missing_extra("mqtt:// needs the codec mqtt5", "mqtt") from None
    return MqttTransport(options)
