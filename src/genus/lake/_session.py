"""A local Spark session for the command line, examples and demos; programs usually bring their own.

It starts without output: messages of Spark go to a log file, and a failure to start is one LakeError.
"""

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from genus.errors import LakeError
from genus.lake._exit import at_exit, temporary_folder
from genus.lake._java import use_java

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
"""The gateway has a level of its own; without one, Spark prints that it sets the level."""

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Writes the checkpoint of a stream by renaming, which halves the time of Spark's own logs on a local disk."""

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""Base classes of the exceptions that PySpark raises; `describe_spark_error` summarises them."""

_GIB = 1 << 30
_MAX_LENGTH = 400
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
    """Start a quiet Spark session on this machine; it is stopped when the process ends.

    If the process has a running session, that one is returned and the arguments are ignored.

    Args:
        master: Spark master URL.
        memory: Memory of the driver, such as `"4g"`; by default half of the machine's, from 1 to 8 GiB.
        conf: Further Spark settings; they take precedence over the settings made here.
        log: File for errors and warnings of Spark; by default they are discarded.

    Raises:
        LakeError: Java is missing or too old, or Spark does not start.
    """
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    use_java()
    if master.startswith("sc:"):
        raise LakeError(f"{master}: a local session cannot use Spark Connect; make a SparkSession in Python instead")
    folder = temporary_folder("genus-spark-")
    kept = Path(log) if log is not None else folder / "spark.log"
    settings = _configuration(master, memory, folder, dict(conf), "warn" if log is not None else "error")
    _set_environment(master)
    _silence_loggers()
    _exit_on_sigterm()
    try:
        session = _start(settings, kept)
    except SPARK_ERRORS as problem:
        raise LakeError(f"Spark did not start: {_start_problem(problem, kept)}") from problem
    at_exit(lambda: _stop(session))
    return session


# -- before it starts --------------------------------------------------------------------------------------------------


def _configuration(master: str, memory: str | None, folder: Path, given: Mapping[str, str], level: str) -> SparkConf:
    """Return the settings, given ones first; options for Java are a list, so both are kept."""
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(_LOGGING.format(level=level))
    options = "spark.driver.extraJavaOptions"
    chosen = {
        "spark.master": master,
        "spark.app.name": "genus lake",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.driver.memory": memory or _driver_memory(master),
    }
    if _is_local(master):
        chosen["spark.local.dir"] = str(folder / "local")
    chosen |= given
    chosen[options] = f"-Dlog4j2.configurationFile={logging_file.as_uri()} {given.get(options, '')}".rstrip()
    return SparkConf(loadDefaults=False).setAll(list(chosen.items()))


def _is_local(master: str) -> bool:
    return master.startswith("local")


def _driver_memory(master: str) -> str:
    """For a local master, half of the machine's memory or of the container's, from 1 to 8 GiB."""
    if not _is_local(master):
        return "2g"
    memory: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else ""
    memory = min(memory, int(text)) if text.isdigit() else memory
    return f"{max(1, min(8, memory // 2 // _GIB))}g"


def _set_environment(master: str) -> None:
    if _is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _silence_loggers() -> None:
    """Silence the loggers of py4j and pyspark, which print what they also raise, with stack traces."""
    for logger in (logging.getLogger("py4j"), logging.getLogger("pyspark")):
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger().addFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """py4j logs Ctrl-C and a lost JVM to the root logger before it raises them."""
    return "py4j" not in Path(record.pathname).parts


def _exit_on_sigterm() -> None:
    """Exit normally on SIGTERM, so that the session is stopped and the temporary folder removed."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


# -- starting and stopping ---------------------------------------------------------------------------------------------


def _start(conf: SparkConf, log: Path) -> SparkSession:
    """Start a session whose JVM writes its output to the log."""
    try:
        with log.open("ab") as output, _signals_delayed():
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
    except OSError as problem:
        raise LakeError(f"cannot write {log}: {problem.strerror or problem}") from problem
    SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.getOrCreate()


@contextmanager
def _signals_delayed() -> Iterator[None]:
    """Delay signals until the block ends: a JVM that is still being started would outlive the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    signals = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, lambda number, frame: received.append(number)) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


def _stop(session: SparkSession) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # stopping takes a while; Ctrl-C must not interrupt it
    with suppress(*SPARK_ERRORS, OSError):  # the JVM may have ended already
        session.stop()


# -- errors ------------------------------------------------------------------------------------------------------------


def _start_problem(problem: Exception, log: Path) -> str:
    """Why Spark did not start: if the JVM exited, the first line in its log and the exception below; or the exception.

    The first line alone may be "Error occurred during initialization of boot layer".
    """
    lines = log.read_text("utf-8", "replace").splitlines() if log.exists() else []
    told = [line for each in lines if (line := each.strip()) and not line.startswith(("WARNING", "Picked up"))]
    exited = "JAVA_GATEWAY_EXITED" in str(problem)
    if not told or not exited:
        return describe_spark_error(problem)
    more = [f": {_strip_java_name(line)}" for line in told[1:2] if _RAISED.match(line)]
    return "".join([_strip_java_name(told[0]), *more])[:_MAX_LENGTH]


def describe_spark_error(problem: Exception) -> str:
    """Describe an exception of PySpark in one line, without stack traces.

    If a Python task failed it is the message of the last exception in the traceback, otherwise the first line.

    Args:
        problem: One of `SPARK_ERRORS`.
    """
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    if "Traceback (most recent call last)" in str(problem) and raised:
        return raised[-1][:_MAX_LENGTH]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):  # of py4j, with the stack trace
        text, trace = lines[1], str(problem)
    elif lines:
        text, trace = lines[0], getattr(problem, "_stackTrace", None) or ""
    else:
        return type(problem).__name__
    text, causes = _strip_java_name(text).removesuffix(":"), _CAUSED.findall(trace)
    cause = causes[-1].strip() if causes else ""  # such as a full disk
    return text if cause in text else f"{text}: {cause}"[:_MAX_LENGTH]


def _strip_java_name(line: str) -> str:
    """Remove the name of a Java exception from the beginning of a line."""
    return _JAVA_NAME.sub("", line)[:_MAX_LENGTH]
