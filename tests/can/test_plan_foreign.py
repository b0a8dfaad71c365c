"""Frames of other makers in a plan: identifiers that collide, bus time, and a DBC file of the own channels."""

import random
import re
from enum import Enum
from pathlib import Path
from typing import Any

import cantools.database
import msgspec
import pytest
from cantools.database.can import Database
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from genus.can import (
    Identifier,
    PayloadCodec,
    Priority,
    System,
    format_dbc,
    format_system,
    load_dbc,
    load_system,
    parse_system,
    plan,
)
from genus.can._plan.dbc_export import _names
from genus.can._plan.foreign import PlanTable, parse_identifiers
from genus.can._plan.interference import Message
from genus.can._plan.system_file import EventTypes
from genus.cli import genus
from genus.errors import PlanError
from tests.can.random_systems import random_system
from tests.can.test_foreign import CAR
from tests.can.test_foreign_j1939 import TRUCK
from tests.can.test_plan_fixed_priority import response_times
from tests.examples import examples

BUS = """
[bus]
bitrate = "500k"
{bus}

[nodes]
loop-1 = 5

[[channel]]
name = "occupancy"
node = "loop-1"
class = "{qos}"
period = "10ms"
size = 8
{channel}
{more}
"""


def system(qos: str = "none", *, bus: str = "", channel: str = "", more: str = "", source: str = "system") -> System:
    return parse_system(BUS.format(qos=qos, bus=bus, channel=channel, more=more), source)


def foreign(identifier: str, period: str = "", size: int = 8) -> str:
    every = f'period = "{period}"\n' if period else ""
    return f'[[foreign]]\nname = "Theirs"\nid = "{identifier}"\nsize = {size}\n{every}'


# -- reading -----------------------------------------------------------------------------------------------------------


def test_reserved_identifiers_have_11_or_29_bits_by_their_digits() -> None:
    found = system(bus='reserved = ["0x100", "0x00000100", "18FEF100-18FEF1FF"]').foreign
    assert [(each.first, each.last, each.extended) for each in found] == [
        (0x100, 0x100, False),
        (0x100, 0x100, True),
        (0x18FEF100, 0x18FEF1FF, True),
    ]


@pytest.mark.parametrize("text", ["0x800", "speed", "0x200-0x100", "0x100-0x00000200", "0x20000000", ""])
def test_what_is_no_identifier_is_refused_with_the_key(text: str) -> None:
    with pytest.raises(PlanError, match=r"\[bus\]: reserved"):
        system(bus=f'reserved = ["{text}"]')


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0x7FF", (0x7FF, 0x7FF, False)),
        ("7ff", (0x7FF, 0x7FF, False)),
        ("000", (0, 0, False)),
        ("0x0000", (0, 0, True)),
        ("0x1FFFFFFF", (2**29 - 1, 2**29 - 1, True)),
        ("0x100 - 0x100", (0x100, 0x100, False)),
        ("0x800", "'0x800' is too large; identifiers of 11 bits end at 0x7ff"),
        ("0x20000000", "'0x20000000' is too large; identifiers of 29 bits end at 0x1fffffff"),
        ("0x000-0x800", "too large"),
        ("0x200-0x1FF", "'0x200-0x1FF' ends before it begins; write '0x1FF-0x200'"),
        ("0x100-0x0200", "mixes identifiers of 11 bits"),
        ("0x100-", "is no identifier; write for example"),
        ("-0x100", "is no identifier"),
    ],
)
def test_identifiers_of_up_to_three_digits_have_11_bits(text: str, found: tuple[int, int, bool] | str) -> None:
    if isinstance(found, str):
        with pytest.raises(PlanError, match=re.escape(found)):
            parse_identifiers(text)
    else:
        assert parse_identifiers(text) == found


def test_identifiers_are_shown_with_the_digits_that_tell_their_length() -> None:
    texts = ["0x001", "0x001-0x7FF", "0x00000001", "0x00000001-0x1FFFFFFF"]
    assert [each.text for each in system(bus=f"reserved = {texts}").foreign] == texts


def test_a_frame_of_11_bits_wins_over_those_of_29_with_the_same_leading_bits() -> None:
    short, before, after = system(bus='reserved = ["0x100", "0x03FFFFFF", "0x04000000"]').foreign
    assert before.rank < short.rank < after.rank


def test_a_database_without_messages_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.dbc").write_text('VERSION ""\n\nBU_: a\n')
    with pytest.raises(PlanError, match=r"\[bus\]: databases has 'empty.dbc', which has no messages"):
        system(bus='databases = ["empty.dbc"]', source=str(tmp_path / "bus.toml"))


def test_messages_of_a_database_count_with_their_cycle_times(tmp_path: Path) -> None:
    (tmp_path / "car.dbc").write_text(CAR)
    place = str(tmp_path / "bus.toml")
    with pytest.raises(PlanError, match=r"data_bitrate is missing, but Fat of car\.dbc is a CAN FD frame"):
        system(bus='databases = ["car.dbc"]', source=place)
    files = 'data_bitrate = "2M"\ndatabases = ["car.dbc"]'
    found = system(bus=files, source=place)
    drive = found.foreign[0]
    assert (drive.name, drive.first, drive.size, drive.period_ns) == ("Drive of car.dbc", 256, 4, 10_000_000)
    assert len(plan(found).uncounted) == 4
    counted = system(bus=f'{files}\nforeign_interval = "50ms"', source=place)
    assert plan(counted).uncounted == ()
    with pytest.raises(PlanError, match=r"databases has 'none.dbc', which cannot be used"):
        system(bus='databases = ["none.dbc"]')


def test_long_j1939_messages_count_with_all_their_frames(tmp_path: Path) -> None:
    text = TRUCK + 'BA_DEF_ BO_ "GenMsgCycleTime" INT 0 65535;\nBA_ "GenMsgCycleTime" BO_ 2566834942 1000;\n'
    (tmp_path / "truck.dbc").write_text(text)
    found = system(bus='databases = ["truck.dbc"]', source=str(tmp_path / "bus.toml")).foreign
    rpm, torque, parts = found[:3]
    assert (rpm.first, rpm.last) == (0x0CF00400, 0x0CF004FF), "from every source"
    assert (torque.first, torque.last) == (0x0C000000, 0x0C00FFFF), "to every destination, too"
    assert (parts.name, parts.period_ns) == ("parts of DM1 of truck.dbc", 333_333_333)
    assert (parts.first, parts.last) == (0x1CEB0000, 0x1CECFFFF)


def test_a_system_with_foreign_frames_written_down_is_the_same() -> None:
    found = system("soft", channel='deadline = "5ms"', more=foreign("0x18FEF100-0x18FEF1FF", "20ms"))
    assert parse_system(format_system(found), found.source) == found


# -- collisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("qos", "channel", "priority"),
    [("hard", "", 0), ("soft", 'deadline = "5ms"', 1), ("soft", 'deadline = "5ms"', 250), ("none", "", 254)],
)
def test_an_identifier_that_a_channel_may_have_is_found(qos: str, channel: str, priority: int) -> None:
    made = Identifier(priority, 5, 128).pack()
    found = plan(system(qos, channel=channel, more=foreign(f"0x{made:08X}")))
    assert not found.ok
    (collision,) = found.collisions
    assert (collision.foreign, collision.identifier, collision.user) == ("Theirs", made, "channel 'occupancy'")
    assert collision.advice == "give node 'loop-1' another number: [nodes] loop-1 = 1"


def test_the_advice_helps() -> None:
    """The number avoids the identifiers of all nodes' frames."""
    reserved = [Identifier(Priority.SYSTEM, number, 5).pack() for number in (1, 2, 5)]
    bus = f"reserved = {[f'0x{each:08X}' for each in reserved]}"
    (collision,) = plan(system(bus=bus)).collisions
    assert collision.user == "the middleware of node 'loop-1'"
    assert collision.advice.endswith("loop-1 = 3")
    moved = BUS.format(qos="none", bus=bus, channel="", more="").replace("loop-1 = 5", "loop-1 = 3")
    assert plan(parse_system(moved)).collisions == ()


def test_frames_of_the_broker_and_of_joining_nodes_collide_too() -> None:
    broker = Identifier(Priority.SYSTEM, 127, 10).pack()
    joining = Identifier(Priority.PROTOCOL, 77, 1).pack()
    more = foreign(f"0x{broker:08X}") + foreign(f"0x{joining:08X}")
    assert [each.user for each in plan(system(more=more)).collisions] == ["the broker", "configuration and binding"]
    assert plan(system(bus="middleware = false", more=more)).collisions == ()


def test_a_collision_says_who_uses_which_identifier_and_what_to_change() -> None:
    made = Identifier(254, 5, 128).pack()
    (collision,) = plan(system(bus=f'reserved = ["0x{made - 3:08X}-0x{made + 3:08X}"]')).collisions
    assert str(collision) == (
        f"reserved 0x{made - 3:08X}-0x{made + 3:08X} and channel 'occupancy' both use 0x{made:08x}; "
        "give node 'loop-1' another number: [nodes] loop-1 = 1"
    )
    for low, high in ((made - 3, made - 1), (made + 1, made + 3)):
        assert plan(system(bus=f'reserved = ["0x{low:08X}-0x{high:08X}"]')).collisions == ()


def test_where_no_number_of_a_node_avoids_a_collision_the_identifier_must_change() -> None:
    first, last = Identifier(254, 0, 0).pack(), Identifier(254, 127, 2**14 - 1).pack()
    (collision,) = plan(system(bus=f'reserved = ["0x{first:08X}-0x{last:08X}"]')).collisions
    assert collision.identifier == Identifier(254, 5, 128).pack()
    assert (
        collision.advice == "no number of its node avoids that: change the foreign identifier, or the channel's class"
    )


@pytest.mark.parametrize(("count", "names"), [(1, "T0"), (3, "T0, T1, T2"), (4, "T0, T1, T2 and others")])
def test_up_to_three_frames_that_win_too_often_are_named(count: int, names: str) -> None:
    more = "".join(foreign("0x000").replace("Theirs", f"T{number}") for number in range(count))
    (verdict,) = plan(system("hard", more=more)).verdicts
    assert verdict.reason.startswith(f"{names} can win over a hard frame")


def test_identifiers_of_11_bits_never_collide() -> None:
    assert plan(system(bus='reserved = ["0x000-0x7FF"]')).collisions == ()


@given(st.integers(0, 255), st.integers(0, 127), st.integers(0, 300), st.sampled_from(["hard", "soft", "none"]))
@examples(300)
def test_exactly_the_identifiers_of_the_system_collide(priority: int, node: int, etag: int, qos: str) -> None:
    """Against a plain enumeration of what the node may send."""
    made = Identifier(priority, node, etag).pack()
    deadline = 'deadline = "5ms"' if qos == "soft" else ""
    found = plan(system(qos, channel=deadline, more=foreign(f"0x{made:08X}")), with_advice=False)
    bands = {"hard": [0], "soft": range(1, 251), "none": [254]}
    own = priority in bands[qos] and (node, etag) == (5, 128)
    middleware = etag < 128 and ((priority == 251 and node in (5, 127)) or priority == 253)
    assert bool(found.collisions) == (own or middleware)


# -- bus time ----------------------------------------------------------------------------------------------------------


def slot_ns(*more: str) -> int:
    (verdict,) = plan(system("hard", more="".join(more))).verdicts
    assert verdict.ok
    assert verdict.deadline_ns is not None
    return verdict.deadline_ns


def test_a_slot_has_time_for_the_frames_that_win_over_its_own() -> None:
    """Each with as many failures as its own frames, as often as it comes within the slot."""
    alone, frame, error = slot_ns(), 270_000, 62_000
    assert slot_ns(foreign("0x000", "10ms")) == alone + 2 * frame + error
    assert slot_ns(foreign("0x00000001", "10ms", size=4)) == alone + 2 * 240_000 + error
    assert slot_ns(foreign("0x000", "1ms")) == alone + 3 * (2 * frame + error), "at 0, 1 and 2 ms"
    assert slot_ns(foreign("0x008", "1ms"), foreign("0x00200000", "1ms")) == alone, "these lose"


def test_frames_that_win_as_often_as_they_like_refuse_hard_channels() -> None:
    for more in (foreign("0x000"), foreign("0x00000001"), foreign("0x000", "1ms") + foreign("0x00000002")):
        found = plan(system("hard", more=more))
        (verdict,) = found.verdicts
        assert not verdict.ok
        assert "Theirs can win over a hard frame, and it is not known how often" in verdict.reason
        assert "period of [[foreign]]" in verdict.reason
        assert "0x00200000" in verdict.reason
        assert (verdict.advice, found.advice) == ((), ())
    (verdict,) = plan(system("hard", more=foreign("0x000", "600us"))).verdicts
    assert verdict.reason.startswith("no room for a slot"), "they leave no time"


def test_foreign_frames_delay_soft_events() -> None:
    def response(*more: str) -> int:
        found = plan(system("soft", channel='deadline = "9ms"', more="".join(more))).verdicts[0].response_ns
        assert found is not None
        return found

    alone = response()
    frame = 270_000
    assert response(foreign("0x100", "10ms")) == alone + frame
    assert response(foreign("0x7D8", "10ms"), foreign("0x7D9", "10ms")) == alone, "one lower frame blocks already"
    assert response(foreign("0x006", "1ms"), foreign("0x007", "1ms")) == alone + 2 * frame
    assert response(foreign("0x008", "1ms"), foreign("0x009", "1ms")) > alone + 2 * frame, "these may have waited"
    many = [foreign(f"0x{0x010 + number:03X}", "10ms") for number in range(10)]
    assert response(*many) == alone + 10 * frame
    urgency = 8_680_000 // 320_000 + 2  # levels until its latest start, one for rounding, and one for stale priorities
    as_urgent = [foreign(f"0x{(Priority.SOFT_FIRST + urgency << 3) + number:03X}", "10ms") for number in range(8)]
    assert response(*as_urgent) == alone + 8 * frame
    less_urgent = [foreign(f"0x{0x100 + number:03X}", "10ms") for number in range(10)]
    assert alone + frame <= response(*less_urgent) < alone + 10 * frame, "with less than 31 levels left it wins"


def test_too_many_foreign_frames_leave_no_bound() -> None:
    many = [foreign(f"0x{0x100 + number:03X}", "1ms") for number in range(4)]
    found = plan(system("soft", channel='deadline = "9ms"', more="".join(many)), with_advice=False)
    assert found.verdicts[0].response_ns is None


@given(st.lists(st.tuples(st.integers(0, 0x7FF), st.integers(5, 100)), min_size=1, max_size=6), st.integers(5, 100))
@examples(60)
def test_channels_without_deadlines_are_analysed_as_one_set_of_messages(
    others: list[tuple[int, int]], period: int
) -> None:
    """Against the analysis of Davis et al., with the foreign frames in their places."""
    more = "".join(foreign(f"0x{identifier:03X}", f"{every}ms") for identifier, every in others)
    text = BUS.format(qos="none", bus="middleware = false", channel="", more=more).replace("10ms", f"{period}ms", 1)
    found = plan(parse_system(text), with_advice=False)
    channel = found.system.channels[0]
    messages = [Message("own", channel.id, channel.times, channel.period_ns)]
    for at, (identifier, every) in enumerate(others):
        messages.append(Message(f"{at}", (identifier << 18) - 0.5, (270_000,), every * 1_000_000))
    assert found.verdicts[0].response_ns == response_times(messages)["own"]


def test_the_load_of_foreign_frames_is_shown() -> None:
    found = plan(system(more=foreign("0x100", "10ms")))
    share = found.load.shares[-1]
    assert (share.qos_class, round(share.used, 4)) == ("foreign", 0.027)
    assert [each.qos_class for each in plan(system()).load.shares] == ["hard", "soft", "none", "system"]


# -- a DBC file --------------------------------------------------------------------------------------------------------

TYPES = """
from enum import Enum
from typing import Annotated
from genus import Event, Float32, Int16, Maybe, UInt8, UInt32, Unit

class Colour(Enum):
    RED = "red"
    GREEN = "green"

class Lamp(Event, tagged=("dimmed",)):
    number: UInt8
    colour: Colour
    watts: Maybe[Annotated[Int16, Unit("W")]] = None
    dimmed: Maybe[UInt8] = None

class Meter(Event):
    level: Float32
    name: Maybe[str] = None
"""

TYPED = """
[bus]
bitrate = "500k"
types = "types.py"

[[channel]]
name = "lamp of north"
event = "Lamp"
node = "north"
class = "soft"
deadline = "5ms"
period = "20ms"

[[channel]]
name = "meter"
event = "Meter"
node = "north"
class = "none"
period = "1s"
size = 8

[[channel]]
name = "long"
node = "north"
class = "none"
period = "1s"
size = 60
"""


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    (tmp_path / "types.py").write_text(TYPES)
    (tmp_path / "bus.toml").write_text(TYPED)
    return tmp_path / "bus.toml"


def codec_of(path: Path, event: str) -> PayloadCodec:
    found = EventTypes.load("types.py", path.parent, PlanTable("bus", {})).codec(event)
    assert found is not None
    return found


def test_other_tools_decode_an_event_by_the_dbc_file(typed: Path) -> None:
    found = load_system(typed)
    database = cantools.database.load_string(format_dbc(found), "dbc")
    assert isinstance(database, Database)
    codec = codec_of(typed, "Lamp")
    colour: Any = codec.event_type.__annotations__["colour"]
    assert issubclass(colour, Enum)
    lamp: Any = codec.event_type
    bits, payload = codec.encode(lamp(number=7, colour=colour("green"), watts=-40, dimmed=9), 3)
    identifier = Identifier(77, 1, found.channels[0].etag | bits).pack()
    message = database.get_message_by_name("lamp_of_north")
    assert message.dbc is not None
    mask = int(message.dbc.attributes["GenusIdMask"].value)
    assert identifier & mask == message.frame_id & mask
    decoded: Any = message.decode(payload)
    assert {name: decoded[name] for name in ("number", "watts", "dimmed", "sequence_number_")} == {
        "number": 7,
        "watts": -40,
        "dimmed": 9,
        "sequence_number_": 3,
    }
    assert str(decoded["colour"]) == "green"
    assert message.get_signal_by_name("watts").unit == "W"
    assert message.cycle_time == 20


def test_genus_decodes_its_own_bus_by_the_dbc_file_at_every_priority(typed: Path, tmp_path: Path) -> None:
    path, log = tmp_path / "own.dbc", tmp_path / "own.log"
    found = load_system(typed)
    path.write_text(format_dbc(found))
    codec = codec_of(typed, "Lamp")
    colour: Any = codec.event_type.__annotations__["colour"]
    lamp: Any = codec.event_type
    bits, payload = codec.encode(lamp(number=7, colour=colour("green"), watts=-40, dimmed=9), 3)
    etag = found.channels[0].etag | bits
    sent = [Identifier(priority, 1, etag).pack() for priority in (1, 77, 250)]
    others = [Identifier(77, 2, etag).pack(), Identifier(77, 1, etag ^ bits).pack(), found.channels[1].id | 1 << 21]
    dbc = load_dbc(path)
    events = [dbc.decode(identifier, payload, True) for identifier in sent]
    assert [getattr(event, "watts", event) for event in events] == [-40] * 3
    assert not any(dbc.knows(identifier, True) for identifier in others), "other nodes, forms and classes"
    lines = (f"(1.{at}) can0 {each:08X}#{payload.hex()}" for at, each in enumerate((*sent, *others)))
    log.write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(genus, ["can", "decode", "--dbc", str(path), str(log), "--json"])
    assert done.stdout.count('"watts"') == 3, done.output


def test_an_event_of_another_form_is_not_decoded_wrongly(typed: Path) -> None:
    database = cantools.database.load_string(format_dbc(load_system(typed)), "dbc")
    assert isinstance(database, Database)
    codec = codec_of(typed, "Lamp")
    colour: Any = codec.event_type.__annotations__["colour"]
    lamp: Any = codec.event_type
    _, payload = codec.encode(lamp(number=7, colour=colour("red"), dimmed=1), 0)
    with pytest.raises(cantools.database.DecodeError):
        database.get_message_by_name("lamp_of_north").decode(payload.ljust(8, b"\0"))


def test_what_the_file_cannot_say_is_in_its_comments(typed: Path) -> None:
    database = cantools.database.load_string(format_dbc(load_system(typed)), "dbc")
    assert isinstance(database, Database)
    comments = {message.name: message.comment or "" for message in database.messages}
    assert "varies from 1 to 250" in comments["lamp_of_north"]
    assert "lowest 1 bits" in comments["lamp_of_north"]
    assert "without signals: name" in comments["meter"]
    assert [each.name for each in database.get_message_by_name("meter").signals][2:] == ["level"]
    assert "takes 9 frames" in comments["long"]
    assert database.get_message_by_name("long").signals == []


ALL_SIZES = """
class Meter(Event):
    level: Float32
    share: float
    count: int
    near: Int16
    flag: bool
    at: Maybe[timedelta] = None
    name: Maybe[str] = None
    after: Maybe[UInt8] = None
"""
GOLDEN = """\
BO_ 2149605409 lamp_of_north: 7 north
 SG_ sequence_number_ : 7|3@0+ (1,0) [0|7] "" Vector__XXX
 SG_ presence_ M : 4|13@0+ (1,0) [0|0] "" Vector__XXX
 SG_ number m4128 : 23|8@0+ (1,0) [0|0] "" Vector__XXX
 SG_ colour m4128 : 31|8@0+ (1,0) [0|0] "" Vector__XXX
 SG_ watts m4128 : 39|16@0- (1,0) [0|0] "W" Vector__XXX
 SG_ dimmed m4128 : 55|8@0+ (1,0) [0|0] "" Vector__XXX
BO_ 2680184848 meter: 64 north
 SG_ sequence_number_ : 7|3@0+ (1,0) [0|7] "" Vector__XXX
 SG_ presence_ M : 4|13@0+ (1,0) [0|0] "" Vector__XXX
 SG_ level m4152 : 23|32@0- (1,0) [0|0] "" Vector__XXX
 SG_ share m4152 : 55|64@0- (1,0) [0|0] "" Vector__XXX
 SG_ count m4152 : 119|64@0- (1,0) [0|0] "" Vector__XXX
 SG_ near m4152 : 183|16@0- (1,0) [0|0] "" Vector__XXX
 SG_ flag m4152 : 199|8@0+ (1,0) [0|0] "" Vector__XXX
 SG_ at m4152 : 207|64@0- (1,0) [0|0] "us" Vector__XXX
BO_ 2680176768 long: 64 north
CM_ BO_ 2680184848 "Channel meter of north, none: events Meter. Without a fixed place, and so without signals: name, after.";
CM_ BO_ 2680176768 "Channel long of north, none: events long. The event type is not known to the plan, so there are no signals.";
BA_ "BusType" "CAN FD";
BA_ "GenMsgCycleTime" BO_ 2149605409 20;
BA_ "VFrameFormat" BO_ 2149605409 15;
BA_ "GenusClass" BO_ 2149605409 1;
BA_ "GenusIdMask" BO_ 2149605409 2097150;
BA_ "GenMsgCycleTime" BO_ 2680184848 1000;
BA_ "VFrameFormat" BO_ 2680184848 15;
BA_ "GenusClass" BO_ 2680184848 2;
BA_ "GenusIdMask" BO_ 2680184848 536870911;
BA_ "GenMsgCycleTime" BO_ 2680176768 1000;
BA_ "VFrameFormat" BO_ 2680176768 15;
BA_ "GenusClass" BO_ 2680176768 2;
BA_ "GenusIdMask" BO_ 2680176768 536870911;
VAL_ 2149605409 colour 0 "red" 1 "green" ;
SIG_VALTYPE_ 2680184848 level : 1;
SIG_VALTYPE_ 2680184848 share : 2;
"""  # noqa: E501


def test_each_value_has_its_place_size_and_sign_up_to_the_first_without_a_fixed_size(typed: Path) -> None:
    """Big-endian: a place is that of the highest bit; soft events and tagged attributes vary the identifier."""
    types = typed.parent / "types.py"
    types.write_text(f"from datetime import timedelta\n{TYPES.partition('class Meter')[0]}{ALL_SIZES}")
    typed.write_text(TYPED.replace("[bus]", '[bus]\ndata_bitrate = "2M"').replace("size = 8", "size = 60"))
    text = format_dbc(load_system(typed))
    kept = ("BO_", " SG_", "BA_ ", "VAL_", "SIG_VALTYPE_", "CM_ BO_ 268")
    assert "".join(f"{line}\n" for line in text.splitlines() if line.startswith(kept)) == GOLDEN


def test_names_in_the_file_are_words_and_differ() -> None:
    assert _names(["a b", "a_b", "a-b", "2nd", "", "ü", "x"]) == {
        "a b": "a_b", "a_b": "a_b_2", "a-b": "a_b_3", "2nd": "x2nd", "": "x", "ü": "x_", "x": "x_2",
    }  # fmt: skip


def test_any_random_system_makes_a_file_that_can_be_read() -> None:
    for seed in range(10):
        made = random_system(seed, data_bitrate=None if seed % 2 else 4_000_000)
        rng = random.Random(seed)
        odd = msgspec.structs.replace(made.channels[0], name=f'ü "{rng.random()}"\\')
        made = msgspec.structs.replace(made, channels=(odd, *made.channels[1:]))
        database = cantools.database.load_string(format_dbc(made), "dbc")
        assert isinstance(database, Database)
        assert [message.frame_id for message in database.messages] == [channel.id for channel in made.channels]


def test_the_command_shows_collisions_and_writes_the_file(typed: Path, tmp_path: Path) -> None:
    target = tmp_path / "own.dbc"
    done = CliRunner().invoke(genus, ["can", "plan", str(typed), "--write-dbc", str(target)])
    assert done.exit_code == 0, done.output
    assert target.read_text() == format_dbc(load_system(typed))
    target.unlink()
    taken = Identifier(Priority.NONE, 1, load_system(typed).channels[1].etag).pack()
    typed.write_text(TYPED.replace("[bus]", f'[bus]\nreserved = ["0x{taken:08X}"]'))
    refused = CliRunner().invoke(genus, ["can", "plan", str(typed), "--write-dbc", str(target)])
    assert refused.exit_code == 1
    assert "1 identifier of other makers' frames would be used twice" in refused.stderr
    assert "[nodes] north = 2" in " ".join(refused.stdout.split())
    assert not target.exists()
