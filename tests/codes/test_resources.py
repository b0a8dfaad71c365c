"""Files of resources: paths, tables as the IPSO framework's, hierarchies of types."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.coap_resources import Resource, read_resources
from genus.errors import HierarchyError

IPSO = Path(__file__).parents[3] / "shared" / "data" / "ipso"


def write(folder: Path, text: str, name: str = "resources.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_list_of_paths_has_the_nearest_listed_paths_above(tmp_path: Path) -> None:
    """Children may come first; a path that is not listed is no resource."""
    path = write(tmp_path, "# an office\n\n/room/desk/light\n  /room/\n/room/desk/light/on \n/door\n")
    assert read_resources(path) == (
        Resource("/room/desk/light", ("/room",)),
        Resource("/room", (), collects=True),
        Resource("/room/desk/light/on", ("/room/desk/light",)),
        Resource("/door", ()),
    )


def test_the_path_slash_is_above_all(tmp_path: Path) -> None:
    assert read_resources(write(tmp_path, "/a\n/\n/a/b\n")) == (
        Resource("/a", ("/",)),
        Resource("/"),
        Resource("/a/b", ("/a",)),
    )


def test_a_table_has_instances_function_sets_and_types(tmp_path: Path) -> None:
    rows = "function_set,path_template,resource_type\nPower,/pwr/{#}/w,ipso.w\nSensors,/sen/{#},ipso.mot\n"
    path = write(tmp_path, rows + "Sensors,/sen/{#},ucum:*\n", "table.csv")
    assert read_resources(path) == (
        Resource("/pwr", (), collects=True),
        Resource("/pwr/0/w", ("/pwr",), "ipso.w"),
        Resource("/sen", (), collects=True),
        Resource("/sen/0", ("/sen",), "ipso.mot ucum:*"),
    )


def test_a_table_may_have_paths_only(tmp_path: Path) -> None:
    assert read_resources(write(tmp_path, "path,unit\n/a,\n/a/b,V\n", "table.csv")) == (
        Resource("/a"),
        Resource("/a/b", ("/a",)),
    )


def test_the_types_of_a_hierarchy_are_paths_below_their_first_parent(tmp_path: Path) -> None:
    path = write(tmp_path, "type,parents\nEvent,\nRoadside,\nLoop,Event|Roadside\nFast,Loop\n", "h.csv")
    assert read_resources(path) == (
        Resource("/Event"),
        Resource("/Roadside"),
        Resource("/Event/Loop", ("/Event", "/Roadside")),
        Resource("/Event/Loop/Fast", ("/Event/Loop",)),
    )


def test_the_only_root_of_a_hierarchy_is_the_path_slash(tmp_path: Path) -> None:
    path = write(tmp_path, "Signal,Type\nVehicle,branch\nVehicle.Speed,sensor\nVehicle.Speed.Raw,sensor\n", "vss.csv")
    assert [one.path for one in read_resources(path)] == ["/", "/Speed", "/Speed/Raw"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": no resources"),
        ("\n# nothing\n", ": no resources"),
        ("path\n", ": no resources"),
        ("/a\n\n/b\n/a\n", ":4: path '/a' is already in line 1"),
        ("/a\n/a/\n", ":2: path '/a' is already in line 1"),
        ("/a\nb\n", ":2: path 'b' does not begin with a slash"),
        ("/a//b\n", ":1: path '/a//b' has a segment that is empty"),
        ("//\n", ":1: path '//' has a segment that is empty"),
        ("/a/../b\n", ":1: path '/a/../b' has a segment that is empty, a dot or two dots"),
        ("/a b\n", ":1: path '/a b' has ' '; a segment has letters, digits and"),
        ("/a?x=1\n", ":1: path '/a?x=1' has '?'"),
        ("/caf\u00e9\n", ":1: path '/caf\u00e9' has '\u00e9'"),
        (f"/{'a' * 256}\n", ": path '/aaaaaaaaaaaaaaaaaaa'... has a segment of 256 bytes; 255 is the most"),
        ("path,unit\n/a\n", ":2: 1 columns where the header has 2"),
        ("path,unit\n/a,V,W\n", ":2: 3 columns where the header has 2"),
        ("path,unit\na,V\n", ":2: path 'a' does not begin with a slash"),
        ('path,unit\n"/a,V\n', ":2: unexpected end of data"),
        ("name,size\nx,1\n", ":1: expected a path such as /sensor/temp, or a CSV header with path, path_template or"),
        ("type,parents\na b,\nc,\n", ": type 'a b': path '/a b' has ' '"),
        ("type,parents\na,x\n", ":2: parent 'x' of 'a' is unknown"),
    ],
)
def test_a_file_that_lists_no_resources_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(HierarchyError) as problem:
        read_resources(path)
    assert message in str(problem.value)
    assert str(problem.value).startswith(str(path))


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"/a\n\xff\n")
    with pytest.raises(HierarchyError, match="junk:2: not UTF-8 text"):
        read_resources(tmp_path / "junk")
    with pytest.raises(HierarchyError, match=r"none\.txt: No such file"):
        read_resources(tmp_path / "none.txt")
    with pytest.raises(HierarchyError, match="neither a file nor a module"):
        read_resources("no_such_module_or_file")


@given(text=st.text())
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "any.txt"
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        found = read_resources(path)
    except HierarchyError:
        return
    assert len({one.path for one in found}) == len(found) > 0


def test_function_sets_are_those_of_the_ipso_framework() -> None:
    if not IPSO.exists():
        pytest.skip(f"real data not found: {IPSO}")
    found = read_resources(IPSO / "ipso_app_framework_04_resources.csv")
    sets = [line.split(",")[1] for line in (IPSO / "ipso_function_sets.csv").read_text().splitlines()[1:]]
    assert [one.path for one in found if one.collects] == sets
    assert len(found) == 44 + len(sets)  # 47 resources, of which the five sensors have two paths
