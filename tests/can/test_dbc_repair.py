"""DBC files with errors: what is meant is read, what cannot be read is left out, and both are listed by line."""

import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import cantools.database
import msgspec
import pytest
from cantools.database.can import Database, Message
from cantools.errors import Error as CantoolsError
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from genus.can import load_dbc
from genus.can._dbc.database import Layouts, read_layouts
from genus.can._dbc.database_file import decode_text
from genus.can._dbc.dbc_repair import repair_dbc
from genus.can._dbc.dbc_text import split_statements
from genus.can.types import Dbc, MessageLayout
from genus.cli import genus
from genus.errors import DbcError
from tests.examples import examples, some_of

DATA = Path(__file__).parents[3] / "shared" / "data" / "can"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"real data not found: {DATA}")

START = """VERSION ""
NS_ :
\tCM_
\tVAL_
BS_:
BU_: ECU XXX
BO_ 100 Good: 8 ECU
 SG_ speed : 0|16@1+ (0.01,0) [0|655] "km/h" XXX
 SG_ gear : 16|4@1+ (1,0) [0|15] "" XXX
VAL_ 100 gear 0 "P" 1 "D" ;
"""
"""Eleven is the line after it."""
MESSAGE = 'BO_ 11 M: 8 ECU\n SG_ a : 0|8@1+ (1,0) [0|0] "" XXX\n'


def dbc_files() -> list[Path]:
    found = [*(DATA / "dbc_cantools").glob("*"), *(DATA / "tesla").glob("*")]
    return sorted(path for path in found if path.suffix.lower() == ".dbc")


def loaded(text: str, folder: Path, encoding: str = "utf-8") -> Dbc:
    (folder / "made.dbc").write_bytes((START + text).encode(encoding))
    return load_dbc(folder / "made.dbc")


def attributes_of(dbc: Dbc) -> dict[str, list[str]]:
    return {message.type_name: [signal.attribute for signal in message.signals] for message in dbc.messages}


# -- known errors --------------------------------------------------------------------------------------------------

SIGNAL = 'SG_ a : 0|8@1+ (1,0) [0|0] "" XXX'


@pytest.mark.parametrize(
    ("text", "attributes", "repair"),
    [
        (
            'BO_ 1178 2017_6: 8 XXX\n SG_ 22 : 0|8@1+ (1,0) [0|0] "" XXX',
            ["x2017_6", "x22"],
            "line 12: signal name '22'",
        ),
        ('BO_ 11 M: 8 A\n SG_ a-b : 0|8@1+ (1,0) [0|0] "" XXX', ["M", "a_b"], "line 12: signal name 'a-b'"),
        (
            'BO_ 11 M: 8 A\n SG_ three small words : 0|8@1+ (1,0) [0|0] "" XXX',
            ["M", "three_small_words"],
            "line 12: signal name",
        ),
        ('BO_ 11 M: 8 A\n SG_ größe : 0|8@1+ (1,0) [0|0] "" XXX', ["M", "gr__e"], "line 12: signal name 'größe'"),
        ('BO_ 11 FILTER: 8 A\n SG_ CM_ : 0|8@1+ (1,0) [0|0] "" XXX', ["FILTER", "CM_"], "line 11: message name"),
        (f"BO_ 11 M: 8 My-ECU\n {SIGNAL}", ["M", "a"], "line 11: sender 'My-ECU'"),
        (f"BO_ 11 M: 8\n {SIGNAL}", ["M", "a"], "line 11: M: has no sender"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (1,0) [0|0] ""', ["M", "a"], "line 12: a: has no receiver"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (1,0) [0|0] "V" A B', ["M", "a"], "line 12: a: has no receiver"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (1,0) [0|0] """ A', ["M", "a"], "line 12: a: the quotes of its unit"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (1,0) [0|0] "V A', ["M", "a"], "line 12: a: the quotes of its unit"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (.5,0) [0|0] "V" A', ["M", "a"], "line 12: a: scale and offset (.5,0)"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (1,0) [nan|inf] "V" A', ["M", "a"], "line 12: a: its limits"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1+ (1,0) "V" A', ["M", "a"], "line 12: a: its limits"),
        ('BO_ 11 M: 8 A\n SG_ a : 0|8@1 (1,0) [0|0] "V" A', ["M", "a"], "line 12: a: has no sign"),
        (f"BO_ 0x11 M: 8 A\n {SIGNAL}", ["M", "a"], "line 11: identifier 0x11 is hexadecimal"),
        (f"BO_ 4294967295 M: 8 A\n {SIGNAL}", ["M", "a"], "line 11: identifier 0xffffffff has more than 11 bits"),
        (f"BO_ 11 M: 8 A {SIGNAL} garbage=1", ["M", "a"], "line 11: a: has no receiver"),
        (f"{MESSAGE}hello, world", ["M", "a"], "line 13: hello, world is left out: no statement of DBC"),
        (f"{MESSAGE}SG_ b : 8|8@1", ["M", "a"], "line 13: SG_ b : 8|8@1 is left out: it is not a signal"),
        (f"{MESSAGE}SG_ b : 8|0@1+ (1,0) [0|0] ", ["M", "a"], "line 13: SG_ b : 8|0@1+ (1,0) [0|0] is left out"),
        (f"{MESSAGE}SG_ b : 8|8@1+ (x,0) [0|0] ", ["M", "a"], "scale and offset cannot be read: (x,0)"),
        (f"{MESSAGE}BS_: 500000 : 0,0", ["M", "a"], "line 13: BS_: 500000 : 0,0 is left out"),
        (f"{MESSAGE}BU_: 2nd", ["M", "a"], "line 13: node names that DBC does not allow: 2nd"),
        (f'{MESSAGE}CM_ "open\nCM_ BO_ 11 "x";', ["M", "a"], 'line 13: CM_ "open: a `;` or a quote is missing'),
        (f'{MESSAGE}CM_ SG_ 11 "nameless";', ["M", "a"], "is left out: it names no signal"),
        (f'{MESSAGE}CM_ VAL_ 11 a 0 "x" ;', ["M", "a"], "is left out: it is not a comment"),
        (f'{MESSAGE}VAL_ 7 a 0 "x" ;', ["M", "a"], 'line 13: VAL_ 7 a 0 "x" is left out: the file has no message 7'),
        (f'{MESSAGE}VAL_ 11 b 0 "x" ;', ["M", "a"], "is left out: message M has no signal b"),
        (f"{MESSAGE}SIG_VALTYPE_ 11 b : 1;", ["M", "a"], "is left out: message M has no signal b"),
        (f'{MESSAGE}BA_ "Age" BO_ 11 5;', ["M", "a"], "cantools refuses it: 'Age' is missing"),
        (f'{MESSAGE}BA_DEF_ BO_ "Age" INT 0 9;\nBA_ "Age" BO_ 11 "old";', ["M", "a"], "cantools refuses it: "),
        (
            f'{MESSAGE}BA_DEF_ BO_ "GenMsgSendType" INT 0 9;\nBA_DEF_DEF_ "GenMsgSendType" 0;',
            ["M", "a"],
            "cantools refuses it: Expected str, got int",
        ),
        (
            f'{MESSAGE}BA_DEF_ BO_ "GenMsgCycleTime" INT 0 9;\nBA_ "GenMsgCycleTime" BO_ 11 "often";',
            ["M", "a"],
            'line 14: BA_ "GenMsgCycleTime" BO_ 11 "often" is left out: it is no GenMsgCycleTime',
        ),
    ],
)
def test_one_error_does_not_lose_the_file(text: str, attributes: list[str], repair: str, tmp_path: Path) -> None:
    with pytest.raises(CantoolsError):
        cantools.database.load_string(f"{START}{text}\nBS_:\n", "dbc", strict=False)
    dbc = loaded(text, tmp_path)
    name, *names = attributes
    assert attributes_of(dbc) == {"Good": ["speed", "gear"], name: names}
    assert dbc.messages[0].signals[1].labels == ("P", "D")
    assert any(repair in each for each in dbc.repairs), dbc.repairs


def test_a_file_without_errors_has_no_repairs(tmp_path: Path) -> None:
    assert loaded("", tmp_path).repairs == ()


def test_an_identifier_of_more_than_11_bits_is_extended_wherever_it_is_used(tmp_path: Path) -> None:
    text = (
        'BO_ 419361024 M: 8 A\n SG_ a : 0|32@1- (1,0) [0|0] "" XXX\n SG_ b : 32|8@1- (1,0) [0|0] "" XXX\n'
        'VAL_ 419361024 b 1 "on" ;\nSIG_VALTYPE_ 419361024 a : 1;\nCM_ BO_ 419361024 "about";\n'
        'BA_DEF_ BO_ "GenMsgCycleTime" INT 0 1000;\nBA_ "GenMsgCycleTime" BO_ 419361024 50;\n'
    )
    message = loaded(text, tmp_path).messages[1]
    assert (message.frame_id, message.extended, message.cycle_time_ms) == (0x18FEF100, True, 50)
    assert message.comment == "about"
    assert [(signal.is_float, signal.labels) for signal in message.signals] == [(True, ()), (False, ("on",))]


def test_a_statement_may_lack_the_flag_of_the_identifier_that_its_message_has(tmp_path: Path) -> None:
    text = 'BO_ 2566844670 M: 8 A\n SG_ a : 0|32@1- (1,0) [0|0] "" XXX\nSIG_VALTYPE_ 419361022 a : 1;\n'
    dbc = loaded(text, tmp_path)
    assert dbc.messages[1].signals[0].is_float
    assert dbc.repairs == ("line 13: identifier 419361022 is taken as M, 2566844670",)


@pytest.mark.parametrize(
    ("written", "scale", "offset"),
    [
        ("(1E-3,.5)", 0.001, 0.5),
        ("(0,1,0)", 0.1, 0),
        ("(0,5,-40,0)", 0.5, -40),
        ("(1,0,5)", 1, 0.5),
        ("(1,5,0)", 1.5, 0),
        ("(5.,-5.)", 5, -5),
        ("( 0x2 ; 1 )", 2, 1),
    ],
)
def test_scale_and_offset_are_read_as_they_are_meant(written: str, scale: float, offset: float, tmp_path: Path) -> None:
    dbc = loaded(f'{MESSAGE} SG_ 2nd : 8|8@1+ {written} [0|0] "" XXX', tmp_path)
    signal = dbc.messages[1].signals[1]
    assert (signal.scale, signal.offset) == (scale, offset)


def test_a_decimal_comma_that_can_be_read_in_two_ways_is_not_guessed(tmp_path: Path) -> None:
    dbc = loaded(f'{MESSAGE} SG_ b : 8|8@1+ (1,2,5) [0|0] "" XXX', tmp_path)
    assert attributes_of(dbc)["M"] == ["a"]
    assert "scale and offset cannot be read: (1,2,5)" in dbc.repairs[0]


def test_strings_may_have_quotes_and_backslashes_and_lack_their_end(tmp_path: Path) -> None:
    text = (
        f'{MESSAGE} SG_ b : 8|8@1+ (1,0) [0|0] "5" pipe" XXX\nCM_ SG_ 11 a "the "best" one";\n'
        'CM_ SG_ 11 b "C:\\";\nCM_ BO_ 11 "never closed;\nVAL_ 11 a 0 "off" 1 "on" ;\n'
    )
    message = loaded(text, tmp_path).messages[1]
    first, second = message.signals
    assert (first.comment, first.labels) == ('the "best" one', ("off", "on"))
    assert (second.unit, second.comment) == ('5" pipe', "C:\\ ")
    assert message.comment == "never closed"


def test_a_comment_may_have_lines_that_look_like_statements(tmp_path: Path) -> None:
    text = 'CM_ BO_ 100 "It was\nBO_ 5 NotOne: 8 X\n SG_ no : 0|8@1+ (1,0) [0|0] "" X\n";\nCM_ BO_ 100 "'
    dbc = loaded(text.replace('""', "''"), tmp_path)
    assert list(dbc.types) == ["Good"]
    assert dbc.repairs


def test_a_quote_that_is_not_closed_hides_no_message(tmp_path: Path) -> None:
    """cantools takes the first messages for a string here, and does not complain."""
    (tmp_path / "made.dbc").write_text(START.replace("\tVAL_", '\tV"AL_') + MESSAGE)
    dbc = load_dbc(tmp_path / "made.dbc")
    assert attributes_of(dbc) == {"Good": ["speed", "gear"], "M": ["a"]}
    assert dbc.repairs


def test_a_value_table_is_read_as_far_as_it_can_be(tmp_path: Path) -> None:
    text = 'VAL_TABLE_ Switch 1 "on" 0 "off" ;\nVAL_ 100 gear Switch ;\nVAL_ 100 speed 1.0 "one" 0x2 "two" 2.5 "?" 3\n'
    dbc = loaded(text, tmp_path)
    speed, gear = dbc.messages[0].signals
    assert speed.choices == ((1, "one"), (2, "two"))
    assert gear.choices == ((0, "off"), (1, "on"))


def test_attributes_without_definition_keep_their_meaning(tmp_path: Path) -> None:
    text = (
        f'{MESSAGE.replace("11", "2566844670")}BA_ "VFrameFormat" BO_ 2566844670 3;\n'
        'BA_ "GenMsgCycleTime" BO_ 2566844670 20;\nBA_ "SystemSignalLongSymbol" SG_ 2566844670 a "a_long_name";\n'
    )
    message = loaded(text, tmp_path).messages[1]
    assert (message.j1939, message.cycle_time_ms, message.signals[0].name) == (True, 20, "a_long_name")
    named = 'BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN","reserved","J1939PG";\n'
    by_name = f'{MESSAGE.replace("11", "2566844670")}{named}BA_ "VFrameFormat" BO_ 2566844670 "J1939PG";\n'
    assert loaded(by_name, tmp_path).messages[1].j1939


def test_a_frame_format_may_be_beyond_the_definition(tmp_path: Path) -> None:
    definition = 'BA_DEF_ BO_ "VFrameFormat" ENUM "StandardCAN","ExtendedCAN";\n'
    message = loaded(f'{MESSAGE}{definition}BA_ "VFrameFormat" BO_ 11 14;\n', tmp_path).messages[1]
    assert message.fd


def test_a_repaired_file_keeps_the_limits_of_values(tmp_path: Path) -> None:
    dbc = loaded(f"{MESSAGE}VAL_ 11 b 0;\nnonsense\n", tmp_path)
    assert dbc.repairs
    assert [(signal.minimum, signal.maximum) for signal in dbc.messages[0].signals] == [(0, 655), (0, 15)]


def test_the_values_of_a_multiplexer_may_be_large_numbers(tmp_path: Path) -> None:
    """Such as the index and subindex of CANopen objects; only ranges with very many values are refused."""
    text = (
        'BO_ 11 Sdo: 8 ECU\n SG_ command M : 5|3@1+ (1,0) [0|7] "" XXX\n SG_ index m2M : 8|24@1+ (1,0) [0|0] "" XXX\n'
        ' SG_ a m529923 : 32|8@1+ (1,0) [0|0] "" XXX\n SG_ b m2 : 32|8@1+ (1,0) [0|0] "" XXX\n'
        "SG_MUL_VAL_ 11 index command 2-2;\nSG_MUL_VAL_ 11 a index 529923-529924;\nSG_MUL_VAL_ 11 b index 2-2;\n"
    )
    for damage in ("", "nonsense\n"):
        dbc = loaded(text + damage, tmp_path)
        signals = {signal.name: signal for signal in dbc.messages[1].signals}
        assert (signals["a"].multiplexer, signals["a"].selected_by) == ("index", frozenset({529923, 529924}))
        event: Any = dbc.decode(11, bytes([2 << 5, *(529924).to_bytes(3, "little"), 77, 0, 0, 0]))
        assert (event.a, event.b) == (77, None)
    huge = loaded(text.replace("529923-529924", "0-529924"), tmp_path)
    assert "values of the multiplexer cannot be read, or are too many" in huge.repairs[0]


def test_a_multiplexed_multiplexer_may_have_its_mark_in_two_words(tmp_path: Path) -> None:
    text = (
        'BO_ 11 M: 8 ECU\n SG_ x M : 0|8@1+ (1,0) [0|0] "" XXX\n SG_ y m3 M : 8|8@1+ (1,0) [0|0] "" XXX\n'
        ' SG_ z m1 : 16|8@1+ (1,0) [0|0] "" XXX\nSG_MUL_VAL_ 11 y x 3-3;\nSG_MUL_VAL_ 11 z y 1-1;\n'
    )
    found = [(each.name, each.multiplexer) for each in loaded(text, tmp_path).messages[1].signals]
    assert found == [("x", None), ("y", "x"), ("z", "y")]


def test_a_signal_that_is_repeated_for_other_values_of_a_multiplexer_is_one(tmp_path: Path) -> None:
    text = (
        'BO_ 11 M: 8 ECU\n SG_ x M : 0|8@1+ (1,0) [0|0] "" XXX\n SG_ y m0 : 8|8@1+ (1,0) [0|0] "" XXX\n'
        ' SG_ y m1 : 8|8@1+ (1,0) [0|0] "" XXX\n SG_ z m1 : 16|8@1+ (1,0) [0|0] "" XXX\n'
        ' SG_ z m2 : 24|8@1+ (1,0) [0|0] "" XXX\n'
    )
    dbc = loaded(text, tmp_path)
    found = {each.attribute: each.selected_by for each in dbc.messages[1].signals}
    assert found == {"x": frozenset(), "y": {0, 1}, "z": {1}, "z_2": {2}}, "at other bits it is another signal"
    for page in (0, 1):
        event: Any = dbc.decode(11, bytes([page, 5, 6, 7, 0, 0, 0, 0]))
        assert event.y == 5


def test_a_reason_is_short_even_if_the_file_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "made.dbc").write_bytes(b"BO_ " + random.Random(1).randbytes(5000).replace(b"\n", b""))
    with pytest.raises(DbcError, match="cannot read it as DBC: Invalid syntax at line 1") as refused:
        load_dbc(tmp_path / "made.dbc")
    assert len(str(refused.value)) < 400 + len(str(tmp_path))


def test_signals_of_no_message_are_left_out_as_cantools_does(tmp_path: Path) -> None:
    text = (
        'BO_ 3221225472 VECTOR__INDEPENDENT_SIG_MSG: 0 Vector__XXX\n SG_ lost : 0|8@1+ (1,0) [0|0] "" XXX\n'
        'VAL_ 3221225472 lost 0 "x" ;\n'
    )
    dbc = loaded(text, tmp_path)
    assert list(dbc.types) == ["Good"]
    assert len(dbc.repairs) == 1


def test_the_signals_of_a_damaged_message_do_not_join_the_one_before(tmp_path: Path) -> None:
    dbc = loaded(f"BO_ eleven M: 8 A\n {SIGNAL}\n", tmp_path)
    assert attributes_of(dbc) == {"Good": ["speed", "gear"]}
    assert dbc.repairs == (
        "line 11: BO_ eleven M: 8 A is left out: it is not a message; its signals are left out with it",
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\r\r\n"])
def test_any_encoding_and_line_end_is_read(encoding: str, newline: str, tmp_path: Path) -> None:
    text = (START + 'BO_ 11 M: 8 A // a comment\n SG_ a : 0|8@1+ (1,0) [0|0] "°C" XXX\n\x1a').replace("\n", newline)
    (tmp_path / "made.dbc").write_bytes(text.encode(encoding))
    dbc = load_dbc(tmp_path / "made.dbc")
    assert dbc.messages[1].signals[0].unit == "°C"
    assert dbc.repairs == ()


def test_an_encoding_may_change_from_line_to_line() -> None:
    assert decode_text("°C\n".encode() + "°C\nä".encode("cp1252")) == "°C\n°C\nä"


def test_the_error_names_the_real_cause(tmp_path: Path) -> None:
    """Signals that overlap are no reason to refuse a file, so they are not named as one."""
    text = 'BO_ 1 M: 8 A\n SG_ a : 0|8@1+ (1,0) [0|0] "" XXX\n SG_ b : 4|8@1+ (1,0) [0|0] "" XXX\n'
    dbc = loaded(f'{text}VAL_ 7 s 0 "x" ;\n', tmp_path)
    assert dbc.repairs == ('line 14: VAL_ 7 s 0 "x" is left out: the file has no message 7',)
    assert dbc.problems == ("M: signals overlap, and all are decoded: a and b",)
    (tmp_path / "made.dbc").write_text("BO_ one M: 8 A\n")
    with pytest.raises(DbcError, match="Invalid syntax at line 1, column 5"):
        load_dbc(tmp_path / "made.dbc")


def test_what_cantools_refuses_of_a_repaired_file_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a repair miss something, each statement is tried by itself."""
    monkeypatch.setattr("genus.can._dbc.dbc_repair._Repair._identifier", lambda self, statement, number: number)
    text = f"{MESSAGE}BO_ 99999 Refused: 8 A\n {SIGNAL}\n"
    dbc = loaded(text, tmp_path)
    assert list(dbc.types) == ["Good", "M"]
    assert (
        "line 13: BO_ 99999 Refused: 8 A is left out: Standard frame id 0x1869f is more than 11 bits" in dbc.repairs[0]
    )


def test_a_message_that_is_repeated_is_one_type(tmp_path: Path) -> None:
    dbc = loaded(f"{MESSAGE}BO_ 12 N: 8 A\nBO_ 12 N: 8 A\n {SIGNAL}\n {SIGNAL}\n", tmp_path)
    assert attributes_of(dbc) == {"Good": ["speed", "gear"], "M": ["a"], "N": ["a"]}
    assert dbc.problems == (
        "N: is in the file twice; the first is left out",
        "N.a: is in the message twice; it is left out",
    )


def test_overlaps_are_named_unless_the_signals_are_never_together(tmp_path: Path) -> None:
    text = (
        'BO_ 11 M: 8 A\n SG_ page M : 0|8@1+ (1,0) [0|0] "" XXX\n SG_ a m0 : 8|8@1+ (1,0) [0|0] "" XXX\n'
        ' SG_ b m1 : 8|8@1+ (1,0) [0|0] "" XXX\n SG_ c : 23|8@0+ (1,0) [0|0] "" XXX\n'
        ' SG_ d m1 : 15|16@0+ (1,0) [0|0] "" XXX\n'
    )
    assert loaded(text, tmp_path).problems == ("M: signals overlap, and all are decoded: b and d, d and c",)


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_lists_what_was_repaired(tmp_path: Path) -> None:
    loaded(f'{MESSAGE}VAL_ 7 a 0 "x" ;', tmp_path)
    done = CliRunner().invoke(genus, ["can", "types", str(tmp_path / "made.dbc")])
    assert done.exit_code == 0
    assert 'repaired: line 13: VAL_ 7 a 0 "x" is left out: the file has no message 7' in done.stderr


# -- real files ----------------------------------------------------------------------------------------------------


def described(message: Message) -> tuple[Any, ...]:
    """Everything of a message that event types use."""
    signals = [
        (
            (signal.name, signal.start, signal.length, signal.byte_order, signal.is_signed, signal.unit),
            (signal.conversion.scale, signal.conversion.offset, signal.conversion.is_float, signal.comment),
            (signal.is_multiplexer, signal.multiplexer_signal, sorted(signal.multiplexer_ids or ())),
            {value: str(label) for value, label in (signal.conversion.choices or {}).items()},
        )
        for signal in message.signals
    ]
    head = (message.name, message.frame_id, message.is_extended_frame, message.length, message.comment)
    return *head, message.senders, message.cycle_time, message.protocol, message.is_fd, signals


@needs_data
@pytest.mark.parametrize("path", some_of(dbc_files(), 3), ids=lambda path: path.stem)
def test_repairing_a_file_without_errors_changes_nothing(path: Path) -> None:
    text = decode_text(path.read_bytes())
    repaired = repair_dbc(text)
    if path.name.startswith("issue_199"):
        assert all("has more than 11 bits" in repair for repair in repaired.repairs)
        return
    assert repaired.repairs == ()
    ours, theirs = (cantools.database.load_string(each, "dbc", strict=False) for each in (repaired.text, text))
    assert isinstance(ours, Database)
    assert isinstance(theirs, Database)
    assert [described(message) for message in ours.messages] == [described(message) for message in theirs.messages]


CHARACTERS = '";:|@()[]-+ ,.0189xM_BOSG\\/é'


def damaged(text: str, rng: random.Random) -> tuple[str, int]:
    """A text with one damaged line, and the number of the line."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    line, here = lines[at], rng.randrange(len(lines[at]) + 1)
    lines[at : at + 1] = {
        "delete": [],
        "repeat": [line, line],
        "insert": [line[:here] + rng.choice(CHARACTERS) + line[here:]],
        "alter": [line[:here] + rng.choice(CHARACTERS) + line[here + 1 :]],
        "cut": [line[:here]],
    }[rng.choice(["delete", "repeat", "insert", "alter", "cut"])]
    return "\n".join(lines), at + 1


_NUMBER = re.compile(r"(?:^(?:BO_|VAL_|SIG_VALTYPE_|SG_MUL_VAL_|BO_TX_BU_)|\b(?:SG_|BO_))\s+(\d+)\s")
EVERYTHING = -1


def about(text: str, lines: range) -> set[int]:
    """The numbers of the messages that some lines say something about, as the file has them."""
    found: set[int] = set()
    current = EVERYTHING
    statements = list(split_statements(text))
    ends = [statement.line for statement in statements[1:]] + [text.count("\n") + 2]
    for statement, end in zip(statements, ends, strict=True):
        number = _NUMBER.search(statement.text)
        said = int(number[1]) if number else None
        touched = statement.line in lines or any(statement.line <= line < end for line in lines)
        if touched and (statement.keyword in ("BO_", "SG_", "") or "LongSymbol" in statement.text):
            found.add(current if "LongSymbol" not in statement.text else EVERYTHING)
        if statement.keyword == "BO_" and said is not None:
            current = said
        if touched and said is not None:
            found.add(said)
    return found


def decoding(message: MessageLayout) -> list[Any]:
    """What decides the values of a message's signals."""
    return [
        msgspec.structs.replace(signal, attribute="", label="", enumeration="", comment="", unit="")
        for signal in message.signals
    ]


def untouched(layouts: Layouts, touched: set[int]) -> Iterator[MessageLayout]:
    bits = {number & 0x1FFFFFFF for number in touched}
    return (message for message in layouts.messages if message.frame_id not in bits)


def check_damaged(path: Path, seed: int, folder: Path) -> None:
    """Loading raises nothing but DbcError, and every message that the damaged line is not about is as before."""
    text = decode_text(path.read_bytes())
    (folder / "made.dbc").write_text(text, encoding="utf-8")
    before = read_layouts(folder / "made.dbc")
    worse, line = damaged(text, random.Random(seed))
    (folder / "made.dbc").write_text(worse, encoding="utf-8")
    near = range(line - 1, line + 2)
    touched = about(text, near) | about(worse, near)
    try:
        after = read_layouts(folder / "made.dbc")
    except DbcError:
        assert EVERYTHING in touched or len(list(untouched(before, touched))) == 0
        return
    if EVERYTHING in touched:
        return
    found = {(message.frame_id, message.extended): decoding(message) for message in after.messages}
    for message in untouched(before, touched):
        assert found[message.frame_id, message.extended] == decoding(message), message.name


@pytest.mark.slow
@needs_data
@examples(300)
@given(path=st.sampled_from(dbc_files() or [Path()]), seed=st.integers(0, 1 << 32))
def test_a_damaged_line_loses_at_most_what_it_is_about(
    path: Path, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    check_damaged(path, seed, tmp_path_factory.getbasetemp())


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("path", dbc_files(), ids=lambda path: path.stem)
def test_many_damaged_lines_of_every_file(path: Path, tmp_path: Path) -> None:
    for seed in range(60 if path.stat().st_size < 20_000 else 20):
        check_damaged(path, seed, tmp_path)


@given(text=st.text(max_size=400) | st.text(alphabet='BOSG_CMVAL 0123:|@()[]",;\n', max_size=400))
def test_no_text_raises_anything_but_a_dbc_error(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.dbc"
    for content in (text.encode("utf-8", "replace"), (START + text).encode("utf-8", "replace")):
        path.write_bytes(content)
        try:
            load_dbc(path)
        except DbcError:
            assert content == text.encode("utf-8", "replace"), "the messages before it are still there"


@given(data=st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_dbc_error(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.dbc"
    path.write_bytes(data)
    with suppress(DbcError):
        load_dbc(path)
