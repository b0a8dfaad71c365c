"""Sparkplug B without a network: payloads of independent clients, births, aliases, gaps, commands, hostile bytes."""

import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("google.protobuf", reason="protobuf comes with genus[sparkplug]")

from genus import Event, Maybe
from genus.errors import BusError, EventError, MappingError
from genus.model import Float32, Int8, UInt16, Unit, attributes
from genus.model.types import FloatType
from genus.net import _sparkplug_host as host_module
from genus.net._link.foreign import ForeignEvent, ForeignLoss
from genus.net._mqtt.address import parse_mqtt_address
from genus.net._sparkplug_host import REBIRTH, REBIRTH_S, Host
from genus.net._sparkplug_payload import (
    BOOLEAN,
    DOUBLE,
    INT64,
    STRING,
    Metric,
    Payload,
    decode_payload,
    encode_payload,
    read_value,
    wire_value,
)
from genus.net._sparkplug_source import Edge, Sparkplug
from genus.records import ForeignTopics, Message, read_mapping
from genus.records.types import Rejected
from genus.testing import run_command

GOLDEN = json.loads((Path(__file__).parent / "golden" / "sparkplug.json").read_text())
"""Payloads that the named packages made."""
T = datetime(2026, 11, 15, 12, tzinfo=UTC)
T_MS = 1_794_744_000_000


class SparkProbe(Event):
    temperature: Maybe[float] = None
    count: Maybe[Int8] = None
    big: Maybe[float] = None
    on: Maybe[bool] = None
    label: Maybe[str] = None
    raw: Maybe[bytes] = None
    ratio: Maybe[Float32] = None
    small: Maybe[UInt16] = None
    when: Maybe[datetime] = None
    flow: Annotated[Maybe[float], Unit("m/s")] = None


class SparkTarget(Event):
    target: float


class SparkState(Event):
    online: bool


MAPPING = """
[topics."spBv1.0/{group}/DDATA/{place}/{source}"]
type = "SparkProbe"
payload = "sparkplug"
ignore = ["Wide"]
[topics."spBv1.0/{group}/DDATA/{place}/{source}".attributes]
Temperature = "temperature"
Count = "count"
"Big" = "big"
On = "on"
Name = "label"
Raw = "raw"
Ratio = "ratio"
Small = "small"
When = "when"
"Flow.rate" = "flow"

[topics]
"spBv1.0/north/DCMD/{place}/{source}" = { type = "SparkTarget", payload = "sparkplug", attributes = { T = "target" } }
"spBv1.0/{group}/NBIRTH/{place}" = { type = "SparkState", payload = "sparkplug" }
"spBv1.0/{group}/NDEATH/{place}" = { type = "SparkState", payload = "sparkplug" }
"spBv1.0/{group}/DBIRTH/{place}/{source}" = { type = "SparkState", payload = "sparkplug" }
"spBv1.0/{group}/DDEATH/{place}/{source}" = { type = "SparkState", payload = "sparkplug" }
"""
TYPES = [SparkProbe, SparkTarget, SparkState]


def make_host() -> Host:
    mapping = read_mapping(MAPPING)
    return Host(ForeignTopics(mapping, TYPES), [(rule.pattern, rule.type) for rule in mapping.topics])


def make_edge() -> Edge:
    mapping = read_mapping(MAPPING.replace("{group}", "north"))
    return Edge("north", "boiler", ForeignTopics(mapping, TYPES), 7)


def events(found: Iterable[Any]) -> list[Event]:
    return [each.event for each in found if isinstance(each, ForeignEvent)]


def say(host: Host, kind: str, metrics: Iterable[Metric], seq: int | None, now: float = 0.0) -> list[Any]:
    device = "/probe" if kind[0] == "D" else ""
    payload = encode_payload(Payload(tuple(metrics), T_MS, seq))
    return host.read(f"spBv1.0/north/{kind}/boiler{device}", payload, now)


def born(host: Host, bd_seq: int = 3) -> None:
    say(host, "NBIRTH", [Metric("bdSeq", bd_seq, INT64)], 0)
    say(host, "DBIRTH", [Metric("Temperature", 20.5, DOUBLE, alias=7)], 1)


def rebirths(found: Iterable[Any]) -> list[str]:
    asked = [each for each in found if isinstance(each, Message)]
    payloads = [decode_payload(each.payload) for each in asked]
    assert all(isinstance(each, Payload) and each.get(REBIRTH) is True for each in payloads)
    return [each.topic for each in asked]


# -- payloads ----------------------------------------------------------------------------------------------------------


def test_births_and_data_of_pysparkplug_are_events_with_all_data_types() -> None:
    host, made = make_host(), {kind: bytes.fromhex(text) for kind, text in GOLDEN["pysparkplug 0.6.1"].items()}
    state: dict[str, Any] = {"place": "boiler", "time": T}
    assert events(host.read("spBv1.0/north/NBIRTH/boiler", made["NBIRTH"], 0)) == [SparkState(online=True, **state)]
    online, probe = events(host.read("spBv1.0/north/DBIRTH/boiler/probe", made["DBIRTH"], 0))
    assert online == SparkState(online=True, source="probe", **state)
    assert probe == SparkProbe(
        temperature=21.5,
        count=-5,
        big=2.0**63,
        on=True,
        label="pump é",
        raw=b"\x00\xff",
        ratio=0.5,
        small=65535,
        when=T,
        source="probe",
        **state,
    )
    (changed,) = events(host.read("spBv1.0/north/DDATA/boiler/probe", made["DDATA"], 0))
    later = T + timedelta(milliseconds=1)
    assert changed == SparkProbe(temperature=22.5, source="probe", place="boiler", time=later), "by its alias"
    departed = events(host.read("spBv1.0/north/NDEATH/boiler", made["NDEATH"], 0))
    assert departed == [SparkState(online=False, source="probe", **state), SparkState(online=False, **state)]


def test_payloads_of_mqtt_spb_wrapper_are_read() -> None:
    birth, data = (decode_payload(bytes.fromhex(text)) for text in GOLDEN["mqtt-spb-wrapper 2.1.2"].values())
    assert isinstance(birth, Payload)
    assert isinstance(data, Payload)
    assert [(each.name, read_value(each.value, each.datatype)) for each in birth.metrics[:4]] == [
        ("bdSeq", 0),
        ("ATTR/Maker", "acme"),
        ("DATA/Temperature", 21.5),
        ("DATA/Count", 7),
    ]
    assert (birth.seq, data.seq, data.get("Temperature")) == (0, 1, 22.5)


@pytest.mark.parametrize("datatype", range(1, 9))
def test_integers_are_read_as_they_were_written_and_others_refused(datatype: int) -> None:
    bits = 8 << (datatype - 1) % 4
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if datatype <= 4 else (0, (1 << bits) - 1)
    for number in (low, low + 1, 0, 1, high):
        assert read_value(wire_value(number, datatype), datatype) == number
    for number in (low - 1, (1 << bits) + high):
        with pytest.raises(ValueError, match="does not fit"):
            wire_value(number, datatype)


def test_hostile_bytes_never_raise_and_good_messages_around_them_are_read() -> None:
    draw = random.Random(5)
    host, edge = make_host(), make_edge()
    edge.births(T_MS)
    good = [bytes.fromhex(text) for package in GOLDEN.values() for text in package.values()]
    kinds = ["NBIRTH", "NDATA", "NDEATH", "DBIRTH", "DDATA", "DDEATH", "NCMD", "DCMD", "STATE", ""]
    for turn in range(4000):
        content = bytearray(draw.choice(good))
        for _ in range(draw.randrange(4)):
            at = draw.randrange(len(content) + 1)
            content[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(4))
        topic = f"spBv1.0/north/{draw.choice(kinds)}/boiler" + draw.choice(["", "/probe", "/", "/a/b"])
        for found in host.read(topic, bytes(content), turn):
            assert isinstance(found, ForeignEvent | ForeignLoss | Rejected | Message)
        edge.command(topic, bytes(content), T_MS)
    born(host)
    assert len(events(say(host, "DDATA", [Metric("Temperature", 1.5, DOUBLE)], 2))) == 1


# -- the host ----------------------------------------------------------------------------------------------------------


def test_a_gap_is_told_and_asks_for_a_rebirth_and_aliases_are_read_again_after_it() -> None:
    host = make_host()
    born(host)
    found = say(host, "DDATA", [Metric(value=1.5, alias=7, datatype=DOUBLE)], 5, now=10.0)
    losses = [each for each in found if isinstance(each, ForeignLoss)]
    assert [(each.count, each.sender, each.types) for each in losses] == [
        (3, "north/boiler", frozenset(["SparkProbe", "SparkTarget", "SparkState"]))
    ]
    assert rebirths(found) == ["spBv1.0/north/NCMD/boiler"]
    assert events(found) == [], "the alias may have another meaning by now"
    assert (
        rebirths(say(host, "DDATA", [Metric(value=1.5, alias=7, datatype=DOUBLE)], 6, now=10.0 + REBIRTH_S / 2)) == []
    )
    assert (
        len(rebirths(say(host, "DDATA", [Metric(value=1.5, alias=7, datatype=DOUBLE)], 7, now=10.0 + REBIRTH_S))) == 1
    )
    born(host)
    assert len(events(say(host, "DDATA", [Metric(value=1.5, alias=7, datatype=DOUBLE)], 2))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_what_is_missing_in_the_sequence_is_told_exactly(seed: int) -> None:
    """As long as fewer than 256 messages are missing at once."""
    draw, host = random.Random(seed), make_host()
    born(host)
    delivered = told = 0
    seqs = [number % 256 for number in range(2, 1002)]
    is_sent = [draw.random() < 0.7 for _ in seqs]
    is_sent[-1] = True
    for seq, is_there in zip(seqs, is_sent, strict=True):
        found = say(host, "DDATA", [Metric("Temperature", 1.5, DOUBLE)], seq) if is_there else []
        delivered += len(events(found))
        told += sum(each.count for each in found if isinstance(each, ForeignLoss))
    assert (delivered, told) == (sum(is_sent), 1000 - sum(is_sent))


def test_data_without_a_birth_asks_for_it_and_is_read_by_names() -> None:
    host = make_host()
    found = say(host, "DDATA", [Metric("Temperature", 1.5, DOUBLE), Metric(value=2.5, alias=9, datatype=DOUBLE)], 9)
    assert [each.temperature for each in events(found) if isinstance(each, SparkProbe)] == [1.5]
    assert rebirths(found) == ["spBv1.0/north/NCMD/boiler"]
    assert len(rebirths(host.reconnected(0.0))) == 1


def test_the_will_of_an_earlier_session_is_no_death() -> None:
    host = make_host()
    born(host, bd_seq=4)
    assert say(host, "NDEATH", [Metric("bdSeq", 3, INT64)], None) == []
    assert len(events(say(host, "NDEATH", [Metric("bdSeq", 4, INT64)], None))) == 2


def test_units_of_a_birth_are_converted_or_refused() -> None:
    host = make_host()
    say(host, "NBIRTH", [], 0)
    say(host, "DBIRTH", [Metric("Flow.rate", 36.0, DOUBLE, unit="km/h")], 1)
    (probe,) = events(say(host, "DDATA", [Metric("Flow.rate", 72.0, DOUBLE)], 2))
    assert isinstance(probe, SparkProbe)
    assert probe.flow == 20.0
    found = say(host, "DBIRTH", [Metric("Flow.rate", 36.0, DOUBLE, unit="kg")], 3)
    assert [str(each) for each in found if isinstance(each, Rejected)] == [
        "the metric 'Flow.rate': values in kg cannot be converted to m/s: mass is no speed"
    ]


def test_a_history_gives_an_event_for_each_time() -> None:
    host = make_host()
    born(host)
    metrics = [Metric("Temperature", float(n), DOUBLE, timestamp=T_MS + n * 1000) for n in range(3)]
    found = events(say(host, "DDATA", metrics, 2))
    assert [each.time for each in found] == [T + timedelta(seconds=n) for n in range(3)]


def test_who_subscribes_later_gets_the_present_state() -> None:
    host = make_host()
    born(host)
    (given,) = events(say(host, "DDATA", [Metric(value=1.5, alias=7, datatype=DOUBLE)], 2))
    assert host.last_events()[-1] is given, "by this the bus knows that it was delivered"
    say(host, "DDATA", [Metric("Count", 4, 1)], 3)
    newest = {"source": "probe", "place": "boiler"}
    assert [repr(each).partition("(")[0] for each in host.last_events()] == ["SparkState", "SparkState", "SparkProbe"]
    (probe,) = [each for each in host.last_events() if isinstance(each, SparkProbe)]
    assert (probe.temperature, probe.count, {"source": probe.source, "place": probe.place}) == (1.5, 4, newest)
    say(host, "NDEATH", [Metric("bdSeq", 3, INT64)], None)
    assert host.last_events() == []


def test_what_is_known_of_others_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "MAX_SOURCES", 5)
    host = make_host()
    payload = encode_payload(Payload((), T_MS, 0))
    found = [host.read(f"spBv1.0/north/NBIRTH/{n}", payload, 0) for n in range(10)]
    found += [host.read(f"spBv1.0/north/DBIRTH/0/{n}", payload, 0) for n in range(10)]
    reasons = [str(each) for some in found for each in some if isinstance(each, Rejected)]
    assert reasons.count("more than 5 edge nodes and devices") == 15


def test_a_command_has_the_data_type_of_the_birth() -> None:
    host = make_host()
    say(host, "NBIRTH", [], 0)
    say(host, "DBIRTH", [Metric("T", 1, 3)], 1)
    topic, payload = host.command(SparkTarget(target=-4.0, place="boiler", source="probe"), T_MS)
    content = decode_payload(payload)
    assert isinstance(content, Payload)
    assert (topic, content.metrics[0].datatype) == ("spBv1.0/north/DCMD/boiler/probe", 3)
    assert read_value(content.metrics[0].value, 3) == -4
    with pytest.raises(EventError, match="does not fit Int32"):
        host.command(SparkTarget(target=0.5, place="boiler", source="probe"), T_MS)


# -- the edge node -----------------------------------------------------------------------------------------------------


def test_what_an_edge_node_publishes_a_host_reads_without_a_gap() -> None:
    edge, host = make_edge(), make_host()
    will = edge.will(T_MS)
    heard = [each for message in edge.births(T_MS) for each in host.read(*message, 0)]
    probes = [
        SparkProbe(temperature=n / 2, count=n % 100, when=T, source="probe", place="boiler", time=T) for n in range(600)
    ]
    for probe in probes:
        for message in edge.data(edge.write(probe), T_MS):
            heard += host.read(*message, 0)
    assert [each for each in heard if not isinstance(each, ForeignEvent)] == []
    assert [each for each in events(heard) if isinstance(each, SparkProbe)] == probes
    again = [each for message in edge.births(T_MS) for each in host.read(*message, 0)]
    assert events(again) == [probes[-1]], "a rebirth has the newest values"
    assert [each.online for each in events(host.read(*will, 0)) if isinstance(each, SparkState)] == [False, False]


def test_a_birth_states_all_metrics_with_data_types_and_units() -> None:
    edge = make_edge()
    edge.births(T_MS)
    (birth,) = edge.data(edge.write(SparkProbe(count=1, source="probe", place="boiler")), T_MS)
    content = decode_payload(birth.payload)
    assert isinstance(content, Payload)
    assert birth.topic == "spBv1.0/north/DBIRTH/boiler/probe"
    assert {each.name: (each.datatype, each.unit) for each in content.metrics} == {
        "Temperature": (10, ""),
        "Count": (1, ""),
        "Big": (10, ""),
        "On": (11, ""),
        "Name": (12, ""),
        "Raw": (17, ""),
        "Ratio": (9, ""),
        "Small": (6, ""),
        "When": (13, ""),
        "Flow.rate": (10, "m/s"),
    }


def test_commands_to_an_edge_node_are_events_or_a_rebirth() -> None:
    edge = make_edge()
    rebirth = encode_payload(Payload((Metric(REBIRTH, True, BOOLEAN),), T_MS))
    assert edge.command("spBv1.0/north/NCMD/boiler", rebirth, T_MS) == [], "it is not born yet"
    edge.births(T_MS)
    (birth,) = edge.command("spBv1.0/north/NCMD/boiler", rebirth, T_MS)
    assert isinstance(birth, Message)
    assert birth.topic == "spBv1.0/north/NBIRTH/boiler"
    command = encode_payload(Payload((Metric("T", 1.5, DOUBLE), Metric("Note", b"x", STRING)), T_MS))
    assert events(edge.command("spBv1.0/north/DCMD/boiler/probe", command, T_MS)) == [
        SparkTarget(target=1.5, place="boiler", source="probe", time=T)
    ]


def test_an_event_of_another_node_is_refused_and_nothing_is_sent_before_the_birth() -> None:
    edge = make_edge()
    with pytest.raises(EventError, match="not of this edge node"):
        edge.write(SparkProbe(count=1, source="probe", place="kiln"))
    with pytest.raises(EventError, match=r"SparkProbe\.deadline is .*, but the mapping has no field for it"):
        edge.write(SparkProbe(count=1, source="probe", place="boiler", deadline=T))
    assert edge.data(edge.write(SparkProbe(count=1, source="probe", place="boiler")), T_MS) == []
    assert [each.topic.split("/")[2] for each in edge.births(T_MS)] == ["NBIRTH", "DBIRTH"]


# -- types from births -------------------------------------------------------------------------------------------------


def test_types_and_a_mapping_are_made_of_captured_births(tmp_path: Path) -> None:
    """Of the births of an independent client; what is made reads them."""
    births = {kind: text for kind, text in GOLDEN["pysparkplug 0.6.1"].items() if kind.endswith("BIRTH")}
    flow = encode_payload(Payload((Metric("Flow/class", 1.0, DOUBLE, unit="m³/h"), Metric("Set", None, 16)), T_MS, 1))
    probe = decode_payload(bytes.fromhex(births["DBIRTH"]))
    assert isinstance(probe, Payload)
    probe = probe._replace(metrics=tuple(each for each in probe.metrics if each.name != "Big"))  # no int of 64 bits
    lines = [
        f"spBv1.0/north/NBIRTH/boiler 7 {births['NBIRTH']}",
        f"spBv1.0/north/DBIRTH/boiler 7/probe one {encode_payload(probe).hex()}",
        f"spBv1.0/north/DBIRTH/boiler 7/time {flow.hex()}",
        "spBv1.0/north/DBIRTH/boiler 7/bad xyz",
        "spBv1.0/north/DDATA/boiler 7/time 00",
        "",
    ]
    (tmp_path / "births.txt").write_text("\n".join(lines))
    files = {name: str(tmp_path / name) for name in ("births.txt", "plant.py", "plant.toml")}
    options = ("--python", files["plant.py"], "--write-mapping", files["plant.toml"])
    result = run_command("records", "infer", files["births.txt"], *options)
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines() == [
        "not read: line 4: the payload is not in hexadecimal digits",
        "not read: Time: Set is DataSet",
    ]
    module: dict[str, Any] = {"__name__": "plant"}
    exec((tmp_path / "plant.py").read_text(), module)
    flow_class = next(each for each in attributes(module["Time"]) if each.name == "flow_class")
    assert (flow_class.type, flow_class.unit, flow_class.optional) == (FloatType(), "m³/h", True)
    mapping = read_mapping(tmp_path / "plant.toml")
    topics = ForeignTopics(mapping, [module[name] for name in ("Boiler7", "ProbeOne", "Time")])
    host = Host(topics, [(rule.pattern, rule.type) for rule in mapping.topics])
    found = [each for line in lines[:3] for each in host.read(*_message(line), 0)]
    kinds = [(type(each).__name__, each.place, each.source) for each in events(found)]
    assert kinds == [("Boiler7", "boiler 7", None), ("ProbeOne", "boiler 7", "probe one"), ("Time", "boiler 7", "time")]
    assert topics.unread == {}


def _message(line: str) -> tuple[str, bytes]:
    topic, _, payload = line.rpartition(" ")
    return topic, bytes.fromhex(payload)


# -- addresses and mappings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sparkplug", "problem"),
    [
        ('topics."a" = "SparkState"', "north", "needs one map="),
        (
            'topics."spBv1.0/n/DCMD/{place}/{source}" = { type = "SparkTarget", payload = "sparkplug", only = "read" }',
            "n",
            "has no topic for a host",
        ),
        (
            'topics."spBv1.0/n/DCMD/+/{source}" = { type = "SparkTarget", payload = "sparkplug" }',
            "n",
            "a level without a name",
        ),
    ],
)
def test_a_map_that_does_not_fit_is_refused(text: str, sparkplug: str, problem: str) -> None:
    options = parse_mqtt_address(f"//localhost?sparkplug={sparkplug}")
    with pytest.raises(BusError, match=problem):
        Sparkplug(options, [read_mapping(text)])


def test_topics_that_sparkplug_does_not_have_are_refused() -> None:
    for topic in ("spBv1.0/a/DDATA/b", "spBv1.0/a/STATE/b", "home/a/NDATA/b", "spBv1.0/a/NDATA/b/c"):
        with pytest.raises(MappingError, match="is for Sparkplug"):
            read_mapping(f'topics."{topic}" = {{ type = "SparkState", payload = "sparkplug" }}')


def test_groups_and_edge_nodes_of_an_address() -> None:
    assert parse_mqtt_address("//localhost?sparkplug=north/boiler&sparkplug_host=s").sparkplug == ("north", "boiler")
    assert parse_mqtt_address("//localhost?sparkplug=*").sparkplug == ("*",)
    for wrong in ("a/b/c", "a/*", "", "a%2Bb", "/a"):
        with pytest.raises(BusError, match="sparkplug is"):
            parse_mqtt_address(f"//localhost?sparkplug={wrong}")
