"""A link needs four methods; what else it can do it overrides, and states where a bus has to know it beforehand."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Soft, Subscription
from genus.bus import Bus, Capabilities, Link
from genus.bus.types import Delivery
from genus.errors import BusError

NAMES = Capabilities.__struct_fields__
SOME = st.sets(st.sampled_from(NAMES))


class Lamp(Event):
    on: bool


class Plain(Link):
    """A link that can do nothing but send and deliver."""

    def __init__(self) -> None:
        self.sent: list[Event] = []

    def open(self, deliver: Delivery) -> None:
        self.deliver = deliver

    def send(self, event: Event) -> None:
        self.sent.append(event)

    def close(self) -> None: ...

    def counters(self) -> Mapping[str, int]:
        return {"sent": len(self.sent)}


def method(*_: object) -> Any:
    raise NotImplementedError


def made(base: type[Link], methods: set[str], stated: set[str] | None) -> type[Link]:
    """A class of links with methods of these names, which states these capabilities, or those of its base."""
    states = {} if stated is None else {"capabilities": Capabilities(**dict.fromkeys(stated, True))}
    return type("Made", (base,), {**dict.fromkeys(methods, method), **states})


@given(SOME, SOME)
def test_a_class_of_links_states_what_it_has_methods_for_or_is_refused(methods: set[str], stated: set[str]) -> None:
    if methods == stated:
        assert made(Plain, methods, stated).capabilities == Capabilities(**dict.fromkeys(stated, True))
        return
    with pytest.raises(TypeError) as caught:
        made(Plain, methods, stated)
    advice = str(caught.value).rpartition("capabilities = ")[2]
    assert eval(advice) == Capabilities(**dict.fromkeys(methods, True))


@given(SOME, SOME)
def test_statements_are_inherited_with_the_methods(inherited: set[str], own: set[str]) -> None:
    base = made(Plain, inherited, inherited)
    assert made(base, set(), None).capabilities == base.capabilities
    assert made(base, own, inherited | own).capabilities == Capabilities(**dict.fromkeys(inherited | own, True))
    if own - inherited:
        with pytest.raises(TypeError, match="Made states the capabilities"):
            made(base, own, None)


def test_a_link_lacks_none_of_its_four_methods() -> None:
    class Half(Link):
        def send(self, event: Event) -> None: ...

    with pytest.raises(TypeError, match=r"abstract methods '?close'?, '?counters'?, '?open'?"):
        Half()  # type: ignore[abstract]


def test_four_methods_are_enough() -> None:
    """The bus does what the medium does not, or says that nobody can."""
    link = Plain()
    with Bus(link) as bus:
        inbox, shared = bus.collection(Lamp).inbox(), bus.collection(Lamp, "queue").inbox()
        assert bus.publish_all([Lamp(on=True), Lamp(on=False)]) == 2
        channel = bus.channel(Lamp)
        channel.announce()
        channel.publish(Lamp(on=True))
        link.deliver(Lamp(on=False))
        for each in (inbox, shared):
            assert [each.get(timeout=0).on for _ in range(4)] == [True, False, True, False]
        assert [event for event in link.sent if isinstance(event, Lamp)] == [
            Lamp(on=True),
            Lamp(on=False),
            Lamp(on=True),
        ]
        assert channel.slot is None
        assert (bus.types, bus.last_values(Subscription(Lamp)), bus.time().precision_ns) == ({}, [], None)
        with pytest.raises(BusError, match="keeps deadlines"):
            bus.channel(Lamp, Soft(deadline="1ms")).announce()
        with pytest.raises(BusError, match="keeps no last values"):
            bus.channel(Lamp, keep=True).announce()


def test_a_link_that_is_none_is_refused_with_what_to_write() -> None:
    with pytest.raises(BusError, match=r"object cannot be the link of a bus; derive it from genus\.bus\.Link"):
        Bus(object())  # type: ignore[arg-type]
