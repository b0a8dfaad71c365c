"""The paper's table 2, discovery and super-resources, for the IPSO resources and for any other."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bench.coap_paths import (
    CoapReport,
    CoapSettings,
    PathCost,
    TrafficCost,
    coap_command,
    link_by_code,
    link_by_name,
    measure_coap,
)
from bench.coap_resources import Resource, read_resources
from bench.coap_sizes import Traffic, size_get
from genus.codes import encode_path_segment, parse_path_segment
from genus.codes._prime_schemes import assign_codes
from genus.codes.types import NotApplicable
from genus.errors import HierarchyError

from ..examples import examples

IPSO = Path(__file__).parents[3] / "shared" / "data" / "ipso" / "ipso_app_framework_04_resources.csv"
PAPER = {"names": (499, 0), "decimal": (158, 68), "uint": (84, 83)}

OFFICE = [
    Resource("/air", collects=True),
    Resource("/air/temp", ("/air",)),
    Resource("/air/temp/raw", ("/air/temp",)),
    Resource("/air/humidity", ("/air",)),
    Resource("/door", (), "office.door"),
]


@pytest.fixture
def ipso() -> tuple[Resource, ...]:
    if not IPSO.exists():
        pytest.skip(f"real data not found: {IPSO}")
    return read_resources(IPSO)


def path_cost(report: CoapReport, scheme: str, form: str) -> PathCost:
    """The line of table 2 for a form of the codes of a scheme, or for names."""
    lines = (line for line in report.paths if isinstance(line, PathCost))
    return next(line for line in lines if (line.scheme, line.form) == (scheme, form))


def traffic(costs: Sequence[TrafficCost]) -> dict[str, tuple[int, int]]:
    return {cost.way: (cost.datagrams, cost.bytes) for cost in costs}


@pytest.mark.parametrize("form", PAPER)
def test_table_2_is_the_papers_within_one_point_and_eleven_bytes(ipso: tuple[Resource, ...], form: str) -> None:
    """The paper has 54 paths and the table from which the resources are taken 53; the paper prints whole points."""
    found = path_cost(measure_coap(ipso), "" if form == "names" else "compact", form)
    total, saved = PAPER[form]
    exact = 100 * (1 - total / PAPER["names"][0])
    assert abs(found.bytes - total) <= 11
    assert abs(found.saved_percent - exact) < 1
    assert abs(round(found.saved_percent) - saved) <= 1


def test_line_codes_are_shorter_than_the_papers(ipso: tuple[Resource, ...]) -> None:
    report = measure_coap(ipso)
    sizes = {
        scheme: [path_cost(report, scheme, form).bytes for form in ("decimal", "uint")]
        for scheme in ("compact", "line")
    }
    assert sizes == {"compact": [150, 78], "line": [135, 72]}


def test_table_2_hardly_depends_on_how_instances_are_counted(ipso: tuple[Resource, ...], tmp_path: Path) -> None:
    """With a path for each of the three sensors there are 56 paths."""
    more = ["/sen/1", "/sen/1/status", "/sen/2"]
    path = tmp_path / "numbered.txt"
    path.write_text("\n".join([*(one.path for one in ipso), *more]))
    report = measure_coap(read_resources(path))
    found = [path_cost(report, "", "names"), *(path_cost(report, "compact", form) for form in ("decimal", "uint"))]
    assert [(cost.bytes, round(cost.saved_percent)) for cost in found] == [(514, 0), (162, 68), (84, 84)]


def test_requests_count_option_headers_too(ipso: tuple[Resource, ...]) -> None:
    """A number in an option of its own loses by its header, unless the option has a small number."""
    means = {cost.form: round(cost.mean_bytes, 2) for cost in measure_coap(ipso).requests}
    assert means == {
        "names": 9.23,
        "decimal": 3.55,
        "base64url": 3.36,
        "base-64 digits": 2.72,
        "uint, option 65000": 4.36,
    }
    small = measure_coap(ipso, settings=CoapSettings(option=12)).requests[-1]
    assert round(small.mean_bytes, 2) == 2.36


def test_fifteen_resources_are_found_in_a_third_of_the_datagrams(ipso: tuple[Resource, ...]) -> None:
    report = measure_coap(ipso, only=["/gpio", "/pwr", "/loc"], below="/pwr")
    assert report.server == 15
    found = traffic(report.discovery)
    assert found == {
        "names": (14, 660),
        "names below /pwr": (4, 195),
        "codes": (4, 158),
        "codes below /pwr": (2, 60),
    }
    assert found["codes"][0] <= found["names"][0] / 3


def test_four_values_come_by_a_super_resource_in_a_quarter_of_the_datagrams(ipso: tuple[Resource, ...]) -> None:
    report = measure_coap(ipso, only=["/gpio", "/pwr", "/loc"], below="/pwr")
    assert (report.below, report.held) == ("/pwr", 4)
    assert traffic(report.values) == {
        "names, one by one": (8, 130),
        "codes, one by one": (8, 107),
        "super-resource /pwr": (2, 78),
    }


def test_the_bytes_of_paths_are_counted_with_their_slashes() -> None:
    report = measure_coap(OFFICE)
    assert path_cost(report, "", "names").bytes == len("/air/air/temp/air/temp/raw/air/humidity/door")
    assert path_cost(report, "line", "uint") == PathCost("line", "uint", 5, 1.0, 100 * (1 - 5 / 44))


def test_a_server_lists_resources_that_have_values() -> None:
    report = measure_coap(OFFICE)
    assert (report.server, report.below, report.held) == (4, "/air", 3)
    links = "</air/temp>,</air/temp/raw>,</air/humidity>,</door>;rt=office.door"
    asked = size_get([(11, 11), (11, 4)], len(links), 40)
    assert report.discovery[0] == TrafficCost("names", asked.datagrams, asked.bytes)


def test_a_super_resource_with_a_value_is_below_itself() -> None:
    report = measure_coap(OFFICE, below="/air/temp")
    assert report.held == 2
    assert traffic(report.values)["codes, one by one"][0] == 4


def test_names_can_ask_for_a_prefix_only() -> None:
    """What is below a kind has no common prefix, so names have no way to find it."""
    joined = [Resource("/Event"), Resource("/Roadside"), Resource("/Event/Loop", ("/Event", "/Roadside"))]
    report = measure_coap(joined, below="/Roadside")
    assert [cost.way for cost in report.discovery] == ["names", "codes", "codes below /Roadside"]
    assert NotApplicable("compact", "several parents") in report.paths


def test_without_anything_below_another_there_is_no_super_resource() -> None:
    report = measure_coap([Resource("/a"), Resource("/b")])
    assert (report.below, report.held, report.values) == ("", 0, ())
    assert [cost.way for cost in report.discovery] == ["names", "codes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"below": "/aire"}, "no path '/aire'; did you mean '/air'\\? the first are /air, /air/temp"),
        ({"only": ["/x"]}, "no path '/x'; the first are"),
        ({"only": ["/door"], "below": "/air"}, "no resource is at or below /air"),
        ({"scheme": "prime"}, "scheme 'prime' gives no codes: there are original, compact, line, line, any join"),
    ],
)
def test_what_is_not_there_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        measure_coap(OFFICE, **options)  # type: ignore[arg-type]


def test_codes_that_no_segment_holds_are_not_measured() -> None:
    """A line of a thousand types is 2, 4, 8 ...; original codes of it are longer than an option may be."""
    chain = [Resource("/t0"), *(Resource(f"/t{n}", (f"/t{n - 1}",)) for n in range(1, 1000))]
    report = measure_coap(chain)
    assert NotApplicable("original", "a code is too long for a path") in report.paths
    with pytest.raises(HierarchyError, match="a code is too long for a path; choose another scheme"):
        measure_coap(chain, scheme="original")


@st.composite
def servers(draw: st.DrawFn) -> list[Resource]:
    """Random trees of resources."""
    paths = [""]
    for number in range(draw(st.integers(1, 25))):
        paths.append(f"{draw(st.sampled_from(paths))}/{draw(st.sampled_from('ab'))}{number}")
    return [Resource(path, (path.rpartition("/")[0],) if path.count("/") > 1 else ()) for path in paths[1:]]


@given(server=servers(), data=st.data())
@examples(200)
def test_discovery_by_divisibility_lists_exactly_what_is_below(server: list[Resource], data: st.DataObject) -> None:
    """A client divides the codes that it reads from links; the oracle compares paths."""
    scheme = data.draw(st.sampled_from(["original", "compact", "line", "line, any join"]))
    codes = assign_codes({one.path: one.parents for one in server})[scheme]
    assert not isinstance(codes, NotApplicable)
    asked = data.draw(st.sampled_from(server)).path
    links = [link_by_code(codes[one.path]).strip("</>") for one in server]
    found = {segment for segment in links if (parse_path_segment(segment) or 0) % codes[asked] == 0}
    below = [one for one in server if f"{one.path}/".startswith(f"{asked}/")]
    assert found == {encode_path_segment(codes[one.path]) for one in below}
    report = measure_coap(server, scheme=scheme, below=asked)
    assert report.held == len(below)
    assert report.discovery[-1].bytes == _discovered([link_by_code(codes[one.path]) for one in below], codes[asked])


def _discovered(links: list[str], code: int) -> int:
    query = f"is={encode_path_segment(code)}"
    return size_get([(11, 11), (11, 4), (15, len(query))], len(",".join(links)), 40).bytes


@given(server=servers(), block=st.sampled_from([16, 64, 1024]), token=st.integers(0, 8))
@examples(100)
def test_codes_never_take_more_datagrams_than_names(server: list[Resource], block: int, token: int) -> None:
    report = measure_coap(server, settings=CoapSettings(block=block, token=token))
    ways = traffic(report.discovery)
    assert ways["codes"][0] <= ways["names"][0]
    if report.below:
        assert ways[f"codes below {report.below}"][0] <= ways["codes"][0]


@pytest.mark.parametrize(
    ("kind", "link"),
    [("", "</a>"), ("x.y-1", "</a>;rt=x.y-1"), ("x y", '</a>;rt="x y"'), ("ucum:*", '</a>;rt="ucum:*"')],
)
def test_a_link_quotes_what_is_no_token(kind: str, link: str) -> None:
    assert link_by_name(Resource("/a", resource_type=kind)) == link


def test_traffic_adds_up() -> None:
    assert Traffic(2, 30) + Traffic(4, 5) == Traffic(6, 35)


def test_the_command_prints_paths_requests_discovery_and_values(tmp_path: Path) -> None:
    (tmp_path / "paths.txt").write_text("/air/\n/air/temp\n/air/humidity\n/door\n")
    found = CliRunner().invoke(coap_command, [str(tmp_path / "paths.txt")])
    lines = [" ".join(line.split()) for line in found.output.splitlines()]
    assert lines[0].endswith("paths.txt: 31 bytes as names, 7.75 each")
    assert "line 5 1.25 84% 4 1.00 87%" in lines
    assert "2 values of 12 bytes below /air" in lines
    answer = json.loads(CliRunner().invoke(coap_command, [str(tmp_path / "paths.txt"), "--json"]).output)
    assert answer["settings"] == {"block": 64, "token": 0, "value": 12, "option": 65000}
    assert (answer["server"], answer["below"], answer["held"]) == (3, "/air", 2)
