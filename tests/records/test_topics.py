"""Foreign topics: messages of other systems become events, events become messages, and all else is counted."""

import json
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe
from genus.errors import MappingError, Reasons
from genus.records import ForeignTopics, Message, read_mapping
from genus.records._payload import DEEPEST, Rejections, decode_json, depth_of, limit_problem
from genus.records.types import Rejected
from tests.examples import examples


class Switch(Enum):
    ON = "ON"
    OFF = "OFF"


class Climate(Event):
    temperature: Maybe[float] = None
    humidity: Maybe[float] = None
    battery: Maybe[int] = None


class Lamp(Event):
    state: Switch
    brightness: Maybe[int] = None


class LampCommand(Event):
    state: Switch


class Online(Event):
    state: str


class Metric(Event):
    value: float
    name: str


TYPES = [Climate, Lamp, LampCommand, Online, Metric]


def topics(text: str) -> ForeignTopics:
    return ForeignTopics(read_mapping(text), TYPES)


def reasons(found: list[Event | Rejected]) -> list[str]:
    assert all(isinstance(each, Rejected) for each in found), found
    return [str(each) for each in found]


ZIGBEE = """
ignore = ["linkquality", "voltage"]
[topics]
"zigbee2mqtt/{source}" = "Climate"
"zigbee2mqtt/bridge" = false
"zigbee2mqtt/{source}/availability" = { type = "Online", payload = "text", to = "state" }
"zigbee2mqtt/{source}/set" = { type = "LampCommand", only = "publish" }
"zigbee2mqtt/lamps/{place}/{source}" = "Lamp"
"""


# -- reading -----------------------------------------------------------------------------------------------------------


def test_levels_of_the_topic_are_attributes_of_the_same_name() -> None:
    reader = topics(ZIGBEE)
    assert reader.read("zigbee2mqtt/attic", b'{"temperature": 21.5, "linkquality": 7}') == [
        Climate(source="attic", temperature=21.5)
    ]
    assert reader.read("zigbee2mqtt/lamps/hall/l1", b'{"state": "ON"}') == [
        Lamp(place="hall", source="l1", state=Switch.ON)
    ]
    assert reader.counters == {}


def test_a_field_of_the_payload_comes_before_a_level() -> None:
    assert topics(ZIGBEE).read("zigbee2mqtt/attic", b'{"source": "probe", "battery": 9}') == [
        Climate(source="probe", battery=9)
    ]


def test_filters_are_those_of_topics_that_are_read() -> None:
    assert set(topics(ZIGBEE).filters) == {"zigbee2mqtt/+", "zigbee2mqtt/+/availability", "zigbee2mqtt/lamps/+/+"}


def test_the_most_specific_pattern_is_used_and_skipped_topics_say_nothing() -> None:
    reader = topics(ZIGBEE)
    assert reader.read("zigbee2mqtt/bridge", b"anything") == []
    assert reader.counters == {}
    assert reader.read("zigbee2mqtt/attic/availability", b"online") == [Online(source="attic", state="online")]
    assert reasons(reader.read("zigbee2mqtt/attic/set", b'{"state": "ON"}')) == ["unknown topic"]


def test_a_level_may_be_mapped_and_may_name_the_type() -> None:
    reader = topics("""
    [type]
    field = "@kind"
    [types]
    c = "Climate"
    l = "Lamp"
    [topics]
    "house/{room}/{kind}/{battery}/+" = {}
    [attributes]
    "@room" = "place"
    """)
    assert reader.read("house/attic/c/97/x", b'{"temperature": 1}') == [
        Climate(place="attic", battery=97, temperature=1.0)
    ]
    assert reasons(reader.read("house/attic/c/x/x", b"{}")) == [
        "Climate.battery is 'x', but must be int64 (field '@battery')"
    ]
    assert reasons(reader.read("house/attic/tram/x/x", b"{}")) == ["unknown type 'tram'"]


def test_payloads_that_are_a_number_or_a_text() -> None:
    reader = topics("""
    [topics]
    "h/{source}/temperature" = { type = "Climate", payload = "number", to = "temperature", scale = 0.1 }
    "h/{source}/battery" = { type = "Climate", payload = "text", to = "battery", format = "text" }
    """)
    assert reader.read("h/a/temperature", b" 215\n") == [Climate(source="a", temperature=21.5)]
    assert reader.read("h/a/battery", b"97") == [Climate(source="a", battery=97)]
    assert reasons(reader.read("h/a/temperature", b"warm")) == ["not a number"]
    assert reasons(reader.read("h/a/temperature", b"true")) == ["not a number"]
    assert reasons(reader.read("h/a/battery", b"\xff"))[0].startswith("not UTF-8")
    assert reasons(reader.read("h/a/battery", b"full"))[0].startswith("Climate.battery is 'full'")


TASMOTA = """
zone = "Europe/Berlin"
ignore = "rest"
[topics]
"tele/{source}/SENSOR" = [{ type = "Climate", at = "AM2301" }, { type = "Climate", at = "DS18B20" }]
[attributes]
Time = "time"
Temperature = "temperature"
Humidity = "humidity"
"""


def test_one_message_may_give_several_events() -> None:
    payload = {
        "Time": "2026-11-15T12:00:00",
        "AM2301": {"Temperature": 21.5, "Humidity": 40},
        "DS18B20": {"Id": "0", "Temperature": 9},
        "TempUnit": "C",
    }
    at = datetime(2026, 11, 15, 11, tzinfo=UTC)
    reader = topics(TASMOTA)
    assert reader.read("tele/t1/SENSOR", json.dumps(payload).encode()) == [
        Climate(time=at, source="t1", temperature=21.5, humidity=40.0),
        Climate(time=at, source="t1", temperature=9.0),
    ]
    del payload["AM2301"]
    assert len(reader.read("tele/t1/SENSOR", json.dumps(payload).encode())) == 1
    assert reasons(reader.read("tele/t1/SENSOR", b'{"Time": "2026-11-15T12:00:00"}')) == [
        "nothing at 'AM2301' or 'DS18B20'"
    ]


SPARKPLUG = """
ignore = ["seq", "dataType"]
[topics]
"spBv1.0/{group}/DDATA/{node}/{source}" = { type = "Climate", pairs = "metrics" }
"spBv1.0/{group}/NDATA/{source}" = { type = "Metric", at = "metrics[]" }
[attributes]
timestamp = { to = "time", format = "ms" }
"@node" = "place"
"metrics.Temperature" = "temperature"
"metrics.Humidity" = "humidity"
"""
METRICS = {
    "timestamp": 1_000,
    "seq": 3,
    "metrics": [
        {"name": "Temperature", "value": 21.5, "dataType": "Float"},
        {"name": "Humidity", "value": None, "timestamp": 2_000},
    ],
}


def test_a_list_of_names_and_values_is_read_as_an_object() -> None:
    reader = topics(SPARKPLUG)
    at = datetime(1970, 1, 1, tzinfo=UTC)
    assert reader.read("spBv1.0/g/DDATA/n/d", json.dumps(METRICS).encode()) == [
        Climate(time=at + timedelta(seconds=1), source="d", place="n", temperature=21.5)
    ]
    for metrics, reason in (
        ({"a": 1}, "metrics is no list of names and values"),
        ([{"value": 1}], "metrics is no list of names and values"),
        ([{"name": "Humidity"}, {"name": "Humidity"}], "metrics has a name twice"),
        (
            [{"name": "Flow", "value": 1}],
            "no attribute of Climate: the record gives none of temperature, humidity, battery; not read: metrics.Flow",
        ),
    ):
        payload = json.dumps({"metrics": metrics}).encode()
        assert reasons(reader.read("spBv1.0/g/DDATA/n/d", payload)) == [reason]


def test_every_member_of_a_list_may_be_a_record_with_the_fields_around_it() -> None:
    found = topics(SPARKPLUG).read("spBv1.0/g/NDATA/n", json.dumps(METRICS).encode())
    at = datetime(1970, 1, 1, tzinfo=UTC)
    assert found[0] == Metric(time=at + timedelta(seconds=1), source="n", name="Temperature", value=21.5)
    assert str(found[1]) == "Metric lacks 'value', which it must carry"
    assert reasons(topics(SPARKPLUG).read("spBv1.0/g/NDATA/n", b'{"metrics": 3}')) == ["metrics is no list"]


# -- what is rejected --------------------------------------------------------------------------------------------------


def test_rejections_are_counted_by_reason_with_the_last_example() -> None:
    reader = topics(ZIGBEE)
    assert reasons(reader.read("other/topic", b"1")) == ["unknown topic"]
    assert reasons(reader.read("zigbee2mqtt/a", b"")) == ["no payload"]
    for value in ("warm", "cold"):
        reader.read("zigbee2mqtt/a", json.dumps({"temperature": value}).encode())
    reader.read("zigbee2mqtt/a", b"{" + b" " * 500)
    assert reader.counters == {
        "unknown topic": 1,
        "no payload": 1,
        "Climate.temperature must be float64": 2,
        "not JSON": 1,
    }
    example = reader.examples["Climate.temperature must be float64"]
    assert (example.topic, example.payload) == ("zigbee2mqtt/a", '{"temperature": "cold"}')
    assert example.detail == "Climate.temperature is 'cold', but must be float64"
    assert len(reader.examples["not JSON"].payload) == 200


def test_unknown_fields_are_counted_by_name_and_logged_once_and_do_not_reject_a_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = topics(ZIGBEE)
    for _ in range(3):
        payload = b'{"battery": 9, "update": {"state": "idle"}, "unheard": 1}'
        assert reader.read("zigbee2mqtt/a", payload) == [Climate(source="a", battery=9)]
    assert reader.unread == {"Climate.update": 3, "Climate.unheard": 3}
    assert [record.message.partition(";")[0] for record in caplog.records] == [
        "not read: Climate.update",
        "not read: Climate.unheard",
    ]
    for number in range(3 * Reasons.MAX_COUNT):
        reader.read("zigbee2mqtt/a", json.dumps({"battery": 9, f"field {number}": 1}).encode())
    assert len(reader.unread) == Reasons.MAX_COUNT + 1
    assert sum(reader.unread.values()) == 6 + 3 * Reasons.MAX_COUNT
    assert reader.counters == {}


def test_unknown_fields_reject_a_message_by_choice() -> None:
    reader = topics('unknown = "reject"\n' + ZIGBEE)
    payload = b'{"battery": 9, "unheard": 1}'
    assert reasons(reader.read("zigbee2mqtt/a", payload)) == ["Climate has no attribute 'unheard'"]
    assert reader.unread == {}


@pytest.mark.parametrize("unknown", ["", 'unknown = "reject"\n', 'ignore = "rest"\n'])
def test_a_message_that_gives_no_attribute_of_its_type_is_no_event(unknown: str) -> None:
    """Whatever is ignored; the levels of the topic alone say nothing about what happened. Absent values do."""
    reader = topics(unknown + 'absent = [-1]\n[topics]\n"a/{source}" = "Climate"\n"b/{battery}" = "Climate"')
    for payload in (b"{}", b'{"place": "hall"}', b'{"other": 1}'):
        assert len(reasons(reader.read("a/x", payload))) == 1
    assert reader.read("a/x", b'{"battery": -1}') == reader.read("a/x", b'{"battery": null}') == [Climate(source="x")]
    assert reader.read("b/7", b"{}") == [Climate(battery=7)]


BOTH = """
zone = "Europe/Berlin"
[topics]
"zigbee2mqtt/{source}" = "Climate"
"tele/{source}/SENSOR" = [
    { type = "Climate", at = "AM2301", ignore = "rest", attributes = { Time = "time", Temperature = "temperature" } },
    { type = "Climate", at = "SI", ignore = ["Time"], attributes = { Temperature = "temperature", Rh = "humidity" } },
]
[attributes]
charge = "battery"
Temperature = "humidity"
"""


def test_attributes_of_a_topic_are_its_own_and_come_before_those_of_all_topics() -> None:
    reader = topics(BOTH)
    assert reader.read("zigbee2mqtt/a", b'{"temperature": 1, "charge": 9, "Temperature": 3}') == [
        Climate(source="a", temperature=1.0, humidity=3.0, battery=9)
    ]
    message = {"Time": "2026-11-15T12:00:00", "AM2301": {"Temperature": 2, "Id": 1}, "SI": {"Temperature": 3, "Rh": 4}}
    assert reader.read("tele/b/SENSOR", json.dumps(message).encode()) == [
        Climate(time=datetime(2026, 11, 15, 11, tzinfo=UTC), source="b", temperature=2.0),
        Climate(source="b", temperature=3.0, humidity=4.0),
    ]
    assert reader.unread == {}
    assert reader.write(Climate(source="c", temperature=1.0)) == Message("zigbee2mqtt/c", b'{"temperature":1.0}')


def test_the_number_of_reasons_is_bounded() -> None:
    kept = Rejections()
    for number in range(3 * Reasons.MAX_COUNT):
        kept.add(f"reason {number}", "t", b"\xff" * 400)
    assert len(kept.counts) == Reasons.MAX_COUNT + 1
    assert kept.counts[Reasons.OTHER] == 2 * Reasons.MAX_COUNT
    assert len(kept.examples[Reasons.OTHER].payload) == 200


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"[" * 33 + b"]" * 33, "deeper than 32"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "deeper than 32"),
        (b"[" * 500_000, "deeper than 32"),
        (b'"' + b"x" * 1024 * 1024 + b'"', "more than 1048576 bytes"),
        (b'{"temperature": 1, "temperature": 2}', "the field 'temperature' occurs twice"),
        (b'{"@source": 1}', "the payload has a field named like a level of the topic"),
        (b"[1]", "not an object: [1]"),
        (b'"\xff"', "not UTF-8"),
    ],
)
def test_payloads_that_are_too_much_or_ambiguous(payload: bytes, reason: str) -> None:
    assert reasons(topics(ZIGBEE).read("zigbee2mqtt/a", payload))[0].startswith(reason)


def test_brackets_in_texts_are_not_depth() -> None:
    assert depth_of(b'["' + b"[" * 100 + b'\\"[[[["]') == 1
    assert decode_json(b'{"a": "' + b"[" * 100 + b'"}') == {"a": "[" * 100}
    assert depth_of(b'"' + b'\\"' * 300_000) == 0  # in time that grows with the length


@examples(300)
@given(st.recursive(st.sampled_from(["x", '["', 1, None]), lambda inner: st.lists(inner, max_size=3), max_leaves=40))
def test_the_depth_is_that_of_the_value(value: Any) -> None:
    def depth(part: Any) -> int:
        return 1 + max(map(depth, part), default=0) if isinstance(part, list) else 0

    text = json.dumps(value).encode()
    assert depth_of(text) == depth(value)
    assert bool(limit_problem(text)) == (depth(value) > DEEPEST)


TOPIC_NAMES = st.lists(
    st.sampled_from(["zigbee2mqtt", "bridge", "a", "set", "availability", "lamps", "", "$SYS", "#", "+", "é", "\0"]),
    max_size=4,
).map("/".join)
PAYLOADS = st.one_of(
    st.binary(max_size=30),
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["state", "source", "x"]), inner),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
)


@examples(600)
@given(TOPIC_NAMES, PAYLOADS)
def test_nothing_that_arrives_raises(topic: str, payload: bytes) -> None:
    for text in (ZIGBEE, SPARKPLUG, TASMOTA, '[topics]\n"#" = "Climate"'):
        reader = topics(text)
        found = reader.read(topic, payload)
        assert sum(reader.counters.values()) == sum(isinstance(each, Rejected) for each in found)


def test_topics_of_the_broker_are_not_matched_by_wildcards() -> None:
    reader = topics('[topics]\n"#" = "Climate"\n"$SYS/{source}" = "Online"')
    assert reasons(reader.read("$other/a", b"{}")) == ["unknown topic"]
    assert reader.read("$SYS/a", b'{"state": "x"}') == [Online(source="a", state="x")]
    assert reader.read("any/topic", b'{"battery": 9}') == [Climate(battery=9)]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_events_are_published_where_the_mapping_can_be_undone() -> None:
    writer = topics(ZIGBEE)
    assert writer.refusal(Climate) == ""
    assert writer.write(Climate(source="attic", temperature=21.5)) == Message(
        "zigbee2mqtt/attic", b'{"temperature":21.5}'
    )
    assert writer.write(LampCommand(source="l1", state=Switch.OFF)) == Message("zigbee2mqtt/l1/set", b'{"state":"OFF"}')
    assert writer.write(Online(source="a", state="offline")) == Message("zigbee2mqtt/a/availability", b"offline")
    assert writer.refusal(Metric) == "the mapping: no topic is for Metric"


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Climate(temperature=1.0), "Climate: the level {source} of the topic would be None"),
        (Climate(source="a/b", battery=9), "Climate: the level {source} of the topic would be 'a/b'"),
        (Climate(source="", battery=9), "Climate: the level {source} of the topic would be ''"),
        (
            Climate(source="bridge", battery=9),
            "zigbee2mqtt/bridge is not read by 'zigbee2mqtt/{source}', but by another pattern",
        ),
        (Climate(source="a"), "Climate: has none of temperature, humidity, battery, so that it would be read as no"),
        (Online(source="a", place="b", state="x"), "Online: the payload is a text and cannot hold place"),
        (Metric(value=1.0, name="x"), "the mapping: no topic is for Metric"),
        (Climate(source="a", temperature="hot"), "Climate.temperature is 'hot', but must be float64"),  # type: ignore[arg-type]
    ],
)
def test_an_event_that_would_be_read_back_as_another_is_refused(event: Event, reason: str) -> None:
    found = topics(ZIGBEE).write(event)
    assert isinstance(found, Rejected)
    assert str(found).startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[topics]\n"a/+" = "Climate"', "the topic has a level without a name"),
        ('[topics]\n"a/{room}" = "Climate"', "no attribute is the level {room}"),
        ('[topics]\n"a" = { type = "Climate", only = "read" }', "no topic is for Climate"),
        ('[attributes]\na = "humidity"\nb = "humidity"\n[topics]\n"a" = "Climate"', "fields 'a' and 'b' are all"),
        ('[attributes]\na = { to = "battery", scale = 0.5 }\n[topics]\n"a" = "Climate"', "field 'a': the scale 0.5"),
        ('[types]\n"c*" = "Climate"\n[topics]\n"a" = {}', "[types] has patterns for it only"),
        ('[type]\nname = "{a}{b}"\n[topics]\n"a" = {}', "its name is made of 2 fields"),
    ],
)
def test_a_type_that_cannot_be_published_says_why(text: str, reason: str) -> None:
    assert reason in topics(text).refusal(Climate)


def test_lists_are_written_as_they_are_read() -> None:
    writer = topics(SPARKPLUG.replace("{group}", "g"))
    climate = Climate(source="d", place="n", temperature=1.5, humidity=2.0)
    metric = Metric(source="n", value=1.0, name="x")
    for event in (climate, metric):
        message = writer.write(event)
        assert isinstance(message, Message)
        assert writer.read(*message) == [event]
    written = writer.write(climate)
    assert isinstance(written, Message)
    assert json.loads(written.payload)["metrics"] == [
        {"name": "Temperature", "value": 1.5},
        {"name": "Humidity", "value": 2.0},
    ]


NUMBERS = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -999.0, 1e300]))
WORDS = st.one_of(st.none(), st.text(max_size=5), st.sampled_from(["a", "b/c", "bridge", "NA", "é"]))


@examples(600)
@given(
    st.builds(
        Climate,
        source=WORDS,
        place=WORDS,
        time=st.one_of(st.none(), st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))),
        temperature=NUMBERS,
        humidity=NUMBERS,
        battery=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    ),
    st.sampled_from(
        [
            ZIGBEE,
            SPARKPLUG.replace("{group}", "g"),
            TASMOTA,
            """
            absent = ["NA", -999]
            [constants]
            place = "b"
            [topics]
            "x/{source}" = "Climate"
            [attributes]
            t = { to = "time", format = "s" }
            h = { to = "humidity", scale = 0.5 }
            b = { to = "battery", scale = 3, format = "text" }
            """,
        ]
    ),
)
def test_what_is_written_is_read_as_the_same_event(event: Climate, text: str) -> None:
    both = topics(text)
    message = both.write(event)
    if isinstance(message, Message):
        (back,) = both.read(*message)
        assert repr(back) == repr(event)


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[topics]\n"a/{x" = "Climate"', "[topics] 'a/{x' has the level '{x'; a level is text, a name in braces"),
        ('[topics]\n"a/#/b" = "Climate"', "has the level '#'"),
        ('[topics]\n"a/b+" = "Climate"', "has the level 'b+'"),
        ('[topics]\n"{a}/{a}" = "Climate"', "names a level twice"),
        ('[topics]\n"" = "Climate"', "has no level"),
        ('[topics]\n"a" = 3', "is 3; write the name of an event type, a table, or false"),
        ('[topics]\n"a" = { kind = "Climate" }', "[topics] 'a' kind is not a known key; known are type, payload"),
        ('[topics]\n"a" = { type = "Climate", payload = "xml" }', "payload is 'xml'; write json or number or text"),
        ('[topics]\n"a" = { type = "Climate", only = "write" }', "only is 'write'; write read or publish"),
        ('[topics]\n"a" = { type = "Climate", payload = "text" }', "needs `to`"),
        ('[topics]\n"a" = { payload = "text", to = "x" }', "give it a type"),
        ('[topics]\n"a" = "Tram"', "'Tram' is not an event type"),
        ('[topics]\n"a" = { type = "Climate", payload = "text", to = "watts" }', "Climate has no attribute 'watts'"),
        ('[attributes]\n"@room" = "place"\n[topics]\n"a/{x}" = "Climate"', "names a level that no topic has"),
        ('[topics]\n"a/{x}" = "Climate"\n"a/{y}" = "Lamp"', "has the same topics as 'a/{x}'"),
        ("", "has no [topics]"),
        ('unknown = "drop"\n[topics]\n"a" = "Climate"', "unknown is 'drop'; write count or reject"),
        ('[topics]\n"a" = { type = "Climate", ignore = "all" }', "ignore is 'all'; write a list of fields"),
        ('[topics]\n"a" = { type = "Climate", attributes = { t = "watts" } }', "Climate has no attribute 'watts'"),
        ('[topics]\n"a" = { type = "Climate", attributes = { "@b" = "place" } }', "names a level that no topic has"),
        ('[topics]\n"a" = { type = "Climate", attributes = { "@b" = "place" } }\n"{b}" = "Lamp"', "that no topic has"),
        (
            '[topics]\n"a/{source}" = { type = "Climate", payload = "text", to = "place" }',
            "[topics] 'a/{source}' gives no attribute of Climate: temperature, humidity, battery",
        ),
    ],
)
def test_a_mistake_in_topics_is_an_error_before_anything_is_read(text: str, problem: str) -> None:
    with pytest.raises(MappingError) as caught:
        topics(text)
    assert problem in str(caught.value)
