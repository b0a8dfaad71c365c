"""Addresses of CoAP, and what is wrong with them."""

from pathlib import Path

import pytest

from genus.errors import BusError
from genus.net._addresses import CoapOptions, Place, parse_coap_address


def test_an_address_has_servers_a_place_and_options() -> None:
    found = parse_coap_address(
        "//10.0.0.5,[fe80::1]:7000/?listen=[::]:5700&catalog=city.json&beat=2s&ack_timeout=500ms&retransmits=0"
        "&capacity=10&largest=2000&poll=1min&credentials=keys.json"
    )
    assert found == CoapOptions(
        servers=(Place("10.0.0.5", 5683), Place("fe80::1", 7000)),
        listen=Place("::", 5700),
        catalog=Path("city.json"),
        credentials=Path("keys.json"),
        beat_s=2.0,
        ack_timeout_s=0.5,
        poll_s=60.0,
        retransmits=0,
        capacity=10,
        largest=2000,
    )
    assert found.shown == "coap://10.0.0.5:5683,[fe80::1]:7000"
    assert parse_coap_address("?listen=0.0.0.0").shown == "coap:?listen=0.0.0.0:5683"
    assert parse_coap_address("//host", secure=True).servers == (Place("host", 5684),)


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("", "names no server"),
        ("//", "names no server"),
        ("host", "write coap://HOST"),
        ("//ho st", "the server is 'ho st'"),
        ("//host:99999", "write HOST, HOST:PORT"),
        ("//ann:pw@host", "write HOST, HOST:PORT"),
        ("?listen=host:port", "listen is 'host:port'"),
        ("//host?beat=0s", "beat is '0s'; it must be above zero"),
        ("//host?beat=soon", "beat is 'soon'; write seconds as a number"),
        ("//host?capacity=0", "capacity is '0'; write a whole number from 1 to"),
        ("//host?largest=x", "largest is 'x'"),
        ("//host?beat=1s&beat=2s", "beat= is given twice"),
        ("//host?qos=1", "there is no option 'qos'"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(rest: str, message: str) -> None:
    with pytest.raises(BusError, match="coap:") as raised:
        parse_coap_address(rest)
    assert message in str(raised.value)
