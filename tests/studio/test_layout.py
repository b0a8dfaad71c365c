"""Layout files: what they may say, what is wrong with one, and that a saved one says the same."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.errors import BusError
from genus.studio import load_layout, open_studio
from genus.studio._app import page_files
from genus.studio._layout import VIEWS, layout_text, plots_of
from genus.studio.types import Alert, Layout, PlotLayout
from genus.testing import run_command as genus
from tests.examples import examples
from tests.studio.made_sources import MadeSource
from tests.studio.pages import ask

FILE = """\
title = "Tank farm"
sources = ["ipc:plant", "day.genus"]
types = ["plant.py"]
watch = "TankLevel"
view = "plot"
sound = true
webhook = "https://example.org/hook"

[options]
port = 8421
allow_hosts = ["gate"]

[[plot]]
name = "Levels"
series = ["TankLevel.level", "plant.Pump.speed"]
by = "tank"
sources = ["ipc:plant"]
from = 2026-11-18T12:00:00Z
to = 2026-11-18T13:00:00Z
axes = { m = [0, 12.5] }

[[alert]]
name = "nearly full"
subscription = "TankLevel where level > 11"
severity = "bad"
webhook = false
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "day.genus").touch()
    made = tmp_path / "plant.toml"
    made.write_text(FILE)
    return made


def test_a_file_is_read_whole(file: Path) -> None:
    layout = load_layout(file)
    assert layout == Layout(
        title="Tank farm",
        sources=("ipc:plant", str(file.parent / "day.genus")),
        types=("plant.py",),
        watch="TankLevel",
        view="plot",
        sound=True,
        webhook="https://example.org/hook",
        plots=(
            PlotLayout(
                name="Levels",
                series=("TankLevel.level", "plant.Pump.speed"),
                by="tank",
                sources=("ipc:plant",),
                from_ms=1795003200000.0,
                to_ms=1795006800000.0,
                axes={"m": (0.0, 12.5)},
            ),
        ),
        alerts=(Alert(subscription="TankLevel where level > 11", name="nearly full", severity="bad", webhook=False),),
        options={"port": 8421, "allow_hosts": ("gate",)},
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("title =", "titel =", "unknown key 'titel'; did you mean 'title'?"),
        ('"Tank farm"', "3", "title must be a text, not 3"),
        ('"plot"', '"plots"', "view is 'plots'; did you mean 'plot'?"),
        ("sound = true", "sound = 1", "sound is 1; it must be true or false"),
        ("https:", "file:", "webhook is no address of a server"),
        ('watch = "TankLevel"', 'watch = "TankLevel where"', "watch is 'TankLevel where': column"),
        ("port = 8421", "port = 99999", "[options]: port is 99999; it must be a whole number from 0 to 65535"),
        ("allow_hosts", "allow_host", "[options]: unknown key 'allow_host'; did you mean 'allow_hosts'?"),
        ("[[plot]]", "[plot]", "[plot] is a single table; write [[plot]]"),
        ('"TankLevel.level", ', '"level", ', "[[plot]] 1: series must be a list of 1 to 20 texts TYPE.ATTRIBUTE"),
        ("from = 2026-11-18T12:00:00Z\n", "", "[[plot]] 1: from and to belong together"),
        ("T12:00:00Z", "T12:00:00", "[[plot]] 1: from must be a time with its zone"),
        ("[0, 12.5]", "[12.5, 0]", "axes: 'm' must be a list of two numbers, the lower first, not [12.5, 0]"),
        ("[0, 12.5]", "[nan, 0]", "axes: 'm' must be a list of two numbers"),
        ("[0, 12.5]", "3", "axes: 'm' must be a list of two numbers"),
        ("subscription =", "subscribe =", "[[alert]] 1: unknown key 'subscribe'; did you mean 'subscription'?"),
        ("level > 11", "level >", "[[alert]] 1: subscription is 'TankLevel where level >': column 24: expected"),
        ('"bad"', '"awful"', "[[alert]] 1: severity is 'awful'; known are warn, bad"),
        ('"nearly full"', f'"{"x" * 200}"', "[[alert]] 1: name has 200 characters; 100 is the most"),
        ("[options]", "[options", "not TOML"),
    ],
)
def test_what_is_wrong_is_named(file: Path, before: str, after: str, message: str) -> None:
    assert before in FILE
    file.write_text(FILE.replace(before, after, 1))
    with pytest.raises(BusError, match=re.escape(message)) as refused:
        load_layout(file)
    assert str(refused.value).startswith(str(file))
    result = genus("studio", "--layout", str(file))
    assert (result.returncode, message in result.stderr, "Traceback" in result.stderr) == (1, True, False)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(BusError, match=r"cannot read .*none\.toml: No such file"):
        load_layout(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BusError, match=r"binary.toml: not TOML"):
        load_layout(tmp_path / "binary.toml")


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TEXTS = ANY_TEXT.filter(str.strip)
SERIES = st.from_regex(r"\A([A-Za-z]+\.){1,3}[a-z]+\Z")
RANGES = st.floats(-1e9, 1e9).map(lambda low: (low, low + 1.0))
PLOTS = st.builds(
    PlotLayout,
    name=TEXTS,
    series=st.lists(SERIES, min_size=1, max_size=3, unique=True).map(tuple),
    by=TEXTS,
    sources=st.lists(TEXTS, unique=True, max_size=3).map(tuple),
    axes=st.dictionaries(ANY_TEXT, RANGES, max_size=2),
)
ALERTS = st.builds(
    Alert,
    subscription=st.just("Event"),
    name=TEXTS,
    severity=st.sampled_from(["warn", "bad"]),
    webhook=st.booleans(),
)
LAYOUTS = st.builds(
    Layout,
    title=TEXTS,
    view=st.sampled_from(VIEWS),
    sound=st.booleans(),
    plots=st.lists(PLOTS, max_size=2, unique_by=lambda plot: plot.name).map(tuple),
    alerts=st.lists(ALERTS, max_size=2).map(tuple),
)


@given(layout=LAYOUTS)
@examples(100)
def test_a_saved_layout_is_the_same_one_when_it_is_read(
    layout: Layout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "saved.toml"
    path.write_bytes(layout_text(layout).encode())
    assert load_layout(path) == layout
    assert plots_of(msgspec.to_builtins(layout.plots)) == layout.plots


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"view": "nowhere"}, "view is one of"),
        ({"plots": 3}, "plots: Expected `array`"),
        ({"plots": [{"series": []}]}, "series must be a list"),
        ({"plots": [{"series": ["A.b"], "from_ms": 1e300, "to_ms": 1}]}, "no time in milliseconds"),
        ({"plots": [{"series": ["A.b"], "axes": {"m": [1]}}]}, "plots: Expected `array` of length 2"),
    ],
)
def test_what_a_page_saves_is_checked(body: object, message: str) -> None:
    with open_studio(MadeSource()) as studio:
        answer = ask(studio, "/api/layout", "POST", body)
        assert answer.status == 400
        assert message in answer.json["message"]


def test_the_views_of_a_layout_are_those_of_the_page() -> None:
    shell = dict(page_files())["app.js"].decode()
    assert tuple(re.findall(r'\{ id: "(\w+)", title:', shell)) == VIEWS


def test_the_guide_shows_the_example() -> None:
    root = Path(__file__).parents[2]
    assert (root / "examples/studio.toml").read_text() in (root / "docs/studio.md").read_text()


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_needs_an_address_or_a_layout_with_sources(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    for words in ((), ("--layout", str(tmp_path / "empty.toml"))):
        result = genus("studio", *words)
        assert (result.returncode, "give an ADDRESS, or a layout with sources" in result.stderr) == (2, True)


def test_the_command_line_comes_before_the_layout(tmp_path: Path) -> None:
    (tmp_path / "layout.toml").write_text('sources = ["nowhere.genus"]\nwatch = "Nothing"\n[options]\nport = 1\n')
    result = genus("studio", "--layout", str(tmp_path / "layout.toml"), "--for", "10ms")
    assert "'nowhere.genus' is no file or folder" in result.stderr
    words = ("ipc:layout-test", "--port", "0", "--watch", "Event", "--for", "10ms")
    result = genus("studio", "--layout", str(tmp_path / "layout.toml"), *words)
    assert (result.returncode, "http://127.0.0.1:1/" in result.stderr) == (0, False)


def test_a_token_is_read_from_a_file_and_warned_of_on_the_command_line(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("0123456789abcdef\n")
    words = ("studio", "ipc:layout-test", "--port", "0", "--for", "10ms")
    result = genus(*words, "--access-token-file", str(secret))
    assert "token=0123456789abcdef" in result.stderr
    assert "list of processes" not in result.stderr
    result = genus(*words, "--access-token", "0123456789abcdef")
    assert "others see --access-token in the list of processes" in result.stderr
    for content in (b"", b"\xff" * 20):
        secret.write_bytes(content)
        result = genus(*words, "--access-token-file", str(secret))
        assert (result.returncode, "a token has 16 to 200 letters" in result.stderr) == (1, True)
