"""CloudEvents: what is written is read by the lake, by the official SDK and by Genus as the same event."""

import json
import random
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Catalog, Event, Maybe
from genus.errors import EventError, RecordingError
from genus.model import Renamed
from genus.model._plain import is_same
from genus.net import CloudEventReader, CloudEventWriter, Origin, read_cloudevents, write_cloudevents
from genus.net._cloudevents import BATCH, STRUCTURED, event_id
from genus.net.types import CloudEvent
from genus.records import Mapping, RecordReader
from genus.records.types import Rejected
from tests.examples import examples
from tests.generators import Generator, Stranger, WatchedSampler

ORIGIN = Origin(b"12345678", 77)
NOON = datetime(2026, 11, 15, 12, 0, 0, 500_000, UTC)


class Category(Enum):
    TRUCK = "truck"
    CAR = "car"


class Loop(Event):
    lane: int
    speed: Maybe[float] = None
    category: Maybe[Category] = None
    blob: Maybe[bytes] = None
    gap: Maybe[timedelta] = None
    seen: Maybe[datetime] = None
    velocity: Annotated[Maybe[float], Renamed("pace")] = None


class Parcel(Event):
    items: list[Any]
    level: Maybe[Annotated[int, msgspec.Meta(ge=0, le=9)]] = None


class Preset(Event):
    lane: int = 1
    speed: Maybe[float] = 2.0


FULL = Loop(time=NOON, source="/a8", place="A8/km31", lane=2, speed=31.5, category=Category.TRUCK)


def read(payload: bytes | dict[str, Any], *types: type) -> CloudEvent | Rejected:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return CloudEventReader(types or [Loop, Parcel, Preset]).read_structured(text)


def event_of(found: CloudEvent | Rejected) -> Event:
    assert isinstance(found, CloudEvent), found
    return found.event


def same(event: Event, back: Event) -> bool:
    return type(event) is type(back) and all(
        is_same(getattr(event, name), getattr(back, name)) for name in event.__struct_fields__
    )


# -- written and read --------------------------------------------------------------------------------------------------


def test_attributes_are_those_of_the_event() -> None:
    catalog = Catalog()
    catalog.register(Loop)
    made = json.loads(CloudEventWriter(catalog).write_structured(FULL, Origin(b"12345678", 77, 2)))
    schema = made.pop("dataschema")
    assert schema.startswith("genus:")
    assert schema.endswith(f"#{catalog.code(Loop)}")
    assert made == {
        "specversion": "1.0",
        "id": "3132333435363738-77",
        "source": "/a8",
        "type": "Loop",
        "datacontenttype": "application/json",
        "time": "2026-11-15T12:00:00.500000Z",
        "subject": "A8/km31",
        "genushops": 2,
        "data": {
            "time": "2026-11-15T12:00:00.500000Z",
            "source": "/a8",
            "place": "A8/km31",
            "lane": 2,
            "speed": 31.5,
            "category": "truck",
        },
    }


@pytest.mark.parametrize("source", [None, "", "loop 7", "genus:", "é", 'a"b', "/a8?x=1#y", "urn:uuid:1", "100%"])
def test_a_source_that_is_no_uri_reference_is_in_the_data_only(source: str | None) -> None:
    event = Loop(lane=1, source=source)
    text = CloudEventWriter().write_structured(event, ORIGIN)
    is_uri = source in ("/a8?x=1#y", "urn:uuid:1")
    assert json.loads(text)["source"] == (source if is_uri else "genus:")
    assert event_of(read(text)) == event


def test_the_origin_is_read_from_the_id() -> None:
    writer = CloudEventWriter()
    origin = Origin(b"\0\xff345678", 2**32 - 1, 3)
    for key in ("", "city/Edge/1/Loop"):
        found = read(writer.write_structured(FULL, origin, key))
        assert isinstance(found, CloudEvent)
        assert found.origin == origin
        found = CloudEventReader([Loop]).read_binary(*writer.write_binary(FULL, origin, key))
        assert isinstance(found, CloudEvent)
        assert found.origin == origin
    assert event_id(origin, "a") != event_id(origin, "b")
    for id in ("7", "3132333435363738-4294967296", "3132333435363738-07", "x-1"):
        assert CloudEvent(FULL, id, "/a").origin is None


@examples(150)
@given(st.integers(0, 2**32))
def test_random_events_are_read_as_they_were_written(seed: int) -> None:
    writer = CloudEventWriter()
    for event in Generator(seed).events(20):
        reader = CloudEventReader([type(event)])  # other tests have types of the same names
        assert same(event, event_of(reader.read_structured(writer.write_structured(event, ORIGIN))))
        assert same(event, event_of(reader.read_binary(*writer.write_binary(event, ORIGIN))))


@pytest.mark.parametrize(
    "event",
    [
        Loop(lane=1, speed=float("nan")),
        Loop(lane=1, speed=float("-inf"), seen=datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=3601)))),
        Loop(lane=-(2**63), time=datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=2)))),
        Loop(lane=1, blob=b"\0\xff", gap=timedelta(days=-3, microseconds=1)),
        Loop(lane=1, place='"é\n', time=datetime.min.replace(tzinfo=UTC)),
        Parcel(items=[{"a": [1, None]}, "x"], level=3),
        Preset(lane=5, speed=None),
    ],
)
def test_unusual_values_are_read_as_they_were_written(event: Event) -> None:
    writer, reader = CloudEventWriter(), CloudEventReader([Loop, Parcel, Preset])
    for found in (
        reader.read_structured(writer.write_structured(event, ORIGIN)),
        reader.read_binary(*writer.write_binary(event, ORIGIN)),
        *reader.read_batch(writer.write_batch([(event, ORIGIN)])),
    ):
        assert same(event, event_of(found))


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (Loop(lane="x"), "Loop.lane is 'x', but must be int64"),  # type: ignore[arg-type]
        (Loop(lane=2**63), "Loop.lane is "),
        (Parcel(items=[float("nan")]), "Parcel.items is [nan], which field 'items' cannot hold"),
        (Parcel(items=[], level=12), "Parcel.level is 12, but must be int64, Meta("),
    ],
)
def test_an_event_that_could_not_be_read_back_is_refused(event: Event, problem: str) -> None:
    writer = CloudEventWriter()
    for write in (writer.write_structured, writer.write_binary):
        with pytest.raises(EventError) as caught:
            write(event, ORIGIN)
        assert str(caught.value).startswith(problem)


def test_messages_are_read_by_their_content_type() -> None:
    writer, reader = CloudEventWriter(), CloudEventReader([Loop])
    attributes, data = writer.write_binary(FULL, ORIGIN)
    content_type = attributes.pop("datacontenttype")
    batch = writer.write_batch([(FULL, ORIGIN), (Loop(lane=9), Origin(b"12345678", 78))])
    for kind, properties, payload, count in (
        (STRUCTURED, {}, writer.write_structured(FULL, ORIGIN), 1),
        (f"{STRUCTURED.upper()}; charset=utf-8", {}, writer.write_structured(FULL, ORIGIN), 1),
        (BATCH, {}, batch, 2),
        (content_type, attributes, data, 1),
        ("", attributes, data, 1),
    ):
        found = reader.read_message(kind, properties, payload)
        assert len(found) == count
        assert event_of(found[0]) == FULL
    assert str(reader.read_message("application/cloudevents+avro", {}, b"")[0]) == (
        "CloudEvents as application/cloudevents+avro are not read"
    )
    assert str(reader.read_message("text/plain", attributes, data)[0]) == "the data is text/plain, not JSON"
    assert str(reader.read_batch(b'{"a": 1}')[0]).startswith("not a JSON array")


# -- the lake ----------------------------------------------------------------------------------------------------------


@examples(40)
@given(st.integers(0, 2**32))
def test_the_lake_reads_the_same_event(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    pytest.importorskip("pyspark", reason="the lake needs it")
    from genus.lake._ingest.json_lines import JsonLines
    from tests.lake.foreign_files import Found, expected, types_for

    path = tmp_path_factory.mktemp("cloud") / "events.jsonl"
    events = Generator(seed).events(40)
    assert write_cloudevents(path, events) == 40
    found = Found(JsonLines(), path, types_for(WatchedSampler, Stranger, *Generator(0).types))
    assert found.reasons == []
    assert found.events() == expected(events)


ENVELOPES: dict[str, st.SearchStrategy[Any]] = {
    "time": st.sampled_from(["2026-11-15T12:00:00Z", "2026-11-15T12:00:00.1234567Z", "noon", "2026-11-15", None]),
    "data": st.fixed_dictionaries(
        {"lane": st.sampled_from([1, 2.0, 2**63, "x", None, True])},
        optional={
            "speed": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["NaN", 1, 10**400])),
            "category": st.sampled_from(["truck", "tram", None]),
            "blob": st.sampled_from(["AP8=", "AP8"]),
            "gap": st.sampled_from(["PT1S", 1.5, "P1Y"]),
            "seen": st.sampled_from(["2026-11-15t12:00:00z", "2026-11-15T12:00:00.9999999+01:00", 7]),
            "source": st.sampled_from(["x", None]),
            "place": st.sampled_from(["here", "", None]),
            "time": st.sampled_from(["2026-11-15T12:00:01.1234567Z", None, "2026-11-15T12:00:01Z"]),
            "pace": st.just(3.5),
            "colour": st.sampled_from([None, "red"]),
        },
    )
    | st.sampled_from([None, [], "x"]),
    "data_base64": st.sampled_from([None, "AP8="]),
    "subject": st.sampled_from(["there", "", None, 7]),
    "extension": st.sampled_from(["x", {"a": {"b": 1}}]),
}


@examples(600)
@given(
    st.fixed_dictionaries(
        {
            "specversion": st.just("1.0"),
            "id": st.just("7"),
            "source": st.sampled_from(["/a8", "genus:"]),
            "type": st.sampled_from(["Loop", "Loop", "Preset", "Tram"]),
        },
        optional=ENVELOPES,
    )
)
def test_what_is_accepted_is_what_the_rules_of_records_accept(record: dict[str, Any]) -> None:
    """And these are compared with the lake's reader elsewhere; so msgspec is a shortcut, not another meaning."""
    text = json.dumps(record).encode()
    found = read(text)
    by_rules = RecordReader(Mapping(), [Loop, Parcel, Preset], cloud_events=True).read(record)
    assert (found if isinstance(found, Rejected) else repr(found.event)) == (
        by_rules if isinstance(by_rules, Rejected) else repr(by_rules)
    )


# -- the official SDK --------------------------------------------------------------------------------------------------


def sdk() -> Any:
    return pytest.importorskip("cloudevents.core.formats.json", reason="the official SDK is not installed").JSONFormat()


@examples(30)
@given(st.integers(0, 2**32))
def test_the_sdk_reads_what_is_written(seed: int) -> None:
    format = sdk()
    from cloudevents.core.bindings.http import HTTPMessage, from_binary

    writer = CloudEventWriter()
    for number, event in enumerate(Generator(seed).events(10)):
        text = writer.write_structured(event, Origin(b"12345678", number))
        theirs = format.read(None, text)
        assert theirs.get_data() == json.loads(text)["data"]
        assert (theirs.get_id(), theirs.get_type()) == (f"3132333435363738-{number}", type(event).__name__)
        if event.time is not None:
            assert theirs.get_time() == event.time.astimezone(UTC)
        attributes, data = writer.write_binary(event, Origin(b"12345678", number))
        headers = {f"ce-{name}": quote(value) for name, value in attributes.items() if name != "datacontenttype"}
        message = HTTPMessage({**headers, "content-type": attributes["datacontenttype"]}, data)
        binary = from_binary(message, format)
        added = set() if event.time is not None else {"time"}  # the SDK adds the present time
        assert {name: value for name, value in binary.get_attributes().items() if name not in added} == {
            name: value for name, value in theirs.get_attributes().items() if name not in added
        }
        assert binary.get_data() == theirs.get_data()


@pytest.mark.parametrize(
    ("attributes", "data", "event"),
    [
        ({"source": "/a8"}, {"lane": 2}, Loop(source="/a8", lane=2)),
        ({"source": "/a8", "time": NOON}, {"lane": 2}, Loop(source="/a8", time=NOON, lane=2)),
        ({"source": "/a8", "subject": "km31"}, {"lane": 2}, Loop(source="/a8", place="km31", lane=2)),
        (
            {"source": "/a8", "other": "x", "subject": "s"},
            {"lane": 2, "place": "p"},
            Loop(source="/a8", place="p", lane=2),
        ),
        (
            {"source": "genus:"},
            {"lane": 2, "speed": "NaN", "blob": "AP8="},
            Loop(lane=2, speed=float("nan"), blob=b"\0\xff"),
        ),
    ],
)
def test_what_the_sdk_writes_is_read(attributes: dict[str, Any], data: dict[str, Any], event: Loop) -> None:
    format = sdk()
    from cloudevents.core.bindings.http import to_binary
    from cloudevents.core.v1.event import CloudEvent as SdkEvent

    theirs = SdkEvent({"type": "Loop", "id": "7", "datacontenttype": "application/json", **attributes}, data)
    wanted = msgspec.structs.replace(event, time=theirs.get_time())  # the SDK adds the present time
    assert same(wanted, event_of(read(format.write(theirs))))
    message = to_binary(theirs, format)
    properties = {name.removeprefix("ce-"): value for name, value in message.headers.items() if name.startswith("ce-")}
    (found,) = CloudEventReader([Loop]).read_message(message.headers["content-type"], properties, message.body)
    assert same(wanted, event_of(found))


# -- what is rejected --------------------------------------------------------------------------------------------------

GOOD = {"specversion": "1.0", "id": "7", "source": "/a8", "type": "Loop", "data": {"lane": 2}}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"specversion": None}, "specversion is missing"),
        ({"specversion": "0.3"}, "specversion is '0.3'; CloudEvents 1.0 are read"),
        ({"specversion": 1.0}, "specversion is not a text"),
        ({"id": None}, "id is missing"),
        ({"id": ""}, "id is not a text"),
        ({"id": 7}, "id is not a text"),
        ({"source": ""}, "source is not a text"),
        ({"type": None}, "type is missing"),
        ({"type": "Tram"}, "unknown type 'Tram'"),
        ({"data": None}, "Loop lacks 'lane', which it must carry"),
        ({"data": []}, "the field 'data' is not an object"),
        ({"data": {"lane": "x"}}, "Loop.lane is 'x', but must be int64 (field 'data.lane')"),
        ({"data": {"lane": 1, "colour": 2}}, "Loop has no attribute 'data.colour'"),
        ({"data_base64": "AP8="}, "data_base64 holds binary data"),
        ({"time": "noon"}, "Loop.time is 'noon', but must be time"),
        ({"genushops": -1}, "genushops is not a number of gateways"),
        ({"genushops": "x"}, "genushops is not a number of gateways"),
    ],
)
def test_a_bad_cloudevent_is_rejected_with_the_reason(change: dict[str, Any], reason: str) -> None:
    assert str(read({**GOOD, **change})).startswith(reason)


@pytest.mark.parametrize(
    ("change", "data", "reason"),
    [
        ({"specversion": ""}, b'{"lane": 1}', "specversion is not a text"),
        ({"id": ""}, b'{"lane": 1}', "id is not a text"),
        ({"time": "noon"}, b'{"lane": 1}', "Loop.time is 'noon', but must be time"),
        ({"genushops": "256"}, b'{"lane": 1}', "genushops is not a number of gateways"),
        ({"genushops": "9" * 5000}, b'{"lane": 1}', "genushops is not a number of gateways"),
        ({}, b"", "not JSON"),
        ({}, b"[]", "the field 'data' is not an object"),
        ({}, b"\xff", "not JSON"),
        ({"data": "{}"}, b'{"lane": "x"}', "Loop.lane is 'x'"),
        ({"datacontenttype": "text/xml"}, b"<a/>", "the data is text/xml, not JSON"),
    ],
)
def test_a_bad_cloudevent_in_binary_mode_is_rejected(change: dict[str, str], data: bytes, reason: str) -> None:
    attributes = {"specversion": "1.0", "id": "7", "source": "/a8", "type": "Loop", **change}
    assert str(CloudEventReader([Loop]).read_binary(attributes, data)).startswith(reason)


@pytest.mark.parametrize("payload", [b"", b"null", b"[]", b"7", b"\xff", b"{", b"[" * 400, b'{"a":' * 100_000])
def test_what_is_no_object_is_rejected(payload: bytes) -> None:
    assert isinstance(read(payload), Rejected)
    assert all(isinstance(each, Rejected) for each in CloudEventReader([Loop]).read_batch(payload))


def test_size_and_depth_are_limited() -> None:
    reader = CloudEventReader([Parcel], largest=2000)
    deep = json.dumps({**GOOD, "type": "Parcel", "data": {"items": eval("[" * 40 + "]" * 40)}}).encode()
    assert str(reader.read_structured(deep)) == "deeper than 32"
    assert str(reader.read_structured(b" " * 2001)) == "more than 2000 bytes"
    assert str(reader.read_binary({}, b" " * 2001)) == "more than 2000 bytes"
    assert str(reader.read_batch(b" " * 2001)[0]) == "more than 2000 bytes"


@examples(400)
@given(st.integers(0, 2**32))
def test_damage_never_raises(seed: int) -> None:
    draw = random.Random(seed)
    (event,) = Generator(seed).events(1)
    content = bytearray(CloudEventWriter().write_structured(event, ORIGIN))
    for _ in range(draw.randrange(1, 6)):
        content[draw.randrange(len(content))] = draw.randrange(256)
    found = CloudEventReader().read_structured(bytes(content[: draw.choice([None, draw.randrange(len(content))])]))
    assert isinstance(found, CloudEvent | Rejected)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    events = [FULL, Loop(lane=9), Parcel(items=[1])]
    assert write_cloudevents(tmp_path / name, events, uid=b"12345678") == 3
    found = list(read_cloudevents(tmp_path / name, [Loop, Parcel]))
    assert [event_of(each) for each in found] == events
    assert [each.origin for each in found if isinstance(each, CloudEvent)] == [
        Origin(b"12345678", number) for number in range(3)
    ]


def test_other_lines_are_rejected_and_the_good_ones_around_them_read(tmp_path: Path) -> None:
    good = json.dumps(GOOD).encode()
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join([good, b"", b"broken", good, b"x" * (9 * 1024 * 1024), good]))
    found = list(read_cloudevents(path, [Loop]))
    assert [isinstance(each, CloudEvent) for each in found] == [True, False, True, False, True]
    path.write_bytes(b"\n [" + good + b",\n" + good + b", 7]")
    assert [isinstance(each, CloudEvent) for each in read_cloudevents(path, [Loop])] == [True, True, False]
    path.write_bytes(b"")
    assert list(read_cloudevents(path, [Loop])) == []


def test_a_damaged_or_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    write_cloudevents(path, [FULL] * 500)
    path.write_bytes(path.read_bytes()[:-20])
    found = list(read_cloudevents(path, [Loop]))
    assert isinstance(found[0], CloudEvent)
    assert str(found[-1]).startswith("the file is damaged here")
    with pytest.raises(RecordingError, match=r"nowhere.jsonl: cannot be read: No such file"):
        read_cloudevents(tmp_path / "nowhere.jsonl")
    with pytest.raises(RecordingError, match="cannot be written"):
        write_cloudevents(tmp_path / "no" / "folder.jsonl", [FULL])
