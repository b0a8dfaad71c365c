"""`genus doctor` says of every extra whether it can be used, and what installs it."""

import json
from importlib.metadata import metadata

import pytest
from click.testing import CliRunner

from genus.cli import _doctor


def doctor(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(_doctor.doctor, [*arguments])
    return done.exit_code, done.output


def test_every_extra_for_users_has_a_purpose() -> None:
    declared = set(metadata("genus").get_all("Provides-Extra") or ())
    assert set(_doctor.EXTRAS) == declared - {"all", "dev", "bench", "docs"}


def test_what_is_there_is_shown_with_its_version() -> None:
    code, output = doctor("--json")
    found = json.loads(output)
    extras = {each["name"]: each for each in found["Extras"]}
    assert code == 0
    assert [each["name"] for each in found["Genus and Python"]] == ["Genus", "Python", "System"]
    assert extras["arrow"]["found"]
    assert "pyarrow" in extras["arrow"]["detail"]
    assert "pyspark" in extras["iceberg"]["detail"], "packages of the extras that an extra has"
    assert any(each["found"] for each in found["Java, for Spark"])


def test_a_missing_package_and_one_of_a_wrong_version_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says it to scripts."""
    wanted = ["nobody-has-this>=1; extra == 'mqtt'", "click>=900; extra == 'coap'", "click>=8; extra == 'can'"]
    monkeypatch.setattr(_doctor, "requires", lambda name: wanted)
    code, output = doctor("mqtt", "coap", "--json")
    mqtt, coap = json.loads(output)["Extras"]
    assert (code, mqtt["detail"]) == (1, "nobody-has-this is missing")
    assert mqtt["install"].endswith("[mqtt]'")
    assert coap["detail"].startswith("click is ")
    assert coap["detail"].endswith(", not >=900")
    assert doctor("can")[0] == 0


def test_an_unknown_extra_is_refused() -> None:
    code, output = doctor("mqqt")
    assert code == 2
    assert "did you mean 'mqtt'?" in output
