"""Every length of time that a user gives is a `Span`: in calls, options of commands, addresses and files."""

import inspect
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any, get_args

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Soft
from genus.can import parse_fault
from genus.can._live.interfaces import parse_address as parse_can_address
from genus.can._plan.foreign import PlanTable
from genus.cli import SpanParam, genus
from genus.errors import BusError, PlanError, SpanError
from genus.lake import Pairing, Windows
from genus.lake._query.removal import time_before
from genus.net import RateLimit
from genus.net._addresses import parse_coap_address, parse_zenoh_address
from genus.net._gateway.rules import parse_rate
from genus.net._mqtt.address import parse_mqtt_address
from genus.studio import parse_simulation
from genus.studio._simulation import ScenarioOptions
from genus.testing import VirtualClock
from tests.examples import examples
from tests.front_doors import DOORS

# -- calls -------------------------------------------------------------------------------------------------------------

TIME_NAMES = {
    *("age", "deadline", "delay", "duration", "every", "expires", "flush", "grace", "hold", "idle", "interval"),
    *("lateness", "lead", "minutes", "older_than", "pause", "per", "period", "seconds", "slide", "span"),
    *("tolerance", "timeout", "within"),
}
"""Names of lengths of time; whole numbers with a unit in their name (`period_ns`) are those of protocols."""

EXCEPTIONS = {
    r"genus\.bus\.types\.Clock\.sleep\(seconds\)": "what a clock implements; programs call Bus.sleep",
    r"genus\.net\.Sending\(expires_s\)": "what a link gives to a transport",
    r"genus\.testing\.EmulatedCanBus(\(epoch_s\)|\.send\(timeout\))": "the interface of python-can",
    r"genus\.model\.micros_of_duration\(span\)": "the value of an attribute",
    r"genus\.\w+(\.types)?\.\w*(Result|Progress|Outcome)\((lag_)?seconds\)": "a result, which says how long it took",
}
"""Parameters that are no spans, with the reason."""


def parameters() -> Iterator[tuple[str, str, Any]]:
    """The path, name and annotation of every parameter of public calls."""
    for door in DOORS:
        room = import_module(door)
        for name in room.__all__:
            yield from _parameters_of(f"{door}.{name}", getattr(room, name))


def _parameters_of(path: str, thing: object) -> Iterator[tuple[str, str, Any]]:
    calls = {path: thing} if callable(thing) and not _is_event(thing) else {}
    if inspect.isclass(thing) and not _is_event(thing):
        members = {name: inspect.getattr_static(thing, name) for name in dir(thing) if not name.startswith("_")}
        functions = {name: getattr(member, "__func__", member) for name, member in members.items()}
        calls |= {f"{path}.{name}": each for name, each in functions.items() if _is_own(each)}
    for where, call in calls.items():
        try:
            found = inspect.signature(call).parameters
        except (TypeError, ValueError):
            continue
        for name, parameter in found.items():
            yield where, name, parameter.annotation


def _is_event(thing: object) -> bool:
    """Whether it is an event type, whose attributes are values."""
    return inspect.isclass(thing) and issubclass(thing, Event)


def _is_own(member: object) -> bool:
    return inspect.isfunction(member) and member.__module__.startswith("genus")


def _is_time(name: str, annotation: Any) -> bool:
    return name in TIME_NAMES or name.endswith(("_s", "_seconds")) or _parts(annotation) & {timedelta} != set()


def _parts(annotation: Any) -> set[Any]:
    """The types of an annotation, also within containers."""
    inner = annotation if isinstance(annotation, list) else get_args(annotation)
    own = set() if isinstance(annotation, list) else {annotation}
    return own | {part for each in inner for part in _parts(each)}


def _takes_a_span(annotation: Any) -> bool:
    numbers = _parts(annotation) & {int, float, timedelta}
    return not numbers or {float, str, timedelta} <= _parts(annotation)


def test_every_public_parameter_of_time_takes_a_span() -> None:
    paths = {f"{path}({name})": annotation for path, name, annotation in parameters() if _is_time(name, annotation)}
    wrong = [path for path, annotation in paths.items() if not _takes_a_span(annotation)]
    assert len(paths) > 40
    assert [path for path in wrong if not any(re.fullmatch(known, path) for known in EXCEPTIONS)] == []


CALLS: dict[str, Callable[[Any], object]] = {
    "timeout is": lambda span: Catalog().save("/nowhere/catalog.json", timeout=span),
    "every is": lambda span: Windows(every=span),
    "slide is": lambda span: Windows(every=1, slide=span),
    "within is": lambda span: Pairing(by=("lane",), within=span),
    "lateness is": lambda span: Pairing(by=("lane",), within=1, lateness=span),
    "by is": lambda span: VirtualClock().advance(span),
    "per is": lambda span: RateLimit(1, per=span),
    "older_than is": lambda span: time_before(span, None),
    "deadline is": lambda span: Soft(deadline=span),
}


@pytest.mark.parametrize("message", CALLS)
@pytest.mark.parametrize("wrong", ["soon", "5 m", -1, float("nan"), True, timedelta(seconds=-1)])
def test_what_is_no_span_is_a_span_error_that_names_the_argument(message: str, wrong: object) -> None:
    with pytest.raises(SpanError, match=f"^{message} "):
        CALLS[message](wrong)


def options_of(command: click.Command, path: str = "genus") -> Iterator[tuple[str, click.Parameter]]:
    """The parameters of a command and of all below it."""
    for parameter in command.params:
        yield f"{path} {parameter.name}", parameter
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from options_of(found, f"{path} {name}")


def test_every_option_of_time_takes_a_span() -> None:
    options = dict(options_of(genus))
    times = [path for path in options if path.split()[-1] in {*TIME_NAMES, "lasts", "begin", "minutes"}]
    assert len(times) > 10
    assert [path for path in times if not isinstance(options[path].type, SpanParam)] == []
    numbers = [path for path, option in options.items() if isinstance(option.type, click.types.FloatParamType)]
    assert [path for path in numbers if not path.endswith(" speed")] == []


# -- texts -------------------------------------------------------------------------------------------------------------

Reader = Callable[[Any], object]


def _fault(text: object) -> object:
    return parse_fault(f"bursts every={text} bits=10")


READERS: dict[str, tuple[Reader, type[Exception], str]] = {
    "coap beat": (lambda text: parse_coap_address(f"//host?beat={text}").beat_s, BusError, "coap://host: beat"),
    "coap poll": (lambda text: parse_coap_address(f"//host?poll={text}").poll_s, BusError, "coap://host: poll"),
    "mqtt": (lambda text: parse_mqtt_address(f"//host?keep_alive={text}").keep_alive_s, BusError, "mqtt://host: keep_"),
    "zenoh": (lambda text: parse_zenoh_address(f"?wait={text}").wait_s, BusError, "zenoh: wait"),
    "can": (lambda text: parse_can_address(f"virtual?granularity={text}").granularity_ns, BusError, "granularity"),
    "rate": (lambda text: parse_rate(f"10/{text}").per, BusError, "is not a rate: its time"),
    "fault": (_fault, BusError, "every"),
    "sim": (lambda text: parse_simulation(f"x?duration={text}", ScenarioOptions)[1].duration, BusError, "duration"),
    "table": (lambda value: PlanTable("a.toml", {"gap": value}).span("gap"), PlanError, "a.toml: gap"),
    "option": (lambda text: SpanParam().convert(text, None, None), click.BadParameter, "it"),
}


@pytest.mark.parametrize("reader", READERS)
@examples(20)
@given(micros=st.integers(1, 10**9))
def test_a_number_is_seconds_and_a_text_has_its_unit(reader: str, micros: int) -> None:
    read, error, _ = READERS[reader]
    assert read(f"{micros}us") == read(f"{micros / 1000} ms")
    if reader in ("table", "option"):
        assert read(micros / 10**6) == read(f"{micros}us")
    else:
        with pytest.raises(error, match=r"has no unit: write .*s"):
            read(micros)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("wrong", ["5 m", "1.2.3s", "1e999999 s", "300 years"])
def test_what_is_no_span_is_the_reader_s_own_error(reader: str, wrong: str) -> None:
    read, error, where = READERS[reader]
    with pytest.raises(error, match=f"{re.escape(where)}.* is .*{re.escape(wrong)}"):
        read(wrong)
