"""Options of addresses: laws that hold for the tables of all links."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genus.errors import BusError
from genus.net._addresses import (
    CoapOptions,
    IpcOptions,
    NetOptions,
    Several,
    ZenohOptions,
    option_table,
    parse_coap_address,
    parse_ipc_address,
    parse_zenoh_address,
)
from genus.net._mqtt.address import MqttOptions, parse_mqtt_address

DOCS = Path(__file__).parents[2] / "docs"
LINKS: dict[str, tuple[type, Callable[[str], Any], str, str]] = {
    "ipc": (IpcOptions, lambda query: parse_ipc_address(f"x?{query}")[1], "ipc", "networks.md"),
    "zenoh": (ZenohOptions, lambda query: parse_zenoh_address(f"x?{query}"), "zenoh", "networks.md"),
    "mqtt": (MqttOptions, lambda query: parse_mqtt_address(f"//h?{query}", tls=True), "mqtts://h", "networks.md"),
    "coap": (CoapOptions, lambda query: parse_coap_address(f"//h?{query}"), "coap://h", "coap.md"),
}
OPTIONS = [(link, name) for link, (table, *_) in LINKS.items() for name in option_table(table)]
each_link = pytest.mark.parametrize("link", LINKS)
each_option = pytest.mark.parametrize(("link", "name"), OPTIONS)


@each_link
def test_an_unknown_option_is_answered_with_the_known_ones(link: str) -> None:
    table, parse, place, _ = LINKS[link]
    known = list(option_table(table))
    with pytest.raises(BusError) as problem:
        parse("nonsense=1")
    assert str(problem.value) == f"{place}: there is no option 'nonsense'; known are {', '.join(known)}"
    with pytest.raises(BusError, match=re.escape(f"did you mean '{known[0]}'?")):
        parse(f"{known[0]}x=1")


@each_option
@settings(max_examples=3)
@given(text=st.text(max_size=12))
@example(text="9" * 5000)  # int() refuses it by an error of its own
@example(text="\u0663")  # a digit, but no ASCII one
@example(text="\0")
def test_any_text_is_read_or_refused_by_the_name_of_the_option(link: str, name: str, text: str) -> None:
    problem = _problem(option_table(LINKS[link][0])[name].read, text)
    assert problem is None or problem.startswith("the option is ")


@each_option
def test_an_option_is_given_once_unless_it_may_be_given_several_times(link: str, name: str, tmp_path: Path) -> None:
    table, parse, place, _ = LINKS[link]
    read = option_table(table)[name].read
    (tmp_path / "file").touch()
    samples = ("1", "5s", "tcp/host:1", "loopback", "peer", "drop_newest", "cloudevents", f"{tmp_path}/file")
    text = next(each for each in samples if _problem(read, each) is None)
    pair = f"{name}={quote(text)}"
    if isinstance(read, Several):
        assert len(getattr(parse(f"{pair}&{pair}"), name)) == 2
    else:
        with pytest.raises(BusError, match=re.escape(f"{place}: {name}= is given twice")):
            parse(f"{pair}&{pair}")


def _problem(read: Callable[[str, str], Any], text: str) -> str | None:
    """What a reader says about a text that it refuses."""
    try:
        read("the option", text)
    except BusError as problem:
        return str(problem)
    return None


@each_option
def test_an_option_is_on_the_page_of_its_link(link: str, name: str) -> None:
    table, _, _, page = LINKS[link]
    is_common = issubclass(table, NetOptions) and name in option_table(NetOptions)
    text = (DOCS / ("networks.md" if is_common else page)).read_text()
    assert re.search(rf"[`&?]{name}[`=]", text)
    assert option_table(table)[name].says


def test_values_are_percent_encoded_and_a_plus_is_a_plus() -> None:
    options = parse_mqtt_address("//h?cloudevents=plant/+/%23&map=a%20b+c.toml&")
    assert (options.cloudevents, options.map) == (("plant/+/#",), (Path("a b+c.toml"),))
