"""Names in C: those of Genus where they can be, each of what it names alone; equal ones are refused."""

import re
import subprocess
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus import Event, Maybe, Subscription, UInt8
from genus.catalog import Catalog
from genus.catalog._declare import make_enum
from genus.devices import Firmware, generate
from genus.devices._declarations import comment
from genus.errors import DeviceError
from genus.targets.c._layout import constant_name
from tests.programs import need, needs

from ..examples import examples
from .compiled import OK, Device, declare, device_of, frame_of
from .test_generate import COMPILERS
from .toolchain import WARNINGS

NUMBERS = count()


# -- constants of choices ----------------------------------------------------------------------------------------------


def panel(sign: type[Enum]) -> Firmware:
    """A device with a choice; an Enum made from a catalog has no names of its own."""
    metaclass: Any = type(Event)
    namespace = {"__annotations__": {"sign": sign}, "__module__": __name__}
    cls = metaclass("Panel", (Event,), namespace, name=f"Panel{next(NUMBERS)}")
    catalog = Catalog()
    catalog.register(cls)
    return generate(catalog, {"all": Subscription(cls)}, keep=["sign"])


def constants(made: Firmware) -> list[tuple[str, int, str]]:
    """The end of each constant of a choice, its index, and its comment."""
    found = re.findall(r"#define DEVICE_PANEL\d+_SIGN_(\w+) (\d+)U (/\*.*?\*/)", made.header, re.DOTALL)
    return [(name, int(index), text) for name, index, text in found]


LETTERS = st.sampled_from("aAbB_-+ 3.0/*ä°\n<%\"'\\?")
TEXTS = st.lists(st.one_of(st.text(LETTERS, max_size=4), st.text(max_size=3)), min_size=1, max_size=6, unique=True)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-4, 4), min_size=1, max_size=6, unique=True)
MEMBERS = st.lists(
    st.from_regex(r"[a-cA-C]_?[0-3äÄ]?_{0,2}", fullmatch=True)
    | st.sampled_from(["int", "Int", "class_", "_auto", "auto"]),
    min_size=1,
    max_size=6,
    unique=True,
)


def check_constants(sign: type[Enum], named: list[str | int]) -> None:
    """Each constant has the name of one member or value, whatever the others are; or two are refused, by name."""
    values = [member.value for member in sign]
    if alike := [each for each in named if sum(constant_name(each) == constant_name(other) for other in named) > 1]:
        with pytest.raises(DeviceError, match=r"both DEVICE_PANEL\d+_SIGN_\w+ in C: ") as refused:
            panel(sign)
        assert sum(repr(each) in str(refused.value) or f".{each} of" in str(refused.value) for each in alike) >= 2
        return
    found = constants(panel(sign))
    texts = [comment(str(value) if isinstance(value, int) else f"'{value}'") for value in values]
    assert found == [(constant_name(each), index, texts[index]) for index, each in enumerate(named)]
    assert len({name for name, *_ in found}) == len(values)
    assert all(re.fullmatch("[A-Z0-9]+(_[A-Z0-9]+)*", name) for name, *_ in found)


@examples(150)
@given(TEXTS | INTEGERS)
def test_a_constant_is_named_by_its_value_alone_where_there_is_no_class(values: list[Any]) -> None:
    check_constants(make_enum("sign", values), values)


@examples(100)
@given(MEMBERS)
def test_a_constant_is_named_by_the_member_of_the_enum(names: list[str]) -> None:
    members = [(name, f"_{index}") for index, name in enumerate(names)]
    sign: Any = Enum("Sign", members)  # type: ignore[misc]
    check_constants(sign, [*names])


@examples(200)
@given(INTEGERS)
def test_the_constant_of_an_integer_has_the_integer_in_its_name(values: list[int]) -> None:
    assert [int(constant_name(value).replace("MINUS_", "-")) for value in values] == values


def test_a_clash_of_values_says_what_to_do() -> None:
    with pytest.raises(
        DeviceError, match=r"'_auto' of Panel.* 'auto' of Panel.* are both DEVICE_PANEL.*_SIGN_AUTO in C: "
    ):
        panel(make_enum("sign", ["_auto", "auto"]))
    sign: Any = Enum("Sign", {"auto": 1, "AUTO": 2})  # type: ignore[misc]
    with pytest.raises(DeviceError, match=r"Sign\.auto of .* and Sign\.AUTO of .* rename a member of the Enum"):
        panel(sign)


@needs("gcc")
def test_choices_with_odd_values_are_told_apart() -> None:
    class Sign(Enum):
        A = "a-b"
        B = "a b"
        C = "a_b"
        D = "*/"

    class OddPanel(Event):
        sign: Sign

    catalog = Catalog()
    catalog.register(OddPanel)
    asked = [Subscription.parse(f"OddPanel where sign == {sign.value!r}", [OddPanel]) for sign in Sign]
    device = device_of(asked, catalog)
    assert [device.receive([frame_of(OddPanel(sign=sign), catalog)])[0][1] for sign in Sign] == [(0,), (1,), (2,), (3,)]


# -- types, attributes, handlers ---------------------------------------------------------------------------------------


@needs("gcc")
def test_names_of_attributes_and_types_may_be_words_of_c() -> None:
    class Switch(Event):
        int: Maybe[UInt8] = None
        register: Maybe[UInt8] = None
        double_: Maybe[UInt8] = None
        bool: Maybe[UInt8] = None
        größe: Maybe[UInt8] = None
        type: Maybe[UInt8] = None

    catalog = Catalog()
    catalog.register(Switch)
    asked = [Subscription.parse("Switch where int == 1 and größe == 2 and type == 3 and register == 4", [Switch])]
    device = device_of(asked, catalog, publish=[Switch], name="class_", late=0)
    event = Switch(int=1, größe=2, type=3, register=4)
    assert device.receive([frame_of(event, catalog)])[0][:2] == (OK, (0,))


HEADERS = [
    "NULL",
    "INT8_MAX",
    "PORTB",
    "SREG",
    "F",
    "B0",
    "EOF",
    "errno",
    "unix",
    "typeof",
    "near",
    "uint8_t",
    "genus_text",
    "requires",
    "concept",
    "co_await",
]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_of_attributes_may_be_macros_of_headers(compiler: str, tmp_path: Path) -> None:
    """Those of <avr/io.h>, for one, are in capitals."""
    need(compiler)
    cls = declare("Chip", *HEADERS)
    catalog = Catalog()
    catalog.register(cls)
    where = " and ".join(f"{name} == 1" for name in HEADERS)
    made = generate(catalog, {"a": Subscription(cls, where=where)}, publish=[cls])
    files = [path for path in made.write(tmp_path) if path.suffix == (".h" if compiler == "g++" else ".c")]
    flags = ["-std=c++20"] if compiler == "g++" else WARNINGS
    for source in files:
        command = [compiler, *flags, *COMPILERS[compiler], "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.slow
@needs("gcc")
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_names_of_types_and_handlers_may_be_those_of_what_is_generated(codec: Any) -> None:
    """`Type.loop` and the type `Loop` have one macro, `Receive` and the function that receives one name, and so on."""
    types = [
        declare("Loop", "lane"),
        declare("Type", "loop", "x"),
        declare("X", "y"),
        declare("Type_x", "y"),
        declare("Receive", "x"),
        declare("Family", "x"),
        declare("Deliver", "x"),
        declare("Filters", "x"),
        declare("Learn", "x"),
        declare("Wanted", "bytes"),
        declare("On_near", "x"),
        declare("Loop_encode", "x"),
    ]
    catalog = Catalog()
    catalog.register(*types)
    numbered = ((f"s{number}", Subscription(cls)) for number, cls in enumerate(types))
    asked = [("near", Subscription(Event)), ("close", Subscription(types[2])), *numbered]
    device = Device(generate(catalog, asked, codec=codec, publish=types, late=2 if codec == "table" else 0))
    for cls in types:
        frame = frame_of(cls(), catalog)
        wanted = tuple(number for number, (_, each) in enumerate(asked) if each.matches(cls()))
        assert device.receive([frame])[0] == (OK, wanted, frame[1])


WORDS = ["loop", "Loop", "LOOP", "type", "type_loop", "receive", "node", "filters", "wanted", "bytes", "on", "late"]
WORDS += ["x", "publish", "encode", "channel", "x_loop", "family", "Type", "learn", "int", "int_", "h"]
TITLES = ["Loop", "LOOP", "X", "XLoop", "X_loop", "Type", "TypeLoop", "Node", "Wanted", "Family", "Receive", "OnX"]
TITLES += ["Late", "PublishX", "LoopEncode", "ChannelLoop", "Attributes"]


def outcome(*arguments: Any, **options: Any) -> Firmware | str:
    """What is generated, or why it is refused."""
    try:
        return generate(*arguments, **options).with_node()
    except DeviceError as refused:
        return str(refused)


@examples(150)
@given(
    st.dictionaries(st.sampled_from(TITLES), st.sets(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=4),
    st.lists(st.sampled_from(["near", "Near", "near_x", "x", "loop"]), max_size=3, unique=True),
)
def test_no_two_names_of_a_header_are_equal(types: dict[str, set[str]], handlers: list[str]) -> None:
    """Or two are refused, and each name is there: nothing is renamed to tell it from another."""
    classes = [declare(title, *sorted(names)) for title, names in types.items()]
    catalog = Catalog()
    catalog.register(*classes)
    asked = [(name, Subscription(Event)) for name in handlers] or [("every", Subscription(classes[0]))]
    made = outcome(catalog, asked, publish=classes)
    if isinstance(made, str):
        assert re.search(r" and .* are both \w+ in C: (rename|give|leave)", made)
        return
    text = made.header + made.node_header
    found = re.findall(r"#define (\w+)|^} (\w+);|^    (\w+) = \d+|^[a-z]\w* \**(\w+)\(", text, re.MULTILINE)
    names = [name for groups in found for name in groups if name]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name not in WORDS and re.search(r"_\d+$", name)]


def test_a_clash_of_attributes_types_or_handlers_says_what_to_rename() -> None:
    def refusal(*asked: tuple[str, Subscription], types: list[type[Event]]) -> str:
        catalog = Catalog()
        catalog.register(*types)
        with pytest.raises(DeviceError) as caught:
            generate(catalog, asked or [("all", Subscription(Event))])
        return str(caught.value)

    assert refusal(types=[declare("Cased", "speed", "Speed")]) == (
        "Cased.speed and Cased.Speed are both DEVICE_CASED_SPEED in C: "
        "rename an attribute (Renamed), or leave it out (keep, --keep)"
    )
    assert "Word.int and Word.int_ are both" in refusal(types=[declare("Word", "int", "int_")])
    assert refusal(types=[declare("A", "b_c"), declare("A_B", "c")]).startswith("A.b_c and A_B.c are both DEVICE_A_B_C")
    assert "the type HTTPServer and the type HttpServer" in refusal(
        types=[declare("HTTPServer"), declare("HttpServer")]
    )
    x, y = declare("X"), declare("Y")
    assert refusal(("near", Subscription(Event)), ("near_x", Subscription(x)), types=[x, y]) == (
        "the handler near (Event) and the handler near_x (X) are both device_on_near_x in C: "
        "give a subscription another name (NAME: SUBSCRIPTION)"
    )
    assert refusal(("a-b", Subscription(x)), ("a_b", Subscription(x)), types=[x]).startswith(
        "the handler a-b (X) and the handler a_b (X) are both device_on_a_b in C: "
    )
    unnamed = [Subscription(x), Subscription(x, has=["time"])]
    assert "are both device_on_x in C" in refusal(*((str(each), each) for each in unnamed), types=[x])
