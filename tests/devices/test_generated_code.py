"""Generated C against the oracle: random systems of types, every payload that Python writes, and damaged ones."""

from enum import Enum
from typing import Any

import pytest

from genus import Catalog, Event, Subscription, UInt8
from genus.can._protocol.catalog_queries import CatalogIndex
from genus.can._protocol.messages import Question, QuestionKind
from genus.model import attributes
from genus.model._values import unread_values
from genus.model.types import ChoiceType, OpaqueType
from tests.programs import needs

from .compiled import (
    MALFORMED,
    NOT_WANTED,
    OK,
    UNKNOWN_TYPE,
    WILD,
    Device,
    codec_of,
    device_of,
    frame_of,
)
from .random_system import RandomSystem

pytestmark = [needs("gcc"), pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")]

CODECS = ("table", "straight")


def make(system: RandomSystem, codec: str, subscriptions: int = 8) -> Device:
    asked = system.subscriptions(subscriptions)
    publishable = [cls for cls in system.types if not requires_opaque(cls)]
    return device_of(asked, system.catalog, codec=codec, publish=publishable, name="node")


def requires_opaque(cls: type[Event]) -> bool:
    return any(isinstance(each.type, OpaqueType) and not each.optional for each in attributes(cls))


def carries_opaque(event: Event) -> bool:
    return any(getattr(event, name) is not None for name in opaque_of(type(event)))


def choices_of(cls: type[Event]) -> set[str]:
    return {each.name for each in attributes(cls) if isinstance(each.type, ChoiceType)}


def opaque_of(cls: type[Event]) -> set[str]:
    return {each.name for each in attributes(cls) if isinstance(each.type, OpaqueType)}


def carries_others(cls: type[Event], catalog: Catalog, payload: bytes) -> bool:
    """Whether a payload has attributes of the vector that its class does not have, as if it had gained them."""
    header = [payload[0]]
    while header[-1] & (0x10 if len(header) == 1 else 0x80):
        header.append(payload[len(header)])
    others = [(each.byte, each.mask) for each in codec_of(cls, catalog).fields if not each.declared]
    return any(byte is not None and byte < len(header) and header[byte] & mask for byte, mask in others)


def check_events(device: Device, system: RandomSystem, events: list[Event]) -> int:
    """Compare a device with the oracle, subscription by subscription; returns how many pairs that were."""
    frames = [frame_of(event, system.catalog, number % 8) for number, event in enumerate(events)]
    answers = device.receive(frames)
    for event, (_, payload), (status, hits, again) in zip(events, frames, answers, strict=True):
        for number, made in enumerate(device.firmware.filters):
            wanted = made.subscription.matches(event)
            if made.residual is None:
                assert (number in hits) is wanted, f"{made.subscription} on {event!r}\n{made.explain()}"
            else:
                assert number in hits or not wanted
        assert status == (OK if hits else NOT_WANTED)
        if hits and not carries_opaque(event):
            assert again == payload, f"{event!r} is encoded as {again.hex(' ')}, not {payload.hex(' ')}"
    return len(events) * len(device.firmware.filters)


def check_damaged(device: Device, system: RandomSystem, events: list[Event]) -> int:
    """What Python refuses the device refuses, and what it reads the device reads as the same event.

    Both read an event without a choice that they do not know; the device refuses other values that cannot be read,
    which are only absent in Python. It reads all attributes of its vector: those that a class does not have are left
    out here, and are in `test_a_device_gives_the_answer_of_the_oracle_on_types_that_grew`.
    """
    return check_frames(
        device, system, [system.damaged(frame_of(e, system.catalog)) for e in events if not carries_opaque(e)]
    )


def check_choices(device: Device, system: RandomSystem, events: list[Event]) -> int:
    """As `check_damaged`, on frames with choices that the catalog has and the classes may not have."""
    frames = [frame_of(event, system.catalog) for event in events if not carries_opaque(event)]
    return check_frames(device, system, frames)


def check_frames(device: Device, system: RandomSystem, frames: list[tuple[int, bytes]]) -> int:
    catalog = system.catalog
    for (etag, payload), (status, hits, _) in zip(frames, device.receive(frames), strict=True):
        assert status != WILD, payload.hex(" ")
        name = catalog.type_of(etag)
        cls = next(each for each in system.types if each.__name__ == name)
        decoded = codec_of(cls, catalog).decode(etag, payload)
        if isinstance(decoded, Event):
            if carries_opaque(decoded) or carries_others(cls, catalog, payload):
                continue
            if unread_values(decoded).keys() & opaque_of(cls):  # a device takes an opaque value for one that is present
                continue
            if status == MALFORMED and not unread_values(decoded).keys() <= choices_of(cls):
                continue
            for number, made in enumerate(device.firmware.filters):
                if made.residual is None:
                    assert (number in hits) is made.subscription.matches(decoded), f"{payload.hex(' ')}: {decoded!r}"
        else:
            assert any(isinstance(a.type, OpaqueType) for a in catalog.vector(cls)) or status == MALFORMED, (
                f"{payload.hex(' ')} of {name}: {decoded.reason}"
            )
    return len(frames)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(2))
def test_a_device_gives_the_answer_of_the_oracle(seed: int, codec: str) -> None:
    """On every event of a random system; and what it encodes is byte for byte what Python encodes."""
    system = RandomSystem(seed)
    device = make(system, codec)
    assert check_events(device, system, system.events(150)) > 1000
    assert check_damaged(device, system, system.events(300)) > 100
    assert check_choices(device, system, system.wider_events(300)) > 100


def check_grown(seed: int, codec: str, events: int) -> int:
    """Compare a device with the oracle of a system that has grown since; returns how many pairs that were.

    A type of a family that the device knows is learnt by the broker's answer, with tables; one of a family of its own
    stays unknown, as its event tags do not pass the filters either. A subscription has handlers for the families that
    it could match when the firmware was made, and gets types of those.
    """
    system = RandomSystem(seed)
    device = make(system, codec)
    later = system.grow()
    asked = [
        Subscription.parse(str(made.subscription), [*later.types, *later.kinds, Event])
        for made in device.firmware.filters
    ]
    names, index = {cls.__name__ for cls in system.types}, CatalogIndex(later.catalog)
    families = {system.catalog.vector(cls).scope for cls in system.types}
    unknown: set[str] = set()
    pairs = 0
    for event in later.events(events):
        etag, payload = frame_of(event, later.catalog)
        name = type(event).__name__
        if name not in names:
            assert device.receive([(etag, payload)])[0][:2] == (UNKNOWN_TYPE, ())
            is_learnt = codec == "table" and device.learn(index.answer(Question(1, 0, QuestionKind.CLASS, etag)))
            assert is_learnt is (codec == "table" and later.catalog.vector(name).scope in families)
            (names if is_learnt else unknown).add(name)
        [(status, hits, _)] = device.receive([(etag, payload)])
        if name in unknown:
            assert (status, hits) == (UNKNOWN_TYPE, ())
            continue
        for number, (made, wanted) in enumerate(zip(device.firmware.filters, asked, strict=True)):
            expected = wanted.matches(event) and later.catalog.vector(name).scope in made.tests
            if made.residual is None:
                assert (number in hits) is expected, f"{wanted} on {event!r}\n{made.explain()}"
            else:
                assert number in hits or not expected
            pairs += 1
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_a_device_gives_the_answer_of_the_oracle_on_types_that_grew(codec: str) -> None:
    """Attributes that types gained are read if the vector of the firmware has them, and skipped if not; exact too."""
    assert sum(check_grown(seed, codec, 120) for seed in (0, 5)) > 1000


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("block", range(10))
def test_a_device_gives_the_answer_of_the_oracle_on_a_hundred_systems_that_grew(block: int, codec: str) -> None:
    assert sum(check_grown(seed, codec, 500) for seed in range(2000 + 10 * block, 2010 + 10 * block)) > 10_000


@pytest.mark.parametrize("codec", CODECS)
def test_a_choice_that_is_newer_than_the_firmware_is_absent(codec: str) -> None:
    """Also one that is required: the rest of the event is read, as in Python."""
    metaclass: Any = type(Event)
    types = []
    for names in (("off", "on"), ("off", "on", "broken")):
        states: Any = Enum("state", {name: name for name in names})  # type: ignore[misc]
        namespace = {"__annotations__": {"state": states, "level": UInt8}, "__module__": f"{__name__}.{len(names)}"}
        types.append(metaclass("Switch", (Event,), namespace))
    catalog, asked = Catalog(), ("state == 'off'", "state != 'off'", "level > 2", "state is absent")
    catalog.register(types[0])
    device = device_of([Subscription(types[0], where=where) for where in asked], catalog, codec=codec)
    grown = Catalog.parse(catalog.text())
    grown.register(types[1])
    payloads = [frame_of(types[1](state=state, level=3), grown) for state in states]
    assert [hits for _, hits, _ in device.receive(payloads)] == [(0, 2), (1, 2), (2, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("block", range(10))
def test_a_device_gives_the_answer_of_the_oracle_in_a_million_cases(block: int, codec: str) -> None:
    """The long run: 200 random systems, more than a million payloads and ten million pairs with each codec."""
    vectors = 0
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        system = RandomSystem(seed)
        device = make(system, codec)
        vectors += check_events(device, system, system.events(1000))
        vectors += check_damaged(device, system, system.events(5000))
        vectors += check_choices(device, system, system.wider_events(1000))
    assert vectors > 100_000


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [3, 254, 255, 256, 300])
def test_an_index_has_as_many_bytes_as_python_reads(count: int, codec: str) -> None:
    """One in a list of up to 255 choices, also if three would give a valid index; else one or three."""
    metaclass: Any = type(Event)
    many = Enum("many", {f"V{number}": f"v{number}" for number in range(count)})  # type: ignore[misc]
    namespace = {"__annotations__": {"choice": many, "level": UInt8}, "__module__": __name__}
    cls = metaclass(f"Choosing{count}", (Event,), namespace)
    catalog = Catalog()
    catalog.register(cls)
    device, python = device_of([Subscription(cls)], catalog, codec=codec), codec_of(cls, catalog)
    indexes = ("00", "fd", "fe", "ff", "ff 00", "ff 00 01", "ff 00 ff", "ff 01 00", "ff ff ff")
    payloads = [b"\0" + bytes.fromhex(index) + tail for index in indexes for tail in (b"", b"\x05")]
    found = device.receive((catalog.etag(cls), payload) for payload in payloads)
    for payload, (status, _, _) in zip(payloads, found, strict=True):
        assert (status == OK) is isinstance(python.decode(0, payload), Event), payload.hex(" ")


def test_every_truncation_of_every_frame_is_refused_or_read_as_python_reads_it() -> None:
    system = RandomSystem(77)
    device = make(system, "table")
    events = [event for event in system.events(60) if not carries_opaque(event)]
    for event in events:
        etag, payload = frame_of(event, system.catalog)
        codec = codec_of(type(event), system.catalog)
        cuts = [(etag, payload[:size]) for size in range(len(payload))]
        for (_, cut), (status, _, _) in zip(cuts, device.receive(cuts), strict=True):
            is_read = isinstance(codec.decode(etag, cut), Event)
            assert (status == MALFORMED) is not is_read


def test_event_tags_that_no_type_has_are_unknown() -> None:
    system = RandomSystem(5)
    device = make(system, "table")
    known = {each for tag in range(1 << 14) if (each := tag) and system.catalog.type_of(tag) is not None}
    free = [tag for tag in range(128, 1 << 14) if tag not in known]
    assert {status for status, _, _ in device.receive((tag, b"\0") for tag in free)} == {UNKNOWN_TYPE}
