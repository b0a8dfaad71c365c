"""Files of other formats than DBC: ARXML, KCD, SYM and CDD, against cantools."""

import json
import random
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cantools.database
import pytest
from cantools.database.can import Database
from click.testing import CliRunner

from genus import Catalog, Event, check
from genus.bus._codec import Rejected
from genus.can import ColumnDecoder, load_dbc, python_source
from genus.can._dbc.database_file import ENDINGS, detect_format
from genus.can.types import Dbc
from genus.cli import genus
from genus.cli._events import DATABASES
from genus.errors import DbcError
from genus.model import attributes, signature

GOLDEN = Path(__file__).parent / "golden"
FILES = ("motor.arxml", "motor.kcd", "motor.sym")
DATA = Path(__file__).parents[3] / "shared/data/can"
DATABASE_FILES = sorted(path for path in DATA.rglob("*") if path.suffix.lower().removeprefix(".") in ENDINGS)
NO_MESSAGES = "the file has no messages, so there are no types, and no frame can be decoded"


def described(dbc: Dbc, name: str) -> dict[str, str]:
    own = [each for each in attributes(dbc.types[name]) if each not in attributes(Event)]
    return {each.name: f"{str(each).partition(': ')[2]}{f' [{each.unit}]' if each.unit else ''}" for each in own}


@pytest.mark.parametrize("name", ["motor.kcd", "motor.sym"])
def test_messages_of_other_formats_become_types(name: str) -> None:
    dbc = load_dbc(GOLDEN / name)
    assert described(dbc, "Drive") == {
        "speed": "float64 [km/h]",
        "gear": "uint8",
        "gear_label": "P|D?",
        "torque": "int32",
        "ratio": "float32",
    }
    drive, pages = dbc.messages
    assert (drive.frame_id, drive.extended, drive.cycle_time_ms) == (0x100, False, 100)
    assert (drive.comment, pages.frame_id, pages.extended) == ("What the driver sees.", 0x1000, True)
    assert [signal.selected_by for signal in pages.signals] == [frozenset(), {0}, {1}]
    assert dbc.problems == dbc.repairs == ()


def test_arxml_has_units_scales_and_byte_orders_in_several_places() -> None:
    dbc = load_dbc(GOLDEN / "motor.arxml")
    assert described(dbc, "DriveFrame") == {"speedI": "float64 [km/h]", "torqueI": "int16"}


@pytest.mark.parametrize("name", FILES)
def test_values_are_those_of_cantools(name: str) -> None:
    dbc, theirs = load_dbc(GOLDEN / name), cantools.database.load_file(GOLDEN / name)
    assert isinstance(theirs, Database)
    rng = random.Random(name)
    for message in dbc.messages:
        for _ in range(50):
            data = bytes([rng.choice((0, 1)), *rng.randbytes(7)])[: message.length]
            event = dbc.decode(message.frame_id, data, message.extended)
            assert isinstance(event, Event)
            check(event)
            wanted: Any = theirs.decode_message(message.frame_id, data, decode_choices=False)
            found = {signal.name: getattr(event, signal.attribute) for signal in message.signals}
            assert repr({key: value for key, value in found.items() if value is not None}) == repr(wanted)


def test_names_that_xml_allows_follow_the_rule_for_names() -> None:
    dbc = load_dbc(GOLDEN / "motor.kcd")
    assert dbc.renamed == {"Pages.oil temperature": "oil_temperature"}
    assert dbc.messages[1].signals[1].name == "oil temperature"


# -- diagnostic data -----------------------------------------------------------------------------------------------


def test_the_diagnostic_data_of_a_cdd_file_become_types_without_frames() -> None:
    dbc = load_dbc(GOLDEN / "battery.cdd")
    assert dbc.messages == ()
    assert described(dbc, "Battery") == {"voltage": "float64 [V]", "charger": "uint8", "charger_label": "off|on?"}
    assert dbc.types["Battery"].__doc__ == "Battery (diagnostic data 0xf190, 3 bytes)"
    assert dbc.decode(0xF190, bytes(3), extended=True) == Rejected("unknown identifier")
    assert list(ColumnDecoder(dbc.messages).messages) == []
    Catalog().register(*dbc.all_types)


def test_diagnostic_data_decode_by_their_identifier_as_in_cantools() -> None:
    dbc = load_dbc(GOLDEN / "battery.cdd")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        did = cantools.database.load_file(GOLDEN / "battery.cdd").get_did_by_identifier(0xF190)  # type: ignore[union-attr]
    for data in (b"\x04\xd2\x01", b"\xff\xff\x07", b"\0\0\0and more"):
        event: Any = dbc.decode_did(0xF190, data, source="BMS")
        wanted: Any = did.decode(data, decode_choices=False)
        assert (event.voltage, event.charger) == (wanted["voltage"], wanted["charger"])
        assert event.source == "BMS"
    assert dbc.decode_did(0xF191, b"") == Rejected("unknown identifier")
    assert dbc.decode_did(0xF190, b"\x01") == Rejected("Battery: too short: 1 of 3 bytes")


# -- files without messages -----------------------------------------------------------------------------------------

WITHOUT = {
    "nodes.dbc": 'VERSION ""\nBU_: Engine\nCM_ BU_ Engine "warm";\n',
    "version.dbc": 'VERSION "1"\n',
    "empty.sym": 'FormatVersion=6.0 // x\nTitle="house"\n',
    "empty.kcd": '<NetworkDefinition xmlns="http://kayak.2codeornot2code.org/1.0"><Document/></NetworkDefinition>',
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_file_without_messages_says_so(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(WITHOUT[name])
    dbc = load_dbc(tmp_path / name)
    assert (dict(dbc.types), list(dbc.problems)) == ({}, [NO_MESSAGES])
    shown = CliRunner().invoke(genus, ["can", "types", str(tmp_path / name)])
    assert NO_MESSAGES in " ".join(shown.output.split())


def problem_of(path: Path) -> str | None:
    """Why a file gives no types; None if it gives some."""
    try:
        dbc = load_dbc(path)
    except DbcError as problem:
        return str(problem)
    return None if dbc.types else "; ".join(dbc.problems)


@pytest.mark.parametrize("name", [*FILES, "battery.cdd", "house.dbc"])
def test_a_file_that_ends_anywhere_gives_types_or_says_why_not(name: str, tmp_path: Path) -> None:
    data, path = (GOLDEN / name).read_bytes(), tmp_path / name
    for end in sorted(random.Random(name).sample(range(len(data)), 12)):
        path.write_bytes(data[:end])
        assert problem_of(path) != "", end


@pytest.mark.slow
@pytest.mark.parametrize("path", DATABASE_FILES, ids=lambda path: path.name)
def test_each_published_database_gives_types_or_says_why_not(path: Path) -> None:
    assert problem_of(path) != ""


# -- which format --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, "battery.cdd", "house.dbc"])
def test_the_content_decides_not_the_ending(name: str, tmp_path: Path) -> None:
    for ending in ("dbc", "xml", "sym", "txt"):
        path = tmp_path / f"some.{ending}"
        path.write_bytes((GOLDEN / name).read_bytes())
        dbc, wanted = load_dbc(path), load_dbc(GOLDEN / name)
        assert dbc.messages == wanted.messages
        assert dbc.dids == wanted.dids


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-8-sig"])
def test_xml_may_begin_with_comments_and_a_document_type(encoding: str, tmp_path: Path) -> None:
    text = (GOLDEN / "motor.kcd").read_text(encoding="utf-8")
    declared, _, rest = text.partition("?>")
    (tmp_path / "bus.kcd").write_bytes(f"{declared}?>\n<!-- <AUTOSAR> -->{rest}".encode(encoding))
    assert list(load_dbc(tmp_path / "bus.kcd").types) == ["Drive", "Pages"]
    doctype = "<?xml version='1.0'?><!DOCTYPE CANDELA [<!ENTITY a 'b'>]> <CANDELA/>"
    assert detect_format(doctype, Path("x")) == "cdd"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<html></html>", "is XML, but does not begin with <AUTOSAR> of ARXML"),
        ("<AUTOSAR></AUTOSAR>", "cannot read it as ARXML"),
        ("<AUTOSAR", "cannot read it as ARXML"),
        ("<NetworkDefinition", "cannot read it as KCD"),
        ("<CANDELA></CANDELA>", "cannot read it as CDD: .*ECUDOC"),
        ("FormatVersion=5.0 // x\n", "cannot read it as SYM: Only SYM version 6.0 is supported"),
        ("FormatVersion=6.0 // x\n{SEND}\n[A]\nID=1\n", "cannot read it as SYM: Invalid syntax at line 4"),
        ("FormatVersion=6.0 // x\n{SEND}\n[A]\nID=100h\nLen=9999999\n", "no message or signal is as large as"),
        ("", "is empty"),
        ("nothing known", "cannot read it as DBC"),
    ],
)
def test_a_file_that_cannot_be_read_says_as_what_and_why(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "bad.xml").write_text(text)
    with pytest.raises(DbcError, match=reason) as raised:
        load_dbc(tmp_path / "bad.xml")
    assert "\n" not in str(raised.value)


def damaged(text: str, count: int) -> Iterator[str]:
    rng = random.Random(text[:50])
    for _ in range(count):
        at = rng.randrange(len(text))
        yield text[:at] + rng.choice(["", "<", '"', "0", "\x00"]) + text[at + rng.randrange(3) :]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FILES, "battery.cdd"])
def test_damaged_files_raise_nothing_but_a_dbc_error(name: str, tmp_path: Path) -> None:
    for text in damaged((GOLDEN / name).read_text(encoding="utf-8"), 150):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with suppress(DbcError):
            load_dbc(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "good", "bad", "repair"),
    [
        ("motor.kcd", 'id="0x100"', 'id="0x20000000"', "message Drive (0x20000000) is left out: Standard frame id"),
        ("motor.kcd", 'offset="12"', 'offset="twelve"', "message Drive (0x100) is left out: invalid literal for int"),
        ("motor.kcd", 'id="0x100" ', "", "message Drive (no identifier) is left out"),
        ("motor.sym", "Sig=speed 0\n", "Sig=slip 0\n", "line 17: message Drive is left out: 'slip' is missing"),
        ("motor.sym", "Len=8\nCycleTime", "Len=eight\nCycleTime", "line 17: message Drive is left out: Invalid syntax"),
    ],
)
def test_one_message_with_an_error_does_not_lose_the_others(
    name: str, good: str, bad: str, repair: str, tmp_path: Path
) -> None:
    text = (GOLDEN / name).read_text(encoding="utf-8")
    assert good in text
    (tmp_path / name).write_text(text.replace(good, bad, 1), encoding="utf-8")
    dbc, whole = load_dbc(tmp_path / name), load_dbc(GOLDEN / name)
    assert dbc.messages == whole.messages[1:]
    assert len(dbc.repairs) == 1
    assert repair in dbc.repairs[0]


def test_an_identifier_of_more_than_11_bits_is_extended_in_kcd_too(tmp_path: Path) -> None:
    text = (GOLDEN / "motor.kcd").read_text(encoding="utf-8").replace(' format="extended"', "")
    (tmp_path / "motor.kcd").write_text(text, encoding="utf-8")
    dbc = load_dbc(tmp_path / "motor.kcd")
    assert dbc.messages == load_dbc(GOLDEN / "motor.kcd").messages
    assert dbc.repairs == ("message Pages (0x1000) is taken as extended: its identifier has more than 11 bits",)


# -- where they are used -------------------------------------------------------------------------------------------


def test_the_command_line_knows_the_same_endings() -> None:
    assert tuple(f".{ending}" for ending in ENDINGS) == DATABASES


@pytest.mark.parametrize("name", [*FILES, "battery.cdd"])
def test_commands_take_the_file_for_types(name: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(genus, ["types", str(GOLDEN / name), "--json"])
    assert shown.exit_code == 0, shown.output
    assert set(load_dbc(GOLDEN / name).types) <= {each["name"] for each in json.loads(shown.stdout)}
    listed = CliRunner().invoke(genus, ["can", "types", str(GOLDEN / name), "--json"])
    assert [each["type_name"] for each in json.loads(listed.stdout)["types"]] == list(load_dbc(GOLDEN / name).types)
    table = CliRunner().invoke(genus, ["can", "types", str(GOLDEN / name)])
    assert ("DID F190" if name == "battery.cdd" else "100") in table.stdout


def test_a_log_is_decoded_with_any_of_them(tmp_path: Path) -> None:
    (tmp_path / "drive.log").write_text("(1.0) can0 100#F431000000000000\n")
    for name in FILES:
        done = CliRunner().invoke(
            genus, ["can", "decode", "--dbc", str(GOLDEN / name), str(tmp_path / "drive.log"), "--json"]
        )
        assert done.exit_code == 0, done.output
        values = json.loads(done.stdout)
        assert values.get("speed", values.get("speedI")) == 50.0


@pytest.mark.parametrize("name", [*FILES, "battery.cdd"])
def test_a_module_declares_the_same_types(name: str) -> None:
    dbc = load_dbc(GOLDEN / name, truncated=True)
    module: dict[str, Any] = {"__name__": "written"}
    exec(compile(python_source(dbc), "written.py", "exec"), module)
    for type_name, cls in dbc.types.items():
        assert signature(cls).attributes == signature(module[type_name]).attributes
    given = load_dbc(GOLDEN / name, [module[type_name] for type_name in dbc.types], truncated=True)
    assert all(given.types[type_name] is module[type_name] for type_name in dbc.types)


def test_the_ending_decides_if_the_content_does_not() -> None:
    assert detect_format("[Drive]\nID=100h\n", Path("bus.SYM")) == "sym"
    assert detect_format('VERSION ""\n', Path("bus.sym")) == "dbc"


def test_the_commands_decode_truncated_frames_where_asked(tmp_path: Path) -> None:
    (tmp_path / "drive.log").write_text("(1.0) can0 100#F431\n")
    asked = ["can", "decode", "--dbc", str(GOLDEN / "motor.kcd"), str(tmp_path / "drive.log"), "--json"]
    refused = CliRunner().invoke(genus, asked)
    assert "Drive: too short: 2 of 8 bytes" in refused.stderr
    done = CliRunner().invoke(genus, [*asked, "--truncated"])
    assert json.loads(done.stdout)["speed"] == 50.0
    shown = CliRunner().invoke(genus, ["can", "types", str(GOLDEN / "motor.kcd"), "--truncated"])
    assert "speed: float64? [km/h]" in " ".join(shown.stdout.split())
    lake = CliRunner().invoke(genus, ["lake", "ingest", str(tmp_path), str(tmp_path / "drive.log"), "--truncated"])
    assert "go with --dbc" in lake.stderr
