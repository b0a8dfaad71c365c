"""System files: what they say, and what is refused with file, table and key."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.bus._link import BestEffort, Hard, Soft
from genus.can._plan.admission import Plan, plan
from genus.can._plan.system import BusSpec, System, format_bitrate, format_bound, read_bitrate
from genus.can._plan.system_file import format_system, load_system, parse_system
from genus.can._wire.frame import Identifier, Priority, Timing
from genus.errors import PlanError
from tests.can.random_systems import random_system
from tests.examples import examples

BUS = '[bus]\nbitrate = "1Mbit/s"\n'
TYPES = """
from genus import Event, Maybe
from genus.model import UInt8, UInt16

class Vehicle(Event):
    lane: UInt8
    speed: Maybe[UInt16] = None

class Note(Event):
    text: str
"""


def channel(**changes: object) -> str:
    fields: dict[str, object] = {
        "name": "c",
        "node": "n",
        "class": "soft",
        "period": "10ms",
        "deadline": "5ms",
        "size": 8,
    }
    fields |= {key.rstrip("_"): value for key, value in changes.items()}
    lines = [f"{key} = {_toml(value)}" for key, value in fields.items() if value is not None]
    return "\n".join(["[[channel]]", *lines]) + "\n"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def test_a_size_below_what_the_type_needs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "city.py").write_text(TYPES)
    system = tmp_path / "system.toml"
    system.write_text('[bus]\nbitrate = "1Mbit/s"\ntypes = "city.py"\n' + channel(event="Vehicle", size=1))
    with pytest.raises(PlanError, match=r"a Vehicle takes up to \d bytes"):
        load_system(system)


def test_channels_have_numbers_frames_and_times() -> None:
    system = parse_system(BUS + channel() + channel(name="d", node="m", size=12) + channel(name="e", node="n"))
    first, second, third = system.channels
    assert [each.number for each in system.channels] == [1, 2, 1]
    assert [each.etag for each in system.channels] == [128, 129, 130]
    assert (first.times, second.times) == ((160_000,), (160_000, 160_000))
    assert (first.raw, second.raw) == (True, False)
    assert third.id == Identifier(Priority.SOFT_FIRST, 1, 130).pack()


def test_numbers_that_are_given_are_kept_and_the_others_follow_in_order_of_appearance() -> None:
    nodes = "[nodes]\nm = 1\n"
    text = BUS + nodes + channel(node="n") + channel(name="d", node="m").replace("size", 'subscribers = ["s"]\nsize')
    assert parse_system(text).nodes == {"m": 1, "n": 2, "s": 3}


def test_publishers_of_one_event_share_its_tag() -> None:
    system = parse_system(BUS + channel(event="E") + channel(name="d", node="m", event="E") + channel(name="e"))
    assert [each.etag for each in system.channels] == [128, 128, 129]


def test_contracts_follow_from_classes() -> None:
    text = BUS + channel(name="h", class_="hard", omissions=2, deadline=None)
    text += channel(name="s", expires="7ms") + channel(name="n", class_="none", deadline=None, priority=1)
    hard, soft, none = (each.qos for each in parse_system(text).channels)
    assert hard == Hard(period="10000000ns", omissions=2)
    assert soft == Soft(deadline="5000000ns", expires="7000000ns", period="10000000ns")
    assert none == BestEffort(priority=1)
    assert [each.id >> 21 for each in parse_system(text).channels] == [0, 1, 255]


@pytest.mark.parametrize(
    ("written", "bitrate"),
    [
        ("500_000", 500_000),
        ('"500k"', 500_000),
        ('"1Mbit/s"', 1_000_000),
        ('"0.25 Mbit/s"', 250_000),
        ('"125000"', 125_000),
        ('"83.333k"', 83_333),
        ('"83.333 kbit/s"', 83_333),
        ('"33.3333 Kbps"', 33_333),
        ("83333.333", 83_333),
    ],
)
def test_bit_rates_are_numbers_or_texts(written: str, bitrate: int) -> None:
    assert parse_system(f"[bus]\nbitrate = {written}\n").bus.timing.bitrate == bitrate


@pytest.mark.parametrize("text", ["", "k", "1.5.2k", "500 kB", "-500k", "500 kHz", "1G", "1e6", "_500", "0x10"])
def test_a_text_that_is_no_bit_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no bit rate; write bits per second, such as 500k"):
        read_bitrate(text)


@pytest.mark.parametrize(
    ("bound_ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1_000, "1 us"), (1_001, "1.001 us"), (999_999, "999.999 us"),
        (1_000_000, "1 ms"), (1_000_001, "1.001 ms"), (999_999_999, "1000 ms"), (10**9, "1 s"),
        (2_500_000_000, "2.5 s"), (-1_500, "-1.5 us"), (None, "—"),
    ],
)  # fmt: skip
def test_a_bound_is_shown_in_its_unit_and_rounded_up(bound_ns: int | None, text: str) -> None:
    assert format_bound(bound_ns) == text


def test_a_bit_rate_is_shown_in_mega_from_a_million_on() -> None:
    rates = [999_999, 1_000_000, 5_000_000, 125_000, 33_333]
    shown = ["999.999 kbit/s", "1 Mbit/s", "5 Mbit/s", "125 kbit/s", "33.333 kbit/s"]
    assert [format_bitrate(rate) for rate in rates] == shown


def test_a_channel_has_the_times_of_its_frames_on_its_bus() -> None:
    system = parse_system(BUS + channel(size=12) + channel(name="d", node="m", size=5))
    long, short = system.channels
    assert (long.sizes, long.times) == ((8, 8), (160_000, 160_000))
    assert (long.event_ns, long.frame_ns, long.last_ns, long.frames) == (320_000, 160_000, 160_000, 2)
    fd = system.on_bus(BusSpec(timing=Timing(1_000_000, 5_000_000)))
    assert [each.sizes for each in fd.channels] == [(12,), (5,)]
    assert fd.bus.level_ns == Timing(1_000_000, 5_000_000).worst_case_ns(64, fd=True)
    assert fd.bus.longest_frame_ns == max(fd.bus.level_ns, 160_000)
    assert fd.with_channel("d", size=65).channel("d").sizes == (64, 6)
    assert short.on_bus(fd.bus).times == (fd.bus.frame_ns(5),)
    with pytest.raises(PlanError, match="system has no channel 'e'"):
        system.with_channel("e", size=1)


def test_a_segmented_channel_has_tail_bytes_also_in_a_single_frame() -> None:
    (plain,) = parse_system(BUS + channel(size=7)).channels
    (segmented,) = parse_system(BUS + channel(size=7, segmented=True)).channels
    assert (plain.sizes, plain.raw) == ((7,), True)
    assert (segmented.sizes, segmented.raw) == ((8,), False)


def test_a_gap_of_twice_the_precision_is_the_shortest() -> None:
    assert parse_system(BUS + 'gap = "10us"\nprecision = "5us"\n').bus.gap_ns == 10_000
    with pytest.raises(PlanError, match="gap is 9999 ns, less than twice the precision of 5000 ns"):
        parse_system(BUS + 'gap = "9999ns"\nprecision = "5us"\n')


def test_a_node_that_knows_only_classic_frames_cannot_be_on_can_fd() -> None:
    assert parse_system(BUS + 'classic_nodes = ["n"]\n').bus.classic_nodes == ("n",)
    assert parse_system(BUS + 'data_bitrate = "2M"\nclassic_nodes = []\n').bus.fd
    with pytest.raises(PlanError, match="classic_nodes has 'n', whose controller would destroy every CAN FD frame"):
        parse_system(BUS + 'data_bitrate = "2M"\nclassic_nodes = ["n"]\n')


def test_a_deadline_may_be_when_an_event_expires() -> None:
    assert parse_system(BUS + channel(expires="5ms")).channels[0].expires_ns == 5_000_000
    with pytest.raises(PlanError, match="expires is before the deadline"):
        parse_system(BUS + channel(expires="4999us"))


def test_an_event_has_at_most_4096_bytes_and_a_slot_15_omissions() -> None:
    assert parse_system(BUS + channel(size=4_096)).channels[0].size == 4_096
    with pytest.raises(PlanError, match="size is 4097; it must be a whole number from 0 to 4096"):
        parse_system(BUS + channel(size=4_097))
    hard = {"class_": "hard", "deadline": None}
    assert [parse_system(BUS + channel(**hard, **more)).channels[0].omissions for more in ({}, {"omissions": 15})] == [
        1, 15,
    ]  # fmt: skip
    with pytest.raises(PlanError, match="omissions is 16; it must be a whole number from 0 to 15"):
        parse_system(BUS + channel(**hard, omissions=16))


def test_on_can_fd_frames_hold_64_bytes() -> None:
    system = parse_system(
        '[bus]\nbitrate = "1M"\ndata_bitrate = "5M"\n' + channel(size=64) + channel(name="d", size=65)
    )
    assert system.channels[0].times == (192_800,)
    assert (system.channels[0].raw, system.channels[1].frames) == (True, 2)


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    (tmp_path / "city_types.py").write_text(TYPES)
    return tmp_path / "city.toml"


def test_sizes_and_tags_follow_from_event_types(typed: Path) -> None:
    typed.write_text(BUS + 'types = "city_types.py"\n' + channel(name=None, event="Vehicle", size=None))
    (found,) = load_system(typed).channels
    assert (found.name, found.size) == ("Vehicle", 1 + 1 + 1 + 2)  # two bytes of header: the context has five bits
    assert found.etag >= 128


def test_what_an_event_carries_of_the_context_is_said(typed: Path) -> None:
    text = BUS + 'types = "city_types.py"\n' + channel(event="Vehicle", size=None)
    plain = parse_system(text, str(typed)).channels[0].size
    timed = parse_system(text + 'carries = ["time"]\n', str(typed)).channels[0].size
    assert timed == plain + 8


def subscribed(*subscribers: str, **changes: object) -> str:
    return channel(**changes) + f"subscribers = {list(subscribers)}\n"


def warnings_of(text: str) -> tuple[str, ...]:
    return plan(parse_system(text, "s")).warnings


def test_a_subscriber_that_is_probably_misspelled_warns_with_the_likely_name() -> None:
    text = BUS + channel(node="controller") + subscribed("controler", name="d", node="sensor")
    assert warnings_of(text) == (
        "s: [[channel]] 2 'd': subscribers names 'controler', which publishes nothing and is not in [nodes]; "
        "did you mean 'controller'?",
    )


def test_of_two_names_that_only_subscribe_the_rarer_one_is_doubted() -> None:
    text = BUS + subscribed("display") + subscribed("display", name="d") + subscribed("dispaly", name="e")
    (warning,) = warnings_of(text)
    assert "'e': subscribers names 'dispaly'" in warning
    assert warning.endswith("did you mean 'display'?")


def test_a_node_may_only_subscribe() -> None:
    assert warnings_of(BUS + subscribed("logger", "n-2", node="n-1")) == ()
    assert warnings_of(BUS + "[nodes]\nlogger = 3\n" + subscribed("logger", "n", name="d")) == ()
    (warning,) = warnings_of(BUS + "[nodes]\nlogger = 3\n" + subscribed("camera"))
    assert warning.endswith("list it there if it only subscribes")


def test_a_gap_that_is_too_short_for_synchronised_clocks_warns() -> None:
    hard = channel(class_="hard", deadline=None)
    slow = '[bus]\nbitrate = "83.333k"\n'
    (warning,) = warnings_of(slow + hard.replace("10ms", "100ms"))
    assert warning.endswith("use at least 49 us")
    assert warnings_of(slow + 'gap = "49us"\n' + hard.replace("10ms", "100ms")) == ()
    assert warnings_of(slow + "middleware = false\n" + hard.replace("10ms", "100ms")) == ()
    assert warnings_of(BUS + hard) == ()


def test_a_slot_with_more_failures_than_a_station_survives_warns() -> None:
    (warning,) = warnings_of(BUS + channel(class_="hard", deadline=None, period="100ms", size=40, omissions=4))
    assert "'c' allows 24 failures in a slot" in warning


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[bus]\nbitrate = 1000000\nerror_passive = 'stopp'", r"error_passive is 'stopp'; did you mean 'stop'\?"),
        ("", "s: bus is missing"),
        ("[bus]\n", r"s: \[bus\]: bitrate is missing"),
        ("[bus", "s: "),
        ("bus = 1", r"s: \[bus\]: must be a table, not 1"),
        ("[bus]\nbitrate = 1000000\ngapp = '1us'", r"s: \[bus\]: unknown key 'gapp'; did you mean 'gap'\?"),
        ("[bus]\nbitrate = true", r"s: \[bus\]: bitrate is True; write bits per second"),
        ("[bus]\nbitrate = 'fast'", r"s: \[bus\]: bitrate is 'fast'; write bits per second"),
        ("[bus]\nbitrate = 0", r"s: \[bus\]: bitrate is 0; write bits per second, such as 83333"),
        ("[bus]\nbitrate = -1", r"s: \[bus\]: bitrate is -1; write bits per second"),
        ("[bus]\nbitrate = inf", r"s: \[bus\]: bitrate is inf; write bits per second"),
        ("[bus]\nbitrate = 1000000\ngap = '5us'\nprecision = '3us'", r"s: \[bus\]: gap is 5000 ns, less than twice"),
        ("[bus]\nbitrate = 1000000\ngap = [20]", r"s: \[bus\]: gap is \[20\]; write seconds as a number, text such as"),
        ("[bus]\nbitrate = 1000000\ngap = '20 bits'", r"s: \[bus\]: gap is '20 bits', and 'bits' is no unit of time"),
        ("[bus]\nbitrate = 1000000\ngap = -1", r"s: \[bus\]: gap is -1, which is negative"),
        ("[bus]\nbitrate = 1000000\nmiddleware = 1", r"s: \[bus\]: middleware is 1; it must be true or false"),
        (BUS + 'types = "nowhere.py"', r"s: \[bus\]: types cannot be used: nowhere.py: cannot be imported"),
        (BUS + 'types = "json"', r"s: \[bus\]: types is 'json', which declares no event types"),
        (BUS + "[channel]\nname = 1", r"s: \[channel\] is a single table; write \[\[channel\]\]"),
        (BUS + channel(name=None), r"s: \[\[channel\]\] 1: name is missing"),
        (BUS + channel(name=""), r"s: \[\[channel\]\] 1: name must be a text"),
        (BUS + channel() + channel(), r"s: \[\[channel\]\] 2 'c': name is already the name of channel 1"),
        (BUS + channel(node=None), r"s: \[\[channel\]\] 1 'c': node is missing"),
        (BUS + channel(class_="softt"), r"s: \[\[channel\]\] 1 'c': class is 'softt'; did you mean 'soft'\?"),
        (BUS + channel(period="0s"), r"s: \[\[channel\]\] 1 'c': period is '0s'; it must be above zero"),
        (BUS + channel(deadline=None), r"s: \[\[channel\]\] 1 'c': deadline is missing"),
        (BUS + channel(expires="4ms"), r"s: \[\[channel\]\] 1 'c': expires is before the deadline"),
        (BUS + channel(omissions=1), r"\] 1 'c': omissions is for hard channels, and this one is 'soft'"),
        (BUS + channel(class_="hard"), r"deadline is for soft and none channels, and this one is 'hard'"),
        (BUS + channel(class_="hard", deadline=None, omissions=-1), r"omissions is -1; it must be a whole number"),
        (BUS + channel(class_="none", priority=2), r"priority is 2; it must be a whole number from 0 to 1"),
        (BUS + channel(size=None), r"s: \[\[channel\]\] 1 'c': size is missing, and there is no event type"),
        (BUS + channel(size=1.5), r"s: \[\[channel\]\] 1 'c': size is 1.5; it must be a whole number"),
        (BUS + channel(size=True), r"s: \[\[channel\]\] 1 'c': size is True; it must be a whole number"),
        (BUS + channel(deadlin="3ms"), r"s: \[\[channel\]\] 1: unknown key 'deadlin'; did you mean 'deadline'\?"),
        (BUS + channel() + 'subscribers = ["a", "a"]', r"subscribers names 'a' twice"),
        (BUS + channel() + "subscribers = 3", r"subscribers must be a list of texts, not 3"),
        (BUS + channel(event="E") + channel(name="d", event="E"), r"event is already published by n on 'c'"),
        (BUS + "[nodes]\na = 0", r"s: \[nodes\]: a is 0; it must be a whole number from 1 to 126"),
        (BUS + "[nodes]\na = 127", r"s: \[nodes\]: a is 127"),
        (BUS + "[nodes]\na = 3\nb = 3", r"s: \[nodes\]: a has the number 3, which another node has too"),
        (BUS + "".join(channel(name=f"c{n}", node=f"n{n}") for n in range(127)), "n126 gets no number: a bus has"),
        ("[bus]\nbitrate = 1000000\n[colours]", "s: unknown key 'colours'; known are bus, channel, nodes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse_system(text, "s")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"event": "Vehikle", "size": None}, "event is 'Vehikle', which .* does not declare; did you mean 'Vehicle'"),
        ({"event": "Train", "size": None}, "event is 'Train', which .* does not declare; there are Vehicle, Note"),
        ({"event": "Note", "size": None}, "size is missing, and Note has texts, bytes or opaque values of any length"),
    ],
)
def test_types_that_do_not_say_a_size_are_refused(typed: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse_system(BUS + 'types = "city_types.py"\n' + channel(**fields), str(typed))


def test_carrying_what_a_type_does_not_have_is_refused(typed: Path) -> None:
    text = BUS + 'types = "city_types.py"\n' + channel(event="Vehicle", size=None) + 'carries = ["colour"]\n'
    with pytest.raises(PlanError, match="carries names 'colour', which Vehicle does not have"):
        parse_system(text, str(typed))
    with pytest.raises(PlanError, match="leave out one"):
        parse_system(text + "size = 8\n", str(typed))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"none\.toml: No such file"):
        load_system(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match=r"bad\.toml: is not UTF-8"):
        load_system(tmp_path / "bad.toml")


@pytest.mark.parametrize("seed", range(20))
def test_a_system_written_down_is_the_same_system(seed: int) -> None:
    system = random_system(seed, data_bitrate=None if seed % 2 else 4_000_000)
    again = parse_system(format_system(system), system.source)
    assert again == system


def test_names_may_be_any_text() -> None:
    name = 'a "b"\\ \x7f ü 🚦'
    system = random_system(1)
    first, *others = system.channels
    renamed = System(system.bus, (msgspec.structs.replace(first, name=name), *others), system.nodes)
    assert parse_system(format_system(renamed)).channels[0].name == name


@examples(100)
@given(st.integers(1, 10**9))
def test_a_time_is_seconds_or_a_text(micros: int) -> None:
    periods = micros / 10**6, f"{micros}us", f"{micros / 1000} ms"
    systems = [parse_system(BUS + channel(period=period, jitter=0)) for period in periods]
    assert systems[0] == systems[1] == systems[2]
    assert systems[0].channels[0].period_ns == micros * 1000


# -- attributes that were added ----------------------------------------------------------------------------------------

GROWING = """
from genus import Event, Maybe, UInt8, UInt16, UInt32

class Loop(Event):
    speed: UInt32
{added}
class Fast(Loop):
    lane: Maybe[UInt16] = None

class Slow(Loop):
    reason: Maybe[UInt8] = None
"""

GROWN = """
[bus]
bitrate = "125k"
gap = "40us"
types = "growing.py"
[[channel]]
event = "Fast"
node = "a"
class = "hard"
omissions = 0
period = "3ms"
{size}
[[channel]]
event = "Slow"
node = "b"
class = "soft"
period = "100ms"
deadline = "7ms"
"""


def growing(tmp_path: Path, added: str, size: str = "") -> Plan:
    (tmp_path / "growing.py").write_text(GROWING.format(added=added))
    (tmp_path / "bus.toml").write_text(GROWN.format(size=size))
    return plan(load_system(tmp_path / "bus.toml"))


def test_an_added_attribute_with_which_a_channel_does_not_fit_any_more_is_named(tmp_path: Path) -> None:
    """What it made longer, from how much; following the advice helps, also a channel of another type."""
    assert growing(tmp_path, "").ok
    found = growing(tmp_path, "    toll: Maybe[UInt16] = None\n")
    fast, slow = found.verdicts
    assert (fast.ok, slow.ok) == (False, True)
    advice = next(each for each in fast.advice if each.key == "attribute")
    assert advice.attribute == "lane", "either of them is enough, and this is later in the family's vector"
    assert advice.text == "without lane: Fast takes 8 bytes in 1 frame instead of 10 in 2"
    assert found.system.sizes_without["toll"] == {"Fast": 8, "Slow": 7}
    assert plan(advice.apply(found.system)).ok


def test_a_size_that_an_added_attribute_outgrew_is_refused_with_its_name(tmp_path: Path) -> None:
    assert growing(tmp_path, "", "size = 8").ok
    with pytest.raises(
        PlanError, match="is 8, but a Fast takes up to 10 bytes, and 8 without lane; leave out the size"
    ):
        growing(tmp_path, "    toll: Maybe[UInt16] = None\n", "size = 8")


def test_an_attribute_of_a_sibling_that_moves_presence_bits_is_named(tmp_path: Path) -> None:
    """Six attributes of a class before it in the module move the bit of its own into a third byte."""
    others = "".join(f"    more{number}: Maybe[UInt8] = None\n" for number in range(6))
    text = GROWING.format(added="").replace("class Fast", f"class Other(Loop):\n{others}\nclass Fast")
    (tmp_path / "growing.py").write_text(text)
    (tmp_path / "bus.toml").write_text(GROWN.format(size=""))
    found = plan(load_system(tmp_path / "bus.toml"))
    assert [verdict.channel for verdict in found.refused] == ["Fast"]
    assert {name: sizes["Fast"] for name, sizes in found.system.sizes_without.items() if name != "lane"} == {
        f"more{number}": 8 for number in range(6)
    }
    advice = next(each for each in found.verdicts[0].advice if each.key == "attribute")
    assert plan(advice.apply(found.system)).ok


# -- plain messages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[channel]\nname = "a"', r"\[channel\] is a single table; write \[\[channel\]\], with two brackets"),
        ('[foreign]\nid = "0x100"', r"\[foreign\] is a single table; write \[\[foreign\]\], with two brackets"),
        ('reserved = ["0x200-0x100"]', r"reserved: '0x200-0x100' ends before it begins; write '0x100-0x200'"),
        ('reserved = ["0x100-0x1FFF"]', r"reserved: '0x100-0x1FFF' mixes identifiers of 11 bits"),
        ('reserved = ["0x800"]', r"reserved: '0x800' is too large; identifiers of 11 bits end at 0x7ff"),
        ('reserved = ["speed"]', r"reserved: 'speed' is no identifier; write for example '0x100'"),
    ],
)
def test_messages_say_what_to_write(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        parse_system(f"[bus]\nbitrate = 500_000\n{text}\n")


def test_a_plan_without_channels_warns() -> None:
    (warning,) = plan(parse_system("[bus]\nbitrate = 500_000\n", "empty.toml")).warnings
    assert warning == "empty.toml: there are no channels to plan; write a [[channel]] table for every publisher"
