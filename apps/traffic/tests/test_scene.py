"""Scenes: what a city is, where it comes from, and what is said of a file that describes none."""

import os
from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus_traffic.road.city import TYPICAL, default_city
from genus_traffic.road.scene import KINDS, Refit, Scene, SceneError, Site
from genus_traffic.road.scene_file import load_scene, parse_scene

EXAMPLE = Path(__file__).parents[1] / "city.toml"

HEAD = 'start = 2026-03-02T07:30:00Z\nduration = "10 min"\n'
SITE = '[[site]]\nname = "mill"\nkind = "street"\n'


def complaint(text: str) -> str:
    """What is said of a text, after the name of its file."""
    with pytest.raises(SceneError) as caught:
        parse_scene(text, "city.toml")
    said = str(caught.value)
    assert said.startswith("city.toml: ")
    assert "\n" not in said
    return said.removeprefix("city.toml: ")


def test_the_example_is_the_city_that_it_describes() -> None:
    scene = load_scene(EXAMPLE)
    assert [(site.name, site.kind, site.lanes) for site in scene.sites] == [
        ("harbour-crossing", "signals", 2),
        ("a8-km12", "motorway", 3),
        ("mill-street", "street", 2),
        ("old-bridge", "street", 1),
    ]
    minute_us = 60_000_000
    turns = {name: scene.refit_us(name) for name in scene.names}
    assert turns == {
        "mill-street": scene.start_us + 5 * minute_us,
        "a8-km12": scene.start_us + 5 * minute_us + 45_000_000,
        "harbour-crossing": scene.start_us + 5 * minute_us + 90_000_000,
        "old-bridge": None,
    }
    assert scene.refitted_us == turns["harbour-crossing"]
    assert scene.end_us - scene.start_us == 10 * minute_us


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_has_what_is_typical_of_its_kind_unless_the_file_says_otherwise(kind: str) -> None:
    scene = parse_scene(
        f'{HEAD}[[site]]\nname = "a"\nkind = "{kind}"\nlanes = 5\n[[site]]\nname = "b"\nkind = "{kind}"'
    )
    changed, typical = scene.sites
    assert changed.lanes == 5
    assert msgspec.structs.replace(changed, name="b", place="b", lanes=typical.lanes) == typical
    assert typical.place == "b"
    assert typical.flow_per_hour == TYPICAL[typical.kind]["flow_per_hour"]
    assert (typical.signal is not None) == (kind == "signals")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; it needs start, duration and at least one [[site]]"),
        ("# nothing\n", "is empty; it needs start, duration and at least one [[site]]"),
        ("start = ", "is not TOML: Invalid value (at end of document)"),
        (HEAD, "a city has 1 to 100 sites, not 0"),
        (SITE, "start is missing"),
        (f"{HEAD}duratoin = 5\n{SITE}", "unknown key 'duratoin'; did you mean 'duration'?"),
        (f"{HEAD}[site]\nname = 'a'", "site must be a list of tables; write [[site]]"),
        (f"{HEAD}site = [3]", "[[site]] 1 must be a table, not 3"),
        (f"{HEAD}{SITE}flow = 3", "[[site]] 1 'mill': unknown key 'flow'; did you mean 'flow_per_hour'?"),
        (f"{HEAD}{SITE}lanes = 'two'", "[[site]] 1 'mill': lanes is 'two'; it must be a whole number"),
        (f"{HEAD}{SITE}lanes = 9", "[[site]] 1 'mill': lanes is 9; it must be a whole number <= 8"),
        (f"{HEAD}{SITE}misread = -0.1", "[[site]] 1 'mill': misread is -0.1; it must be a number >= 0.0"),
        (f"{HEAD}{SITE}flow_per_hour = -1", "[[site]] 1 'mill': flow_per_hour is -1; it must be a number >= 0.0"),
        (f"{HEAD}{SITE}mix = {{ cars = 1 }}", "[[site]] 1 'mill': mix: unknown key 'cars'; did you mean 'car'?"),
        (
            f"{HEAD}{SITE}mix = {{ car = 0 }}",
            "[[site]] 1 'mill': mix has no category with a weight above 0; write such as { car = 0.9, truck = 0.1 }",
        ),
        (f"{HEAD}{SITE}waves = false", "[[site]] 1 'mill': waves is False; it must be a table"),
        (
            f"{HEAD}{SITE}signal = {{ cycles = 60 }}",
            "[[site]] 1 'mill': signal: unknown key 'cycles'; did you mean 'cycle'?",
        ),
        (
            f"{HEAD}{SITE}signal = {{ cycle = 0 }}",
            "[[site]] 1 'mill': signal.cycle is 0; it must be above zero",
        ),
        (
            f"{HEAD}{SITE}signal = {{ cycle = 20 }}",
            "[[site]] 1 'mill': signal: green is 28 s, which leaves no red in a cycle of 20 s",
        ),
        (f"{HEAD}[[site]]\nkind = 'street'", "[[site]] 1: name is missing"),
        (f"{HEAD}[[site]]\nname = 'a'", "[[site]] 1 'a': kind is missing; known are signals, motorway, street"),
        (f"{HEAD}[[site]]\nname = 'a'\nkind = 'steet'", "[[site]] 1 'a': kind is 'steet'; did you mean 'street'?"),
        (f"{HEAD}{SITE}{SITE}", "sites: 'mill' is there twice"),
        (f"{HEAD}{SITE}[[site]]\nname = 'Mill'\nkind = 'street'", "sites: 'Mill' is there twice, once as 'mill'"),
        (f"{HEAD}{SITE}[refit]\nbegin = 0.5", "[refit]: unknown key 'begin'; did you mean 'begins'?"),
        (f"{HEAD}{SITE}[refit]\nbegins = 50", "[refit]: begins is 50; it must be a number <= 1.0"),
        (
            f"{HEAD}{SITE}[refit]\norder = ['mil']",
            "refit.order names 'mil', which is no site; did you mean 'mill'?",
        ),
        (f"{HEAD}{SITE}[refit]\norder = ['mill', 'mill']", "refit.order: 'mill' is there twice"),
        (
            f"{HEAD}{SITE}[refit]\nbegins = 1",
            "refit: the last site is refitted 10.0 min after the start, but the scene ends after 10 min; "
            "make begins or apart smaller",
        ),
        (
            f"start = 2026-03-02T07:30:00\nduration = 60\n{SITE}",
            "start is 2026-03-02 07:30:00; it must be a date and time with a zone, such as 2026-03-02T07:30:00Z",
        ),
        (f"{HEAD}seed = 1.5\n{SITE}", "seed is 1.5; it must be a whole number"),
        (f"start = 2026-03-02T07:30:00Z\nduration = 0\n{SITE}", "duration is 0; it must be above zero"),
        (f"refit = 3\n{HEAD}{SITE}", "[refit] must be a table, not 3"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_key_and_what_is_known(text: str, said: str) -> None:
    assert complaint(text) == said


ODD_VALUES = ("'x'", "''", "-1", "nan", "inf", "true", "[]", "[1]", "{}", "{ x = 1 }", "1e300", "2026-01-01", "9" * 25)


@pytest.mark.parametrize("key", Site.__struct_fields__)
def test_no_value_of_any_key_makes_more_than_one_clear_line(key: str) -> None:
    """A file gives a scene, or an error of one line that names the file and the key; never anything else."""
    for value in ODD_VALUES:
        lines = {"name": "'a'", "kind": "'signals'", key: value}
        text = HEAD + "[[site]]\n" + "\n".join(f"{each} = {spelt}" for each, spelt in lines.items())
        try:
            said = f"{len(parse_scene(text, 'city.toml').sites)} site with {key}"
        except SceneError as problem:
            said = str(problem).replace("city.toml: [[site]] 1", "1 site", 1)
        assert said.startswith("1 site")
        assert key in said
        assert "\n" not in said


@given(st.text(max_size=60))
def test_no_text_makes_more_than_one_clear_line(text: str) -> None:
    with pytest.raises(SceneError) as caught:
        parse_scene(text, "city.toml")
    assert str(caught.value).startswith("city.toml: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "latin.toml"
    broken.write_bytes(b"name = 'caf\xe9'")
    refused = {tmp_path: "Is a directory", tmp_path / "none.toml": "No such file or directory", broken: "is not UTF-8"}
    for path, why in refused.items():
        with pytest.raises(SceneError) as caught:
            load_scene(path)
        assert str(caught.value).startswith(f"{path}: {why}")


@pytest.mark.skipif(os.geteuid() == 0, reason="the super-user may read every file")
def test_a_file_that_nobody_may_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.toml"
    path.write_text(HEAD + SITE)
    path.chmod(0)
    with pytest.raises(SceneError, match=r"secret\.toml: Permission denied"):
        load_scene(path)


def test_a_site_that_is_not_there_is_refused_with_the_one_that_may_be_meant() -> None:
    city = default_city(3)
    with pytest.raises(SceneError, match=r"there is no site 'a8-km13'; did you mean 'a8-km12'\?"):
        city.site("a8-km13")
    with pytest.raises(SceneError, match="there is no site"):
        city.refit_us("nowhere")


@pytest.mark.parametrize("sites", [0, 101])
def test_a_default_city_has_one_to_a_hundred_sites(sites: int) -> None:
    with pytest.raises(SceneError, match=f"a city has 1 to 100 sites, not {sites}"):
        default_city(sites)


def test_more_sites_leave_those_before_them_as_they_are() -> None:
    full = default_city(100, seed=3)
    assert len(set(full.names)) == 100
    for sites in (1, 2, 3, 50):
        assert default_city(sites, seed=3).sites == full.sites[:sites]
    assert {site.kind for site in full.sites[:3]} == set(KINDS)


@given(
    sites=st.integers(1, 30),
    minutes=st.floats(0.1, 600),
    begins=st.floats(0, 0.99),
    left_out=st.sets(st.integers(0, 29)),
)
def test_a_refit_goes_from_site_to_site_within_the_scene(
    sites: int, minutes: float, begins: float, left_out: set[int]
) -> None:
    city = default_city(sites, f"{minutes} min")
    order = tuple(name for number, name in enumerate(city.names) if number not in left_out)
    scene: Scene = msgspec.structs.replace(city, refit=Refit(begins=begins, order=order))
    turns = [scene.refit_us(name) for name in order]
    known = [turn for turn in turns if turn is not None]
    assert known == sorted(known)
    assert len(known) == len(order)
    assert all(scene.start_us <= turn < scene.end_us for turn in known)
    assert scene.refitted_us == (known[-1] if known else None)
    assert all(scene.refit_us(name) is None for name in set(city.names) - set(order))


@pytest.mark.parametrize(("sites", "minutes"), list(product((1, 4, 100), (0.5, 10.0))))
def test_the_default_refit_begins_half_way_and_leaves_time_after_the_last_site(sites: int, minutes: float) -> None:
    city = default_city(sites, f"{minutes} min")
    length_us = city.end_us - city.start_us
    assert city.refit_us(city.names[0]) == city.start_us + length_us // 2
    assert city.refitted_us is not None
    assert city.end_us - city.refitted_us >= length_us // 5


def test_some_sites_of_a_scene_keep_their_order_and_their_place_in_the_refit() -> None:
    scene = load_scene(EXAMPLE)
    some = scene.only(["a8-km12", "old-bridge", "harbour-crossing"])
    assert some.names == ("harbour-crossing", "a8-km12", "old-bridge")
    assert some.refit_order == ("a8-km12", "harbour-crossing")
    assert scene.only(["old-bridge"]).refitted_us is None
    assert default_city(5).only(["a8-km12"]).refit_order == ("a8-km12",)
    with pytest.raises(SceneError, match="there is no site 'old-brigde'; did you mean 'old-bridge'"):
        scene.only(["old-brigde"])


def test_a_scene_that_is_changed_is_checked_again() -> None:
    scene = load_scene(EXAMPLE)
    with pytest.raises(SceneError, match=r"the last site is refitted 2\.0 min after the start"):
        msgspec.structs.replace(scene, minutes=1.0)
