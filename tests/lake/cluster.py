"""A Spark cluster on this machine: master and workers are separate processes that are stopped at the end."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

HOME = Path(pyspark.__file__).parent
_PAUSE_S = 0.1


class Cluster:
    """The processes of a cluster, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = ""

    def start_master(self) -> None:
        """Start the master at a free port and read the port from its output."""
        self._start("master", "master.Master", "--port", "0")
        self.wait(lambda: "Starting Spark master at" in self.log("master"))
        (self.url,) = re.findall(r"Starting Spark master at (spark://\S+)", self.log("master"))

    def add_worker(self, name: str) -> None:
        """Start a worker with one core, and wait until the master knows it."""
        work = f"{self._folder}/{name}"
        self._start(name, "worker.Worker", "--port", "0", "-c", "1", "-m", "1g", "-d", work, self.url)
        self.wait(lambda: "Successfully registered with master" in self.log(name))

    def _start(self, name: str, what: str, *options: str) -> None:
        environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        command = [f"{HOME}/bin/spark-class", f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1"]
        with open(self._folder / f"{name}.log", "wb") as log:
            self._processes[name] = subprocess.Popen(
                [*command, "--webui-port", "0", *options],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._folder,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """The output of a process so far."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str) -> None:
        """Kill a process and its children with SIGKILL."""
        process = self._processes.pop(name)
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)  # it leads a group of its own, with its executors
        process.wait()

    def executors(self) -> list[int]:
        """The process ids of the executors that workers have started."""
        groups = {process.pid for process in self._processes.values()}
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_executor(pid, groups)]

    def wait(self, ready: Callable[[], object], seconds: float = 300) -> None:
        """Wait until a condition is true; fail with the output of the processes after a timeout."""
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until, "\n".join(self.log(name)[-2000:] for name in self._processes)
            time.sleep(_PAUSE_S)

    def stop(self) -> None:
        """Stop the remaining processes."""
        for name in list(self._processes):
            self.kill(name)


def _is_executor(pid: int, groups: set[int]) -> bool:
    with suppress(OSError):  # it may have ended
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"CoarseGrainedExecutorBackend" in command and os.getpgid(pid) in groups
    return False


@contextmanager
def started(folder: Path, *workers: str) -> Iterator[Cluster]:
    """A cluster with some workers, stopped at the end of the block."""
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.start_master()
        for name in workers:
            cluster.add_worker(name)
        yield cluster
    finally:
        cluster.stop()


def python_without_genus(folder: Path) -> str:
    """A Python with all packages of this one but Genus and msgspec."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in HOME.parent.iterdir():
        if package.suffix != ".pth" and not package.name.startswith(("genus", "msgspec")):
            (site / package.name).symlink_to(package)
    return str(folder / "bin" / "python")
