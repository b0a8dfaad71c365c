"""`genus codes coap`, as a person uses it."""

import json
from pathlib import Path

import pytest

from genus.testing import run_command as genus

PATHS = "/air/\n/air/temp\n/air/humidity\n/door\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paths.txt").write_text(PATHS)
    (tmp_path / "joined.csv").write_text("type,parents\nA,\nB,\nC,A;B\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "twice.txt").write_text("/a\n/a\n")
    monkeypatch.chdir(tmp_path)


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_tables_have_paths_requests_discovery_and_values() -> None:
    done = genus("codes", "coap", "paths.txt")
    assert done.returncode == 0, done.stderr
    lines = words(done.stdout)
    assert lines[0] == "4 paths of paths.txt: 31 bytes as names, 7.75 each"
    assert "line 5 1.25 84% 4 1.00 87%" in lines
    assert "line codes: base64url 12 3.00 61%" in lines
    assert "Discovery of 3 resources in blocks of 64 bytes" in lines
    assert "2 values of 12 bytes below /air" in lines
    assert any(line.startswith("super-resource /air 2 ") for line in lines)


def test_json_has_the_same() -> None:
    answer = json.loads(genus("codes", "coap", "paths.txt", "--json", "--block", "16", "--token", "2").stdout)
    assert answer["settings"] == {"block": 16, "token": 2, "value": 12, "option": 65000}
    assert answer["paths"][0] == {
        "scheme": "", "form": "names", "bytes": 31, "mean_bytes": 7.75, "saved_percent": 0.0,
    }  # fmt: skip
    assert [cost["way"] for cost in answer["discovery"]] == ["names", "names below /air", "codes", "codes below /air"]
    assert answer["discovery"][0]["datagrams"] == 6
    assert (answer["server"], answer["below"], answer["held"]) == (3, "/air", 2)


def test_a_scheme_that_does_not_apply_is_named() -> None:
    assert "compact: n/a, several parents" in genus("codes", "coap", "joined.csv").stdout
    assert "any join codes: decimal" in genus("codes", "coap", "joined.csv", "--scheme", "any").stdout


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["joined.csv", "--scheme", "compact"], "genus: scheme 'compact' gives no codes: several parents"),
        (["empty.txt"], "genus: empty.txt: no resources"),
        (["twice.txt"], "genus: twice.txt:2: path '/a' is already in line 1"),
        (["none.txt"], "genus: none.txt: No such file or directory"),
        (["paths.txt", "--below", "/ari"], "genus: no path '/ari'; did you mean '/air'?"),
        (["paths.txt", "--only", "/door", "--below", "/air"], "genus: no resource is at or below /air"),
    ],
)
def test_errors_name_file_line_and_path(asked: list[str], message: str) -> None:
    done = genus("codes", "coap", *asked)
    assert done.returncode == 1
    assert done.stderr.startswith(message)


@pytest.mark.parametrize("asked", [["--block", "100"], ["--token", "9"], ["--value", "0"], ["--option", "70000"]])
def test_sizes_that_coap_does_not_have_are_wrong_usage(asked: list[str]) -> None:
    assert genus("codes", "coap", "paths.txt", *asked).returncode == 2
