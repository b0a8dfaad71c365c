"""`generate`: what is written, what is refused and why, and that it compiles everywhere without a warning."""

import ctypes
import math
import re
import subprocess
import sys
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from genus import Event, Kind, Maybe, Subscription, UInt8
from genus.can import PayloadCodec
from genus.can._protocol.catalog_queries import CatalogIndex
from genus.can._protocol.messages import Question, QuestionKind
from genus.catalog import Catalog
from genus.codes import encode_code
from genus.devices import Firmware, generate
from genus.devices._firmware import NODE, RUNTIME
from genus.errors import DeviceError, NotRegistered, SubscriptionError
from genus.filters import read_subscriptions
from genus.model._values import unread_values
from genus.testing import run_command
from tests.programs import need, needs

from . import road
from .compiled import (
    MALFORMED,
    NOT_WANTED,
    OK,
    UNKNOWN_TYPE,
    Device,
    build,
    declare,
    device_of,
    frame_of,
    harness_source,
)
from .toolchain import WARNINGS

GOLDEN = Path(__file__).parent / "golden"
TYPES = [road.Roadside, road.Loop, road.ConfidentLoop, road.Lamp]


def road_catalog() -> Catalog:
    catalog = Catalog()
    catalog.register(*TYPES)
    return catalog


def road_firmware(**options: Any) -> Firmware:
    asked = read_subscriptions(road.SUBSCRIPTIONS, lambda text: Subscription.parse(text, TYPES))
    return generate(road_catalog(), asked, name="road", publish=[road.ConfidentLoop], **options)


# -- what is written ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["table", "straight"])
def test_the_output_is_stable(codec: str) -> None:
    """Golden files: `python -m tests.devices.test_generate` writes them anew."""
    made = road_firmware(codec=codec)
    assert made.header == (GOLDEN / f"road_{codec}.h").read_text()
    assert made.source == (GOLDEN / f"road_{codec}.c").read_text()
    assert made.explain() + "\n" == (GOLDEN / f"road_{codec}.txt").read_text()


def write_golden() -> None:
    """Write the golden files anew."""
    for codec in ("table", "straight"):
        made = road_firmware(codec=codec)
        (GOLDEN / f"road_{codec}.h").write_text(made.header)
        (GOLDEN / f"road_{codec}.c").write_text(made.source)
        (GOLDEN / f"road_{codec}.txt").write_text(made.explain() + "\n")


def test_the_same_input_gives_the_same_output() -> None:
    assert (road_firmware().header, road_firmware().source) == (road_firmware().header, road_firmware().source)


def test_no_floating_point_heap_or_recursion_is_in_the_code() -> None:
    text = "".join((Path(__file__).parents[2] / "src/genus/devices/runtime" / name).read_text() for name in RUNTIME)
    code = re.sub(r"/\*.*?\*/", "", text + road_firmware().source, flags=re.DOTALL)
    assert not re.findall(r"\b(float|double|malloc|calloc|free|goto|alloca|setjmp|[0-9]+\.[0-9]+)\b", code)


def test_write_gives_the_files_that_compile_together(tmp_path: Path) -> None:
    names = {path.name for path in road_firmware().write(tmp_path / "new" / "folder", harness=True)}
    assert names == {"road.h", "road.c", "road_fuzz.c", "road_README.md", *RUNTIME}
    assert all((tmp_path / "new" / "folder" / name).stat().st_size for name in names)


def test_every_file_of_the_runtime_is_written(tmp_path: Path) -> None:
    names = {path.name for path in road_firmware().with_node().write(tmp_path)}
    folder = Path(__file__).parents[2] / "src/genus/devices/runtime"
    assert (
        names - {"road.h", "road.c", "road_node.h", "road_node.c", "road_README.md"}
        == {path.name for path in folder.iterdir()}
        == {*RUNTIME, *NODE}
    )


COMPILERS = {
    "gcc": ["-O2"],
    "clang": ["-O2", "-Weverything", "-Wno-unknown-warning-option", "-Wno-padded", "-Wno-unsafe-buffer-usage",
              "-Wno-declaration-after-statement",
              "-Wno-covered-switch-default", "-Wno-switch-default", "-Wno-cast-qual", "-Wno-missing-prototypes",
              "-Wno-missing-variable-declarations", "-Wno-cast-align", "-Wno-unused-macros"],
    "avr-gcc": ["-Os", "-mmcu=atmega128rfa1"],
    "arm-none-eabi-gcc": ["-Os", "-mcpu=cortex-m0", "-mthumb"],
    "g++": ["-O2", "-x", "c++"],
}  # fmt: skip


@pytest.mark.parametrize("codec", ["table", "straight"])
@pytest.mark.parametrize("compiler", COMPILERS)
def test_it_compiles_without_a_warning(compiler: str, codec: str, tmp_path: Path) -> None:
    need(compiler)
    firmware = road_firmware(codec=codec)
    files = [path for path in firmware.write(tmp_path) if path.suffix == ".c"]
    (tmp_path / "harness.c").write_text(harness_source(firmware))
    flags = [flag for flag in WARNINGS if flag != "-std=c99"] if compiler == "g++" else WARNINGS
    sources = [tmp_path / "road.h"] if compiler == "g++" else [*files, tmp_path / "harness.c"]
    for source in sources:
        command = [compiler, *flags, *COMPILERS[compiler], "-fsyntax-only", str(source)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[:3000]


# -- what is refused ---------------------------------------------------------------------------------------------------


def refusal(*lines: str, **options: Any) -> str:
    asked = read_subscriptions(lines, lambda text: Subscription.parse(text, TYPES))
    with pytest.raises((DeviceError, SubscriptionError, NotRegistered)) as caught:
        generate(road_catalog(), asked, **options)
    return str(caught.value)


def test_float_arithmetic_is_refused_unless_the_handler_tests_it() -> None:
    message = refusal("fast: Loop where speed * 3.6 > 100 and lane > 1")
    assert message.startswith(
        "fast: Loop where speed * 3.6 > 100.0 and lane > 1: a device cannot test speed * 3.6 > 100.0"
    )
    asked = [("fast", Subscription.parse("Loop where speed * 3.6 > 100 and lane > 1", TYPES))]
    made = generate(road_catalog(), asked, residual=True)
    assert str(made.filters[0].residual) == "Loop where speed * 3.6 > 100.0"
    assert "/* The handler must still test: Loop where speed * 3.6 > 100.0 */" in made.header
    assert "(e->lane >= 2U)" in made.source


def test_what_is_wrong_is_refused_with_the_reason() -> None:
    assert "tests category, which the device does not keep" in refusal("a: Loop where category == 'car'", keep=["lane"])
    assert "cannot keep wheels: the families have" in refusal("a: Loop", keep=["wheels"])
    assert "ConfidentLoop requires lane, which the device does not keep" in refusal(
        publish=[road.ConfidentLoop], keep=["confidence"]
    )
    assert "there is nothing to generate" in refusal()
    assert "'Truck' is not in the catalog" in refusal(publish=["Truck"])
    assert "Roadside is a kind, which has no events" in refusal(publish=["Roadside"])
    assert "is no prefix for C" in refusal("a: Loop", name="Road")
    assert "is no prefix for C" in refusal("a: Loop", name="2nd")
    for name in ("genus", "genus_event", "string", "receive", "late"):
        assert "cannot be the prefix: the runtime, or a header of C, has that name" in refusal("a: Loop", name=name)
    assert "late is 99" in refusal("a: Loop", late=99)


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_subscriptions_that_match_nothing_are_refused() -> None:
    class Nowhere(Kind): ...

    catalog = road_catalog()
    catalog.register(Nowhere)
    for asked in (Subscription(Nowhere), Subscription(road.Loop, where="lane is absent and lane > 3")):
        for codec in ("table", "straight"):
            with pytest.raises(DeviceError, match="no subscription can match an event of a type that has an event tag"):
                generate(catalog, {"a": asked}, codec=codec, publish=[road.Lamp])


def test_types_without_event_tags_are_left_out_or_refused() -> None:
    """Eight tagged attributes leave room for few types."""
    metaclass: Any = type(Event)
    names = ("time", "source", "place", "deadline", "expires", "a", "b", "c")
    namespace = {"__annotations__": dict.fromkeys(names[5:], UInt8 | None), "__module__": __name__}
    root = metaclass("Wide", (Event,), namespace, tagged=names)
    others = [metaclass(f"Wide{number}", (root,), {"__module__": __name__}) for number in range(60)]
    catalog = road_catalog()
    catalog.register(root, *others)
    without = [cls for cls in others if not catalog.has_etag(cls)]
    assert without
    made = generate(catalog, {"a": Subscription(root)})
    assert made.left_out == tuple(cls.__name__ for cls in without)
    for asked in ({"a": Subscription(without[0])}, {"a": Subscription(without[0]), "b": Subscription(road.Loop)}):
        with pytest.raises(NotRegistered, match=f"{without[0].__name__} has no event tag"):
            generate(catalog, asked)


def many_types(count: int) -> Catalog:
    metaclass: Any = type(Event)
    root = metaclass("Numbered", (Event,), {"__annotations__": {"level": UInt8}, "__module__": __name__})
    others = [metaclass(f"Numbered{number}", (root,), {"__module__": __name__}) for number in range(1, count)]
    catalog = Catalog()
    catalog.register(root, *others)
    return catalog


def test_types_and_late_ones_have_numbers_of_a_byte() -> None:
    catalog = many_types(250)
    asked = {"a": Subscription(catalog.declare("Numbered"))}
    assert generate(catalog, asked, late=5)
    with pytest.raises(DeviceError, match="250 types and 6 that are learnt are more than 255"):
        generate(catalog, asked, late=6)


def test_a_bound_that_a_device_cannot_check_is_refused() -> None:
    class Label(Event):
        text: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")]

    catalog = Catalog()
    catalog.register(Label)
    with pytest.raises(DeviceError, match=r"Label\.text must fit a regular expression"):
        generate(catalog, {"a": Subscription(Label)})

    class Checked(Event):
        level: UInt8

        def __post_init__(self) -> None: ...

    catalog.register(Checked)
    with pytest.raises(DeviceError, match="Checked has a __post_init__, which a device cannot run"):
        generate(catalog, {"a": Subscription(Checked)})


# -- bounds, kept attributes, codes, late classes ----------------------------------------------------------------------


@needs("gcc")
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_an_event_outside_the_bounds_of_its_class_is_refused(codec: str) -> None:
    device = Device(road_firmware(codec=codec))
    catalog = road_catalog()
    etag, payload = frame_of(road.ConfidentLoop(lane=1, confidence=100), catalog)
    assert device.receive([(etag, payload), (etag, payload[:-1] + b"\x65")]) == [
        (OK, (1,), payload),
        (MALFORMED, (), b""),
    ]


@needs("gcc")
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_attributes_that_are_not_kept_are_checked_and_skipped(codec: str) -> None:
    catalog = road_catalog()
    asked = [Subscription(road.Loop, where="lane == 3")]
    device = device_of(asked, catalog, keep=["lane"], codec=codec)
    assert "category" not in device.firmware.header
    event = road.Loop(lane=3, place="A8/km31", category=road.Category.CAR, speed=1.5)
    etag, payload = frame_of(event, catalog)
    broken = payload.replace(b"A8/km31", b"A8\xff\xff31\x00")
    assert [status for status, _, _ in device.receive([(etag, payload), (etag, broken)])] == [OK, MALFORMED]


@needs("gcc")
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_bounds_are_checked_though_their_attributes_are_not_kept(codec: str) -> None:
    """Also where another family has the same name without a bound. A choice that the class lacks is no violation."""

    class Valve(Event):
        level: Annotated[int, msgspec.Meta(ge=0, le=255)]
        category: road.Category
        number: UInt8

    class Gauge(Event):
        level: UInt8
        number: UInt8

    catalog = Catalog()
    catalog.register(Valve, Gauge)
    grown = Catalog.parse(catalog.text().replace('"motorcycle"]', '"motorcycle", "tram"]'))
    asked = [Subscription(Valve), Subscription(Gauge)]
    device = device_of(asked, grown, keep=["number"], codec=codec)
    python = PayloadCodec.of(Valve, grown.vector(Valve))
    payloads = [bytes.fromhex(f"00 {level:016x} {choice:02x} 07") for level in (255, 256) for choice in (2, 3)]
    statuses = [status for status, _, _ in device.receive((grown.etag(Valve), payload) for payload in payloads)]
    assert statuses == [OK, OK, MALFORMED, MALFORMED]
    decoded = [python.decode(0, payload) for payload in payloads]
    assert [isinstance(event, Event) and "level" not in unread_values(event) for event in decoded] == [
        True,
        True,
        False,
        False,
    ]


@needs("gcc")
@pytest.mark.parametrize("optional", [False, True])
def test_a_choice_that_the_class_lacks_is_not_published(optional: bool) -> None:
    """Also one that is required, whose presence bit a program need not set. The family need not be received."""
    metaclass: Any = type(Event)
    note = road.Category | None if optional else road.Category
    cls = metaclass("Valve", (Event,), {"__annotations__": {"category": note}, "__module__": __name__})
    catalog = Catalog()
    catalog.register(cls, road.Lamp)
    grown = Catalog.parse(catalog.text().replace('"motorcycle"]', '"motorcycle", "tram"]'))
    device = device_of([Subscription(road.Lamp)], grown, publish=[cls], keep=["category", "on"], name="x")
    assert "X_TYPE_VALVE = 0," in device.firmware.header
    events, payload = [bytes([0, present, choice]) for present in (0, 1) for choice in (2, 3)], bytes(8)
    encode = device._library.x_valve_encode
    encode.restype = ctypes.c_uint16
    sizes = [encode(event, 0, payload, len(payload), ctypes.byref(ctypes.c_uint16())) for event in events]
    assert [size > 0 for size in sizes] == ([True, True, True, False] if optional else [True, False, True, False])


@needs("gcc")
def test_notes_that_only_describe_are_no_bounds() -> None:
    class Door(Event):
        open: Annotated[bool, msgspec.Meta(description="whether it is open")]
        category: Annotated[road.Category, msgspec.Meta(title="category")]
        since: Annotated[timedelta, msgspec.Meta(examples=[1])]

    catalog = Catalog()
    catalog.register(Door)
    device = device_of([Subscription(Door)], catalog)
    event = Door(open=True, category=road.Category.CAR, since=timedelta(seconds=1))
    assert device.receive([frame_of(event, catalog)])[0][0] == OK
    assert "keeps_bounds" not in device.firmware.source


@pytest.mark.slow
@needs("gcc")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("lane == lane", True),
        ("on == on", True),
        ("ratio == ratio", False),
        ("lane * lane - lane == lane * lane - lane", True),
        ("lane + number == number + lane", True),
        ("text >= text", True),
    ],
)
def test_a_value_that_is_compared_with_itself_gives_no_warning(
    where: str, expected: bool, compiler: str, tmp_path: Path
) -> None:
    class Twin(Event):
        lane: Maybe[UInt8] = None
        number: Maybe[UInt8] = None
        on: Maybe[bool] = None
        ratio: Maybe[float] = None
        text: Maybe[str] = None

    need(compiler)
    catalog = Catalog()
    catalog.register(Twin)
    asked = Subscription(Twin, where=where)
    made = generate(catalog, {"s0": asked, "s1": Subscription(Twin)})
    build(made, tmp_path, "-shared", "-fPIC", compiler=compiler)
    event = Twin(lane=3, number=4, on=True, ratio=math.nan, text="x")
    assert asked.matches(event) is expected
    assert (0 in Device(made).receive([frame_of(event, catalog)])[0][1]) is expected


def test_a_constant_that_is_longer_than_any_text_is_refused() -> None:
    message = refusal(f"a: Loop where place == '{'x' * 70_000}'")
    assert "a text of a device has at most 65535 bytes, but its constant 70000" in message


@needs("gcc")
def test_a_code_tells_which_subscriptions_want_a_type() -> None:
    """For media that carry codes: the same as conformance, for every type of the catalog and for codes below."""
    device, catalog = Device(road_firmware()), road_catalog()
    for name in catalog.types:
        cls = catalog.declare(name)
        if name == "Event" or catalog.entries[name].kind:
            continue
        wanted = tuple(n for n, made in enumerate(device.firmware.filters) if made.subscription.accepts(cls))
        assert device.code_wanted(encode_code(catalog.code(name))) == wanted
    below = catalog.code("Loop") * 1_000_003 * 999_983
    assert device.code_wanted(encode_code(below)) == (0, 2)
    for damaged in (b"", b"\x00", b"\x02\x01", b"\x01\x00", b"\x02\x00\x0c"):
        assert device.code_wanted(damaged) == ()


@pytest.mark.slow
@needs("gcc")
def test_codes_of_more_than_64_bits_are_tested_below_subscribed_types() -> None:
    metaclass: Any = type(Event)
    types: list[type[Event]] = [declare("Deep", "level")]
    for number in range(70):
        types += [metaclass(f"Deep{number}{side}", (types[-1],), {"__module__": __name__}) for side in "ab"]
    catalog = Catalog()
    catalog.register(*types)
    widths = {catalog.code(cls).bit_length(): cls for cls in types}
    assert max(widths) > 64
    for width in (8, 16, 33, max(bits for bits in widths if bits <= 64)):
        asked = Subscription(widths[max(bits for bits in widths if bits <= width)])
        device = device_of([asked], catalog)
        for cls in types:
            assert device.code_wanted(encode_code(catalog.code(cls))) == ((0,) if asked.accepts(cls) else ())
    with pytest.raises(DeviceError, match=f"the code of a subscribed type has {max(widths)} bits"):
        generate(catalog, {"a": Subscription(widths[max(widths)])})


@needs("gcc")
@pytest.mark.parametrize("codec", ["table", "straight"])
def test_codes_with_many_factors_of_two_are_tested_in_tables(codec: Any) -> None:
    """A chain of types has the powers of two, of which the tenth and later ones do not fit a divisor of 16 bits."""
    metaclass: Any = type(Event)
    types: list[type[Event]] = [declare("Chain", "level")]
    for number in range(12):
        types.append(metaclass(f"Chain{number}", (types[-1],), {"__module__": __name__}))
    catalog = Catalog()
    catalog.register(*types)
    assert 9 < (catalog.code(types[-1]) & -catalog.code(types[-1])).bit_length() < 16
    device = device_of([Subscription(cls) for cls in types[-4:]], catalog, codec=codec)
    for cls in types:
        wanted = tuple(number for number, asked in enumerate(types[-4:]) if issubclass(cls, asked))
        assert device.code_wanted(encode_code(catalog.code(cls))) == wanted


@pytest.mark.slow
@needs("gcc")
def test_the_longest_vector_can_be_learnt() -> None:
    """What a late class requires is noted for all 2048 attributes, so that its header is read right."""
    cls = declare("Long", *(f"a{number}" for number in range(2043)))
    catalog = Catalog()
    catalog.register(cls)
    device = device_of([Subscription(cls, where="a0 == 7")], catalog, keep=["a0"], late=1)

    class LaterLong(cls):  # type: ignore[valid-type, misc]
        a0: UInt8

    catalog.register(LaterLong)
    assert device.learn(answer_about(catalog, "LaterLong"))
    assert device.receive([(catalog.etag(LaterLong), b"\x00\x07")])[0][:2] == (OK, (0,))


def answer_about(catalog: Catalog, name: str) -> bytes:
    """The broker's answer to the question for the class of an event tag."""
    return CatalogIndex(catalog).answer(Question(1, 0, QuestionKind.CLASS, catalog.etag(name)))


@needs("gcc")
def test_a_class_that_was_registered_later_is_learnt() -> None:
    """A refit on the device: unknown at first, then tested by its supertypes, with attributes of its own skipped."""
    catalog = road_catalog()
    made = road_firmware(late=1)
    device = Device(made)

    class LaterLoop(road.Loop):
        axles: UInt8
        category: road.Category
        weight: Maybe[float] = None

    catalog.register(LaterLoop)
    assert catalog.extends(road_catalog())
    truck = LaterLoop(lane=1, place="A8/km31", category=road.Category.TRUCK, speed=31.0, axles=5, weight=4.5)
    frame = frame_of(truck, catalog)
    assert device.receive([frame])[0][0] == UNKNOWN_TYPE
    answer = answer_about(catalog, "LaterLoop")
    for size in range(len(answer)):
        assert not device.learn(answer[:size])
    assert device.learn(answer)
    assert device.learn(answer), "again is no harm"
    status, hits, _ = device.receive([frame])[0]
    assert (status, hits) == (OK, tuple(n for n, f in enumerate(made.filters) if f.subscription.matches(truck)))
    assert hits == (0, 2)
    slow = LaterLoop(lane=1, category=road.Category.CAR, axles=5)
    assert device.receive([frame_of(slow, catalog)])[0][:2] == (NOT_WANTED, ())
    assert not device.learn(answer_about(catalog, "Loop")), "it is known already"

    class NextLoop(road.Loop):
        axles: UInt8

    catalog.register(NextLoop)
    assert not device.learn(answer_about(catalog, "NextLoop")), "there was one place"

    class Stranger(Event):
        weight: Maybe[float] = None

    catalog.register(Stranger)
    assert not Device(made).learn(answer_about(catalog, "Stranger")), "its family has another vector"


def test_a_list_cannot_be_published() -> None:
    class Many(Event):
        values: list[int]

    catalog = Catalog()
    catalog.register(Many)
    with pytest.raises(DeviceError, match=r"Many requires values: a device cannot write lists .*optional \(Maybe\)"):
        generate(catalog, publish=[Many])


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "road.py").write_text(Path(road.__file__).read_text())
    (tmp_path / "device.txt").write_text("\n".join(road.SUBSCRIPTIONS))
    monkeypatch.chdir(tmp_path)
    assert run_command("catalog", "register", "road.json", "road.py").returncode == 0
    return tmp_path


def test_the_command_writes_what_generate_makes(folder: Path) -> None:
    done = run_command(
        "c", "generate", "road.json", "device.txt", "-o", "firmware", "--publish", "ConfidentLoop", "-t", "road.py"
    )
    assert done.returncode == 0, done.stderr
    assert "road.h, road.c, genus_port.h" in done.stderr
    assert (folder / "firmware" / "road.h").read_text() == road_firmware().header
    readme = (folder / "firmware" / "road_README.md").read_text()
    assert f"| catalog | road.json, SHA-256 {sha256((folder / 'road.json').read_bytes()).hexdigest()} |" in readme
    assert "`genus c generate --types road.py road.json device.txt --publish ConfidentLoop`" in readme
    assert (folder / "firmware" / "road.c").read_text() == road_firmware().source, "with the bounds of the classes"


def test_the_command_refuses_classes_that_do_not_fit_the_catalog(folder: Path) -> None:
    """Their bounds would be lost."""
    text = (folder / "road.py").read_text()
    (folder / "road.py").write_text(text.replace("on: bool", "on: bool\n    watts: Maybe[UInt8] = None"))
    done = run_command("c", "generate", "road.json", "device.txt", "-o", "firmware", "-t", "road.py")
    assert done.returncode == 1
    assert "Lamp does not fit road.json; register it with `genus catalog register` first" in done.stderr


def test_the_command_says_what_registers_a_type_that_the_catalog_does_not_have(folder: Path) -> None:
    (folder / "later.py").write_text("from genus import Event\nclass Later(Event):\n    on: bool\n")
    (folder / "device.txt").write_text("later: Later where on\n")
    done = run_command("c", "generate", "road.json", "device.txt", "-o", "firmware", "-t", "later.py")
    assert done.returncode == 1
    assert "later: Later is not in the catalog, so it cannot be subscribed to; register it first" in done.stderr
    assert "genus catalog register road.json FILE" in done.stderr


def test_the_command_explains(folder: Path) -> None:
    done = run_command("c", "generate", "road.json", "device.txt", "-o", "firmware", "--explain", "--codec", "straight")
    assert "codec: straight code" in done.stdout
    assert "flash: about " in done.stdout
    assert "RAM: " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["road.json", "device.txt", "--keep", "lane"], "which the device does not keep"),
        (["road.json", "missing.txt"], "does not exist"),
        (["road.json"], "there is nothing to generate"),
        (["road.py", "device.txt"], "not JSON"),
        (["road.json", "device.txt", "--late", "99"], "99 is not in the range"),
        (["road.json", "device.txt", "--name", "9x"], "is no prefix for C"),
    ],
)
def test_what_is_wrong_is_one_line(folder: Path, arguments: list[str], message: str) -> None:
    done = run_command("c", "generate", *arguments)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


if __name__ == "__main__":
    write_golden()
    sys.stdout.write(f"{len(list(GOLDEN.iterdir()))} files\n")
