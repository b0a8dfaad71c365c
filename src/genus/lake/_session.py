"""A Spark session of this machine's own, for the command line and demos; programs bring theirs.

It starts quietly: what Spark and its Python workers say goes to a log, and what keeps it from starting is one line.
"""

import atexit
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from genus.errors import LakeError

JAVA = 17
INSTALL = "apt install openjdk-17-jre-headless, brew install openjdk@17 or conda install openjdk=17"
_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
"""
"""The gateway's level is that of the rest, or Spark would say that it sets a level."""

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a session raises."""

_GIB = 1 << 30
_LONGEST = 400
_JAVA_NAME = re.compile(r'^(?:Exception in thread "\w+" |: )?(?:Error: |[\w.$]+(?:Error|Exception): )?')
_CAUSED = re.compile(r"^Caused by: [\w.$]+(?:Error|Exception): (.+)", re.MULTILINE)
_RAISED = re.compile(r"^[\w.]*\w(?:Error|Exception|Damaged|Conflict|Interrupt): (.+)")


def local_session(
    master: str = "local[*]",
    *,
    memory: str | None = None,
    conf: Mapping[str, str] | Iterable[tuple[str, str]] = (),
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A session that is stopped, and its folder removed, when the process ends; LakeError says why it cannot start.

    What Spark says is kept in `log`, errors and warnings, or thrown away. `conf` goes before everything chosen here.
    """
    check_java()
    _check_master(master)
    folder = _folder()
    kept = Path(log) if log is not None else folder / "spark.log"
    chosen = _configuration(master, memory, folder, "warn" if log is not None else "error")
    given = SparkConf(loadDefaults=False).setAll(list(_merged(chosen, dict(conf)).items()))
    _environment(master)
    _silence_python()
    _end_well()
    try:
        session = _start(given, kept)
    except SPARK_ERRORS as problem:
        raise LakeError(f"Spark did not start: {_why_not(problem, kept)}") from problem
    atexit.register(_stop, session)
    return session


def late_session(start: Callable[[], SparkSession]) -> SparkSession:
    """A session that starts when anything is asked of it.

    What only looks at the ledger and the catalog of a lake in a folder of this machine then needs no Java at all.
    """
    return cast(SparkSession, _Late(start))


class _Late:
    def __init__(self, start: Callable[[], SparkSession]) -> None:
        self._start = start

    def __getattr__(self, name: str) -> Any:
        if name == "session":
            self.session = self._start()
            return self.session
        return getattr(self.session, name)


# -- before it starts --------------------------------------------------------------------------------------------------


def check_java() -> None:
    """Refuse to go on without a Java that Spark runs on."""
    java = _java()
    if java is None:
        raise LakeError(f"Spark needs Java {JAVA} or newer, and there is none: {INSTALL}; or set JAVA_HOME to one")
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError as problem:
        raise LakeError(f"{java} does not run: {problem.strerror or problem}; set JAVA_HOME to Java {JAVA}") from None
    found = java_version(asked.stderr + asked.stdout)
    if found is None or found < JAVA:
        what = f"is Java {found}" if found else "does not say which Java it is"
        raise LakeError(f"{java} {what}; Spark needs Java {JAVA} or newer: {INSTALL}; or set JAVA_HOME to one")


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else shutil.which("java")


def java_version(said: str) -> int | None:
    """The version in what `java -version` says; None if it says none.

    >>> java_version('openjdk version "17.0.15" 2025-04-15'), java_version('java version "1.8.0_442"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _check_master(master: str) -> None:
    if master.startswith("sc:"):
        raise LakeError(f"{master}: the command line runs sessions of its own; use Spark Connect from Python")


def _folder() -> Path:
    """A folder for all that Spark writes beside the lake, gone when the process ends."""
    try:
        kept = tempfile.TemporaryDirectory(prefix="genus-spark-", ignore_cleanup_errors=True)
    except OSError as problem:
        reason = problem.strerror or problem
        raise LakeError(f"there is no room for temporary files: {reason}; set TMPDIR to a folder") from problem
    atexit.register(kept.cleanup)
    return Path(kept.name)


def _configuration(master: str, memory: str | None, folder: Path, level: str) -> dict[str, str]:
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(_LOGGING.format(level=level))
    shared = {
        "spark.master": master,
        "spark.app.name": "genus lake",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging_file.as_uri()}",
        "spark.driver.memory": memory or _driver_memory(master),
    }
    return shared | ({"spark.local.dir": str(folder / "local")} if is_local(master) else {})


def _merged(chosen: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What was given, before what was chosen; options of Java are put together, as they are a list."""
    options = "spark.driver.extraJavaOptions"
    merged = {**chosen, **given}
    return merged | ({options: f"{chosen[options]} {given[options]}"} if options in given else {})


def is_local(master: str) -> bool:
    """Whether a master stands for this machine.

    >>> is_local("local[2]"), is_local("spark://big:7077")
    (True, False)
    """
    return master.startswith("local")


def _driver_memory(master: str) -> str:
    """Half of what the machine has, where it does all the work, from 1 to 8 GiB."""
    return f"{max(1, min(8, _machine_bytes() // 2 // _GIB))}g" if is_local(master) else "2g"


def _machine_bytes() -> int:
    has: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    allowed = Path("/sys/fs/cgroup/memory.max")  # of a container
    text = allowed.read_text().strip() if allowed.exists() else ""
    return min(has, int(text)) if text.isdigit() else has


def _environment(master: str) -> None:
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _silence_python() -> None:
    """What py4j and pyspark log is raised as well; on the terminal it would be said twice, with stack traces."""
    for logger in (logging.getLogger("py4j"), logging.getLogger("pyspark")):
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Of Ctrl-C and of a Java that is gone it tells the root logger, and then raises it."""
    return "py4j" not in Path(record.pathname).parts


def _end_well() -> None:
    """Let a process that is told to end stop its session and remove its folder first."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


# -- starting and stopping ---------------------------------------------------------------------------------------------


def _start(conf: SparkConf, log: Path) -> SparkSession:
    """Java's own output goes to the log too: it warns, and at the end of a job that was cancelled it complains."""
    try:
        with log.open("ab") as said, _undisturbed():
            gateway = launch_gateway(conf, {"stdout": said, "stderr": said})  # type: ignore[no-untyped-call]
    except OSError as problem:
        raise LakeError(f"cannot write {log}: {problem.strerror or problem}") from problem
    SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Signals wait until the block has ended: a Java that pyspark has not finished starting would outlive it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told: list[int] = []
    signals = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, lambda number, frame: told.append(number)) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if told:
        signal.raise_signal(told[0])


def _stop(session: SparkSession) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ending takes a second, and is under way already
    with suppress(*SPARK_ERRORS, OSError):  # Java may be gone already: then there is nothing to stop
        session.stop()


# -- what went wrong ---------------------------------------------------------------------------------------------------


def _why_not(problem: Exception, log: Path) -> str:
    """What Java said first before it went, where Python knows only that it is gone."""
    said = [line for line in _lines(log) if not line.startswith(("WARNING", "Picked up"))]
    return _plain(said[0]) if said and "JAVA_GATEWAY_EXITED" in str(problem) else spark_problem(problem)


def _lines(log: Path) -> list[str]:
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    return [line.strip() for line in lines if line.strip()]


def spark_problem(problem: Exception) -> str:
    """What Spark raised, in one line: of what a task raised the last, which names it, else the first."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    if "Traceback (most recent call last)" in str(problem) and raised:
        return raised[-1][:_LONGEST]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        return _plain(lines[1])
    return _with_cause(problem, _plain(lines[0])) if lines else type(problem).__name__


def _with_cause(problem: Exception, said: str) -> str:
    """What was said, with the last cause that Java names, such as a disk that is full."""
    causes = _CAUSED.findall(getattr(problem, "_stackTrace", None) or "")
    return f"{said}: {causes[-1].strip()}"[:_LONGEST] if causes and causes[-1].strip() not in said else said


def _plain(line: str) -> str:
    """A line without the names of Java's classes before it."""
    return _JAVA_NAME.sub("", line)[:_LONGEST]
