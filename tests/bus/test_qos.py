"""Qualities of service: what a channel takes for one, and their text."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import BestEffort, Event, Hard, Soft, open_bus
from genus.bus import parse_qos
from genus.bus.types import QoS
from genus.errors import BusError, SpanError
from genus.model import Span


class Valve(Event):
    open: bool


QUALITIES = {
    "hard:10ms": Hard("10ms"),
    "hard:10ms:2": Hard("10ms", omissions=2),
    "hard:10ms:sporadic": Hard("10ms", sporadic=True),
    "hard:10ms:0:sporadic": Hard("10ms", omissions=0, sporadic=True),
    "soft:20ms": Soft("20ms"),
    "soft:20ms:100ms": Soft("20ms", expires="100ms"),
    "none": BestEffort(),
    "none:1": BestEffort(priority=1),
    "none:20ms": BestEffort(period="20ms"),
    "none:1:20ms": BestEffort(priority=1, period="20ms"),
}


@given(st.integers(1, 10_000), st.integers(1, 3))
def test_equal_by_meaning_however_times_are_written(millis: int, other: int) -> None:
    forms: list[Span] = [f"{millis}ms", f"{millis * 1000} us", millis / 1000, timedelta(milliseconds=millis)]
    makers: list[Callable[[Span], QoS]] = [
        Hard, Soft, lambda span: Soft(span, expires=span, period=span), lambda span: BestEffort(period=span),
    ]  # fmt: skip
    for make in makers:
        made = [make(form) for form in forms]
        assert len(set(made)) == 1
        assert not any(one != made[0] for one in made)
        assert made[0] != make(f"{millis + other}ms")
    assert len({make(forms[0]) for make in makers}) == len(makers)
    assert Hard(1, omissions=other) != Hard(1, omissions=0)


@pytest.mark.parametrize(("text", "expected"), QUALITIES.items())
def test_a_channel_takes_the_text_of_the_command_line(text: str, expected: QoS) -> None:
    with open_bus() as bus:
        assert bus.channel(Valve, text).qos == bus.channel(Valve, expected).qos == parse_qos(text) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("soft", "'soft' lacks its deadline; write for example soft:20ms"),
        ("hard", "'hard' lacks its period; write for example hard:10ms"),
        ("hard:sporadic", "lacks its period"),
        ("firm:3ms", "is none of hard:PERIOD"),
        ("soft:soon", "deadline is 'soon'; write seconds"),
        ("soft:10ms:sporadic", "expires is 'sporadic'; write seconds"),
        ("none:7", "priority is 7"),
        ("none:0:1:2", "is none of hard:PERIOD"),
        ("hard:10ms:two", "is none of hard:PERIOD"),
        (42, "42 is not a quality of service; give Hard"),
        (None, "None is not a quality of service"),
        (Soft, "is not a quality of service"),
    ],
)
def test_what_is_no_quality_of_service_is_refused_with_what_to_write(given: object, message: str) -> None:
    with open_bus() as bus, pytest.raises((BusError, SpanError), match=message):
        bus.channel(Valve, given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hard("10ms", omissions=-1), "omissions is -1; it must be 0 or more"),
        (lambda: Hard("0ms"), "period is '0ms'"),
        (lambda: Soft(0), "deadline is 0"),
        (lambda: Soft("20ms", expires="19ms"), "expires is 19ms, before the deadline of 20ms"),
        (lambda: Soft("20ms", period=0), "period is 0"),
        (lambda: BestEffort(period="-1s"), "period is '-1s'"),
        (lambda: BestEffort(priority=2), r"priority is 2; it must be 0 \(normal\) or 1 \(bulk\)"),
    ],
)
def test_a_quality_of_service_that_no_medium_can_keep_is_refused(make: Callable[[], QoS], message: str) -> None:
    with pytest.raises((BusError, SpanError), match=message):
        make()


def test_the_limits_of_a_quality_of_service_are_within_it() -> None:
    assert Hard("10ms", omissions=0).omissions == 0
    assert Soft("20ms", expires=0.02).expires == 0.02


@given(st.text(max_size=20) | st.from_regex(r"(hard|soft|none)(:[a-z0-9.]{0,5}){0,3}", fullmatch=True))
def test_any_text_is_a_quality_of_service_or_refused(text: str) -> None:
    try:
        found = parse_qos(text)
    except (BusError, SpanError):
        return
    assert isinstance(found, Hard | Soft | BestEffort)
